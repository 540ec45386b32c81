"""Ethernet headers put on and taken off."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from roce_frames import MAC, PEER_MAC, beats, frames_of
from streams import make_rng, receive_all, send_all, simulate
from verbena.hdl.roce.ethernet_header import EthernetInsert, EthernetStrip
from verbena.hdl.roce.headers import HEADERS

WIDTHS = [64, 128, 256, 512]


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("stall", [0, 0.3])
def test_insert(width, stall):
    rng = make_rng()
    dut = EthernetInsert(width, 0x800)
    packets = [(rng.getrandbits(48), rng.randbytes(size), rng.randrange(2)) for size in range(1, width // 4 + 9)]
    rng.shuffle(packets)
    items = []
    for destination, packet, error in packets:
        items += [{"beat": b, "destination": destination} for b in beats(packet, width, error=error, rng=rng)]
    expected = [
        (HEADERS["ethernet"].pack(destination=destination, source=MAC, ethertype=0x800) + packet, error)
        for destination, packet, error in packets
    ]
    count = sum(-(-len(frame) // (width // 8)) for frame, _ in expected)
    cycles = []

    async def sender(ctx):
        ctx.set(dut.mac, MAC)
        await send_all(ctx, dut.i, items, rng, stall)

    async def receiver(ctx):
        got = await receive_all(ctx, dut.o, count, rng, stall)
        assert frames_of(got, width) == expected

    async def clock(ctx):
        while len(cycles) < count:
            *_, valid, _ready = await ctx.tick().sample(dut.o.valid, dut.o.ready)
            if cycles or valid:
                cycles.append(valid)

    simulate(dut, sender, receiver, clock, seed=rng.seed_value)
    if not stall:
        assert all(cycles)  # never a pause


def strip(frames, width, rng, stall=0.0):
    """(bytes, error, local) of what comes out."""
    dut = EthernetStrip(width, 0x800)
    items = []
    for frame, error in frames:
        items += beats(frame, width, error=error, rng=rng)
    got, local = [], []
    done = []

    async def sender(ctx):
        ctx.set(dut.mac, MAC)
        await send_all(ctx, dut.i, items, rng, stall)
        for _ in range(3):
            await ctx.tick()
        done.append(True)

    async def receiver(ctx):
        while not done:
            *_, valid, value = await ctx.tick().sample(dut.o_valid, dut.o)
            if valid:
                beat = value.beat
                got.append(_Beat(beat))
                if beat.first:
                    local.append(value.local)

    simulate(dut, sender, receiver, seed=rng.seed_value)
    return [(packet, error, mine) for (packet, error), mine in zip(frames_of(got, width), local, strict=True)]


class _Beat:
    def __init__(self, beat):
        self.data, self.count, self.first, self.last = beat.data, beat.count, beat.first, beat.last
        self.error = beat.error


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("stall", [0, 0.3])
def test_strip(width, stall):
    rng = make_rng()
    header = HEADERS["ethernet"].pack(destination=MAC, source=PEER_MAC, ethertype=0x800)
    frames = [(header + rng.randbytes(size), rng.randrange(2)) for size in range(width // 4 + 9)]
    frames += [(header[:size], 0) for size in range(1, 14)]
    rng.shuffle(frames)
    assert strip(frames, width, rng, stall) == [(f[14:], error, len(f) >= 14) for f, error in frames]


@settings(max_examples=10)
@given(st.integers(0, 111), st.sampled_from(WIDTHS))
def test_strip_other_station(bit, width):
    """A difference in any bit of destination or ethertype is seen; one in the source is not."""
    rng = make_rng(bit)
    header = HEADERS["ethernet"].pack(destination=MAC, source=PEER_MAC, ethertype=0x800)
    changed = bytearray(header)
    changed[bit // 8] ^= 1 << bit % 8
    frames = [(header + bytes(50), 0), (bytes(changed) + bytes(50), 0), (header + bytes(50), 0)]
    assert [local for _, _, local in strip(frames, width, rng)] == [1, 48 <= bit < 96, 1]


@pytest.mark.parametrize("block", [EthernetInsert, EthernetStrip])
def test_arguments(block):
    with pytest.raises(ValueError, match="not 46"):
        block(64, 46)
    with pytest.raises(ValueError, match="not 96"):
        block(96, 0x800)
