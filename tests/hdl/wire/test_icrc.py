"""The ICRC core against zlib."""

import zlib

import pytest
from streams import make_rng, simulate
from verbena.hdl.wire.headers import ENCAPSULATIONS
from verbena.hdl.wire.icrc import Icrc, icrc

WIDTHS = [64, 128, 256, 512]


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("split", [False, True], ids=["whole", "icrc_apart"])
def test_against_zlib(width, split):
    rng = make_rng()
    dut = Icrc(width)
    lanes = width // 32
    packets = [rng.randbytes(4 * words) for words in [*range(1, 2 * lanes + 2), 40, 41]]
    expected = [zlib.crc32(b"\xff" * 8 + packet) for packet in packets]
    beats = []  # (first, data, words, expected crc or None, expected good, odd)
    for packet, crc in zip(packets, expected):
        whole = packet if split else packet + crc.to_bytes(4, "little")
        for at in range(0, len(whole), width // 8):
            part = whole[at : at + width // 8]
            last = at + width // 8 >= len(whole)
            check = crc if last and split else None
            fields = at == 0, int.from_bytes(part, "little"), len(part) // 4, check, last and not split
            beats.append((*fields, len(whole) // 4 % 2))
        if split and len(packet) % (width // 8) == 0:  # a beat of no words must change nothing
            beats.append((False, rng.getrandbits(width), 0, crc, False, len(packet) // 4 % 2))

    async def drive(ctx):
        for first, data, words, _, _, odd in beats:
            while rng.random() < 0.3:
                ctx.set(dut.valid, 0)
                await ctx.tick()
            ctx.set(dut.valid, 1)
            ctx.set(dut.first, first)
            ctx.set(dut.odd, odd)
            ctx.set(dut.data, data)
            ctx.set(dut.words, words)
            await ctx.tick()
        ctx.set(dut.valid, 0)
        ctx.set(dut.words, 0)
        for _ in range(dut.crc_latency + 1):
            await ctx.tick()

    async def watch(ctx):
        pipeline = []
        seen = 0
        edges = aiter(ctx.tick().sample(dut.valid))
        while seen < len(beats):
            *_, valid = await anext(edges)
            pipeline.insert(0, None)
            if valid:
                pipeline[0] = beats[seen]
                seen += 1
            if len(pipeline) >= dut.state_latency and (beat := pipeline[dut.state_latency - 1]) and beat[2]:
                assert ctx.get(dut.good) == beat[4]
            if len(pipeline) >= dut.crc_latency and (beat := pipeline[dut.crc_latency - 1]) and beat[3] is not None:
                assert ctx.get(dut.crc) == beat[3]

    simulate(dut, drive, watch, seed=rng.seed_value)


def test_masked_bytes():
    masked = ENCAPSULATIONS["RoCEv2/IPv4"].masked_bits()
    # TOS, TTL, IP checksum, UDP checksum, byte 4 of the BTH.
    assert masked == dict.fromkeys([1, 8, 10, 11, 26, 27, 32], 0xFF)
    assert ENCAPSULATIONS["RoCEv2/IPv6"].masked_bits() == {
        0: 0x0F,
        **dict.fromkeys([1, 2, 3, 7, 46, 47, 52], 0xFF),
    }


def test_python_icrc_ignores_masked_bits():
    row = ENCAPSULATIONS["RoCEv2/IPv4"]
    packet = bytearray(60)
    before = icrc(row, packet)
    packet[8] = 0x40
    assert icrc(row, packet) == before
    packet[9] = 1
    assert icrc(row, packet) != before


def test_arguments():
    with pytest.raises(ValueError, match="not 32"):
        Icrc(32)
