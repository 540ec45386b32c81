"""Two words of a context."""

from streams import changes, make_rng, plain, simulate
from verbena.hdl.abi.contexts import QP_CONTEXT_WORDS
from verbena.hdl.control.qp_look import QPN_WORD, QpLook


def test_the_number_and_word_0_come_after_5_cycles_and_stay():
    rng = make_rng()
    dut = QpLook()
    table = [rng.getrandbits(32) for _ in range(QP_CONTEXT_WORDS)]

    async def contexts(ctx):
        rows, put = [0, 0], changes(ctx)
        while True:
            put(dut.row, table[rows[0]])
            rows = [rows[1], ctx.get(dut.word)]
            await ctx.tick()

    async def host(ctx):
        for _ in range(3):
            ctx.set(dut.look, 1)
            await ctx.tick()
            ctx.set(dut.look, 0)
            for cycle in range(4):
                assert not ctx.get(dut.looked)
                assert ctx.get(dut.word) == (QPN_WORD if cycle == 0 else 0)
                await ctx.tick()
            assert ctx.get(dut.looked)
            assert ctx.get(dut.qpn) == table[QPN_WORD] & 0xFFFFFF
            first = ctx.get(dut.first.as_value())
            assert first == table[0]
            assert plain(ctx.get(dut.first))["state"] == first & 15
            await ctx.tick()
            table[:] = [rng.getrandbits(32) for _ in table]
            for _ in range(6):
                assert not ctx.get(dut.looked)
                await ctx.tick()
            assert ctx.get(dut.first.as_value()) == first

    simulate(dut, host, background=[contexts], seed=rng.seed_value)
