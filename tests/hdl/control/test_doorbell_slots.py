"""DoorbellSlots: no doorbell is lost, and none comes to a wrong slot, whoever comes and goes."""

import pytest
from conflict_ram import ConflictRam
from directory_bench import DirectoryBench
from streams import make_rng, plain, simulate
from verbena.hdl.context import directory
from verbena.hdl.control.doorbell_slots import DoorbellSlots
from verbena.hdl.queue.ring import PushDoorbell, PushWord

QPS, SLOTS = 16, 4
FIELDS = {PushDoorbell: ("index", 16), PushWord: ("data", 32)}


class World:
    """QPs that come and go as the keeper of slots has them, and what is rung meanwhile."""

    def __init__(self, shape, wants, monkeypatch):
        monkeypatch.setattr(directory, "Ram", ConflictRam)
        self.rng = make_rng()
        self.dut = DirectoryBench(DoorbellSlots, shape, qps=QPS, slots=SLOTS, wants=wants)
        self.shape, self.wants = shape, wants
        self.field, self.bits = FIELDS[shape]
        self.rows = {}  # QP: slot, or None if it is away
        self.closed = self.heard = None  # `heard`: a cycle later
        self.way = None  # (slot, QP that leaves or comes, cycles left)
        self.item = self.ring = None
        self.waits = self.looked_at = False  # what comes is to wait; the item came before that
        self.kinds = {"passed": 0, "wanted": 0, "absent": 0, "dropped": 0, "rung": 0}
        self.write = None

    def fresh(self, qp):
        return {"qp": qp, self.field: self.rng.getrandbits(self.bits)}

    def holder(self, slot):
        return next((qp for qp, place in self.rows.items() if place == slot), None)

    def move(self):
        """The next step of who comes or goes: a slot closes, a row is written, it opens."""
        rng = self.rng
        self.write = None
        if self.way:
            slot, qp, left = self.way
            self.way = (slot, qp, left - 1)
            if left == 4:
                here = self.rows[qp] is not None
                self.write = (qp, None if here else slot)
            elif left == 2 and self.rows[qp] is not None and self.wants and self.ring is None:
                self.ring = self.fresh(slot)
            elif not left:
                self.closed = self.way = None
        elif rng.random() < 0.1:
            slot = rng.randrange(SLOTS)
            away = [qp for qp, place in self.rows.items() if place is None]
            qp = self.holder(slot)
            if qp is None and away:
                qp = rng.choice(away)
            if qp is not None:
                self.closed, self.way = slot, (slot, qp, rng.randint(4, 12))
        elif rng.random() < 0.02:  # one that there is not, or not any more
            qp = rng.randrange(6)
            self.write = (qp, None) if qp not in self.rows else (qp, "absent")

    async def step(self, ctx):
        dut, rng = self.dut, self.rng
        self.heard = self.closed
        self.move()
        if self.item is None and rng.random() < 0.7:
            self.item, self.looked_at = self.fresh(rng.randrange(8)), False
        if rng.random() < 0.1:
            self.waits = self.wants and rng.random() < 0.5
        self.looked_at |= not self.waits
        ctx.set(dut.i.valid, self.item is not None)
        ctx.set(dut.i.payload, self.item or {"qp": rng.randrange(8)})
        ctx.set(dut.closed, self.closed is not None)
        ctx.set(dut.closed_qp, self.closed if self.closed is not None else rng.randrange(SLOTS))
        ctx.set(dut.probe, rng.random() < 0.3)
        ctx.set(dut.place, self.write is not None)
        if self.write:
            qp, slot = self.write
            row = {"here": 1, "known": 1, "value": slot} if isinstance(slot, int) else {"known": int(slot is None)}
            ctx.set(dut.place_index, qp)
            ctx.set(dut.place_row, {"here": 0, "value": 0} | row)
        ready = rng.random() < 0.6
        ctx.set(dut.o.ready, ready)
        may_ring = False
        if self.wants:
            ctx.set(dut.wait, self.waits)
            ctx.set(dut.wanted.ready, rng.random() < 0.6)
            ctx.set(dut.ring.valid, self.ring is not None)
            ctx.set(dut.ring.payload, self.ring or {"qp": 0})
            may_ring = self.ring is not None and self.closed is None
            assert ctx.get(dut.ring.ready) == (may_ring and ready)
        # What comes out, and what is taken.
        taken, out = self.item is not None and ctx.get(dut.i.ready), ctx.get(dut.o.valid)
        wanted = self.wants and ctx.get(dut.wanted.valid)
        shown = plain(ctx.get(dut.o.payload))
        slot = self.rows.get(self.item["qp"], "absent") if self.item else "absent"
        if out and not may_ring:
            assert not self.write
            assert isinstance(slot, int)
            assert slot != self.heard
            assert (shown.qp, shown[self.field]) == (slot, self.item[self.field])
            assert taken == ready
        if may_ring:
            assert out
            assert (shown.qp, shown[self.field]) == (self.ring["qp"], self.ring[self.field])
        if wanted:
            assert slot != "absent"
            assert slot is None or slot == self.heard
            assert ctx.get(dut.wanted.payload) == self.item["qp"]
            wanted = ctx.get(dut.wanted.ready)
        assert self.looked_at or not (taken or wanted or (out and not may_ring))
        passes = taken and out and not may_ring
        assert ctx.get(dut.used_en) == passes
        if passes:
            assert ctx.get(dut.used) == slot
            self.kinds["passed"] += 1
        elif taken and slot == "absent":
            assert not wanted
            self.kinds["absent"] += 1
        elif taken:
            assert slot is None or slot == self.heard
            assert bool(wanted) == self.wants
            self.kinds["wanted" if wanted else "dropped"] += 1
        assert taken or not wanted
        await ctx.tick()
        if taken:
            self.item = None
        if may_ring and ready:
            self.ring = None
            self.kinds["rung"] += 1
        if self.write:
            qp, slot = self.write
            self.rows[qp] = slot
            if slot == "absent":
                del self.rows[qp]


@pytest.mark.parametrize("cycles", [500, pytest.param(1500, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("shape", "wants"), [(PushDoorbell, True), (PushWord, False)])
def test_each_passes_or_its_qp_is_wanted(shape, wants, cycles, monkeypatch):
    """Rings go first, but not while a slot is closed, and nothing goes to that one; pushed words of who is away are
    dropped.
    """
    world = World(shape, wants, monkeypatch)

    async def testbench(ctx):
        while not ctx.get(world.dut.directory_ready):
            await ctx.tick()
        for _ in range(cycles):
            await world.step(ctx)

    simulate(world.dut, testbench, seed=world.rng.seed_value)
    kinds = {name for name, count in world.kinds.items() if count > cycles // 300}
    assert kinds == {"passed", "absent", *(("wanted", "rung") if wants else ("dropped",))}


def test_one_after_the_other_of_the_same_qp():
    """The first takes 4 cycles, those behind it 1."""
    dut = DirectoryBench(DoorbellSlots, PushDoorbell, qps=QPS, slots=SLOTS)

    async def testbench(ctx):
        while not ctx.get(dut.directory_ready):
            await ctx.tick()
        ctx.set(dut.place, 1)
        ctx.set(dut.place_index, 9)
        ctx.set(dut.place_row, {"here": 1, "known": 1, "value": 2})
        await ctx.tick()
        ctx.set(dut.place, 0)
        ctx.set(dut.o.ready, 1)
        ctx.set(dut.i.valid, 1)
        for number in range(6):
            ctx.set(dut.i.payload, {"qp": 9, "index": number, "push": number % 2})
            cycles = 0
            while not ctx.get(dut.o.valid):
                await ctx.tick()
                cycles += 1
            assert cycles == (1 if number else 4)
            assert plain(ctx.get(dut.o.payload)) == {"qp": 2, "index": number, "push": number % 2}
            assert ctx.get(dut.i.ready)
            await ctx.tick()

    simulate(dut, testbench)
