"""One change of an entry after the other, each step in its order, and what is told of it."""

import pytest
from memory_model import MPT_BASE
from streams import make_rng, receive_all, send_all, simulate
from verbena.hdl.abi.tables import MPT, AccessStatus, KeyKind
from verbena.hdl.memory.entry_writer import EntryWriter

INDEX = 0x123
OK, KEY, BUS = AccessStatus.OK, AccessStatus.KEY, AccessStatus.BUS


def outcome(rng, *, valid, was_valid, status=OK, of_peer=0, kind=KeyKind.WINDOW):
    entry = MPT.unpack(rng.randbytes(MPT.size)) | {"valid": valid, "kind": kind}
    entry.pop("_", None)
    return {"status": status, "of_peer": of_peer, "index": INDEX, "entry": entry, "was_valid": was_valid}


class Log:
    """What the block does, in its order; the memory answers after ``latency`` cycles, and a write fails that ``bad``
    names by its number."""

    def __init__(self, dut, rng, latency=3, bad=()):
        self.dut, self.rng, self.latency, self.bad = dut, rng, latency, bad
        self.events, self.asked, self.writes = [], 0, []

    async def strobes(self, ctx):
        dut = self.dut
        async for *_, drop, put, changes, entry in ctx.tick().sample(
            dut.drop, dut.put, dut.invalidate.valid & dut.invalidate.ready, dut.invalidate.payload
        ):
            self.events += ["drop"] * (drop and "drop" not in self.events) + ["put"] * put
            if changes:
                assert entry.index == INDEX
                self.events.append(f"change to {entry.entry.valid} unseen {entry.unseen}")

    async def write(self, ctx):
        dut, lane = self.dut, self.dut.data_width // 8
        while True:
            (request,) = await receive_all(ctx, dut.write, 1, self.rng)
            data, last = b"", False
            while not last:
                (beat,) = await receive_all(ctx, dut.data, 1, self.rng)
                data += beat.data.to_bytes(lane, "little")[: beat.count]
                last = beat.last
            assert len(data) == request.length
            assert ctx.get(dut.hold)
            place = request.address - MPT_BASE - MPT.size * INDEX
            self.writes.append((place, data))
            self.events.append(f"write {place} {data[7] >> 7}" if place == 0 else f"write {place}")

    async def answers(self, ctx):
        while True:
            await ctx.tick()
            if self.asked < len(self.writes):
                await ctx.tick().repeat(self.latency)
                status = BUS if self.asked in self.bad else OK
                self.asked += 1
                self.events.append("answer")
                await send_all(ctx, self.dut.done, [{"status": status}])


FRESH = ["drop", "write 8", "write 0 1", "answer", "answer", "put"]
CASES = {
    "valid": ({"valid": 1, "was_valid": 0}, (), FRESH, "change to 1 unseen 1"),
    "invalid": ({"valid": 0, "was_valid": 1}, (), ["drop", "write 0 0", "answer", "put"], "change to 0 unseen 0"),
    "fast": (
        {"valid": 0, "was_valid": 1, "kind": KeyKind.FAST_REGION},
        (),
        ["drop", "write 0 0", "answer"],
        "change to 0 unseen 0",
    ),
    "replaced": (
        {"valid": 1, "was_valid": 1},
        (),
        ["drop", "write 0 0", "answer", *FRESH[1:]],
        "change to 1 unseen 0",
    ),
    "failed": (
        {"valid": 1, "was_valid": 0},
        (1,),
        ["drop", "write 8", "write 0 1", "answer", "answer", "write 0 0", "answer"],
        "change to 1 unseen 1",
    ),
}


@pytest.mark.parametrize("data_width", [64, 128, 256, 512])
@pytest.mark.parametrize("case", CASES)
def test_steps(case, data_width):
    arguments, bad, steps, change = CASES[case]
    rng = make_rng()
    dut = EntryWriter(data_width)
    log = Log(dut, rng, bad=bad)
    asked = outcome(rng, **arguments)

    async def bench(ctx):
        ctx.set(dut.mpt_base, MPT_BASE)
        ctx.set(dut.invalidate.ready, 1)
        await ctx.tick().repeat(2)
        await send_all(ctx, dut.i, [asked], rng)
        (got,) = await receive_all(ctx, dut.sent, 1, rng)
        assert got.status == (BUS if bad else OK)
        assert not ctx.get(dut.hold)

    simulate(dut, bench, background=[log.strobes, log.write, log.answers], seed=rng.seed_value)
    # A change that is taken back is told once more.
    assert [step for step in log.events if step.startswith("change")] == [change, "change to 0 unseen 0"][
        : 1 + len(bad)
    ]
    # Answers of writes that follow each other may come between these.
    words = [step for step in log.events if not step.startswith(("change", "answer"))]
    assert words == [step for step in steps if step != "answer"]
    assert log.events.count("answer") == steps.count("answer")
    if not bad:
        memory = bytearray(MPT.size)
        for place, content in log.writes:
            memory[place : place + len(content)] = content
        if arguments["valid"]:
            assert bytes(memory) == MPT.pack(**asked["entry"])


@pytest.mark.parametrize("of_peer", [0, 1])
@pytest.mark.parametrize(("status", "was_valid", "valid"), [(KEY, 1, 1), (KEY, 0, 1), (OK, 0, 0)])
def test_nothing_is_changed(status, was_valid, valid, of_peer):
    """What is refused, and what was not valid and is not to be, has its result a cycle later, for the client that
    asked; others wait until it is taken."""
    rng = make_rng()
    dut = EntryWriter(64)
    log = Log(dut, rng)
    asked = outcome(rng, valid=valid, was_valid=was_valid, status=status, of_peer=of_peer)
    port, other = (dut.received, dut.sent) if of_peer else (dut.sent, dut.received)

    async def bench(ctx):
        ctx.set(other.ready, 1)
        for _ in range(3):
            ctx.set(dut.i.payload, asked)
            ctx.set(dut.i.valid, 1)
            assert ctx.get(dut.i.ready)
            assert not ctx.get(dut.busy)
            await ctx.tick()
            for _ in range(rng.randrange(5)):
                assert ctx.get(dut.busy)
                assert ctx.get(dut.index) == INDEX
                assert ctx.get(port.valid)
                assert not ctx.get(other.valid)
                assert not ctx.get(dut.i.ready)
                await ctx.tick()
            assert ctx.get(port.payload.status) == status
            ctx.set(port.ready, 1)
            await ctx.tick()
            ctx.set(port.ready, 0)

    simulate(dut, bench, background=[log.strobes, log.write], seed=rng.seed_value)
    assert not log.events


@pytest.mark.parametrize("latency", [1, 40])
def test_others_are_read_while_an_access_goes_by_the_old_entry(latency):
    """``hold`` falls when the writes are answered; the new words of a window that is bound anew, and the result, come
    when the access check has no access left that has seen the old entry."""
    rng = make_rng()
    dut = EntryWriter(64)
    log = Log(dut, rng, latency)

    async def bench(ctx):
        ctx.set(dut.mpt_base, MPT_BASE)
        for valid in (0, 1):
            before = len(log.writes)
            await send_all(ctx, dut.i, [outcome(rng, valid=valid, was_valid=1)], rng)
            await ctx.tick().repeat(100)
            assert ctx.get(dut.invalidate.valid)
            assert not ctx.get(dut.hold)
            assert not ctx.get(dut.sent.valid)
            assert [place for place, _ in log.writes[before:]] == [0]
            ctx.set(dut.invalidate.ready, 1)
            await ctx.tick()
            ctx.set(dut.invalidate.ready, 0)
            (got,) = await receive_all(ctx, dut.sent, 1, rng)
            assert got.status == OK
            assert [place for place, _ in log.writes[before:]] == [0, 8, 0][: 1 + 2 * valid]

    simulate(dut, bench, background=[log.strobes, log.write, log.answers], seed=rng.seed_value)


def test_cycles():
    """With a memory that answers at once, and nobody else on the bus."""
    rng = make_rng()
    dut = EntryWriter(64)

    async def bus(ctx):
        for port in (dut.write, dut.data, dut.invalidate, dut.sent):
            ctx.set(port.ready, 1)
        async for _, _, written in ctx.tick().sample(dut.data.valid & dut.data.payload.last):
            ctx.set(dut.done.valid, written)

    async def bench(ctx):
        await ctx.tick()
        for valid, was_valid, cycles in ((1, 0, 9), (0, 1, 5), (0, 0, 1)):
            await send_all(ctx, dut.i, [outcome(rng, valid=valid, was_valid=was_valid)])
            took = 1
            while not ctx.get(dut.sent.valid):
                await ctx.tick()
                took += 1
            assert took == cycles
            await ctx.tick()
            assert ctx.get(dut.i.ready)

    simulate(dut, bench, background=[bus], seed=rng.seed_value)
