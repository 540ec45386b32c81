from itertools import pairwise

import pytest
from amaranth.lib import data
from conflict_ram import ConflictRam
from streams import make_rng, plain, simulate
from verbena.hdl.abi.contexts import QP_CONTEXT
from verbena.hdl.context import bank
from verbena.hdl.context.fetch import ContextFetch

SLOTS = 4
STATES = {"count": data.StructLayout({"value": 40}), "other": data.StructLayout({"value": 9})}
NAMES = ("state", "pd", "rq_cqn")


async def write_word(ctx, dut, slot, word, value):
    ctx.set(dut.attribute, {"index": slot, "word": word, "data": value})
    ctx.set(dut.attribute_en, 1)
    await ctx.tick()
    ctx.set(dut.attribute_en, 0)


class World:
    """A stage whose items are numbers, and somebody who adds each to both states of its slot."""

    def __init__(self, monkeypatch, rows, stall=0.0, work=0):
        monkeypatch.setattr(bank, "Ram", ConflictRam)
        self.rng = make_rng()
        self.dut = ContextFetch(16, bank.ContextBank(QP_CONTEXT, NAMES, STATES, SLOTS, rows))
        self.stall, self.work = stall, work
        self.words = [[0] * 20 for _ in range(SLOTS)]
        self.sums = [{"count": 0, "other": 0} for _ in range(SLOTS)]
        self.sent, self.taken = [], []  # (slot, number); cycles in which items were taken
        self.changed = [0] * SLOTS  # cycle of the last attribute written
        self.cycle = 0

    async def prepare(self, ctx):
        """Block RAM has no reset: an item for each slot writes zeros."""
        for slot in range(SLOTS):
            for word in range(20):
                await write_word(ctx, self.dut, slot, word, 0)
        for slot in range(SLOTS):
            ctx.set(self.dut.i.payload, {"slot": slot, "item": 0})
            ctx.set(self.dut.i.valid, 1)
            await ctx.tick().until(self.dut.i.ready)
            ctx.set(self.dut.i.valid, 0)
            while not ctx.get(self.dut.o.valid):
                await ctx.tick()
            self.give(ctx, dict.fromkeys(STATES, 0))
            await ctx.tick()
            self.give(ctx, {}, ready=0)
        for _ in range(10):
            await ctx.tick()

    def give(self, ctx, values, ready=1):
        """Takes an item, and writes back."""
        ctx.set(self.dut.o.ready, ready)
        for name in STATES:
            port = getattr(self.dut.write, name)
            ctx.set(port.en, name in values)
            ctx.set(port.data, {"value": values.get(name, self.rng.getrandbits(9))})

    async def consume(self, ctx, count):
        """Takes items, compares what comes with them, and writes back; before that, changes them now and then."""
        dut, rng = self.dut, self.rng
        for _ in range(count):
            while not ctx.get(dut.o.valid):
                await self.tick(ctx)
            changed = {}
            for _ in range(self.work):
                now = {name: rng.getrandbits(9) for name in STATES if rng.random() < 0.2}
                changed |= now
                for name in STATES:
                    port = getattr(dut.write, name)
                    ctx.set(port.change, name in now)
                    ctx.set(port.data, {"value": now.get(name, rng.getrandbits(9))})
                await self.tick(ctx)
                for name in STATES:
                    ctx.set(getattr(dut.write, name).change, 0)
            while rng.random() < self.stall or not ctx.get(dut.settled):
                await self.tick(ctx)
            got = plain(ctx.get(dut.o.payload))
            slot = got["slot"]
            assert (slot, got["item"]) == self.sent.pop(0)
            assert {name: state["value"] for name, state in got["states"].items()} == self.sums[slot] | changed
            values = {
                name: (self.sums[slot][name] + got["item"] + 1) % (1 << state.members["value"])
                for name, state in STATES.items()
                if name in changed or rng.random() < 0.7
            }
            self.sums[slot].update(values)
            self.give(ctx, values)
            self.taken.append(self.cycle)
            await self.tick(ctx)
            self.give(ctx, {}, ready=0)

    async def tick(self, ctx):
        await ctx.tick()
        self.cycle += 1

    async def produce(self, ctx, items):
        dut = self.dut
        for slot, number in items:
            while self.rng.random() < self.stall:
                await ctx.tick()
            ctx.set(dut.i.payload, {"slot": slot, "item": number})
            ctx.set(dut.i.valid, 1)
            self.sent.append((slot, number))
            await ctx.tick().until(dut.i.ready)
            ctx.set(dut.i.valid, 0)

    def run(self, items):
        async def both(ctx):
            await self.prepare(ctx)
            self.ready = True
            await self.consume(ctx, len(items))

        async def producer(ctx):
            while not getattr(self, "ready", False):
                await ctx.tick()
            await self.produce(ctx, items)

        simulate(self.dut, both, producer, seed=self.rng.seed_value)


@pytest.mark.parametrize("count", [80, pytest.param(200, marks=pytest.mark.slow)])
@pytest.mark.parametrize("rows", [1, 2, 4])
@pytest.mark.parametrize(("stall", "work"), [(0.0, 0), (0.3, 0), (0.3, 5), (0.0, 9)])
def test_each_item_sees_what_those_before_it_wrote(rows, stall, work, count, monkeypatch):
    world = World(monkeypatch, rows, stall, work)
    slots = [0, 1, 0, 0, 2, 3, 3, 3, 3, 1]
    world.run([(world.rng.choice(slots), world.rng.getrandbits(16)) for _ in range(count)])


@pytest.mark.parametrize("rows", [1, 2, 4])
@pytest.mark.parametrize("slots", [1, 4])
def test_cycles(rows, slots, monkeypatch):
    """One item each ``rows`` + 2 cycles, of the same slot or not; and no time is lost behind longer work."""
    world = World(monkeypatch, rows)
    world.run([(number % slots, number) for number in range(20)])
    assert {b - a for a, b in pairwise(world.taken[2:])} == {rows + 2}
    world = World(monkeypatch, rows, work=rows + 2)
    world.run([(number % slots, number) for number in range(20)])
    assert {b - a for a, b in pairwise(world.taken[2:])} == {rows + 3}


def test_attributes_that_change_are_fetched_again(monkeypatch):
    """At any cycle between an item's coming and its leaving the stage; at the output only the state follows."""
    for delay in range(14):
        world = World(monkeypatch, 4)
        dut = world.dut

        async def script(ctx, world=world, dut=dut, delay=delay):
            await world.prepare(ctx)
            ctx.set(dut.i.payload, {"slot": 2, "item": 5})
            ctx.set(dut.i.valid, 1)
            moved, found = None, []
            for cycle in range(60):
                # The other words first, the state last.
                ctx.set(dut.attribute_en, cycle in (delay, delay + 1))
                ctx.set(dut.attribute, {"index": 2, "word": 1 - (cycle - delay), "data": 6})
                _, _, ready, moves, valid, payload = await ctx.tick().sample(
                    dut.i.ready, dut.moves, dut.o.valid, dut.o.payload
                )
                if ready:
                    ctx.set(dut.i.valid, 0)
                if moves:
                    moved = cycle
                if valid:
                    found.append(plain(payload)["attributes"])
            assert found[0]["pd"] == found[-1]["pd"] == (0 if moved <= delay else 6)
            assert found[0]["state"] == (0 if moved <= delay + 1 else 6)
            assert found[-1]["state"] == 6

        simulate(dut, script)


def test_what_is_coming_is_told(monkeypatch):
    world = World(monkeypatch, 2, 0.3, 1)
    dut = world.dut
    told = []

    async def watch(ctx):
        """What was coming when it moved, and what is at the output in the next cycle."""
        before = None
        async for _, _, moves, coming, valid, here in ctx.tick().sample(
            dut.moves, dut.coming, dut.o.valid, dut.o.payload
        ):
            if before:
                assert valid
                told.append((before, (here.slot, here.item)))
            before = (coming.slot, coming.item) if moves else None

    items = [(world.rng.randrange(SLOTS), number) for number in range(60)]

    async def both(ctx):
        await world.prepare(ctx)
        world.ready = True
        await world.consume(ctx, len(items))

    async def producer(ctx):
        while not getattr(world, "ready", False):
            await ctx.tick()
        await world.produce(ctx, items)

    simulate(dut, both, producer, background=[watch], seed=world.rng.seed_value)
    assert len(told) >= len(items)
    assert all(before == here for before, here in told)


@pytest.mark.parametrize("rows", [1, 2, 4])
@pytest.mark.parametrize(("follow", "follows"), [(0, ["value"]), (1, []), (1, ["value"])])
def test_others_states_are_the_newest(rows, follow, follows, monkeypatch):
    """Written at any time, to the slot of an item or another one: an item comes out with what was written last, and
    keeps it at the output unless it follows."""
    monkeypatch.setattr(bank, "Ram", ConflictRam)
    rng = make_rng()
    states = bank.ContextBank(QP_CONTEXT, NAMES, STATES, SLOTS, rows)
    dut = ContextFetch(16, states, others=("count",), follows=follows)
    taken = 0

    async def testbench(ctx):
        nonlocal taken
        port = dut.other.count
        newest, own = [0] * SLOTS, [0] * SLOTS
        for slot in range(SLOTS):
            for word in range(20):
                await write_word(ctx, dut, slot, word, 0)
            ctx.set(port.slot, slot)
            ctx.set(port.en, 1)
            await ctx.tick()
            ctx.set(port.en, 0)
            await ctx.tick().repeat(rows)
        ctx.set(dut.follow, follow)
        known = [False] * SLOTS  # its own state has been written
        pause, shown, coming, said = 0, None, None, None
        for number in range(2000):
            if coming is None and rng.random() < 0.7:
                coming = rng.randrange(2)
                ctx.set(dut.i.payload, {"slot": coming, "item": number})
            ctx.set(dut.i.valid, coming is not None)
            valid = ctx.get(dut.o.valid)
            slot = ctx.get(dut.o.payload.slot)
            if valid:
                if shown is None or (follow and follows):
                    shown = newest[slot]
                assert ctx.get(dut.o.payload.states.count.value) == shown
                if known[slot]:
                    assert ctx.get(dut.o.payload.states.other.value) == own[slot]
            takes = valid and ctx.get(dut.settled) and rng.random() < 0.3
            ctx.set(dut.o.ready, takes)
            value = rng.getrandbits(9)
            ctx.set(dut.write.other.data, {"value": value})
            ctx.set(dut.write.other.en, takes)
            pause = max(0, pause - 1)
            writes = not pause and rng.random() < 0.25
            there, state = rng.randrange(2), rng.getrandbits(40)
            ctx.set(port.slot, there)
            ctx.set(port.data, {"value": state})
            ctx.set(port.en, writes)
            moved = ctx.get(dut.i.ready) and coming is not None
            await ctx.tick()
            if takes:
                taken += 1
                known[slot], own[slot], shown = True, value, None
            if said:  # it is heard a cycle later
                newest[said[0]] = said[1]
            said = (there, state) if writes else None
            if writes:
                pause = rows
            if moved:
                coming = None

    simulate(dut, testbench, seed=rng.seed_value)
    assert taken > 130
