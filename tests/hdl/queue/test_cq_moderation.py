"""CqModeration against a model in Python, which knows when each event may come and when it must."""

from dataclasses import dataclass

import pytest
from amaranth.hdl import Module, ResetInserter, Signal
from streams import make_rng, shared, simulate
from verbena.hdl.abi.contexts import CQ_CONTEXT
from verbena.hdl.queue.cq_moderation import CqModeration

SLOTS = 4
UNIT = 6
LATENCY = 3
"""Cycles from news to what comes of them."""


@dataclass
class Held:
    number: int
    count: int
    since: int


async def pause(ctx, cycles):
    for _ in range(cycles):
        await ctx.tick()


class World:
    def __init__(self, unit=UNIT):
        self.dut = shared(CqModeration, SLOTS)
        self.unit = unit
        self.limits = [(0, 0)] * SLOTS
        self.time = 0
        self.out = []  # (time, number)

    async def clock(self, ctx):
        edges = ctx.tick().sample(self.dut.o.valid, self.dut.o.payload)
        async for _, _, valid, number in edges:
            if valid:
                self.out.append((self.time, number))
            self.time += 1
            ctx.set(self.dut.unit, self.time % self.unit == 0)

    async def limit(self, ctx, slot, count, period):
        self.limits[slot] = count, period
        ctx.set(self.dut.write_en, 1)
        words = CQ_CONTEXT.words(cq_count=count, cq_period=period, comp_vector=15)
        ctx.set(self.dut.write, {"index": slot, "word": 3, "data": words[3]})
        await ctx.tick()
        ctx.set(self.dut.write_en, 0)
        await pause(ctx, 3)

    async def begin(self, ctx):
        """The first round, in which nothing happens."""
        await pause(ctx, SLOTS)
        for slot in range(SLOTS):
            await self.limit(ctx, slot, 0, 0)

    async def tell(self, ctx, number, begins=0, gathers=1, urgent=0):
        ctx.set(self.dut.news, {"number": number, "begins": begins, "gathers": gathers, "urgent": urgent})
        ctx.set(self.dut.news_en, 1)
        await ctx.tick()
        ctx.set(self.dut.news_en, 0)

    def run(self, user, **kwargs):
        simulate(self.dut, user, background=[self.clock], **kwargs)


def test_off():
    """Without a period, or with one CQE, events come at once, also from one cycle to the next."""
    world = World()

    async def user(ctx):
        await world.begin(ctx)
        for slot, limits in enumerate([(0, 0), (7, 0), (1, 100), (1, 0)]):
            await world.limit(ctx, slot, *limits)
        start = world.time
        for number in (4, 5, 2, 7):
            await world.tell(ctx, number, begins=1)
        await pause(ctx, 4)
        assert [(time - start, number) for time, number in world.out] == [
            (LATENCY + at, number) for at, number in enumerate((4, 5, 2, 7))
        ]
        assert not ctx.get(world.dut.holds)

    world.run(user)


def test_count():
    world = World()

    async def user(ctx):
        await world.begin(ctx)
        await world.limit(ctx, 1, 3, 4095)
        for number in (1, 5, 13):
            await world.tell(ctx, number, begins=1)
            await pause(ctx, 10)
            await world.tell(ctx, number)
            await pause(ctx, 10)
            assert not world.out
            assert ctx.get(world.dut.holds)
            await world.tell(ctx, number)
            await world.tell(ctx, number)  # of nobody any more
            await pause(ctx, 4)
            assert [at for _, at in world.out] == [number]
            assert not ctx.get(world.dut.holds)
            world.out.clear()

    world.run(user)


@pytest.mark.parametrize("count", [0, 2, 65535])
@pytest.mark.parametrize("period", [1, 3, 40])
def test_period(count, period):
    """The event of the only CQE."""
    world = World()

    async def user(ctx):
        await world.begin(ctx)
        await world.limit(ctx, 2, count, period)
        for wait in range(UNIT):
            await pause(ctx, wait)
            start = world.time + LATENCY
            await world.tell(ctx, 6, begins=1)
            while not world.out:
                await ctx.tick()
            ((time, number),) = world.out
            assert number == 6
            assert (period - 1) * UNIT <= time - start <= period * UNIT + SLOTS + 1
            world.out.clear()

    world.run(user)


def test_longest_period():
    """It is over once, also when time has wrapped."""
    world = World(unit=1)

    async def user(ctx):
        await world.begin(ctx)
        await world.limit(ctx, 0, 0, 4095)
        for _ in range(3):
            start = world.time
            await world.tell(ctx, 0, begins=1)
            await pause(ctx, 5000)
            ((time, _),) = world.out
            assert 4094 <= time - start <= 4096 + 2 * SLOTS
            world.out.clear()

    world.run(user, deadline=1 << 20)


def test_urgent():
    """An error: its event is there, or begins with it."""
    world = World()

    async def user(ctx):
        await world.begin(ctx)
        await world.limit(ctx, 3, 5, 4095)
        await world.tell(ctx, 3, begins=1)
        await pause(ctx, 20)
        assert not world.out
        await world.tell(ctx, 3, gathers=0, urgent=1)
        await pause(ctx, 3)
        await world.tell(ctx, 3, gathers=0, urgent=1)  # it waits to be said
        await pause(ctx, 3)
        await world.tell(ctx, 7, begins=1, gathers=0, urgent=1)
        await pause(ctx, 3)
        assert [number for _, number in world.out] == [3, 7]
        assert not ctx.get(world.dut.holds)

    world.run(user)


def test_hurry():
    world = World()

    async def user(ctx):
        await world.begin(ctx)
        for slot in range(SLOTS):
            await world.limit(ctx, slot, 0, 4095)
            await world.tell(ctx, slot | 8, begins=1)
        await pause(ctx, 20)
        assert not world.out
        ctx.set(world.dut.hurry, 1)
        for slot in (2, 0):
            ctx.set(world.dut.hurry_slot, slot)
            await pause(ctx, 3)
            assert [number for _, number in world.out] == [slot | 8]
            world.out.clear()
        ctx.set(world.dut.hurry, 0)
        assert ctx.get(world.dut.holds)
        await pause(ctx, 20)
        assert not world.out

    world.run(user)


def test_what_a_reset_leaves():
    """Rows that say that something is held count for nothing."""
    world = World()

    async def user(ctx):
        await world.begin(ctx)
        for slot in range(SLOTS):
            await world.limit(ctx, slot, 0, 50)
            await world.tell(ctx, slot, begins=1)
        await pause(ctx, 4)
        ctx.set(reset, 1)
        await ctx.tick()
        ctx.set(reset, 0)
        assert not ctx.get(world.dut.holds)
        await pause(ctx, 60 * UNIT)
        assert not world.out

    reset = Signal()
    top = Module()
    top.submodules.dut = ResetInserter(reset)(world.dut)
    simulate(top, user, background=[world.clock])


@pytest.mark.parametrize("count", [2000, pytest.param(20000, marks=pytest.mark.slow)])
def test_random(count):
    """An event comes when it must, and not before one of its reasons."""
    rng = make_rng()
    world = World()
    held = {}

    async def user(ctx):
        await world.begin(ctx)
        for slot in range(SLOTS):
            await world.limit(ctx, slot, rng.choice([0, 1, 2, 5]), rng.choice([0, 1, 4, 15]))
        for _ in range(count):
            await pause(ctx, rng.choice([0, 0, 1, 5, 30]))
            number = rng.randrange(1 << 14)
            slot = number % SLOTS
            most, period = world.limits[slot]
            over = {at for _, at in world.out}
            now = world.time + LATENCY
            if slot not in held:
                await world.tell(ctx, number, begins=1)
                held[slot] = Held(number, 1, now)
                await pause(ctx, LATENCY)
                if not period or most == 1:
                    assert world.out[-1] == (now, number)
            elif held[slot].number not in over:
                entry = held[slot]
                await world.tell(ctx, entry.number)
                entry.count += 1
                await pause(ctx, LATENCY)
                if entry.count == most and not any(at == entry.number and time < now for time, at in world.out):
                    assert (now, entry.number) in world.out
            for time, at in world.out:
                entry = held.pop(at % SLOTS)
                most, period = world.limits[at % SLOTS]
                late = time - entry.since
                assert late <= period * UNIT + 3 * SLOTS
                assert not period or most == 1 or entry.count >= most > 0 or late >= (period - 1) * UNIT
            world.out.clear()
            for entry in held.values():
                assert world.time - entry.since <= world.limits[entry.number % SLOTS][1] * UNIT + 3 * SLOTS
        await pause(ctx, 20 * UNIT)
        assert {number for _, number in world.out} == {entry.number for entry in held.values()}
        assert not ctx.get(world.dut.holds)

    world.run(user, seed=rng.seed_value, deadline=1 << 20)
