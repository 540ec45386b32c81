"""A strobe in a quarter of a tick."""

from itertools import pairwise

import pytest
from streams import simulate
from verbena.hdl.queue.moderation_clock import ModerationClock


@pytest.mark.parametrize(("tick", "cycles"), [(0, 1), (3, 1), (4, 1), (11, 2), (512, 128)])
def test_unit(tick, cycles):
    dut = ModerationClock()

    async def check(ctx):
        ctx.set(dut.tick, tick)
        strobes = []
        async for cycle, (_, _, unit) in _counted(ctx.tick().sample(dut.unit)):
            if unit:
                strobes.append(cycle)
            if cycle == 5 * cycles + 8:
                break
        assert {late - early for early, late in pairwise(strobes[1:])} == {cycles}

    simulate(dut, check)


async def _counted(items):
    count = 0
    async for item in items:
        yield count, item
        count += 1
