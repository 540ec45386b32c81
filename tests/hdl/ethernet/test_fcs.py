"""The FCS against zlib."""

import zlib

from streams import make_rng, simulate
from verbena.hdl.ethernet.fcs import RESIDUE, Fcs


def test_against_zlib():
    rng = make_rng()
    dut = Fcs()

    async def testbench(ctx):
        for size in [*range(20), 1500]:
            ctx.set(dut.start, 1)
            ctx.set(dut.valid, rng.randrange(2))
            await ctx.tick()
            ctx.set(dut.start, 0)
            frame = rng.randbytes(size)
            fcs = zlib.crc32(frame).to_bytes(4, "little")
            for number, byte in enumerate(frame + fcs):
                if number == size:
                    assert ~ctx.get(dut.state) & 0xFFFFFFFF == zlib.crc32(frame)
                while rng.random() < 0.1:
                    ctx.set(dut.data, rng.randrange(256))
                    ctx.set(dut.valid, 0)
                    await ctx.tick()
                ctx.set(dut.data, byte)
                ctx.set(dut.valid, 1)
                await ctx.tick()
            assert ctx.get(dut.state) == RESIDUE

    simulate(dut, testbench, seed=rng.seed_value)
