import pytest
from amaranth.back import rtlil
from amaranth.lib import data
from streams import make_rng, plain, simulate
from verbena.hdl.stream.ram import Ram


@pytest.mark.parametrize("depth", [1, 2, 5, 64])
def test_row_comes_two_cycles_after_its_address(depth):
    rng = make_rng()
    dut = Ram(16, depth)
    rows = [0] * depth

    async def testbench(ctx):
        expected = []
        for cycle in range(400):
            if cycle >= 2:
                value = expected[cycle - 2]
                assert value is None or ctx.get(dut.r_data) == value
            w_addr, w_data, w_en, r_addr = (
                rng.randrange(depth),
                rng.getrandbits(16),
                rng.randrange(2),
                rng.randrange(depth),
            )
            ctx.set(dut.w_addr, w_addr)
            ctx.set(dut.w_data, w_data)
            ctx.set(dut.w_en, w_en)
            ctx.set(dut.r_addr, r_addr)
            expected.append(None if w_en and w_addr == r_addr else rows[r_addr])  # a collision is undefined
            if w_en:
                rows[w_addr] = w_data
            await ctx.tick()

    simulate(dut, testbench, seed=rng.seed_value)


def test_row_stays_until_a_read_begins():
    rng = make_rng()
    dut = Ram(16, 4)
    rows = [0] * 4

    async def testbench(ctx):
        shown, coming = 0, []  # what is to come in this cycle and the next two, None if nothing does
        for cycle in range(400):
            w_addr, w_data, r_addr, r_en = rng.randrange(4), rng.getrandbits(16), rng.randrange(4), rng.randrange(2)
            w_en = rng.randrange(2) and w_addr != r_addr
            for name, value in {"w_addr": w_addr, "w_data": w_data, "w_en": w_en, "r_addr": r_addr}.items():
                ctx.set(getattr(dut, name), value)
            ctx.set(dut.r_en, r_en)
            coming.append(rows[r_addr] if r_en else None)
            if w_en:
                rows[w_addr] = w_data
            await ctx.tick()
            if cycle:
                value = coming.pop(0)
                shown = shown if value is None else value
                assert ctx.get(dut.r_data) == shown

    simulate(dut, testbench, seed=rng.seed_value)


def test_lanes():
    rng = make_rng()
    dut = Ram(32, 4, granularity=8)
    row = bytearray(4)

    async def testbench(ctx):
        for _ in range(50):
            lanes, new = rng.getrandbits(4), rng.randbytes(4)
            ctx.set(dut.w_en, lanes)
            ctx.set(dut.w_data, int.from_bytes(new, "little"))
            await ctx.tick()
            ctx.set(dut.w_en, 0)
            for lane in range(4):
                if lanes >> lane & 1:
                    row[lane] = new[lane]
            await ctx.tick().repeat(2)
            assert ctx.get(dut.r_data) == int.from_bytes(row, "little")

    simulate(dut, testbench, seed=rng.seed_value)


def test_keeps_the_shape():
    layout = data.StructLayout({"a": 3, "b": data.ArrayLayout(4, 2)})
    dut = Ram(layout, 8)

    async def testbench(ctx):
        ctx.set(dut.w_data, {"a": 5, "b": [1, 2]})
        ctx.set(dut.w_en, 1)
        await ctx.tick()
        ctx.set(dut.w_en, 0)
        await ctx.tick().repeat(2)
        assert plain(ctx.get(dut.r_data)) == {"a": 5, "b": [1, 2]}

    simulate(dut, testbench)
    rtlil.convert(dut)


def test_refuses_wrong_parameters():
    with pytest.raises(ValueError, match="0"):
        Ram(8, 0)
    with pytest.raises(ValueError, match="3"):
        Ram(8, 4, granularity=3)
