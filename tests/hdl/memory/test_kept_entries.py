"""Entries that are kept, against a dictionary."""

import pytest
from streams import make_rng, simulate
from verbena.hdl.abi.tables import MPT
from verbena.hdl.memory.kept_entries import KeptEntries

ROWS = 4


def test_random():
    """What was put last in its row is there, and no other entry; what was dropped is not, nor what was not looked for
    long enough, but for rows that were written at that moment."""
    rng = make_rng()
    dut = KeptEntries(ROWS)
    kept, found = {}, 0

    async def bench(ctx):
        nonlocal found
        index = 0
        for cycle in range(4000):
            if cycle % 3 == 0:
                index = rng.choice([rng.randrange(8), rng.randrange(1 << 24)])
            changed = rng.choice([rng.randrange(8), rng.randrange(1 << 24)])
            entry = rng.getrandbits(8 * MPT.size)
            put, drop = rng.choice([(0, 0), (0, 0), (1, 0), (0, 1)])
            ctx.set(dut.index, index)
            ctx.set(dut.put_index, changed)
            ctx.set(dut.put_entry.as_value(), entry)
            ctx.set(dut.put, put)
            ctx.set(dut.drop, drop)
            await ctx.delay(0)
            if cycle % 3 == 0:
                there, content = kept.get(index % ROWS, (None, None))
                written = (put or drop) and changed % ROWS == index % ROWS
            elif cycle % 3 == 2:
                assert ctx.get(dut.here) == (there == index and not written)
                if ctx.get(dut.here):
                    assert ctx.get(dut.entry.as_value()) == content
                    found += 1
            await ctx.tick()
            if put and cycle >= ROWS:
                kept[changed % ROWS] = changed, entry
            if drop:
                kept.pop(changed % ROWS, None)

    simulate(dut, bench, seed=rng.seed_value)
    assert found > 50


@pytest.mark.parametrize("rows", [0, 1, 3])
def test_bad_parameters(rows):
    with pytest.raises(ValueError, match=str(rows)):
        KeptEntries(rows)
