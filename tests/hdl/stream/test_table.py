import pytest
from streams import make_rng, plain, simulate
from verbena.hdl.abi.contexts import CQ_CONTEXT, QP_CONTEXT
from verbena.hdl.stream.table import Table


def test_words_of():
    assert Table.words_of(QP_CONTEXT, "state", "access") == [0]
    assert Table.words_of(QP_CONTEXT, "sq_base", "pd") == [1, 8, 9]
    assert Table.words_of(QP_CONTEXT, "dest_mac") == [4, 5]


@pytest.mark.parametrize(
    ("record", "names", "depth"),
    [
        (QP_CONTEXT, ["state", "pd", "sq_base", "rq_cqn"], 8),
        (CQ_CONTEXT, ["base", "valid"], 1),
        (QP_CONTEXT, ["qkey"], 64),
    ],
)
def test_listens_to_the_broadcast(record, names, depth):
    rng = make_rng()
    words = Table.words_of(record, *names)
    dut = Table(record, words, depth)
    contexts = [[0] * (record.size // 4) for _ in range(depth)]
    kept = {name for name, _ in dut.layout}
    assert set(names) <= kept

    async def testbench(ctx):
        for _ in range(60):
            for _ in range(10):
                write = {
                    "index": rng.randrange(depth),
                    "word": rng.randrange(record.size // 4),
                    "data": rng.getrandbits(32),
                }
                enable = rng.random() < 0.8
                ctx.set(dut.write, write)
                ctx.set(dut.write_en, enable)
                await ctx.tick()
                if enable:
                    contexts[write["index"]][write["word"]] = write["data"]
            ctx.set(dut.write_en, 0)
            index = rng.randrange(depth)
            ctx.set(dut.index, index)
            await ctx.tick().repeat(2)
            whole = record.unpack(b"".join(word.to_bytes(4, "little") for word in contexts[index]))
            assert plain(ctx.get(dut.row)) == {name: whole[name] for name in kept}

    simulate(dut, testbench, seed=rng.seed_value)
