"""SlotFinder: with a real directory, whose rows change all the time."""

import pytest
from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from conflict_ram import ConflictRam
from streams import make_rng, simulate
from verbena.hdl.context import directory
from verbena.hdl.context.directory import Directory, Row
from verbena.hdl.context.slot_finder import SlotFinder
from verbena.hdl.stream.connections import connect_signals, link

QPS, SLOTS = 16, 8
FINDERS = 3
VERDICTS = ("here", "away", "absent")


class Bench(wiring.Component):
    """Finders side by side at one directory."""

    def __init__(self):
        signature = {"ready": Out(1), "write": In(1), "index": In(range(QPS)), "new": In(Row(SLOTS))}
        for number in range(FINDERS):
            signature |= {f"valid_{number}": In(1), f"index_{number}": In(range(QPS)), f"slot_{number}": Out(3)}
            signature |= {f"taken_{number}": In(1)}
            signature |= {f"{name}_{number}": Out(1) for name in (*VERDICTS, "timer", "asks")}
        super().__init__(signature)

    def elaborate(self, platform):
        m = Module()
        m.submodules.directory = rows = Directory(QPS, SLOTS, FINDERS)
        connect_signals(m, self, rows, "write", "index", "new")
        m.d.comb += self.ready.eq(rows.ready)
        for number in range(FINDERS):
            m.submodules[f"finder_{number}"] = finder = SlotFinder(QPS, SLOTS)
            link(m, finder.ask, rows.ask[number])
            connect_signals(m, rows, finder, "row", "changed")
            m.d.comb += [
                finder.answered.eq(rows.answered[number]),
                finder.valid.eq(getattr(self, f"valid_{number}")),
                finder.index.eq(getattr(self, f"index_{number}")),
                finder.taken.eq(getattr(self, f"taken_{number}")),
                getattr(self, f"asks_{number}").eq(finder.ask.valid),
                *(getattr(self, f"{name}_{number}").eq(getattr(finder, name)) for name in (*VERDICTS, "slot", "timer")),
            ]
        return m


def told(ctx, dut, number):
    """What the finder says: None, or a verdict and what belongs to it."""
    said = [name for name in VERDICTS if ctx.get(getattr(dut, f"{name}_{number}"))]
    assert len(said) <= 1
    if not said:
        return None
    more = {"here": f"slot_{number}", "away": f"timer_{number}"}.get(said[0])
    return said[0], ctx.get(getattr(dut, more)) if more else None


def random_row(rng):
    """A row, as the directory has it, and what a finder says of it."""
    kind = rng.choice(VERDICTS)
    if kind == "here":
        slot = rng.randrange(SLOTS)
        return {"here": 1, "known": 1, "value": slot}, (kind, slot)
    if kind == "away":
        timer, phase = rng.choice([0, rng.randrange(1, 32)]), rng.randrange(4)
        return {"here": 0, "known": 1, "value": timer | phase << 5}, (kind, int(timer != 0))
    return {"here": 0, "known": 0, "value": 0}, (kind, None)


@pytest.mark.parametrize("cycles", [500, pytest.param(1500, marks=pytest.mark.slow)])
@pytest.mark.parametrize("changes", [0.02, 0.3])
def test_never_says_what_is_not_so(changes, cycles, monkeypatch):
    """What is said holds in that cycle, whatever changed before; nothing is said of a row that changes in it."""
    monkeypatch.setattr(directory, "Ram", ConflictRam)
    rng = make_rng()
    dut = Bench()
    said = 0

    async def testbench(ctx):
        nonlocal said
        while not ctx.get(dut.ready):
            await ctx.tick()
        rows = dict.fromkeys(range(QPS), ("absent", None))
        named, taken = [None] * FINDERS, [False] * FINDERS
        for _ in range(cycles):
            write = rng.random() < changes
            index = rng.randrange(4)
            row, verdict = random_row(rng)
            ctx.set(dut.write, write)
            ctx.set(dut.index, index)
            ctx.set(dut.new, row)
            for number in range(FINDERS):
                if named[number] is None or taken[number]:
                    named[number] = rng.randrange(4) if rng.random() < 0.8 else None
                taken[number] = rng.random() < 0.1
                ctx.set(getattr(dut, f"taken_{number}"), taken[number])
                ctx.set(getattr(dut, f"valid_{number}"), named[number] is not None)
                ctx.set(getattr(dut, f"index_{number}"), named[number] or 0)
            for number, qp in enumerate(named):
                what = told(ctx, dut, number)
                assert what is None or not write
                assert what in (None, rows.get(qp))
                said += what is not None
            await ctx.tick()
            if write:
                rows[index] = verdict

    simulate(dut, testbench, seed=rng.seed_value)
    assert said > cycles // 15


def test_latency():
    """4 cycles, and 1 for the QP of before; a change makes it ask once more."""
    dut = Bench()

    async def until_told(ctx):
        for cycle in range(20):
            if told(ctx, dut, 0):
                return cycle
            await ctx.tick()
        raise AssertionError

    async def testbench(ctx):
        while not ctx.get(dut.ready):
            await ctx.tick()
        ctx.set(dut.valid_0, 1)
        ctx.set(dut.index_0, 5)
        assert await until_told(ctx) == 4
        ctx.set(dut.taken_0, 1)
        await ctx.tick()
        ctx.set(dut.taken_0, 0)
        ctx.set(dut.valid_0, 0)
        assert told(ctx, dut, 0) is None
        await ctx.tick().repeat(3)
        ctx.set(dut.valid_0, 1)
        assert await until_told(ctx) == 1
        assert not ctx.get(dut.asks_0)
        ctx.set(dut.write, 1)
        ctx.set(dut.index, 5)
        ctx.set(dut.new, {"here": 1, "known": 1, "value": 6})
        assert told(ctx, dut, 0) is None
        await ctx.tick()
        ctx.set(dut.write, 0)
        assert await until_told(ctx) <= 5  # what it asked for in the cycle of the change does not count
        assert told(ctx, dut, 0) == ("here", 6)
        ctx.set(dut.taken_0, 1)
        await ctx.tick()
        ctx.set(dut.taken_0, 0)
        ctx.set(dut.index_0, 4)
        assert await until_told(ctx) == 4
        assert told(ctx, dut, 0) == ("absent", None)

    simulate(dut, testbench)
