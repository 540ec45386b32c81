from itertools import pairwise

import pytest
from streams import simulate
from verbena.hdl.control.forced_swaps import ForcedSwaps


@pytest.mark.parametrize("living", [{0}, {2, 3, 7}, set(range(8)), set()])
def test_names_living_qps_one_after_the_other(living):
    """One each 20 cycles; those that there are not are passed over at once, and nobody is asked for ever."""
    dut = ForcedSwaps(8, 20)
    named, asked = [], []

    async def testbench(ctx):
        for cycle in range(1000):
            ctx.set(dut.o.ready, ctx.get(dut.o.valid))
            if ctx.get(dut.o.valid):
                qp = ctx.get(dut.o.payload)
                asked.append(cycle)
                ctx.set(dut.skip, qp not in living)
                if qp in living:
                    named.append((cycle, qp))
            await ctx.tick()

    simulate(dut, testbench)
    cycle = sorted(living)
    assert [qp for _, qp in named] == [cycle[n % len(cycle)] for n in range(len(named))] if living else not named
    assert all(20 <= after - before <= 20 + 8 for (before, _), (after, _) in pairwise(named))
    assert len(asked) < 8 * 1000 / 20
    assert not living or len(named) > 30
