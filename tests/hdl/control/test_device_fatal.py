"""DEVICE_FATAL is told once."""

from streams import collect, make_rng, simulate
from verbena.hdl.abi.eqe import EventType
from verbena.hdl.control.device_fatal import DeviceFatal


def test_told_once():
    rng = make_rng()
    dut = DeviceFatal()
    events = []

    async def listen(ctx):
        await collect(ctx, dut.event, events, rng)

    async def bench(ctx):
        for _ in range(20):
            await ctx.tick()
        assert events == []
        ctx.set(dut.overdue, 1)
        for _ in range(100):
            await ctx.tick()

    simulate(dut, bench, background=[listen], seed=rng.seed_value)
    assert events == [{"type": EventType.DEVICE_FATAL, "number": 0}]
