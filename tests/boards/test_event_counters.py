"""Seldom events, counted."""

from streams import make_rng, simulate
from verbena.boards.event_counters import EventCounters


def test_none_is_lost():
    """As long as there are at most 3 of a kind in a round."""
    rng = make_rng()
    dut = EventCounters(14)
    wanted = [0] * 14
    recent = [[] for _ in range(14)]
    got = {}

    async def testbench(ctx):
        for cycle in range(2000):
            strobes = 0
            for n in range(14):
                recent[n] = [at for at in recent[n] if at > cycle - 14]
                if len(recent[n]) < 3 and rng.random() < 0.2:
                    recent[n].append(cycle)
                    wanted[n] += 1
                    strobes |= 1 << n
            ctx.set(dut.strobe, strobes)
            await ctx.tick()
        ctx.set(dut.strobe, 0)
        await ctx.tick().repeat(15)
        for _ in range(14):
            *_, scan, value = await ctx.tick().sample(dut.scan, dut.value)
            got[scan] = value

    simulate(dut, testbench, seed=rng.seed_value)
    assert [got[n] for n in range(14)] == wanted
