"""Every id that is added comes out, and soon; none comes out that was not."""

import pytest
from streams import make_rng, simulate
from verbena.hdl.transport.retry_set import RetrySet

COUNT = 8


def test_set():
    rng = make_rng()
    dut = RetrySet(COUNT)
    waiting = set()

    async def testbench(ctx):
        taken = 0
        for cycle in range(1500):
            add = rng.randrange(COUNT) if rng.random() < (0.2 if cycle < 1400 else 0) else None
            ctx.set(dut.i.valid, add is not None)
            ctx.set(dut.i.payload, add or 0)
            ctx.set(dut.o.ready, rng.random() < 0.6)
            assert ctx.get(dut.i.ready)
            if ctx.get(dut.o.valid):
                who = ctx.get(dut.o.payload)
                if seen[-1] != who:
                    waiting.remove(who)  # what is added from now on comes once more
                    seen.append(who)
                if ctx.get(dut.o.ready):
                    seen.append(None)
                    taken += 1
            if add is not None:
                waiting.add(add)
            await ctx.tick()
        assert taken > 100

    seen = [None]  # at the output
    simulate(dut, testbench, seed=rng.seed_value)
    assert waiting == set()


def test_latency():
    dut = RetrySet(COUNT)

    async def testbench(ctx):
        for who in [*range(COUNT), 3, 3, 0]:
            ctx.set(dut.i.payload, who)
            ctx.set(dut.i.valid, 1)
            await ctx.tick()
            ctx.set(dut.i.valid, 0)
            for _ in range(COUNT + 2):
                if ctx.get(dut.o.valid):
                    break
                await ctx.tick()
            assert (ctx.get(dut.o.valid), ctx.get(dut.o.payload)) == (1, who)
            ctx.set(dut.o.ready, 1)
            await ctx.tick()
            ctx.set(dut.o.ready, 0)
            assert not ctx.get(dut.o.valid)

    simulate(dut, testbench)


@pytest.mark.parametrize("count", [1, 6])
def test_arguments(count):
    with pytest.raises(ValueError, match=str(count)):
        RetrySet(count)
