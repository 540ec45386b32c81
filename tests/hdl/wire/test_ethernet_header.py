"""Ethernet headers put on and taken off."""

import pytest
from ether_frames import MAC, PEER_MAC, beats, frames_of
from hypothesis import given, settings
from hypothesis import strategies as st
from streams import make_rng, pause, send_all, simulate
from verbena.hdl.wire.ethernet_header import EthernetInsert, EthernetStrip
from verbena.hdl.wire.headers import HEADERS

WIDTHS = [64, 128, 256, 512]


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("stall", [0, 0.3])
def test_insert(width, stall):
    """Frames from packets that follow as closely as they may; at 64 bits there is no pause then."""
    rng = make_rng()
    dut = EthernetInsert(width)
    packets = [(rng.getrandbits(48), rng.randbytes(size), rng.randrange(2)) for size in range(1, width // 4 + 9)]
    rng.shuffle(packets)
    expected = [
        (HEADERS["ethernet"].pack(destination=destination, source=MAC, ethertype=0x800) + packet, error)
        for destination, packet, error in packets
    ]
    got, pauses, done = [], [], []

    async def sender(ctx):
        ctx.set(dut.mac, MAC)
        for destination, packet, error in packets:
            for beat in beats(packet, width, error=error, rng=rng):
                if beat["first"] and width == 64:
                    await pause(ctx, rng, stall)
                    ctx.set(dut.i.destination, destination)
                    ctx.set(dut.i.ethertype, 0x800)
                    ctx.set(dut.starts_next, 1)
                    await ctx.tick()
                    ctx.set(dut.starts_next, 0)
                await pause(ctx, rng, stall)
                ctx.set(dut.i, {"beat": beat, "destination": destination, "ethertype": 0x800})
                ctx.set(dut.i_valid, 1)
                await ctx.tick()
                ctx.set(dut.i_valid, 0)
            if width > 64 or len(packet) % 8 in (1, 2):  # otherwise it is the rest of the frame that needs the cycle
                await pause(ctx, rng, stall)
            await ctx.tick()
        done.append(True)

    async def receiver(ctx):
        edges = aiter(ctx.tick().sample(dut.o_valid, dut.o))
        while not done:
            *_, valid, value = await anext(edges)
            if valid:
                got.append(_Beat(value))
            elif got and not got[-1].last:
                pauses.append(len(got))

    simulate(dut, sender, receiver, seed=rng.seed_value)
    assert frames_of(got, width) == expected
    if not stall:
        assert not pauses


def strip(frames, width, rng, stall=0.0, dut=None):
    """(bytes, error, local) of what comes out; if it knows of groups, ``local`` is a pair with ``group``."""
    dut = dut or EthernetStrip(width, 0x800)
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
        edges = aiter(ctx.tick().sample(dut.o_valid, dut.o))
        while not done:
            *_, valid, value = await anext(edges)
            if valid:
                beat = value.beat
                got.append(_Beat(beat))
                if beat.first:
                    local.append((value.local, value.group) if dut.groups else value.local)

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


@pytest.mark.parametrize("width", WIDTHS)
def test_strip_groups(width):
    """By 25 bits the MAC address is that of a group of IPv4 (RFC 1112, 6.4), by 16 of IPv6 (RFC 2464, 7)."""
    rng = make_rng()
    cases = [(MAC, 1, 0), (MAC ^ 1, 0, 0), (0xFFFFFFFFFFFF, 0, 0)]
    for prefix, bits in ((0x01005E << 24, 25), (0x3333 << 32, 16)):
        good = [prefix | rng.getrandbits(48 - bits) for _ in range(6)]
        cases += [(mac, 1, 1) for mac in good]
        cases += [(rng.choice(good) ^ 1 << 48 - bits + bit, 0, 0) for bit in range(bits)]
    rng.shuffle(cases)
    frames = []
    for mac, _, _ in cases:
        header = HEADERS["ethernet"].pack(destination=mac, source=PEER_MAC, ethertype=rng.choice([0x800, 0x86DD]))
        frames.append((header + rng.randbytes(rng.randrange(1, 70)), 0))
    for groups in (True, False):
        dut = EthernetStrip(width, 0x800, 0x86DD, groups=groups)
        got = [found for *_, found in strip(frames, width, rng, dut=dut)]
        assert got == [(local, group) if groups else local & ~group for _, local, group in cases]


def test_arguments():
    with pytest.raises(ValueError, match="groups need several ethertypes"):
        EthernetStrip(64, 0x800, groups=True)
    with pytest.raises(ValueError, match="not 46"):
        EthernetStrip(64, 46)
    with pytest.raises(ValueError, match="not 96"):
        EthernetStrip(96, 0x800)
