"""Which event comes first, and which go by."""

from streams import make_rng, plain, simulate
from verbena.hdl.abi.commands import QpAction
from verbena.hdl.transport.common.layouts import ResponseJobKind as Kind
from verbena.hdl.transport.completer.completer_arbiter import CompleterArbiter, EventKind

PORTS = ("control", "failed_requester", "failed_transmitter", "flush", "fired", "job", "done")


def test_order():
    """With everything there, the order is fixed; an event's fields are its port's."""
    dut = CompleterArbiter()
    seen = []

    async def testbench(ctx):
        ctx.set(dut.control.payload, {"qp": 1, "action": QpAction.RESET})
        ctx.set(dut.failed_requester.payload, {"qp": 2, "wqe_index": 12, "status": 22, "syndrome": 32})
        ctx.set(dut.failed_transmitter.payload, {"qp": 3, "wqe_index": 13, "status": 23, "syndrome": 33})
        ctx.set(dut.flush.payload, {"qp": 4, "index": 14, "drain": 1})
        ctx.set(dut.fired.payload, {"qp": 5, "generation": 15})
        job = {"qp": 6, "kind": Kind.FAILED, "wqe_index": 16, "status": 26, "syndrome": 36}
        ctx.set(dut.job.payload, job)
        for name in PORTS:
            ctx.set(getattr(dut, name).valid, 1)
        await ctx.tick()
        for number in range(6):
            ctx.set(dut.idle, 1)
            assert ctx.get(dut.begin)
            taken = [name for name in PORTS if ctx.get(getattr(dut, name).ready)]
            now = plain(ctx.get(dut.next))
            await ctx.tick()
            ctx.set(dut.idle, 0)
            for name in taken:
                ctx.set(getattr(dut, name).valid, 0)
            assert plain(ctx.get(dut.event)) == now
            assert not any(ctx.get(getattr(dut, name).ready) for name in PORTS)
            seen.append((taken, now))
            if number == 0:
                assert taken == []  # a token stays
                ctx.set(dut.control_taken, 1)
                assert ctx.get(dut.control.ready)
                await ctx.tick()
                ctx.set(dut.control.valid, 0)
                ctx.set(dut.control_taken, 0)
            await ctx.tick()
        assert not ctx.get(dut.begin)

    simulate(dut, testbench)
    assert [taken for taken, _ in seen[1:]] == [[name] for name in PORTS[1:5]] + [["job", "done"]]
    assert [event["qp"] for _, event in seen] == [1, 2, 3, 4, 5, 6]
    kinds = [EventKind.CONTROL, EventKind.FAILURE, EventKind.FAILURE, EventKind.FLUSH, EventKind.FIRED]
    assert [EventKind(event["kind"]) for _, event in seen] == [*kinds, EventKind.RESPONSE]
    for number in (1, 2, 5):
        event = seen[number][1]
        assert (event["index"], event["status"], event["syndrome"]) == (11 + number, 21 + number, 31 + number)
    assert (seen[3][1]["index"], seen[3][1]["drain"], seen[4][1]["generation"]) == (14, 1, 15)


def test_responses():
    """Job and Done go together; NOTHING and TOKEN go by, one a cycle, and in order with the others."""
    rng = make_rng()
    dut = CompleterArbiter()
    kinds = [rng.choice([Kind.NOTHING, Kind.TOKEN, Kind.ACK, Kind.DATA]) for _ in range(200)]
    events, tokens, discards = [], [], []

    async def testbench(ctx):
        jobs, busy = 0, 0
        while jobs < len(kinds):
            if not ctx.get(dut.job.valid) and rng.random() < 0.6:
                ctx.set(dut.job.payload, {"qp": 3, "kind": kinds[jobs], "psn": jobs})
                ctx.set(dut.job.valid, 1)
            if not ctx.get(dut.done.valid) and rng.random() < 0.6:
                ctx.set(dut.done.valid, 1)
            ctx.set(dut.idle, busy == 0)
            ready = ctx.get(dut.job.ready)
            assert ready == ctx.get(dut.done.ready)
            assert not ready or (ctx.get(dut.job.valid) and ctx.get(dut.done.valid) and not busy)
            if ctx.get(dut.begin):
                events.append(jobs)
                busy = rng.randrange(1, 5)
            else:
                busy = max(0, busy - 1)
            if ctx.get(dut.discarded):
                discards.append(jobs)
            await ctx.tick()
            if ready:
                ctx.set(dut.job.valid, 0)
                ctx.set(dut.done.valid, 0)
                jobs += 1
            if ctx.get(dut.token_done):
                tokens.append(jobs - 1)

    simulate(dut, testbench, seed=rng.seed_value)
    assert events == [k for k, kind in enumerate(kinds) if kind in (Kind.ACK, Kind.DATA)]
    assert tokens == [k for k, kind in enumerate(kinds) if kind == Kind.TOKEN]
    assert discards == [k for k, kind in enumerate(kinds) if kind == Kind.NOTHING]


def test_query_waits_alone():
    dut = CompleterArbiter()

    async def testbench(ctx):
        ctx.set(dut.idle, 1)
        ctx.set(dut.replying, 1)
        ctx.set(dut.control.payload, {"qp": 1, "action": QpAction.QUERY})
        ctx.set(dut.control.valid, 1)
        assert not ctx.get(dut.begin)
        ctx.set(dut.fired.payload, {"qp": 2})
        ctx.set(dut.fired.valid, 1)
        await ctx.tick()
        assert ctx.get(dut.begin)
        assert ctx.get(dut.next).qp == 2
        await ctx.tick()
        ctx.set(dut.fired.valid, 0)
        ctx.set(dut.replying, 0)
        await ctx.tick()
        assert ctx.get(dut.next).qp == 1


def test_a_token_is_seen_once():
    """It is not taken up again in the cycle after it was taken."""
    dut = CompleterArbiter()

    async def testbench(ctx):
        ctx.set(dut.control.payload, {"qp": 1, "action": QpAction.RESUME})
        ctx.set(dut.control.valid, 1)
        ctx.set(dut.idle, 1)
        await ctx.tick()
        assert ctx.get(dut.begin)
        await ctx.tick()
        ctx.set(dut.idle, 0)
        await ctx.tick().repeat(2)
        ctx.set(dut.control_taken, 1)
        await ctx.tick()
        ctx.set(dut.control.valid, 0)
        ctx.set(dut.control_taken, 0)
        ctx.set(dut.idle, 1)
        for _ in range(4):
            assert not ctx.get(dut.begin)
            await ctx.tick()

    simulate(dut, testbench)
