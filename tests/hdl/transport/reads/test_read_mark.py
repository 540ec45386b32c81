"""A READ's mark against the requirement: equal for each rest of it, different for what a peer may mistake for it."""

from random import Random

import pytest
from streams import simulate
from verbena.hdl.transport.reads.read_mark import ReadMark

MASK64, MASK24 = (1 << 64) - 1, (1 << 24) - 1


async def mark_of(ctx, dut, path_mtu, psn, address, length, key):
    packets = max(1, -(-length // (128 << path_mtu)))
    ctx.set(dut.end, (address + length) & MASK64)
    ctx.set(dut.key, key)
    ctx.set(dut.extent, {"length": length, "after": (psn + packets) & MASK24})
    ctx.set(dut.path_mtu, path_mtu)
    ctx.set(dut.load, 1)
    await ctx.tick()
    ctx.set(dut.load, 0)
    for signal in (dut.end, dut.key, dut.extent.length):
        ctx.set(signal, 0)
    await ctx.tick()
    return ctx.get(dut.mark)


@pytest.mark.parametrize("path_mtu", [1, 2, 3, 4, 5])
def test_marks(path_mtu):
    rng = Random(path_mtu)  # two different READs may by chance have the same mark
    dut = ReadMark()
    mtu = 128 << path_mtu

    async def script(ctx):
        seen = set()
        for _ in range(60):
            psn, address, key = rng.randrange(1 << 24), rng.randrange(1 << 64), rng.randrange(1 << 32)
            length = rng.choice([1, mtu, mtu + 1, rng.randrange(1, 1 << 16), rng.randrange(1, 1 << 31)])
            mark = await mark_of(ctx, dut, path_mtu, psn, address, length, key)
            seen.add(mark)
            for number in {0, (length - 1) // mtu, rng.randrange((length - 1) // mtu + 1)}:
                rest = psn + number, (address + number * mtu) & MASK64, length - number * mtu
                assert await mark_of(ctx, dut, path_mtu, *rest, key) == mark
            for change in (1, mtu // 2, mtu, 1 << 16, 1 << 40, 1 << 63):
                assert await mark_of(ctx, dut, path_mtu, psn, address ^ change, length, key) != mark
            for psn_change, address_change, length_change in (
                (0, 0, 1), (0, 0, mtu // 2), (0, 0, mtu), (0, mtu // 2, -(mtu // 2)), (0, mtu, -mtu), (0, -mtu, mtu),
                (1, mtu, 0), (1, 0, 0), (1, 0, -mtu), (-1, 0, 0), (-1, -mtu, 0),
            ):  # fmt: skip
                if length + length_change > 0:
                    other = psn + psn_change, (address + address_change) & MASK64, length + length_change
                    assert await mark_of(ctx, dut, path_mtu, *other, key) != mark, (psn_change, address_change)
            for bit in range(32):
                assert await mark_of(ctx, dut, path_mtu, psn, address, length, key ^ 1 << bit) != mark
        assert len(seen) >= 59

    simulate(dut, script)
