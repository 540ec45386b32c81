"""A row that is watched while it is written."""

import pytest
from streams import make_rng, simulate
from verbena.hdl.transport.common.live_row import LiveRow


def test_against_array():
    rng = make_rng()
    dut = LiveRow(16, 4)
    rows = [0] * 4

    async def testbench(ctx):
        stable = 0  # cycles since address or row changed
        address, written = 0, False
        for _ in range(600):
            if rng.random() < 0.1:
                address = rng.randrange(4)
                ctx.set(dut.r_addr, address)
                stable = 0
            written = not written and rng.random() < 0.3
            ctx.set(dut.w_en, written)
            if written:
                row = rng.randrange(4)
                ctx.set(dut.w_addr, row)
                ctx.set(dut.w_data, value := rng.randrange(1 << 16))
            await ctx.tick()
            stable += 1
            if written:
                rows[row] = value
                if row == address:
                    stable = 0
            if stable >= 3:
                assert ctx.get(dut.row) == rows[address]

    simulate(dut, testbench, seed=rng.seed_value)


def test_arguments():
    with pytest.raises(ValueError, match="1"):
        LiveRow(16, 1)
