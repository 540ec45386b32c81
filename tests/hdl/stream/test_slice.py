"""The slice keeps order and content, and lets no signal through."""

import pytest
from amaranth.lib import data
from streams import check_reset_leaves_payload, make_rng, receive_all, send_all, simulate
from verbena.hdl.stream.slice import Slice


@pytest.mark.parametrize("stall", [0, 0.5])
def test_order(stall):
    rng = make_rng()
    dut = Slice(data.StructLayout({"a": 5, "b": 3}))
    sent = [{"a": rng.randrange(32), "b": rng.randrange(8)} for _ in range(100)]

    async def producer(ctx):
        await send_all(ctx, dut.i, sent, rng, stall)

    async def consumer(ctx):
        assert await receive_all(ctx, dut.o, len(sent), rng, stall) == sent

    simulate(dut, producer, consumer, seed=rng.seed_value)


def test_neither_side_sees_the_other_in_the_same_cycle():
    dut = Slice(8)

    async def testbench(ctx):
        ctx.set(dut.i.valid, 1)
        assert not ctx.get(dut.o.valid)
        await ctx.tick()
        assert ctx.get(dut.o.valid)
        for ready in (1, 0, 1):
            ctx.set(dut.o.ready, ready)
            assert not ctx.get(dut.i.ready)
        await ctx.tick()
        assert ctx.get(dut.i.ready)
        assert not ctx.get(dut.o.valid)

    simulate(dut, testbench)


def test_a_reset_leaves_the_payload():
    check_reset_leaves_payload(Slice(8))
