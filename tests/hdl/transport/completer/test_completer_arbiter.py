"""Which event comes first, and which go by."""

from streams import make_rng, plain, simulate
from verbena.hdl.abi.commands import QpAction
from verbena.hdl.transport.common.layouts import ResponseJobKind as Kind
from verbena.hdl.transport.completer.completer_arbiter import CompleterArbiter, EventKind

PORTS = ("control", "failed_requester", "failed_transmitter", "flush", "fired", "departed", "job", "done")


async def offered(ctx, dut):
    """In the cycle after it was chosen."""
    while not ctx.get(dut.o.valid):
        await ctx.tick()
    return plain(ctx.get(dut.o.payload))


def test_order():
    """With everything there, the order is fixed; an event's fields are its port's, and stay until it is taken."""
    dut = CompleterArbiter(8)
    seen = []

    async def testbench(ctx):
        ctx.set(dut.control.payload, {"qp": 1, "action": QpAction.RESET})
        ctx.set(dut.failed_requester.payload, {"qp": 2, "wqe_index": 12, "status": 22, "syndrome": 32})
        ctx.set(dut.failed_transmitter.payload, {"qp": 3, "wqe_index": 13, "status": 23, "syndrome": 33})
        ctx.set(dut.flush.payload, {"qp": 4, "index": 14, "drain": 1})
        ctx.set(dut.fired.payload, {"qp": 5, "generation": 15})
        ctx.set(dut.departed.payload, {"qp": 7, "psn": 0xABCDEF})
        job = {"qp": 6, "kind": Kind.FAILED, "wqe_index": 16, "status": 26, "syndrome": 36, "psn": 46, "msn": 0x345678}
        ctx.set(dut.done.payload.status, 6)
        ctx.set(dut.job.payload, job)
        for name in PORTS:
            ctx.set(getattr(dut, name).valid, 1)
        for _ in range(7):
            event = await offered(ctx, dut)
            for _ in range(2):
                assert not any(ctx.get(getattr(dut, name).ready) for name in PORTS)
                await ctx.tick()
                assert plain(ctx.get(dut.o.payload)) == event
            ctx.set(dut.o.ready, 1)
            taken = [name for name in PORTS if ctx.get(getattr(dut, name).ready)]
            await ctx.tick()
            ctx.set(dut.o.ready, 0)
            for name in taken:
                ctx.set(getattr(dut, name).valid, 0)
            seen.append((taken, event["slot"], event["item"]))
        await ctx.tick().repeat(3)
        assert not ctx.get(dut.o.valid)

    simulate(dut, testbench)
    assert [taken for taken, *_ in seen] == [[]] + [[name] for name in PORTS[1:6]] + [["job", "done"]]
    assert [qp for _, qp, *_ in seen] == [1, 2, 3, 4, 5, 7, 6]
    kinds = [EventKind.CONTROL, EventKind.FAILURE, EventKind.FAILURE, EventKind.FLUSH, EventKind.FIRED]
    assert [EventKind(item["kind"]) for _, _, item in seen] == [*kinds, EventKind.RESPONSE, EventKind.RESPONSE]
    for number, place in (1, 1), (2, 2), (5, 6):
        item = seen[place][2]
        assert (item["index"], item["status"], item["syndrome"]) == (11 + number, 21 + number, 31 + number)
    assert (Kind(seen[5][2]["job"]), seen[5][2]["psn"]) == (Kind.DEPARTED, 0xABCDEF)
    job, refused = seen[6][2], seen[6][2]["refusal"]
    assert (Kind(job["job"]), job["psn"], job["msn"], refused) == (Kind.FAILED, 46, 0x5678, 6)
    flush, fired = seen[3][2], seen[4][2]
    assert (flush["index"], flush["drain"], fired["generation"]) == (14, 1, 15)


def test_responses():
    """Job and Done go together, in order; NOTHING and PASSED go by, of which only the former counts, and a TOKEN is an
    event."""
    rng = make_rng()
    dut = CompleterArbiter(8)
    kinds = [rng.choice([Kind.NOTHING, Kind.PASSED, Kind.TOKEN, Kind.ACK, Kind.DATA]) for _ in range(200)]
    events, discards = [], []

    async def testbench(ctx):
        jobs = 0
        while jobs < len(kinds):
            if not ctx.get(dut.job.valid) and rng.random() < 0.6:
                ctx.set(dut.job.payload, {"qp": 3, "kind": kinds[jobs], "psn": jobs})
                ctx.set(dut.job.valid, 1)
            if not ctx.get(dut.done.valid) and rng.random() < 0.6:
                ctx.set(dut.done.valid, 1)
            ctx.set(dut.o.ready, rng.random() < 0.3)
            ctx.set(dut.dropped, rng.random() < 0.3)
            ready = ctx.get(dut.job.ready)
            assert ready == ctx.get(dut.done.ready)
            assert not ready or (ctx.get(dut.job.valid) and ctx.get(dut.done.valid))
            if ctx.get(dut.o.valid) and ctx.get(dut.o.ready):
                events.append((jobs, EventKind(ctx.get(dut.o.payload).item.kind)))
                assert ready
            if ctx.get(dut.discarded):
                discards.append(jobs)
                assert ready
                assert not ctx.get(dut.dropped)
            await ctx.tick()
            if ready:
                ctx.set(dut.job.valid, 0)
                ctx.set(dut.done.valid, 0)
                jobs += 1

    simulate(dut, testbench, seed=rng.seed_value)
    kind = {Kind.TOKEN: EventKind.TOKEN, Kind.ACK: EventKind.RESPONSE, Kind.DATA: EventKind.RESPONSE}
    assert events == [(k, kind[what]) for k, what in enumerate(kinds) if what in kind]
    assert discards == [k for k, kind in enumerate(kinds) if kind == Kind.NOTHING]


def test_departed():
    """Each is an event, once, in order, whatever else comes: it takes no job with it."""
    rng = make_rng()
    dut = CompleterArbiter(8)
    items = {"departed": [(rng.randrange(8), rng.getrandbits(24)) for _ in range(60)]}
    items["job"] = [(rng.randrange(8), rng.getrandbits(24)) for _ in range(60)]
    events = {Kind.DEPARTED: [], Kind.ACK: []}
    put = dict.fromkeys(items, 0)  # so many are taken

    async def testbench(ctx):
        while any(put[name] < len(items[name]) for name in items):
            for name in items:
                port = getattr(dut, name)
                if put[name] < len(items[name]) and not ctx.get(port.valid) and rng.random() < 0.5:
                    qp, psn = items[name][put[name]]
                    ctx.set(port.payload, {"qp": qp, "psn": psn} | ({"kind": Kind.ACK} if name == "job" else {}))
                    ctx.set(port.valid, 1)
                    if name == "job":
                        ctx.set(dut.done.valid, 1)
            ctx.set(dut.o.ready, rng.random() < 0.4)
            event = ctx.get(dut.o.payload)
            taken = {name for name in ("departed", "job", "done") if ctx.get(getattr(dut, name).ready)}
            kind = None
            if ctx.get(dut.o.valid) and ctx.get(dut.o.ready):
                kind = Kind(event.item.job)
                assert EventKind(event.item.kind) == EventKind.RESPONSE
                events[kind].append((event.slot, event.item.psn))
            assert taken == {None: set(), Kind.DEPARTED: {"departed"}, Kind.ACK: {"job", "done"}}[kind]
            await ctx.tick()
            for name in taken:
                ctx.set(getattr(dut, name).valid, 0)
                if name in put:
                    put[name] += 1

    simulate(dut, testbench, seed=rng.seed_value)
    assert events == {Kind.DEPARTED: items["departed"], Kind.ACK: items["job"]}


def test_query_waits_alone():
    dut = CompleterArbiter(8)

    async def testbench(ctx):
        ctx.set(dut.o.ready, 1)
        ctx.set(dut.replying, 1)
        ctx.set(dut.control.payload, {"qp": 1, "action": QpAction.QUERY})
        ctx.set(dut.control.valid, 1)
        await ctx.tick().repeat(3)
        assert not ctx.get(dut.o.valid)
        ctx.set(dut.fired.payload, {"qp": 2})
        ctx.set(dut.fired.valid, 1)
        assert (await offered(ctx, dut))["slot"] == 2
        await ctx.tick()
        ctx.set(dut.fired.valid, 0)
        ctx.set(dut.replying, 0)
        assert (await offered(ctx, dut))["slot"] == 1

    simulate(dut, testbench)


def test_a_token_is_seen_once():
    """It is not offered again while it is dealt with, nor in the cycle after it was taken."""
    dut = CompleterArbiter(8)

    async def testbench(ctx):
        ctx.set(dut.control.payload, {"qp": 1, "action": QpAction.RESUME})
        ctx.set(dut.control.valid, 1)
        ctx.set(dut.o.ready, 1)
        await offered(ctx, dut)
        await ctx.tick()
        for _ in range(5):
            assert not ctx.get(dut.o.valid)
            await ctx.tick()
        ctx.set(dut.control_taken, 1)
        assert ctx.get(dut.control.ready)
        await ctx.tick()
        ctx.set(dut.control.valid, 0)
        ctx.set(dut.control_taken, 0)
        for _ in range(4):
            assert not ctx.get(dut.o.valid)
            await ctx.tick()
        ctx.set(dut.control.valid, 1)
        assert (await offered(ctx, dut))["slot"] == 1

    simulate(dut, testbench)
