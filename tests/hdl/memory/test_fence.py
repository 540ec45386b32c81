"""The fence against counts in plain Python."""

from collections import deque

import pytest
from amaranth.back import rtlil
from streams import make_rng, simulate
from verbena.hdl.memory.fence import Fence


@pytest.mark.parametrize("cycles", [1500, pytest.param(4000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("lanes", [1, 3])
def test_random(lanes, cycles):
    """``done`` stands exactly when all is out that was inside at the last ``start``, 2 cycles later."""
    rng = make_rng()
    dut = Fence(lanes)

    async def bench(ctx):
        inside = [deque() for _ in range(lanes)]  # cycle in which each entered
        started, over = -1, 0  # cycle of the last start; cycle in which the last of what it waits for left
        starts = waited = 0
        for cycle in range(cycles):
            busy = cycle // 500 % 2  # more enters, or more leaves
            enter = [len(lane) < 200 and rng.random() < (0.4 if busy else 0.1) for lane in inside]
            leave = [bool(lane) and rng.random() < (0.2 if busy else 0.4) for lane in inside]
            start = rng.random() < 0.02
            ctx.set(dut.enter, sum(bit << lane for lane, bit in enumerate(enter)))
            ctx.set(dut.leave, sum(bit << lane for lane, bit in enumerate(leave)))
            ctx.set(dut.start, start)
            done = ctx.get(dut.done)
            waiting = any(entered <= started for lane in inside for entered in lane)
            if started >= 0 and cycle > started:
                assert done == (not waiting and cycle >= max(started, over) + 2), cycle
                waited += waiting
            for lane, entries in enumerate(inside):
                if leave[lane] and entries.popleft() <= started:
                    over = cycle
                if enter[lane]:
                    entries.append(cycle)
            if start:
                started, starts = cycle, starts + 1
            await ctx.tick()
        assert starts > cycles // 200
        assert waited > cycles // 40

    simulate(dut, bench, seed=rng.seed_value)


def test_a_lane_that_is_full():
    dut = Fence(2)

    async def bench(ctx):
        for count in range(200):
            assert ctx.get(dut.room) == (0b11 if count < 129 else 0b01)
            ctx.set(dut.enter, 0b10)
            await ctx.tick()
        ctx.set(dut.enter, 0)
        ctx.set(dut.leave, 0b10)
        for _ in range(75):
            await ctx.tick()
        assert ctx.get(dut.room) == 0b11

    simulate(dut, bench)


def test_converts():
    assert "module" in rtlil.convert(Fence(3))


def test_wrong_arguments():
    with pytest.raises(ValueError, match="not 0"):
        Fence(0)
