"""Frames as they go out, against zlib."""

import zlib

import pytest
from ether_frames import padded
from streams import changes, make_rng, send_all, simulate
from verbena.hdl.ethernet.frame_transmit import FrameTransmit

SIZES = [1, 14, 41, 42, 59, 60, 61, 62, 63, 64, 65, 100, 1514]


def bytes_of(frame):
    return [{"data": byte, "last": n == len(frame) - 1} for n, byte in enumerate(frame)]


@pytest.mark.parametrize("every", [1, 3])
def test_frames(every):
    """A tick each cycle and a tick each third; frames one behind the other and with time between them."""
    rng = make_rng()
    dut = FrameTransmit()
    frames = [rng.randbytes(size) for size in SIZES * 2]
    rng.shuffle(frames)
    wire = []

    async def sender(ctx):
        for frame in frames:
            if rng.random() < 0.5:
                await ctx.tick().repeat(rng.randrange(1, 50))
            await send_all(ctx, dut.i, bytes_of(frame))
        await ctx.tick().repeat(100 * every)

    async def clock(ctx):
        cycle, put = 0, changes(ctx)
        edges = aiter(ctx.tick().sample(dut.enable, dut.data))
        while True:
            put(dut.tick, cycle % every == 0)
            *_, enable, data = await anext(edges)
            wire.append(data if enable else None)
            cycle += 1

    simulate(dut, sender, background=[clock], seed=rng.seed_value)
    # What is on the wire changes with the tick only.
    start = next(n for n, byte in enumerate(wire) if byte is not None) % every
    ticks = [wire[n : n + every] for n in range(start, len(wire) - every, every)]
    assert all(len(set(part)) == 1 for part in ticks)
    got, gaps = [], []
    for byte, *_ in ticks:
        if byte is None:
            if got and isinstance(got[-1], bytearray):
                got[-1] = bytes(got[-1])
                gaps.append(0)
            if gaps:
                gaps[-1] += 1
        else:
            if not got or isinstance(got[-1], bytes):
                got.append(bytearray())
            got[-1].append(byte)
    sent = [padded(frame) for frame in frames]
    assert got == [b"\x55" * 7 + b"\xd5" + frame + zlib.crc32(frame).to_bytes(4, "little") for frame in sent]
    assert min(gaps) == 12
