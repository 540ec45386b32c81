import pytest
from streams import make_rng, receive_all, send_all, simulate
from verbena.hdl.control.swap_buffer import SWAPPED, SwapBuffer


def test_each_block_gets_back_what_it_gave():
    """The blocks give side by side, and get theirs one after the other, whatever the streams' pauses."""
    rng = make_rng()
    dut = SwapBuffer(16)
    lives = [[[rng.getrandbits(64) for _ in range(rng.randint(1, 16))] for _ in SWAPPED] for _ in range(6)]
    begun, got = [], []

    def block(number):
        async def testbench(ctx):
            for life, words in enumerate(lives):
                while len(begun) <= life:
                    await ctx.tick()
                mine = words[number]
                items = [{"data": word, "last": place == len(mine) - 1} for place, word in enumerate(mine)]
                await send_all(ctx, dut.saved[number], items, rng)
                assert await receive_all(ctx, dut.loaded[number], len(mine), rng) == mine
                assert not got or got[-1] < (life, number)  # in their order
                got.append((life, number))

        return testbench

    async def owner(ctx):
        for life in range(len(lives)):
            ctx.set(dut.begin, 1)
            await ctx.tick()
            ctx.set(dut.begin, 0)
            begun.append(life)
            while not ctx.get(dut.full):
                await ctx.tick()
            assert len(got) == life * len(SWAPPED)
            ctx.set(dut.back, 1)
            while len(got) < (life + 1) * len(SWAPPED):
                await ctx.tick()
            ctx.set(dut.back, 0)
            await ctx.tick()

    simulate(dut, owner, *map(block, range(len(SWAPPED))), seed=rng.seed_value)


@pytest.mark.parametrize("words", [0, 1, 3, 2.0])
def test_bad_sizes(words):
    with pytest.raises(ValueError, match="power of two"):
        SwapBuffer(words)
