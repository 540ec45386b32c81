import pytest
from streams import make_rng, plain, simulate
from verbena.hdl.abi.contexts import CQ_CONTEXT, QP_CONTEXT
from verbena.hdl.stream.table import Table, kept_bits


@pytest.mark.parametrize(
    ("record", "names", "depth"),
    [
        (QP_CONTEXT, ["state", "pd", "sq_base", "rq_cqn"], 8),
        (QP_CONTEXT, ["dest_mac", "rnr_retry", "hop_limit", "state", "min_rnr_timer"], 4),
        (CQ_CONTEXT, ["base", "valid"], 1),
        (QP_CONTEXT, ["qkey"], 64),
    ],
)
def test_listens_to_the_broadcast(record, names, depth):
    rng = make_rng()
    dut = Table(record, names, depth)
    contexts = [[0] * (record.size // 4) for _ in range(depth)]

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
            await ctx.tick()  # it is written
            index = rng.randrange(depth)
            ctx.set(dut.index, index)
            await ctx.tick().repeat(2)
            whole = record.unpack(b"".join(word.to_bytes(4, "little") for word in contexts[index]))
            expected = {name: whole[name] & ~(0xFFF if name.endswith("base") else 0) for name in names}
            assert plain(ctx.get(dut.row)) == expected

    simulate(dut, testbench, seed=rng.seed_value)


def test_keeps_what_is_wanted_in_few_bits():
    assert sum(field.width for _, field in Table(QP_CONTEXT, ["path_mtu", "pd"], 4).layout) == 28
    kept = kept_bits(QP_CONTEXT, ["path_mtu", "pd"])
    assert {word: [part[0] for part in parts] for word, parts in kept.items()} == {
        0: ["path_mtu"],
        1: ["pd"],
    }


def test_what_is_read_while_it_is_written_is_told():
    """`torn` follows the write, and says so of the row that was read in its cycle."""
    rng = make_rng()
    dut = Table(QP_CONTEXT, ["state", "pd"], 4)
    writes, told = [], []

    async def testbench(ctx):
        for _ in range(100):
            writes.append(rng.randrange(2))
            ctx.set(dut.write_en, writes[-1])
            _, _, writing, write_conflict = await ctx.tick().sample(dut.writing, dut.write_conflict)
            told.append((writing, write_conflict & 1, write_conflict >> 1))

    simulate(dut, testbench, seed=rng.seed_value)
    # The memory is written a cycle after the broadcast, and a row that is read meanwhile comes out 2 cycles later.
    assert told[3:] == list(zip(writes[2:-1], writes[1:-2], writes[:-3]))
