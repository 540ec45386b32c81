"""The flush queue: failed QPs only."""

from streams import send_all, simulate
from verbena.hdl.transport.responder.flush_queue import FlushQueue

QPS = 8


def test_only_failed_qps_come_out():
    dut = FlushQueue(QPS)
    got = []

    async def strobe(ctx, signal, qp):
        ctx.set(dut.qp, qp)
        ctx.set(signal, 1)
        await ctx.tick()
        ctx.set(signal, 0)

    async def expect(ctx, *qps):
        ctx.set(dut.o.ready, 1)
        for _ in range(20):
            _, _, valid, qp = await ctx.tick().sample(dut.o.valid, dut.o.payload)
            if valid:
                got.append(qp)
        ctx.set(dut.o.ready, 0)
        assert sorted(got) == sorted(qps)
        got.clear()

    async def script(ctx):
        await send_all(ctx, dut.arrived, [1, 2, 3])
        await expect(ctx)
        await strobe(ctx, dut.fail, 2)
        await strobe(ctx, dut.fail, 5)
        await expect(ctx, 2, 5)
        await send_all(ctx, dut.arrived, [1, 5, 3, 2, 2])
        await expect(ctx, 5, 2)
        await strobe(ctx, dut.reset, 5)
        await send_all(ctx, dut.arrived, [5, 2])
        await expect(ctx, 2)
        await strobe(ctx, dut.add, 2)
        await expect(ctx, 2)
        # An arrival waits behind a strobe, and is not lost.
        await strobe(ctx, dut.fail, 7)
        assert not ctx.get(dut.arrived.ready)
        await send_all(ctx, dut.arrived, [2])
        await expect(ctx, 7, 2)

    simulate(dut, script)
