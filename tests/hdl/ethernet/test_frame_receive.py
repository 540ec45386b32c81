"""Frames as they come in: good ones, and all that is wrong with others."""

import zlib

import pytest
from amaranth.hdl import Cat, Value
from at_once import AtOnce
from streams import make_rng, shared, simulate
from verbena.hdl.ethernet.frame_receive import FrameReceive

COUNTS = ("frames", "short", "long", "error", "fcs", "false_carrier")
LARGEST = 300


def framed(frame, *, preamble=7, fcs=0):
    """Byte times of a frame, its FCS off by ``fcs``: ``(valid, error, data)``."""
    text = frame + (zlib.crc32(frame) ^ fcs).to_bytes(4, "little")
    return [(1, 0, byte) for byte in b"\x55" * preamble + b"\xd5" + text]


def idle(count, error=0, data=0):
    return [(0, error, data)] * count


def receive(rng, times, tick=1.0):
    """(list of (bytes, error), counts) of what comes out."""
    dut = shared(FrameReceive, LARGEST)
    frames, now = [], bytearray()
    counts = dict.fromkeys(COUNTS, 0)

    async def wire(ctx):
        edges, put, error = aiter(ctx.tick()), AtOnce(ctx), 0

        def show(*values):
            for name, value in zip(("tick", "valid", "error", "data"), values, strict=True):
                put(getattr(dut, name), value)
            put.set()

        for valid, new_error, data in [*times, *idle(3)]:
            while rng.random() >= tick:
                show(0, rng.randrange(2), error, rng.randrange(256))
                await anext(edges)
            error = new_error
            show(1, valid, error, data)
            await anext(edges)
        show(0, valid, error, data)
        await ctx.tick().repeat(5)

    async def reader(ctx):
        strobes = Cat(getattr(dut, f"count_{name}") for name in COUNTS)
        async for _, _, o, valid, now_counted in ctx.tick().sample(Value.cast(dut.o), dut.o_valid, strobes):
            if now_counted:
                for place, name in enumerate(COUNTS):
                    counts[name] += now_counted >> place & 1
            if valid:
                o = dut.o.shape().from_bits(o)
                now.append(o.data)
                if o.last:
                    frames.append((bytes(now), o.error))
                    now.clear()

    simulate(dut, wire, background=[reader], seed=rng.seed_value, deadline=100_000)
    assert not now
    return frames, counts


def counted(**wanted):
    return dict.fromkeys(COUNTS, 0) | wanted


@pytest.mark.parametrize("tick", [1.0, 0.4])
def test_good_frames(tick):
    """With whatever is left of the preamble, and as little as a byte time between them."""
    rng = make_rng()
    frames = [rng.randbytes(size) for size in (60, 61, 64, 100, LARGEST - 4)]
    times = []
    for frame in frames * 3:
        times += framed(frame, preamble=rng.randrange(9)) + idle(rng.choice([1, 2, 5, 12]))
    assert receive(rng, times, tick) == ([(frame, 0) for frame in frames * 3], counted(frames=15))


@pytest.mark.parametrize("tick", [1.0, 0.4])
def test_bad_frames(tick):
    """Each is told as damaged and counted once, and the good one behind it is not harmed."""
    rng = make_rng()
    good, times, wanted = rng.randbytes(70), [], []
    bits = range(32) if tick == 1 else range(0, 32, 5)
    counts = counted(short=8, long=3, error=4, fcs=len(bits) + 1)
    for size in (0, 1, 2, 30, 59):
        times += framed(bytes(size)) + idle(1) + framed(good) + idle(1)
        wanted += [(bytes(size), 1)] * (size > 0) + [(good, 0)]
    for size in (1, 3, 4):
        times += framed(bytes(10))[: 8 + size] + idle(1) + framed(good) + idle(1)
        wanted += [(good, 0)]
    for size in (LARGEST - 3, LARGEST, 1000):
        times += framed(bytes(size)) + idle(1) + framed(good) + idle(1)
        wanted += [(bytes(size), 1), (good, 0)]
    for place in (8, 9, 20, 81):
        frame = framed(good)
        frame[place] = (1, 1, frame[place][2])
        times += frame + idle(1) + framed(good) + idle(1)
        wanted += [(good, 1), (good, 0)]
    for bit in bits:
        times += framed(good, fcs=1 << bit) + idle(1)
        wanted.append((good, 1))
    broken = bytearray(good)
    broken[rng.randrange(70)] ^= 1 << rng.randrange(8)
    frame = framed(good)[:8] + framed(bytes(broken))[8:-4] + framed(good)[-4:]
    times += frame + idle(1) + framed(good)
    wanted += [(bytes(broken), 1), (good, 0)]
    counts["frames"] = sum(not error for _, error in wanted)
    assert receive(rng, times, tick) == (wanted, counts)


def test_what_is_no_frame():
    """Noise without an SFD, errors in the preamble, false carriers, and carrier that ends before the SFD."""
    rng = make_rng()
    good = rng.randbytes(64)
    times = [(1, 0, 0x50), *framed(good), *idle(1)]
    times += [(1, 0, 0x55)] * 3 + idle(2) + [(1, 1, 0x55)] + framed(good) + idle(1)
    times += [(1, 0, rng.choice([0x00, 0x0F, 0x54])) for _ in range(100)] + idle(1)
    times += framed(good) + idle(2) + idle(5, 1, 0x0E) + idle(1) + idle(1, 1, 0x0E) + idle(3, 1, 0x0F) + idle(1)
    times += framed(good)
    assert receive(rng, times) == ([(good, 0)] * 2, counted(frames=2, false_carrier=2))


@pytest.mark.parametrize("largest", [63, 1 << 14, 100.0])
def test_arguments(largest):
    with pytest.raises(ValueError, match="largest must be"):
        FrameReceive(largest)
