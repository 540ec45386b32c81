import pytest
from amaranth.hdl import ResetInserter, Signal
from streams import make_rng, receive_all, send_all, simulate
from verbena.hdl.stream.part_fifo import PartFifo


@pytest.mark.parametrize(("depth", "parts", "width"), [(2, 2, 8), (8, 4, 30), (32, 4, 269), (4, 8, 9)])
@pytest.mark.parametrize(("slow_in", "slow_out"), [(0, 0), (0.9, 0), (0, 0.9), (0.8, 0.8)])
def test_items_in_order(depth, parts, width, slow_in, slow_out):
    """With never more than ``depth`` inside."""
    rng = make_rng()
    dut = PartFifo(width, depth, parts)
    sent, got, levels = [rng.getrandbits(width) for _ in range(100)], [], []
    gone = []

    async def give(ctx):
        for number, item in enumerate(sent):
            while number - len(gone) == depth:
                await ctx.tick()
            levels.append(number + 1 - len(gone))
            await send_all(ctx, dut.i, [item], rng if slow_in else None, slow_in)

    async def take(ctx):
        for _ in range(depth * (parts + 2)):
            await ctx.tick()
        got.extend(await receive_all(ctx, dut.o, len(sent), rng if slow_out else None, slow_out))

    async def watch(ctx):
        async for _, _, goes in ctx.tick().sample(dut.o.valid & dut.o.ready):
            if goes:
                gone.append(goes)

    simulate(dut, give, take, background=[watch], seed=rng.seed_value)
    assert got == sent
    assert max(levels) == depth or slow_in


@pytest.mark.parametrize("parts", [2, 4, 8])
def test_cycles(parts):
    """An item each parts + 3 cycles, if they are there; and parts + 4 cycles through."""
    dut = PartFifo(32, 16, parts)
    taken, came = [], []

    async def testbench(ctx):
        ctx.set(dut.i.valid, 1)
        for cycle in range(20 * parts):
            ctx.set(dut.o.ready, cycle > 10 * parts)
            if ctx.get(dut.i.ready):
                taken.append(cycle)
            if ctx.get(dut.o.valid):
                came.append(cycle)
            await ctx.tick()

    simulate(dut, testbench)
    assert taken[:8] == list(range(0, 8 * (parts + 1), parts + 1))
    assert came[0] == parts + 4
    begun = 10 * parts + 1
    assert [cycle for cycle in came if cycle >= begun][:3] == [begun, begun + parts + 3, begun + 2 * (parts + 3)]


def test_reset_leaves_the_payload():
    dut, reset = PartFifo(24, 4, 2), Signal()

    async def testbench(ctx):
        await send_all(ctx, dut.i, [0x123456])
        while not ctx.get(dut.o.valid):
            await ctx.tick()
        ctx.set(reset, 1)
        await ctx.tick()
        assert (ctx.get(dut.o.valid), ctx.get(dut.o.payload)) == (0, 0x123456)

    simulate(ResetInserter(reset)(dut), testbench)


@pytest.mark.parametrize("depth", [0, 1, 12, 8.0])
def test_wrong_depth(depth):
    with pytest.raises(ValueError, match=f"depth must be a power of two, at least 2, not {depth!r}"):
        PartFifo(8, depth, 2)


@pytest.mark.parametrize("parts", [0, 1, 3, 2.0])
def test_wrong_parts(parts):
    with pytest.raises(ValueError, match=f"parts must be a power of two, at least 2, not {parts!r}"):
        PartFifo(8, 8, parts)
