"""Words of a QP's responses: what is given away comes back, and no row that does not count."""

import pytest
from streams import make_rng, receive_all, send_all, simulate
from verbena.hdl.transport.reads.response_swap import ResponseState, ResponseSwap


def random_bits(rng, signal):
    return rng.getrandbits(len(signal.as_value()))


async def rows(ctx, dut, kept):
    """The replay cache: a row 2 cycles after its slot, if somebody looks."""
    before = 0
    async for _, _, look, slot, write, row in ctx.tick().sample(dut.look, dut.slot, dut.write, dut.new_row.as_value()):
        if write:
            assert look
            kept[slot] = row
        ctx.set(dut.row.as_value(), before)
        before = kept.get(slot, 0) if look else 0


@pytest.mark.parametrize("count", [0, 1, 15, 16, 27])
def test_what_is_given_away_comes_back(count):
    rng = make_rng()
    dut = ResponseSwap()
    slots = range(min(count, 16))
    kept = {}

    async def testbench(ctx):
        for _ in range(5):
            state = random_bits(rng, dut.state)
            ctx.set(dut.state.as_value(), state)
            ctx.set(dut.state.place, {"slot": count % 16, "wrapped": count >= 16})
            state = ctx.get(dut.state.as_value())
            kept.update({slot: random_bits(rng, dut.row) for slot in range(16)})
            before = [kept[slot] for slot in slots]
            ctx.set(dut.save, 1)
            await ctx.tick()
            ctx.set(dut.save, 0)
            words = await receive_all(ctx, dut.saved, 2 + 2 * len(slots), rng)
            assert [word.last for word in words] == [0] * (len(words) - 1) + [1]
            values = [low.data | high.data << 64 for low, high in zip(words[::2], words[1::2])]
            assert [values[0] & (1 << ResponseState.size) - 1, *values[1:]] == [state, *before]
            while ctx.get(dut.busy):
                assert not ctx.get(dut.saved.valid)
                await ctx.tick()

            ctx.set(dut.state.as_value(), random_bits(rng, dut.state))
            kept.update(dict.fromkeys(range(16), 0))
            ctx.set(dut.load, 1)
            await ctx.tick()
            ctx.set(dut.load, 0)
            await send_all(ctx, dut.loaded, [word.data for word in words], rng)
            while ctx.get(dut.busy):
                assert not ctx.get(dut.loaded.ready)
                await ctx.tick()
            await ctx.tick()
            assert ctx.get(dut.loaded_state.as_value()) == state
            assert kept == {slot: before[slot] if slot in slots else 0 for slot in range(16)}

    async def background(ctx):
        await rows(ctx, dut, kept)

    simulate(dut, testbench, background=[background], seed=rng.seed_value)


@pytest.mark.parametrize("count", [0, 16])
def test_cycles(count):
    dut = ResponseSwap()

    async def testbench(ctx):
        ctx.set(dut.state.place.wrapped, count >= 16)
        ctx.set(dut.saved.ready, 1)
        ctx.set(dut.save, 1)
        await ctx.tick()
        ctx.set(dut.save, 0)
        cycles = 1
        while ctx.get(dut.busy):
            await ctx.tick()
            cycles += 1
        assert cycles == 5 + 4 * count

    simulate(dut, testbench)
