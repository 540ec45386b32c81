import pytest
from streams import make_rng, pause, receive_all, simulate
from verbena.hdl.stream.almost_full_fifo import AlmostFullFifo


@pytest.mark.parametrize("flight", [1, 3, 7, 12])
@pytest.mark.parametrize("stall", [0, 0.3, 0.8])
def test_pipeline(flight, stall):
    """What ``room`` lets begin finds a place, ``flight`` cycles later, and none is left unused for ever."""
    rng = make_rng()
    dut = AlmostFullFifo(16, flight)
    sent = [rng.randrange(1 << 16) for _ in range(300)]
    pipeline = [None] * (flight - 1)

    async def producer(ctx):
        items = iter(sent)
        async for *_, room in ctx.tick().sample(dut.room):
            # What is begun in this cycle may give an item in any of the cycles that follow.
            pipeline.append(next(items, None) if room and rng.random() < 0.9 else None)
            item = pipeline.pop(0)
            ctx.set(dut.i_valid, item is not None)
            ctx.set(dut.i, item or 0)

    async def consumer(ctx):
        got = []
        while len(got) < len(sent):
            if rng.random() < 0.02:
                await ctx.tick().repeat(40)
            got += await receive_all(ctx, dut.o, 1, rng, stall)
        assert got == sent
        await pause(ctx, rng, 0.5)
        assert not ctx.get(dut.o.valid)

    simulate(dut, consumer, background=[producer], seed=rng.seed_value)


def test_burst():
    """Every cycle of flight may bring an item of its own."""
    dut = AlmostFullFifo(8, 5)

    async def testbench(ctx):
        await ctx.tick()
        number = 0
        while ctx.get(dut.room):
            ctx.set(dut.i_valid, 1)
            ctx.set(dut.i, number)
            await ctx.tick()
            number += 1
        for _ in range(5):
            ctx.set(dut.i, number)
            await ctx.tick()
            number += 1
        ctx.set(dut.i_valid, 0)
        assert await receive_all(ctx, dut.o, number) == list(range(number))

    simulate(dut, testbench)


def test_arguments():
    with pytest.raises(ValueError, match="not 13"):
        AlmostFullFifo(8, 13)
