"""Bytes to beats and back."""

import pytest
from ether_frames import beats, frames_of
from streams import collect, make_rng, plain, send_all, simulate
from verbena.hdl.ethernet.byte_lanes import BeatsToBytes, BytesToBeats

WIDTHS = [64, 128, 512]


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("stall", [0, 0.3])
def test_beats_to_bytes(width, stall):
    rng = make_rng()
    dut = BeatsToBytes(width)
    frames = [rng.randbytes(rng.randrange(1, 200)) for _ in range(20)]
    got, cycles = [], []

    async def sender(ctx):
        items = [beat for frame in frames for beat in beats(frame, width, rng=rng)]
        await send_all(ctx, dut.i, items, rng, stall)
        while len(got) < sum(map(len, frames)):
            await ctx.tick()

    async def reader(ctx):
        await collect(ctx, dut.o, got, rng, stall)

    async def clock(ctx):
        async for *_, valid in ctx.tick().sample(dut.o.valid):
            cycles.append(valid)

    simulate(dut, sender, background=[reader, clock], seed=rng.seed_value)
    assert [item.data for item in got] == [*b"".join(frames)]
    assert [n for n, item in enumerate(got) if item.last] == [sum(map(len, frames[: n + 1])) - 1 for n in range(20)]
    if not stall:
        first = cycles.index(1)
        assert all(cycles[first : first + len(got)])  # never a pause


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("stall", [0, 0.5])
def test_bytes_to_beats(width, stall):
    rng = make_rng()
    dut = BytesToBeats(width)
    frames = [(rng.randbytes(rng.randrange(1, 200)), rng.randrange(2)) for _ in range(30)]
    got = []

    async def sender(ctx):
        for frame, error in frames:
            for n, byte in enumerate(frame):
                while rng.random() < stall:
                    await ctx.tick()
                last = n == len(frame) - 1
                ctx.set(dut.i, {"data": byte, "last": last, "error": error and last})
                ctx.set(dut.i_valid, 1)
                await ctx.tick()
                ctx.set(dut.i_valid, 0)
        await ctx.tick().repeat(2)

    async def reader(ctx):
        async for *_, valid, beat in ctx.tick().sample(dut.o_valid, dut.o):
            if valid:
                got.append(plain(beat))

    simulate(dut, sender, background=[reader], seed=rng.seed_value)
    assert frames_of(got, width) == frames
