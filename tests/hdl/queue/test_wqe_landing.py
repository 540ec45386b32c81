"""WqeLanding: the words of a pushed WQE, and the cycle in which its block becomes its ring's."""

import pytest
from streams import send_all, shared, simulate
from verbena.hdl.queue.wqe_landing import WqeLanding

BLOCKS, SIZE = 4, 256


@pytest.mark.parametrize(("stride", "words"), [(6, 8), (7, 16)])
@pytest.mark.parametrize("busy", [0, 5])
def test_a_wqe_lands(stride, words, busy):
    """All its words are in the spare block, at the place that its index says; it lands once, and not while others take
    blocks or tell of WQEs."""
    dut = shared(WqeLanding, 8, BLOCKS, SIZE, range(6, 8))

    async def testbench(ctx):
        for signal, value in (
            (dut.qp, 3),
            (dut.index, 6),
            (dut.stride, stride),
            (dut.spare, 2),
            (dut.spare_valid, 1),
            (dut.free, 1),
            (dut.room, 1),
        ):
            ctx.set(signal, value)
        await ctx.tick().repeat(40)  # the buffer is cleared
        await send_all(ctx, dut.push, [{"qp": 3, "word": at, "data": 0x100 + at} for at in range(2 * words)])
        await ctx.tick().repeat(2)
        assert ctx.get(dut.mine)
        ctx.set(dut.heard, 1)
        ctx.set(dut.pushed, 1)
        ctx.set(dut.busy, busy > 0)
        put, cycles = {}, 0
        while not ctx.get(dut.lands):
            if ctx.get(dut.put_en) and cycles <= words:
                put[ctx.get(dut.put_addr)] = ctx.get(dut.put_word)
            await ctx.tick()
            ctx.set(dut.heard, 0)
            cycles += 1
            if cycles == words + 1 + busy:
                ctx.set(dut.busy, 0)
            assert cycles <= words + 1 + busy
        assert cycles == words + 1 + busy
        assert ctx.get(dut.wqe_index) == 5
        first = 2 * SIZE // 8 + 5 * words % (SIZE // 8)
        assert put == {first + at: (0x101 + 2 * at) << 32 | 0x100 + 2 * at for at in range(words)}
        ctx.set(dut.pushed, 0)
        await ctx.tick()
        for _ in range(4):
            assert not ctx.get(dut.lands)
            await ctx.tick()

    simulate(dut, testbench)
