"""What is written is broadcast once, and kept."""

from streams import make_rng, simulate
from verbena.hdl.control.contexts import Contexts


def test_broadcast_and_read_back():
    rng = make_rng()
    dut = Contexts(8)
    kept = {}
    expected, heard = [], []

    async def host(ctx):
        for _ in range(100):
            number, word, data = rng.randrange(8), rng.randrange(32), rng.getrandbits(32)
            kind = rng.choice(["qp", "cq"])
            for port, value in ((dut.number, number), (dut.word, word), (dut.data, data)):
                ctx.set(port, value)
            ctx.set(getattr(dut, f"write_{kind}"), 1)
            await ctx.tick()
            ctx.set(getattr(dut, f"write_{kind}"), 0)
            expected.append((kind, number, word, data))
            if kind == "qp":
                kept[number, word] = data
        await ctx.tick()
        for (number, word), data in kept.items():
            ctx.set(dut.number, number)
            ctx.set(dut.word, word)
            await ctx.tick()
            await ctx.tick()
            assert ctx.get(dut.row) == data
        assert heard == expected

    async def listen(ctx):
        ports = (dut.qp_attribute_en, dut.qp_attribute, dut.cq_attribute_en, dut.cq_attribute)
        async for _, _, qp_en, qp, cq_en, cq in ctx.tick().sample(*ports):
            for kind, enable, item in (("qp", qp_en, qp), ("cq", cq_en, cq)):
                if enable:
                    heard.append((kind, item.index, item.word, item.data))

    simulate(dut, host, background=[listen], seed=rng.seed_value)
