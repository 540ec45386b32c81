"""Interrupts that are wanted at random, against the times of their rises."""

from itertools import pairwise

import pytest
from streams import make_rng, simulate
from verbena.hdl.queue.interrupt_moderation import InterruptModeration

UNIT = 5


@pytest.mark.parametrize("interval", [0, 1, 7])
def test_random(interval):
    rng = make_rng()
    dut = InterruptModeration()
    rises = []
    wishes = []  # cycles in which it begins to be wanted

    async def user(ctx):
        ctx.set(dut.interval, interval)
        wanted = before = False
        since = 0
        for cycle in range(3000):
            ctx.set(dut.unit, cycle % UNIT == 0)
            if rng.random() < (0.2 if wanted else 0.05):
                wanted = not wanted
                since = cycle
                wishes.extend([cycle] * wanted)
            ctx.set(dut.wanted, wanted)
            await ctx.tick()
            now = ctx.get(dut.interrupt)
            assert wanted or not now
            if now and not before:
                rises.append(cycle)
                earliest = since if len(rises) == 1 else max(since, rises[-2] + (interval + bool(interval)) * UNIT)
                assert cycle <= earliest + 1
            assert ctx.get(dut.waits) <= (wanted and not now)
            before = now

    simulate(dut, user, seed=rng.seed_value)
    gaps = [late - early for early, late in pairwise(rises)]
    assert min(gaps) >= interval * UNIT
    if not interval:
        assert rises == wishes
    else:
        assert min(gaps) <= (interval + 1) * UNIT + 1
        assert len(rises) < len(wishes)


def test_a_wish_that_lasts_is_heard():
    """It waits for its time, and says so; after a quiet time it need not wait, nor without an interval."""
    dut = InterruptModeration()

    async def user(ctx):
        async def wait(wanted, cycles):
            ctx.set(dut.wanted, wanted)
            await ctx.tick().repeat(cycles)
            return ctx.get(dut.interrupt), ctx.get(dut.waits)

        ctx.set(dut.interval, 3)
        ctx.set(dut.unit, 1)
        assert await wait(1, 1) == (1, 0)
        assert await wait(0, 1) == (0, 0)
        assert await wait(1, 1) == (0, 1)
        assert await wait(1, 1) == (0, 1)
        assert await wait(1, 2) == (1, 0)
        assert await wait(0, 8) == (0, 0)
        assert await wait(1, 1) == (1, 0)
        assert await wait(0, 1) == (0, 0)
        assert await wait(1, 1) == (0, 1)
        ctx.set(dut.interval, 0)
        assert await wait(1, 2) == (1, 0)

    simulate(dut, user)
