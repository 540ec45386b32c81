"""Entries that are kept, against a dictionary."""

import pytest
from streams import make_rng, simulate
from verbena.hdl.abi.tables import MPT
from verbena.hdl.memory.kept_entries import KeptEntries

ROWS = 4


def test_random():
    """What was put last in its row is there, and no other entry; what was dropped is not."""
    rng = make_rng()
    dut = KeptEntries(ROWS)
    kept = {}

    async def bench(ctx):
        for _ in range(2000):
            index = rng.choice([rng.randrange(8), rng.randrange(1 << 24)])
            entry = rng.getrandbits(8 * MPT.size)
            put, drop = rng.choice([(0, 0), (0, 0), (1, 0), (0, 1)])
            ctx.set(dut.index, index)
            ctx.set(dut.put_entry.as_value(), entry)
            ctx.set(dut.put, put)
            ctx.set(dut.drop, drop)
            await ctx.delay(0)
            there, content = kept.get(index % ROWS, (None, None))
            assert ctx.get(dut.here) == (there == index)
            if there == index:
                assert ctx.get(dut.entry.as_value()) == content
            await ctx.tick()
            if put:
                kept[index % ROWS] = index, entry
            if drop:
                kept.pop(index % ROWS, None)

    simulate(dut, bench, seed=rng.seed_value)


@pytest.mark.parametrize("rows", [0, 1, 3])
def test_bad_parameters(rows):
    with pytest.raises(ValueError, match=str(rows)):
        KeptEntries(rows)
