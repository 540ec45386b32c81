"""The directory against a dictionary: who has which slot, who is pinned, what is dirty."""

import pytest
from streams import make_rng, simulate
from verbena.hdl.context.directory import Directory

LINES = 2


class Model:
    def __init__(self, dut):
        self.owner = {}  # slot -> QPN
        self.pins = dict.fromkeys(range(dut.slots), 0)
        self.dirty = dict.fromkeys(range(dut.slots), 0)
        self.sets = dut.slots // 4

    def give(self, job):
        """A job was taken: checks it."""
        slot = job.slot
        if job.fetch:
            assert not self.pins[slot]
            assert slot % self.sets == job.qpn % self.sets
            assert job.qpn not in self.owner.values()
        elif self.owner.get(slot) != job.qpn:
            assert job.qpn not in self.owner.values()
            assert job.dirty == 0
            return
        else:
            assert not self.pins[slot]
        if slot in self.owner:
            assert job.old == self.owner.pop(slot)
            assert job.dirty == self.dirty[slot]
        else:
            assert job.dirty == 0
        self.dirty[slot] = 0
        if job.fetch:
            self.owner[slot] = job.qpn


@pytest.mark.parametrize(("slots", "qpns"), [(4, 9), (8, 24), (64, 300)])
def test_random(slots, qpns):
    rng = make_rng()
    dut = Directory(slots, LINES, qpn_bits=10, pins=8)
    model = Model(dut)
    numbers = rng.sample(range(1024), qpns)
    hits = misses = closes = 0

    async def testbench(ctx):
        nonlocal hits, misses, closes
        asked, closing, marks, rested = None, None, 0, False
        for cycle in range(3000):
            if asked is None and rng.random() < 0.8:
                asked = rng.choice(numbers[:4] if rng.random() < 0.4 else numbers)
            ctx.set(dut.lookup.valid, asked is not None)
            ctx.set(dut.lookup.payload, asked or 0)
            if closing is None and rested and rng.random() < 0.02:
                closing = rng.choice(numbers[:4])
            rested = closing is None  # `close` falls in between
            ctx.set(dut.close, closing is not None)
            ctx.set(dut.close_qpn, closing or 0)
            pinned = [slot for slot, pins in model.pins.items() if pins]
            leaves = rng.choice(pinned) if pinned and rng.random() < (0.6 if cycle >> 8 & 1 else 0.2) else None
            ctx.set(dut.unpin, leaves or 0)
            ctx.set(dut.unpin_en, leaves is not None)
            writes = rng.choice(pinned) if pinned and rng.random() < 0.3 else None
            lines = rng.randrange(1, 1 << LINES) if writes is not None else 0
            ctx.set(dut.dirty_slot, writes or 0)
            ctx.set(dut.dirty, lines)
            ctx.set(dut.job.ready, rng.random() < 0.7)
            saved = marks > 0 and rng.random() < 0.1
            ctx.set(dut.saved, saved)
            _, _, taken, slot, missed, valid, ready, job, closed = await ctx.tick().sample(
                dut.lookup.ready, dut.slot, dut.missed, dut.job.valid, dut.job.ready, dut.job.payload, dut.closed
            )
            marks -= saved
            if valid and ready:
                model.give(job)
                marks += not job.fetch
                misses += job.fetch
            if asked is not None and taken:
                assert asked != closing or not closed
                assert model.owner[slot] == asked
                assert missed == (valid and ready)
                model.pins[slot] += 1
                assert model.pins[slot] < 8
                hits += not missed
                asked = None
            if leaves is not None:
                model.pins[leaves] -= 1
            if writes is not None:
                model.dirty[writes] |= lines
            if closing is not None and closed:
                assert closing not in model.owner.values()
                closing = None
                closes += 1

    simulate(dut, testbench, seed=rng.seed_value)
    assert misses > 100
    assert hits > 50
    assert closes > 3


def run(dut, script):
    async def testbench(ctx):
        await ctx.tick().repeat(dut.slots)
        await script(ctx)

    simulate(dut, testbench)


async def look(ctx, dut, qpn):
    """(slot, missed, cycles)"""
    ctx.set(dut.lookup.payload, qpn)
    ctx.set(dut.lookup.valid, 1)
    ctx.set(dut.job.ready, 1)
    cycles, taken = 0, 0
    while not taken:
        _, _, taken, slot, missed = await ctx.tick().sample(dut.lookup.ready, dut.slot, dut.missed)
        cycles += 1
        if cycles > 40:
            return None
    ctx.set(dut.lookup.valid, 0)
    return slot, missed, cycles


async def unpin(ctx, dut, slot):
    ctx.set(dut.unpin, slot)
    ctx.set(dut.unpin_en, 1)
    await ctx.tick()
    ctx.set(dut.unpin_en, 0)


def test_a_lookup_takes_two_cycles():
    dut = Directory(8, 1, qpn_bits=8)

    async def script(ctx):
        assert [await look(ctx, dut, qpn) for qpn in (2, 2, 4, 2)] == [(0, 1, 2), (0, 0, 2), (2, 1, 2), (0, 0, 2)]

    run(dut, script)


def test_what_was_not_used_gives_way():
    """Of 4 that are not pinned, the first that was not used since the last search; one that is pinned never."""
    dut = Directory(4, 1, qpn_bits=8)

    async def script(ctx):
        for qpn in range(4):
            slot, missed, _ = await look(ctx, dut, qpn)
            assert (slot, missed) == (qpn, 1)
            if qpn != 0:
                await unpin(ctx, dut, slot)
        # All are used: the first that is not pinned goes, and the others count as not used.
        assert (await look(ctx, dut, 10))[:2] == (1, 1)
        await unpin(ctx, dut, 1)
        assert (await look(ctx, dut, 2))[:2] == (2, 0)
        await unpin(ctx, dut, 2)
        assert (await look(ctx, dut, 11))[:2] == (3, 1)

    run(dut, script)


def test_all_pinned_waits():
    dut = Directory(4, 1, qpn_bits=8, pins=2)

    async def script(ctx):
        for qpn in range(4):
            await look(ctx, dut, qpn)
        assert await look(ctx, dut, 4) is None
        await unpin(ctx, dut, 2)
        assert (await look(ctx, dut, 4))[:2] == (2, 1)
        # A pin of two: one that has it lets no other in.
        assert await look(ctx, dut, 4) is None
        await unpin(ctx, dut, 2)
        assert (await look(ctx, dut, 4))[:2] == (2, 0)

    run(dut, script)


@pytest.mark.parametrize(("arguments", "message"), [
    ((6, 1), "slots must be a power of two from 4 to 1024, not 6"),
    ((2048, 1), "slots must be a power of two from 4 to 1024, not 2048"),
    ((8, 0), "lines must be a positive int, not 0"),
])  # fmt: skip
def test_wrong_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        Directory(*arguments)
    with pytest.raises(ValueError, match="qpn_bits must number more than 2 sets, not 1"):
        Directory(8, 1, qpn_bits=1)
    with pytest.raises(ValueError, match="pins must be a power of two, at least 2, not 3"):
        Directory(8, 1, pins=3)
