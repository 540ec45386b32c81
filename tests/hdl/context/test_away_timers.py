"""AwayTimers: with a real directory and its own idea of time."""

from itertools import pairwise

import pytest
from amaranth.hdl import Module
from amaranth.lib import wiring
from conflict_ram import ConflictRam
from streams import make_rng, send_all, simulate
from verbena.hdl.context import directory
from verbena.hdl.context.away_timers import AwayTimers
from verbena.hdl.context.directory import Directory
from verbena.hdl.stream.connections import connect_signals, link

SLOTS = 8


class Bench(wiring.Component):
    """The timers, and the directory that they ask; another reader asks in between."""

    def __init__(self, qps):
        self.timers = AwayTimers(qps, SLOTS)
        self.rows = Directory(qps, SLOTS, 2)
        mine, rows = dict(self.timers.signature.members), dict(self.rows.signature.members)
        names = {"tick", "change", "phase", "timer", "o", "running"}
        super().__init__(
            {name: mine[name] for name in names} | {name: rows[name] for name in ("ready", "write", "index", "new")}
        )
        self.qps = qps

    def elaborate(self, platform):
        m = Module()
        m.submodules.timers = timers = self.timers
        m.submodules.rows = rows = self.rows
        connect_signals(m, self, rows, "write", "index", "new")
        connect_signals(m, self, timers, "tick", "timer")
        connect_signals(m, timers, self, "phase", "running")
        connect_signals(m, rows, timers, "row", "changed")
        m.d.comb += [timers.answered.eq(rows.answered[1]), self.ready.eq(rows.ready)]
        link(m, timers.ask, rows.ask[1])
        link(m, self.change, timers.change)
        link(m, timers.o, self.o)
        return m


async def ready(ctx, dut):
    while not ctx.get(dut.ready):
        await ctx.tick()


async def place(ctx, dut, index, **row):
    ctx.set(dut.write, 1)
    ctx.set(dut.index, index)
    ctx.set(dut.new.as_value(), 0)
    for name, value in row.items():
        ctx.set(getattr(dut.new, name), value)
    await ctx.tick()
    ctx.set(dut.write, 0)


async def leave(ctx, dut, index, timer):
    """The QP leaves its slot, as the keeper of slots says it; its timer runs from this cycle on."""
    ctx.set(dut.timer, timer)
    await place(ctx, dut, index, known=1, away={"timer": timer, "phase": ctx.get(dut.phase)})
    await send_all(ctx, dut.change, [{"qpn": index, "member": 1}])


async def come(ctx, dut, index, slot):
    await place(ctx, dut, index, here=1, known=1, value=slot)
    await send_all(ctx, dut.change, [{"qpn": index, "member": 0}])


def a_round(dut, members):
    return 4 * max(2, dut.qps // 32) + 16 * members + 40


@pytest.mark.parametrize("rounds", [2, pytest.param(6, marks=pytest.mark.slow)])
@pytest.mark.parametrize("tick", [1, 3, 20])
@pytest.mark.parametrize("qps", [16, 64])
def test_fires_in_time(qps, tick, rounds, monkeypatch):
    """Not before 2**c ticks, and at the latest after 2**(c + 1) and a round; then it is named in each round."""
    monkeypatch.setattr(directory, "Ram", ConflictRam)
    rng = make_rng()
    dut = Bench(qps)
    fired = []

    now = 0  # cycles

    async def clock(ctx):
        nonlocal now
        async for _ in ctx.tick():
            now += 1

    async def taken(ctx, ready):
        ctx.set(dut.o.ready, ready)
        _, _, valid, qp = await ctx.tick().sample(dut.o.valid, dut.o.payload)
        return qp if valid and ready else None

    async def testbench(ctx):
        ctx.set(dut.tick, tick)
        await ready(ctx, dut)
        shortest = (a_round(dut, 4) // (2 * tick)).bit_length()  # a round is shorter than two periods
        longest = max(shortest, (300 // tick).bit_length()) + 1
        for _ in range(rounds):
            running, named = {}, {}  # QP: since when, and class; how often it was named
            for index in rng.sample(range(qps), rng.randint(1, 4)):
                running[index], named[index] = (now, rng.randint(max(1, shortest), longest)), 0
                await leave(ctx, dut, index, running[index][1])
                await ctx.tick().repeat(5 + rng.randrange(3 * tick))
            late = tick + 2 * a_round(dut, len(running))
            while min(named.values()) < 2:
                assert ctx.get(dut.running)
                index = await taken(ctx, rng.random() < 0.8)
                for other, (since, timer) in running.items():
                    if index == other:
                        assert now - since >= (tick << timer) - tick
                        named[other] += 1
                        fired.append(other)
                    assert named[other] or now - since <= (tick << timer + 1) + late
            for index in list(running):
                await come(ctx, dut, index, rng.randrange(SLOTS))
            await ctx.tick().repeat(12)
            for _ in range(late):
                assert await taken(ctx, True) is None
            assert not ctx.get(dut.running)

    simulate(dut, testbench, background=[clock], seed=rng.seed_value, deadline=100_000)
    assert len(fired) >= 2 * rounds


def test_the_phase_of_each_class():
    """It is the number, modulo 4, of the period of 2**c ticks; a tick has as many cycles as it says."""
    dut = Bench(16)

    async def testbench(ctx):
        ctx.set(dut.tick, 5)
        changes = {timer: [] for timer in range(5)}
        before = dict.fromkeys(changes, 0)
        for cycle in range(800):
            for timer, seen in changes.items():
                ctx.set(dut.timer, timer)
                phase = ctx.get(dut.phase)
                if phase != before[timer]:
                    assert phase == (before[timer] + 1) % 4
                    seen.append(cycle)
                    before[timer] = phase
            await ctx.tick()
        for timer, seen in changes.items():
            assert len(seen) >= 4
            assert {after - at for at, after in pairwise(seen)} == {5 << timer}

    simulate(dut, testbench)


def test_a_qp_that_is_here_or_unknown_is_not_named():
    """Whatever the rest of its row says, and even if nobody has told that its timer runs no more."""
    dut = Bench(32)

    async def testbench(ctx):
        ctx.set(dut.tick, 1)
        ctx.set(dut.o.ready, 1)
        await ready(ctx, dut)
        await leave(ctx, dut, 3, 1)
        await leave(ctx, dut, 4, 1)
        await leave(ctx, dut, 5, 1)
        while not (ctx.get(dut.o.valid) and ctx.get(dut.o.payload) == 5):
            await ctx.tick()
        await place(ctx, dut, 3, here=1, known=1, value=1)
        await place(ctx, dut, 4)
        await ctx.tick().repeat(8)
        named = []
        for _ in range(300):
            if ctx.get(dut.o.valid):
                named.append(ctx.get(dut.o.payload))
            await ctx.tick()
        assert set(named) == {5}
        assert ctx.get(dut.running)
        for index in (3, 4, 5):
            await send_all(ctx, dut.change, [{"qpn": index, "member": 0}])
        await ctx.tick().repeat(8)
        assert not ctx.get(dut.running)

    simulate(dut, testbench)


@pytest.mark.parametrize("cycles", [1000, pytest.param(2500, marks=pytest.mark.slow)])
def test_a_row_that_changes_while_it_is_looked_at(cycles, monkeypatch):
    """The QP whose row changed is not named in that round; rows change all the time, and nobody is named wrongly."""
    monkeypatch.setattr(directory, "Ram", ConflictRam)
    rng = make_rng()
    dut = Bench(16)
    names = 0

    async def testbench(ctx):
        nonlocal names
        ctx.set(dut.tick, 1)
        await ready(ctx, dut)
        for index in range(4):
            await leave(ctx, dut, index, 1)
        await ctx.tick().repeat(20)
        away = set(range(4))
        edges = aiter(ctx.tick().sample(dut.o.valid, dut.o.payload))
        for _ in range(cycles):
            write = rng.random() < 0.05
            index = rng.randrange(4)
            here = rng.random() < 0.5
            ctx.set(dut.write, write)
            ctx.set(dut.index, index)
            # Class 1 is over in two of four phases; the phase is that of 4 ticks ago or of now.
            ctx.set(dut.new.as_value(), 0)
            ctx.set(dut.new.here, here)
            ctx.set(dut.new.known, 1)
            ctx.set(dut.timer, 1)
            ctx.set(dut.new.away, {"timer": 1, "phase": ctx.get(dut.phase)})
            ctx.set(dut.o.ready, rng.random() < 0.5)
            _, _, valid, qp = await anext(edges)
            if valid:
                names += 1
                assert qp in away
            if write:
                (away.discard if here else away.add)(index)

    simulate(dut, testbench, seed=rng.seed_value)
    assert names > 2 * cycles // 125
