import pytest
from amaranth.back import rtlil
from streams import check_reset_leaves_payload, make_rng, receive_all, send_all, simulate
from verbena.hdl.stream.packet import PacketBeat
from verbena.hdl.stream.skid import Skid


@pytest.mark.parametrize("stalls", [(0, 0), (0.3, 0.3), (0, 0.6), (0.6, 0)])
def test_order(stalls):
    rng = make_rng()
    dut = Skid(16)
    sent = [rng.randrange(1 << 16) for _ in range(500)]

    async def producer(ctx):
        await send_all(ctx, dut.i, sent, rng, stalls[0])

    async def consumer(ctx):
        assert await receive_all(ctx, dut.o, len(sent), rng, stalls[1]) == sent
        assert not ctx.get(dut.o.valid)

    simulate(dut, producer, consumer, seed=rng.seed_value)


def test_latency_throughput_and_cut():
    dut = Skid(16)

    async def testbench(ctx):
        ctx.set(dut.o.ready, 1)
        ctx.set(dut.i.valid, 1)
        for cycle in range(20):
            ctx.set(dut.i.payload, cycle)
            assert ctx.get(dut.i.ready)
            if cycle:
                assert ctx.get(dut.o.valid)
                assert ctx.get(dut.o.payload) == cycle - 1
            await ctx.tick()
        ctx.set(dut.o.ready, 0)
        assert ctx.get(dut.i.ready), "ready must be a register"
        await ctx.tick()
        assert not ctx.get(dut.i.ready)
        ctx.set(dut.o.ready, 1)
        assert not ctx.get(dut.i.ready), "ready must be a register"

    simulate(dut, testbench)


def test_keeps_the_shape():
    dut = Skid(PacketBeat(64))
    assert dut.o.payload.shape() == PacketBeat(64)
    rtlil.convert(dut)


def test_a_reset_leaves_the_payload():
    check_reset_leaves_payload(Skid(8))
