"""The set of ids that wait, against one of Python's."""

import pytest
from amaranth.hdl import ResetInserter, Signal
from streams import make_rng, receive_all, send_all, simulate
from verbena.hdl.stream.waiting_set import LANES, WaitingSet


@pytest.mark.parametrize("count", [2, 4, 8, 64])
def test_whoever_is_added_comes(count):
    """Each id comes once at least behind its last addition, never without one of its own, and before so many others."""
    rng = make_rng()
    dut = WaitingSet(count)

    async def testbench(ctx):
        unused = [0] * count  # additions that nothing has answered
        behind = {}  # of each id that must come: how many have come since it was added
        for time in range(4000):
            quiet = time % 500 > 300
            add = rng.randrange(count) if rng.random() < 0.4 and not quiet else None
            ready = quiet or rng.random() < 0.5
            ctx.set(dut.i.payload, rng.randrange(count) if add is None else add)
            ctx.set(dut.i.valid, add is not None)
            ctx.set(dut.o.ready, ready)
            assert ctx.get(dut.i.ready)
            assert not ctx.get(dut.empty) or not (behind or ctx.get(dut.o.valid))
            if ctx.get(dut.o.valid) and ready:
                number = ctx.get(dut.o.payload)
                assert unused[number]
                unused[number] -= 1
                behind.pop(number, None)
                for other in behind:
                    behind[other] += 1
                    assert behind[other] <= 2 * count + LANES - 1
                if time % 500 > 304:
                    unused[number] = min(unused[number], 1)  # at the output and in its row: no more than that
            if add is not None:
                unused[add] += 1
                behind.setdefault(add, 0)
            if time % 500 == 499:
                assert not behind
                assert ctx.get(dut.empty)
                assert not ctx.get(dut.o.valid)
                unused = [0] * count
            await ctx.tick()

    simulate(dut, testbench, seed=rng.seed_value)


def test_nobody_waits_for_ever():
    """Others are added just when they may pass: each second one waits for the rows."""
    dut = WaitingSet(64)

    async def testbench(ctx):
        await send_all(ctx, dut.i, [0, 63])
        ctx.set(dut.o.ready, 1)
        others = 0
        while ctx.get(dut.o.payload) != 63 or not ctx.get(dut.o.valid):
            others += ctx.get(dut.o.valid)
            ctx.set(dut.i.valid, not ctx.get(dut.o.valid) and not ctx.get(dut.i.valid))
            ctx.set(dut.i.payload, 5)
            await ctx.tick()
            assert others <= 131

    simulate(dut, testbench)


def test_latency():
    dut = WaitingSet(64)

    async def testbench(ctx):
        for qp in (0, 7, 62):
            await send_all(ctx, dut.i, [qp])
            assert ctx.get(dut.o.valid)
            await send_all(ctx, dut.i, [qp ^ 5])  # waits in its row
            assert await receive_all(ctx, dut.o, 1) == [qp]
            for _ in range(16):
                if ctx.get(dut.o.valid):
                    break
                await ctx.tick()
            assert await receive_all(ctx, dut.o, 1) == [qp ^ 5]
            assert not ctx.get(dut.o.valid)
            await ctx.tick()

    simulate(dut, testbench)


def test_a_reset_forgets_all():
    dut, reset = WaitingSet(16), Signal()

    async def testbench(ctx):
        await send_all(ctx, dut.i, list(range(16)))
        ctx.set(reset, 1)
        await ctx.tick()
        ctx.set(reset, 0)
        await send_all(ctx, dut.i, [3])
        for _ in range(10):
            assert ctx.get(dut.empty)
            assert not ctx.get(dut.o.valid)
            await ctx.tick()
        await send_all(ctx, dut.i, [3, 9])
        await ctx.tick().repeat(10)
        assert sorted(await receive_all(ctx, dut.o, 2)) == [3, 9]
        await ctx.tick().repeat(10)
        assert not ctx.get(dut.o.valid)

    simulate(ResetInserter(reset)(dut), testbench)


@pytest.mark.parametrize("count", [1, 6, "8"])
def test_arguments(count):
    with pytest.raises(ValueError, match="count"):
        WaitingSet(count)
