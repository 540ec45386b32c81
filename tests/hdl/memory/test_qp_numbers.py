"""Numbers of the QPs in the slots."""

from streams import make_rng, simulate
from verbena.hdl.abi.contexts import QP_CONTEXT
from verbena.hdl.memory.qp_numbers import QpNumbers

QPS = 8
WORD = QP_CONTEXT.fields["qpn"].offset // 32


def test_random():
    """The one that was written last, two cycles before or earlier; other words change nothing."""
    rng = make_rng()
    dut = QpNumbers(QPS)
    numbers, pending = {}, []

    async def bench(ctx):
        for _ in range(1000):
            write, index = rng.random() < 0.5, rng.randrange(QPS)
            word, data = rng.choice([WORD, WORD, WORD - 1, 0]), rng.getrandbits(32)
            ctx.set(dut.attribute_en, write)
            ctx.set(dut.attribute, {"index": index, "word": word, "data": data})
            qp = rng.randrange(QPS)
            ctx.set(dut.qp, qp)
            await ctx.delay(0)
            if qp in numbers and all(place != qp for place, _ in pending):
                assert ctx.get(dut.qpn) == numbers[qp]
            await ctx.tick()
            if len(pending) == 2 or (pending and not write):
                numbers.update([pending.pop(0)])
            if write and word == WORD:
                pending.append((index, data & 0xFFFFFF))
                if len(pending) > 1:
                    numbers.update([pending.pop(0)])

    simulate(dut, bench, seed=rng.seed_value)
