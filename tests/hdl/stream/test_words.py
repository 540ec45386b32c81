import pytest
from streams import make_rng, receive_all, send_all, simulate
from verbena.hdl.stream.words import WORD_BITS, StateWords


@pytest.mark.parametrize("width", [1, 64, 65, 130, 249])
def test_what_is_given_away_comes_back(width):
    """Words are the state's, the lowest first; what is taken is what was given, whatever the streams' pauses."""
    rng = make_rng()
    dut = StateWords(width)
    assert dut.words == -(-width // WORD_BITS)

    async def strobe(ctx, name):
        ctx.set(getattr(dut, name), 1)
        await ctx.tick()
        ctx.set(getattr(dut, name), 0)
        assert ctx.get(dut.busy)

    async def testbench(ctx):
        for _ in range(20):
            state, wake = rng.getrandbits(width), rng.getrandbits(1)
            ctx.set(dut.state, state)
            ctx.set(dut.wake, wake)
            await strobe(ctx, "save")
            ctx.set(dut.state, 0)
            ctx.set(dut.wake, 1 - wake)
            given = await receive_all(ctx, dut.saved, dut.words, rng)
            assert [word["last"] for word in given] == [0] * (dut.words - 1) + [1]
            assert given[-1]["wake"] == wake
            words = [word["data"] for word in given]
            assert words == [state >> WORD_BITS * n & (1 << WORD_BITS) - 1 for n in range(dut.words)]
            assert not ctx.get(dut.busy)
            assert not ctx.get(dut.saved.valid)
            await strobe(ctx, "load")
            assert not ctx.get(dut.saved.valid)
            await send_all(ctx, dut.loaded, words, rng)
            assert not ctx.get(dut.busy)
            assert not ctx.get(dut.loaded.ready)
            assert ctx.get(dut.value) == state

    simulate(dut, testbench, seed=rng.seed_value)
