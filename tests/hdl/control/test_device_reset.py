"""The steps of DEVICE_RESET, and that they end."""

from streams import make_rng, simulate
from verbena.hdl.control import device_reset
from verbena.hdl.control.device_reset import DeviceReset


async def wait(ctx, signal, value=1, most=100):
    for count in range(most):
        if ctx.get(signal) == value:
            return count
        await ctx.tick()
    raise AssertionError(f"{signal!r} does not become {value}")


def test_steps():
    """Stop, close, reset, wait for the bus, release, wait for the tables. A clean reset is of the same life."""
    rng = make_rng()
    dut = DeviceReset()

    async def bench(ctx):
        for _ in range(20):
            ctx.set(dut.enable, 1)
            ctx.set(dut.swept, 1)
            ctx.set(dut.open, 1)
            ctx.set(dut.closed, 0)
            await ctx.tick()
            await wait(ctx, dut.stop, 0, 2)
            ctx.set(dut.request, 1)
            await ctx.tick()
            ctx.set(dut.request, 0)
            assert (ctx.get(dut.busy), ctx.get(dut.stop), ctx.get(dut.cut_wire), ctx.get(dut.cut)) == (1, 1, 1, 0)
            for _ in range(rng.randrange(30)):
                await ctx.tick()
                assert not ctx.get(dut.cut)
            ctx.set(dut.closed, 1)
            await wait(ctx, dut.cut, 1, 3)
            ctx.set(dut.swept, 0)
            for _ in range(rng.randrange(30)):
                await ctx.tick()
                assert ctx.get(dut.cut)
            ctx.set(dut.open, 0)
            assert await wait(ctx, dut.cut, 0, 20) >= 1
            assert not ctx.get(dut.forget)
            for _ in range(rng.randrange(30)):
                await ctx.tick()
                assert (ctx.get(dut.busy), ctx.get(dut.stop)) == (1, 1)
            ctx.set(dut.swept, 1)
            await wait(ctx, dut.busy, 0, 20)
            assert ctx.get(dut.life) == 0

    simulate(dut, bench, seed=rng.seed_value)


def test_the_reset_lasts_until_it_has_reached_everything():
    dut = DeviceReset()

    async def bench(ctx):
        ctx.set(dut.closed, 1)
        ctx.set(dut.swept, 1)
        ctx.set(dut.request, 1)
        await ctx.tick()
        ctx.set(dut.request, 0)
        await wait(ctx, dut.cut)
        assert await wait(ctx, dut.cut, 0) >= 8
        assert await wait(ctx, dut.busy, 0) >= 3

    simulate(dut, bench)


def test_bus_and_wire_that_never_answer(monkeypatch):
    """The reset ends all the same, each time into the other life; what is open is forgotten in one cycle."""
    monkeypatch.setattr(device_reset, "PATIENCE", 64)
    dut = DeviceReset()

    async def bench(ctx):
        ctx.set(dut.open, 1)
        ctx.set(dut.swept, 1)
        for life in (1, 0, 1):
            ctx.set(dut.request, 1)
            await ctx.tick()
            ctx.set(dut.request, 0)
            forgotten = cycles = 0
            while ctx.get(dut.busy):
                cycles += 1
                if ctx.get(dut.forget):
                    forgotten += 1
                    assert ctx.get(dut.cut)
                await ctx.tick()
            assert 2 * 64 < cycles <= 2 * 64 + 32
            assert (ctx.get(dut.life), forgotten) == (life, 1)

    simulate(dut, bench)


def test_stopped_without_enable():
    dut = DeviceReset()

    async def bench(ctx):
        assert ctx.get(dut.stop)
        for enable in (0, 1, 0, 1):
            ctx.set(dut.enable, enable)
            await ctx.tick()
            assert ctx.get(dut.stop) == 1 - enable
        assert not ctx.get(dut.busy)

    simulate(dut, bench)
