"""What an engine without send queues says in their place."""

from amaranth.hdl import Value
from streams import make_rng, receive_all, send_all, simulate
from verbena.hdl.abi.commands import QpAction
from verbena.hdl.transport.receive.layouts import Work
from verbena.hdl.transport.respond_only import RespondOnly

TOKENS = ("requester", "response", "completer", "sq_fetch")
DONE = {"requester": "requester_done", "response": "response_receiver_done"}


def test_whatever_comes_vanishes():
    """Doorbells, pushed words, answers of the bus, failures and what has departed are taken in their cycle."""
    rng = make_rng()
    dut = RespondOnly(64)
    ports = (dut.doorbell, dut.push, dut.done, dut.failed, dut.departed)

    async def testbench(ctx):
        for _ in range(50):
            for port in ports:
                ctx.set(port.valid, rng.randrange(2))
            await ctx.tick()
            assert all(ctx.get(port.ready) for port in ports)

    simulate(dut, testbench, seed=rng.seed_value)


def test_tokens():
    """Each is taken at once; RESET comes out of requester and response receiver afterwards, and QUERY has two
    answers."""
    rng = make_rng()
    dut = RespondOnly(64)
    actions = [rng.choice(list(QpAction)) for _ in range(60)]
    counts = {"requester_done": 0, "response_receiver_done": 0}
    replies = {"requester_reply": [], "completer_reply": []}

    async def testbench(ctx):
        for action in actions:
            asked = action == QpAction.QUERY
            for name in TOKENS:
                if name == "response" and action != QpAction.RESET:
                    continue
                port = getattr(dut, name)
                token = {"qp": rng.randrange(4), "action": action, "psn": rng.getrandbits(24)}
                ctx.set(port.payload, {"work": Work.CONTROL, "qp": 1} if name == "response" else token)
                ctx.set(port.valid, 1)
                assert ctx.get(port.ready)
                assert not ctx.get(dut.access.valid)
                await ctx.tick()
                ctx.set(port.valid, 0)
                if name in DONE:
                    done = getattr(dut, DONE[name])
                    assert ctx.get(done) == (action == QpAction.RESET)
                    counts[DONE[name]] += ctx.get(done)
                    await ctx.tick()
                    assert not ctx.get(done)
            for name, taken in replies.items():
                port = getattr(dut, name)
                for _ in range(rng.randrange(4)):
                    assert ctx.get(port.valid) == asked
                    await ctx.tick()
                if asked:
                    assert ctx.get(Value.cast(port.payload)) == 0
                    ctx.set(port.ready, 1)
                    await ctx.tick()
                    ctx.set(port.ready, 0)
                    taken.append(action)
                assert not ctx.get(port.valid)

    simulate(dut, testbench, seed=rng.seed_value)
    assert set(counts.values()) == {actions.count(QpAction.RESET)}
    assert [len(taken) for taken in replies.values()] == 2 * [actions.count(QpAction.QUERY)]


def test_responses_are_discarded():
    """A run of one access a response, in order, with its length, and nothing else of it; each is counted."""
    rng = make_rng()
    dut = RespondOnly(64)
    responses = [{"transport": {"length": rng.randrange(4097)}, "qp": rng.randrange(4)} for _ in range(40)]
    runs, counted = [], []

    async def count(ctx):
        async for *_, strobe in ctx.tick().sample(dut.count_drop_response):
            counted.append(strobe)

    async def sender(ctx):
        await send_all(ctx, dut.response, responses, rng, 0.3)

    async def receiver(ctx):
        runs.extend(await receive_all(ctx, dut.access, len(responses), rng, 0.3))

    simulate(dut, sender, receiver, background=[count], seed=rng.seed_value)
    for response, access in zip(responses, runs, strict=True):
        assert (access.length, access.qp) == (response["transport"]["length"], response["qp"])
        assert (access.discard, access.tag, access.last, access["clear"]) == (1, 1, 1, 0)
    assert sum(counted) == len(responses)


def test_responses_depart():
    """What the READ/atomic responder sends passes in its cycle; nothing else departs, completes or is read, and no
    timer runs."""
    rng = make_rng()
    dut = RespondOnly(64)

    async def testbench(ctx):
        for _ in range(100):
            for name in ("access", "packet"):
                source, sink = getattr(dut.read_atomic_responder, name), getattr(dut.o, name)
                valid, ready, payload = (
                    rng.randrange(2),
                    rng.randrange(2),
                    rng.getrandbits(len(Value.cast(sink.payload))),
                )
                ctx.set(source.valid, valid)
                ctx.set(Value.cast(source.payload), payload)
                ctx.set(sink.ready, ready)
                assert (ctx.get(sink.valid), ctx.get(source.ready)) == (valid, ready)
                assert ctx.get(Value.cast(sink.payload)) == payload
            await ctx.tick()
            for port in (dut.completion, dut.inline, dut.completer_error):
                assert not ctx.get(port.valid)
            assert ctx.get(dut.next_due) == (1 << 32) - 1

    simulate(dut, testbench, seed=rng.seed_value)
