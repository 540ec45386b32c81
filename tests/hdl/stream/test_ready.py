import pytest
from streams import make_rng, receive_all, send_all, simulate
from verbena.hdl.stream.ready import ReadyQueue


def test_each_once_in_order_of_arrival():
    dut = ReadyQueue(8)

    async def testbench(ctx):
        await send_all(ctx, dut.i, [3, 3, 5, 1, 5, 3, 1, 7])
        # The first 3 went on to the output as the second came, which was queued again; the third found that one there.
        assert await receive_all(ctx, dut.o, 5) == [3, 3, 5, 1, 7]
        assert not ctx.get(dut.o.valid)
        assert ctx.get(dut.empty)

    simulate(dut, testbench)


def test_latency():
    dut = ReadyQueue(4)

    async def testbench(ctx):
        assert ctx.get(dut.empty)
        await send_all(ctx, dut.i, [2])
        assert not ctx.get(dut.o.valid)
        assert not ctx.get(dut.empty)
        await ctx.tick()
        assert ctx.get(dut.o.valid)
        assert not ctx.get(dut.empty)

    simulate(dut, testbench)


@pytest.mark.parametrize("count", [2, 4, 16])
@pytest.mark.parametrize("stalls", [(0, 0), (0.3, 0.3), (0, 0.8), (0.8, 0)])
def test_no_addition_is_forgotten(count, stalls):
    """Against a model: the ids that wait, in order; the one at the output no longer waits."""
    rng = make_rng()
    dut = ReadyQueue(count)

    async def testbench(ctx):
        waiting, output = [], None
        for _ in range(1500):
            add = rng.randrange(count) if rng.random() >= stalls[0] else None
            ready = rng.random() >= stalls[1]
            ctx.set(dut.i.payload, add or 0)
            ctx.set(dut.i.valid, add is not None)
            ctx.set(dut.o.ready, ready)
            assert ctx.get(dut.i.ready)
            assert ctx.get(dut.o.valid) == (output is not None)
            assert ctx.get(dut.empty) == (output is None and not waiting)
            if output is not None:
                assert ctx.get(dut.o.payload) == output
            if output is None or ready:
                output = waiting.pop(0) if waiting else None
            if add is not None and add not in waiting:
                waiting.append(add)
            await ctx.tick()

    simulate(dut, testbench, seed=rng.seed_value)


@pytest.mark.parametrize("count", [1, 3, 0])
def test_refuses_a_wrong_count(count):
    with pytest.raises(ValueError, match=str(count)):
        ReadyQueue(count)
