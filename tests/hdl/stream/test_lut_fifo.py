import pytest
from streams import make_rng, receive_all, send_all, simulate
from verbena.hdl.stream.lut_fifo import LutFifo


@pytest.mark.parametrize("depth", [2, 16, 64])
@pytest.mark.parametrize(("slow_in", "slow_out"), [(0, 0), (0.5, 0), (0, 0.5), (0.4, 0.4)])
def test_items_in_order(depth, slow_in, slow_out):
    rng = make_rng()
    dut = LutFifo(9, depth)
    sent, got, levels = [rng.getrandbits(9) for _ in range(300)], [], []

    async def give(ctx):
        await send_all(ctx, dut.i, sent, rng if slow_in else None, slow_in)

    async def take(ctx):
        await ctx.tick().repeat(2 * depth)  # it fills up first
        got.extend(await receive_all(ctx, dut.o, len(sent), rng if slow_out else None, slow_out))

    async def watch(ctx):
        inside = 0
        moves = ctx.tick().sample(dut.level, dut.i.ready, dut.o.valid, dut.i.valid, dut.o.ready)
        async for _, _, level, room, some, comes, goes in moves:
            assert (level, room, some) == (inside, inside < depth, inside > 0)
            inside += (comes & room) - (goes & some)
            levels.append(inside)

    simulate(dut, give, take, background=[watch], seed=rng.seed_value)
    assert got == sent
    assert max(levels) == depth or slow_in


def test_an_item_comes_out_in_the_next_cycle():
    dut = LutFifo(8, 4)

    async def bench(ctx):
        ctx.set(dut.o.ready, 1)
        for value in range(20):
            ctx.set(dut.i.payload, value)
            ctx.set(dut.i.valid, 1)
            await ctx.tick()
            assert ctx.get(dut.o.valid)
            assert ctx.get(dut.o.payload) == value

    simulate(dut, bench)


@pytest.mark.parametrize("depth", [0, 1, 12, 8.0])
def test_wrong_arguments(depth):
    with pytest.raises(ValueError, match=f"depth must be a power of two, at least 2, not {depth!r}"):
        LutFifo(8, depth)
