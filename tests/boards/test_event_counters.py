"""Seldom events, counted."""

import pytest
from streams import make_rng, simulate
from verbena.boards.event_counters import EventCounters


@pytest.mark.parametrize("count", [2, 3, 14])
def test_none_is_lost(count):
    """As long as there are at most 3 of a kind in a round."""
    rng = make_rng()
    dut = EventCounters(count)
    wanted = [0] * count
    recent = [[] for _ in range(count)]
    got = {}

    async def testbench(ctx):
        for cycle in range(2000):
            strobes = 0
            for n in range(count):
                recent[n] = [at for at in recent[n] if at > cycle - count]
                if len(recent[n]) < 3 and rng.random() < 0.2:
                    recent[n].append(cycle)
                    wanted[n] += 1
                    strobes |= 1 << n
            ctx.set(dut.strobe, strobes)
            await ctx.tick()
        ctx.set(dut.strobe, 0)
        await ctx.tick().repeat(count + 1)
        for _ in range(count):
            *_, scan, value = await ctx.tick().sample(dut.scan, dut.value)
            got[scan] = value

    simulate(dut, testbench, seed=rng.seed_value)
    assert [got[n] for n in range(count)] == wanted


def test_a_single_counter():
    with pytest.raises(ValueError, match="count must be at least 2, not 1"):
        EventCounters(1)
