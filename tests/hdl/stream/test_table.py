import pytest
from amaranth.back import rtlil
from streams import make_rng, plain, simulate
from verbena.hdl.abi.contexts import CQ_CONTEXT, QP_CONTEXT
from verbena.hdl.stream.table import Table, kept_bits


@pytest.mark.parametrize(
    ("record", "names", "depth", "late"),
    [
        (QP_CONTEXT, ["state", "pd", "sq_base", "rq_cqn"], 8, []),
        (QP_CONTEXT, ["dest_mac", "rnr_retry", "hop_limit", "state", "min_rnr_timer"], 4, []),
        (CQ_CONTEXT, ["base", "valid"], 1, []),
        (QP_CONTEXT, ["qkey"], 64, []),
        (QP_CONTEXT, ["state", "log_sq_size", "sq_base", "rq_cqn"], 8, ["sq_base"]),
        (QP_CONTEXT, ["state", "log_sq_size", "sq_base", "rq_cqn"], 512, ["sq_base"]),
    ],
)
def test_listens_to_the_broadcast(record, names, depth, late):
    rng = make_rng()
    dut = Table(record, names, depth, late)
    contexts = [[0] * (record.size // 4) for _ in range(depth)]

    async def testbench(ctx):
        for _ in range(60):
            for _ in range(10):
                write = {
                    "index": rng.randrange(min(depth, 8)),
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
            index, apart = rng.randrange(min(depth, 8)), rng.randrange(2) if late else 0
            ctx.set(dut.index, index)
            if late:
                ctx.set(dut.apart, apart)
            await ctx.tick().repeat(2)
            whole = record.unpack(b"".join(word.to_bytes(4, "little") for word in contexts[index]))
            expected = {name: whole[name] & ~(0xFFF if name.endswith("base") else 0) for name in names}
            found = plain(ctx.get(dut.row))
            for name in names:
                assert found[name] == expected[name] or (name in late) != apart

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


@pytest.mark.parametrize(("depth", "rows"), [(64, 128), (256, 512), (512, 512)])
def test_late_fields_have_rows_of_their_own_if_there_are_some(depth, rows):
    dut = Table(QP_CONTEXT, ["state", "sq_base", "log_sq_size", "log_sq_stride"], depth, ["sq_base"])
    text = rtlil.convert(dut)
    assert f" size {rows} " in text


@pytest.mark.parametrize(
    ("late", "message"),
    [(["rq_base"], "late must be of names"), (["log_sq_size"], "late must have all names of their words")],
)
def test_late_names(late, message):
    with pytest.raises(ValueError, match=message):
        rtlil.convert(Table(QP_CONTEXT, ["state", "log_sq_size", "log_sq_stride"], 64, late))
