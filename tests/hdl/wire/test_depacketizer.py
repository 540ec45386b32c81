"""The depacketizer against scapy, captured frames and damaged ones."""

import pytest
from ether_frames import IP_ADDRESS, MAC, PEER_IP, PEER_MAC, beats, frames_of, number
from hypothesis import given, settings
from hypothesis import strategies as st
from roce_frames import captured_frames, frame_of, random_header
from scapy.contrib.roce import BTH
from scapy.layers.inet import IP
from scapy.layers.l2 import Ether
from streams import collect, make_rng, send_all, shared, simulate
from verbena.hdl.generate import to_rtlil
from verbena.hdl.wire.depacketizer import Depacketizer
from verbena.hdl.wire.headers import ENCAPSULATIONS, HEADERS
from verbena.hdl.wire.icrc import icrc
from verbena.hdl.wire.opcodes import OPCODES, REFUSED, SUPPORTED, opcode
from verbena.hdl.wire.packet_header import Deth

WIDTHS = [64, 128, 256, 512]
WRITE_ONLY = opcode("RC_RDMA_WRITE_ONLY")
SEND_ONLY = opcode("RC_SEND_ONLY")
ACK = opcode("RC_ACKNOWLEDGE")
ATOMIC_ACK = opcode("RC_ATOMIC_ACKNOWLEDGE")
COMPARE_SWAP = opcode("RC_COMPARE_SWAP")
READ_REQUEST = opcode("RC_RDMA_READ_REQUEST")
COUNTERS = ["not_roce", "malformed", "icrc", "overflow"]


def make(rng, code=WRITE_ONLY, length=8, **fields):
    """(frame, header, payload as it comes out), with padding to 60 bytes."""
    payload = rng.randbytes(length if OPCODES[code].payload else 0)
    header = random_header(rng, code, len(payload))
    frame = frame_of(
        header,
        payload,
        source_mac=PEER_MAC,
        source_ip=PEER_IP,
        destination_mac=MAC,
        destination_ip=IP_ADDRESS,
        **fields,
    )
    if code == ATOMIC_ACK:
        payload = header["original"].to_bytes(8, "little")
        header["length"] = 8
    return frame + bytes(max(0, 60 - len(frame))), header, payload


def repaired(frame):
    """The frame with an ICRC and an IP checksum that are right for its IP length."""
    frame = bytearray(frame)
    end = 14 + int.from_bytes(frame[16:18], "big")
    frame[24:26] = bytes(2)
    total = sum(int.from_bytes(frame[n : n + 2], "big") for n in range(14, 34, 2))
    total = (total & 0xFFFF) + (total >> 16)
    total = (total & 0xFFFF) + (total >> 16)
    frame[24:26] = (~total & 0xFFFF).to_bytes(2, "big")
    if 14 + 44 <= end <= len(frame):
        frame[end - 4 : end] = icrc(ENCAPSULATIONS["RoCEv2/IPv4"], bytes(frame[14 : end - 4]))
    return bytes(frame)


class Result:
    def __init__(self):
        self.headers = []
        self.payloads = []
        self.counts = dict.fromkeys([*COUNTERS, "packets", "bytes"], 0)
        self.latency = []


def run(
    frames,
    rng,
    *,
    width=64,
    stall_in=0.0,
    stall_out=0.0,
    opcodes=SUPPORTED,
    mac=MAC,
    ip=IP_ADDRESS,
    damaged=(),
    **kwargs,
):
    """Sends ``frames``; ``damaged``: indices that end in ``error``. ``Result`` of what came out."""
    dut = shared(Depacketizer, width, opcodes=opcodes, **kwargs)
    flow = []
    for index, frame in enumerate(frames):
        flow += beats(frame, width, error=index in damaged, rng=rng)
    result = Result()
    items = []
    ends = []

    async def sender(ctx):
        ctx.set(dut.mac, mac)
        ctx.set(dut.ip, ip)
        await send_all(ctx, dut.i, flow, rng, stall_in)
        quiet = 0
        edges = aiter(ctx.tick().sample(dut.empty))
        while quiet < 20:
            *_, empty = await anext(edges)
            quiet = quiet + 1 if empty else 0

    async def headers(ctx):
        await collect(ctx, dut.header, result.headers, rng, stall_out)

    async def payloads(ctx):
        await collect(ctx, dut.payload, items, rng, stall_out)

    async def counters(ctx):
        cycle = 0
        waiting = False
        async for *_, ready, valid, last, out, accepted, size, a, b, c, d in ctx.tick().sample(
            dut.i.ready,
            dut.i.valid,
            dut.i.payload.last,
            dut.header.valid,
            dut.count_rx_packets,
            dut.count_rx_bytes,
            *(getattr(dut, f"count_drop_{name}") for name in COUNTERS),
        ):
            assert ready
            for name, value in zip(COUNTERS, (a, b, c, d)):
                result.counts[name] += value
            assert accepted + a + b + c + d <= 1
            result.counts["packets"] += accepted
            result.counts["bytes"] += size
            if valid and last:
                ends.append(cycle)
            if out and not waiting and ends:
                result.latency.append(cycle - ends[-1])
            waiting = out
            cycle += 1

    simulate(dut, sender, background=(headers, payloads, counters), seed=rng.seed_value, deadline=60_000)
    result.payloads = [payload for payload, _ in frames_of(items, width)]
    assert sum(result.counts[name] for name in [*COUNTERS, "packets"]) == len(frames)
    assert result.counts["bytes"] == sum(header.transport.length for header in result.headers)
    return result


def field(header, name):
    """A ``ReceiveHeader``'s field by its name in the header tables."""
    if name in ("swap_add", "compare"):
        return header["swap" if name == "swap_add" else name]
    if name in ("qkey", "source_qpn"):
        return Deth.from_bits(header.transport.address)[name]
    return header.transport[name]


def check(result, expected):
    """``expected``: list of (header, payload)."""
    assert result.payloads == [payload for _, payload in expected if payload]
    assert len(result.headers) == len(expected)
    for got, (header, _) in zip(result.headers, expected):
        assert got.source_ip == PEER_IP
        names = {name for extended in OPCODES[header["opcode"]].headers for name in HEADERS[extended].fields}
        names |= {"opcode", "solicited", "ack_request", "becn", "pkey", "dest_qpn", "psn", "length"}
        names -= {"original"}  # it is the payload
        if header["opcode"] in REFUSED:
            names -= {"placement", "selectivity", "rkey", "address", "dma_length"}
        assert {name: field(got, name) for name in names} == {name: header[name] for name in names}


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("stall", [0.0, 0.3])
def test_good_packets(width, stall):
    rng = make_rng()
    codes = sorted(SUPPORTED | REFUSED)
    packets = [make(rng, code, rng.randrange(0, width // 4)) for code in codes]
    packets += [make(rng, rng.choice(codes), length) for length in range(width // 8 + 5)]
    rng.shuffle(packets)
    result = run(
        [frame for frame, _, _ in packets],
        rng,
        width=width,
        stall_in=stall,
        stall_out=stall / 3,
        headers=64,
    )
    assert result.counts["packets"] == len(packets)
    check(result, [packet[1:] for packet in packets])


@pytest.mark.parametrize("width", WIDTHS)
def test_responses_that_are_refused(width):
    """BTH and length are those of any packet, and the payload is what stands behind their headers."""
    rng = make_rng()
    responses = set(range(opcode("RC_RDMA_READ_RESPONSE_FIRST"), ATOMIC_ACK + 1))
    packets = [make(rng, rng.choice([*responses, SEND_ONLY]), rng.randrange(0, 100)) for _ in range(30)]
    more = {"opcodes": SUPPORTED - responses, "refused": REFUSED | responses}
    result = run([frame for frame, _, _ in packets], rng, width=width, headers=64, **more)
    names = ("opcode", "solicited", "ack_request", "pkey", "dest_qpn", "psn", "length")
    for got, (_, header, payload) in zip(result.headers, packets, strict=True):
        wanted = header | {"length": 0 if header["opcode"] == ATOMIC_ACK else len(payload)}
        assert {name: field(got, name) for name in names} == {name: wanted[name] for name in names}
    assert result.payloads == [payload for _, header, payload in packets if payload and header["opcode"] != ATOMIC_ACK]


@pytest.mark.parametrize("width", WIDTHS)
def test_where_it_comes_from(width):
    """What the IP header tells of the sender's path: TOS, with ECN, and TTL."""
    rng = make_rng()
    told = [(0xFC | ecn, rng.randrange(1, 256)) for ecn in range(4)]
    told += [(1 << bit, 1) for bit in range(8)] + [(0, 1 << bit) for bit in range(8)] + [(0, 0xFF)]
    packets = [make(rng, traffic_class=tos, hop_limit=ttl) for tos, ttl in told]
    result = run([frame for frame, _, _ in packets], rng, width=width, headers=32)
    assert [(header.traffic_class, header.hop_limit) for header in result.headers] == told
    check(result, [packet[1:] for packet in packets])


@pytest.mark.parametrize("longest", [1000, pytest.param(4096, marks=pytest.mark.slow)])
@settings(max_examples=6)
@given(
    kinds=st.lists(st.tuples(st.sampled_from(sorted(SUPPORTED)), st.integers(0, 4096)), min_size=1, max_size=3),
    seed=st.integers(0, 2**32),
)
def test_any_length(longest, kinds, seed):
    rng = make_rng(seed)
    packets = [make(rng, code, length * longest // 4096) for code, length in kinds]
    result = run([frame for frame, _, _ in packets], rng)
    check(result, [packet[1:] for packet in packets])


def test_largest_and_larger():
    rng = make_rng()
    good = make(rng, WRITE_ONLY, 4096)
    packets = [good, make(rng, WRITE_ONLY, 4097), make(rng, SEND_ONLY, 9000), make(rng, SEND_ONLY, 4095)]
    result = run([frame for frame, _, _ in packets], rng)
    assert result.counts["malformed"] == 2
    check(result, [packets[0][1:], packets[3][1:]])


@pytest.mark.parametrize("width", WIDTHS)
def test_truncated_at_any_byte(width):
    """Every frame cut short is dropped, and the whole one behind it is not."""
    rng = make_rng()
    frame, header, payload = make(rng, WRITE_ONLY, 29)
    cuts = list(range(1, len(frame)))
    frames = []
    for cut in cuts:
        frames += [frame[:cut], frame]
    result = run(frames, rng, width=width, headers=64)
    check(result, [(header, payload)] * len(cuts))
    assert result.counts["not_roce"] >= 13


def test_padding_is_ignored():
    rng = make_rng()
    packets = [make(rng, SEND_ONLY, length) for length in (0, 1, 5, 8, 0, 64)]
    frames = [frame + rng.randbytes(extra) for (frame, _, _), extra in zip(packets, [0, 1, 3, 200, 11, 8])]
    check(run(frames, rng), [packet[1:] for packet in packets])


@pytest.mark.parametrize("count", [100, pytest.param(300, marks=pytest.mark.slow)])
@pytest.mark.parametrize("width", WIDTHS)
def test_flipped_bits(width, count):
    """Any bit but those that nothing protects: the source MAC, the UDP checksum, byte 4 of the BTH."""
    rng = make_rng()
    frame, header, payload = make(rng, WRITE_ONLY, 6)
    unprotected = {*range(6, 12), 40, 41, 46}
    bits = [bit for bit in range(len(frame) * 8) if bit // 8 not in unprotected]
    bits = rng.sample(bits, count if width == 64 else 60)
    frames = []
    for bit in bits:
        damaged = bytearray(frame)
        damaged[bit // 8] ^= 1 << bit % 8
        frames += [bytes(damaged)] + [frame] * (rng.randrange(10) == 0)
    result = run(frames, rng, width=width, headers=64)
    assert result.counts["packets"] == frames.count(frame)
    check(result, [(header, payload)] * frames.count(frame))


def change(frame, offset, value):
    changed = bytearray(frame)
    changed[offset : offset + len(value)] = value
    return repaired(changed)


def test_drop_reasons():
    rng = make_rng()
    frame, header, payload = make(rng, WRITE_ONLY, 40)
    ack, ack_header, _ = make(rng, ACK)
    total = int.from_bytes(frame[16:18], "big")
    not_roce = [
        change(frame, 0, b"\xff" * 6),
        change(frame, 5, b"\x02"),
        change(frame, 12, b"\x86\xdd"),
        change(frame, 23, b"\x06"),
        change(frame, 30, b"\x0a\x00\x00\x02"),
        change(frame, 36, b"\x12\xb6"),
        b"\0",
        frame[:13],
    ]
    malformed = [
        change(frame, 14, b"\x46"),
        change(frame, 14, b"\x55"),
        change(frame, 20, b"\x20\x00"),
        change(frame, 20, b"\x40\x08"),
        change(frame, 16, (total - 4).to_bytes(2, "big")),
        change(frame, 16, (total - 2).to_bytes(2, "big")),
        change(frame, 16, (total + 4).to_bytes(2, "big")),
        change(frame, 16, b"\x00\x00"),
        change(frame, 16, b"\x00\x28"),
        change(frame, 16, b"\xff\xfc"),
        change(frame, 38, b"\x00\x10"),
        change(frame, 43, b"\x01"),
        change(frame, 42, bytes([COMPARE_SWAP])),
        change(frame, 42, bytes([READ_REQUEST])),
        change(frame, 42, bytes([ATOMIC_ACK])),
        change(frame, 42, b"\x15"),
        change(frame, 42, b"\x81"),
        change(frame, 42, bytes([ACK])),
        change(ack, 43, b"\x10"),
        change(ack, 42, bytes([WRITE_ONLY])),
        frame[:24] + bytes([frame[24] ^ 1]) + frame[25:],
        frame[:-1],
        frame[:14],
    ]
    wrong_icrc = [frame[:-1] + bytes([frame[-1] ^ 0x80]), frame[:60] + bytes([frame[60] ^ 1]) + frame[61:]]
    frames = []
    for group in (not_roce, malformed, wrong_icrc):
        for bad in group:
            frames += [bad, frame]
    frames += [frame, ack]
    result = run(frames, rng, damaged={len(frames) - 2}, headers=64)
    good = len(not_roce) + len(malformed) + len(wrong_icrc)
    assert result.counts == {
        "not_roce": len(not_roce),
        "malformed": len(malformed),
        "icrc": len(wrong_icrc) + 1,
        "overflow": 0,
        "packets": good + 1,
        "bytes": 40 * good,
    }
    check(result, [(header, payload)] * good + [(ack_header, b"")])


@pytest.mark.parametrize("width", WIDTHS)
def test_exact_sizes(width):
    """READ requests and atomics have one size, and no pad."""
    rng = make_rng()
    frames, expected = [], []
    for code in (READ_REQUEST, COMPARE_SWAP, opcode("RC_FETCH_ADD"), ATOMIC_ACK, ACK):
        frame, header, payload = make(rng, code)
        end = 14 + int.from_bytes(frame[16:18], "big")
        frames.append(frame)
        expected.append((header, payload))
        # That the upper bits of a length count is shown by one opcode of requests and one of responses.
        for change_of_size in (-8, -4, 4, 8, *([4096, 8192] if code in (READ_REQUEST, ACK) else [])):
            changed = bytearray(frame[:end] + bytes(max(0, change_of_size)))
            if change_of_size < 0 and end + change_of_size < 14 + 44:
                continue
            changed[16:18] = (end - 14 + change_of_size).to_bytes(2, "big")
            changed[38:40] = (end - 34 + change_of_size).to_bytes(2, "big")
            frames.append(repaired(changed))
        frames += [change(frame, 43, bytes([frame[43] & 0xCF | pad << 4])) for pad in (1, 2, 3)]
    result = run(frames, rng, width=width, headers=64)
    check(result, expected)
    assert result.counts["malformed"] == len(frames) - len(expected)


def test_pad_bytes_may_be_anything():
    rng = make_rng()
    frame, header, payload = make(rng, SEND_ONLY, 1)
    check(run([change(frame, 55, b"\x5a\xa5\xff")], rng), [(header, payload)])


@pytest.mark.parametrize("width", WIDTHS)
@settings(max_examples=8)
@given(seed=st.integers(0, 2**32))
def test_garbage(width, seed):
    """Random changes, cuts and lengths in good frames: nothing that comes out differs from what was sent."""
    rng = make_rng(seed)
    frames, expected = [], []
    for _ in range(20):
        frame, header, payload = make(rng, rng.choice(sorted(SUPPORTED)), rng.randrange(0, 100))
        if rng.randrange(3):
            damaged = bytearray(frame)
            for _ in range(rng.randrange(1, 4)):
                damaged[rng.choice([*range(14, 18), 23, *range(38, 40), 42, 43, rng.randrange(len(frame))])] = (
                    rng.getrandbits(8)
                )
            if rng.randrange(2):
                damaged = damaged[: rng.randrange(1, len(damaged) + 1)]
            frames.append(bytes(damaged))
            end = 14 + int.from_bytes(frame[16:18], "big")  # filling follows
            changed = {n for n, (a, b) in enumerate(zip(frame[:end], damaged)) if a != b}
            if len(damaged) < end or changed - {*range(6, 12), 40, 41, 46}:
                continue
            header = {**header, "becn": damaged[46] >> 6 & 1}
        else:
            frames.append(frame)
        expected.append((header, payload))
    check(run(frames, rng, width=width, headers=32), expected)


def test_giant_frame():
    rng = make_rng()
    frame, header, payload = make(rng, WRITE_ONLY, 100)
    result = run([rng.randbytes(10_000), frame, frame[:16] + b"\x27\x00" + frame[18:] + bytes(10_000), frame], rng)
    check(result, [(header, payload)] * 2)


@pytest.mark.parametrize("width", WIDTHS)
def test_overflow_of_headers(width):
    """Nobody takes headers: as many packets as the backlog holds come out later, whole, and the others are counted.

    The shortest frames follow each other without a gap.
    """
    rng = make_rng()
    packets = [make(rng, rng.choice([ACK, WRITE_ONLY]), 8) for _ in range(30)]
    result = blocked(packets, rng, "header", width, headers=16)
    assert result.counts["overflow"] == 12
    check(result, [packet[1:] for packet in packets[:18]])


def test_overflow_of_payload():
    rng = make_rng()
    packets = [make(rng, WRITE_ONLY, 4096) for _ in range(4)] + [make(rng, ACK)]
    result = blocked(packets, rng, "payload", depth=8192)
    assert result.counts["overflow"] >= 2
    lost = result.counts["overflow"]
    check(result, [packet[1:] for packet in packets[: 4 - lost] + packets[4:]])


def blocked(packets, rng, port, width=64, **kwargs):
    """Sends all packets while nobody takes from ``port``; then everything that waits is taken."""
    dut = shared(Depacketizer, width, **kwargs)
    flow = [beat for frame, _, _ in packets for beat in beats(frame, width)]
    result = Result()
    items = []
    sent = []

    async def sender(ctx):
        ctx.set(dut.mac, MAC)
        ctx.set(dut.ip, IP_ADDRESS)
        await send_all(ctx, dut.i, flow)
        for _ in range(10):
            await ctx.tick()
        sent.append(True)
        quiet = 0
        edges = aiter(ctx.tick().sample(dut.empty))
        while quiet < 20:
            *_, empty = await anext(edges)
            quiet = quiet + 1 if empty else 0

    def taker(name, items):
        async def take(ctx):
            while name == port and not sent:
                await ctx.tick()
            await collect(ctx, getattr(dut, name), items, None)

        return take

    async def counters(ctx):
        async for *_, lost in ctx.tick().sample(dut.count_drop_overflow):
            result.counts["overflow"] += lost

    simulate(
        dut,
        sender,
        background=(taker("header", result.headers), taker("payload", items), counters),
        seed=rng.seed_value,
    )
    result.payloads = [payload for payload, _ in frames_of(items, width)]
    return result


def test_captures():
    """What rxe sent is accepted, field by field as scapy reads it."""
    rng = make_rng()
    groups = {}
    for file, index, packet in captured_frames():
        destination = (packet[Ether].dst, packet[IP].dst)
        groups.setdefault(destination, []).append((file, index, packet))
    accepted = 0
    for (mac, ip), members in groups.items():
        known = [member for member in members if member[2][BTH].opcode in SUPPORTED]
        # Long ones take long to simulate, and are alike.
        chosen = [member for n, member in enumerate(known) if len(member[2]) < 300 or n % 15 == 0]
        chosen += [member for member in members if member[2][BTH].opcode in REFUSED]
        frames = [bytes(member[2]) for member in chosen]
        unknown = [bytes(member[2]) for member in members if member[2][BTH].opcode not in SUPPORTED | REFUSED]
        result = run(frames + unknown, rng, mac=number(mac), ip=number(ip), headers=64)
        assert result.counts["packets"] == len(frames), members[0][0]
        assert result.counts["malformed"] == len(unknown)
        payloads = iter(result.payloads)
        for got, (_, _, packet) in zip(result.headers, chosen):
            bth, fields = packet[BTH], got.transport
            assert fields.opcode == bth.opcode
            assert fields.dest_qpn == bth.dqpn
            assert fields.psn == bth.psn
            assert fields.pkey == bth.pkey
            assert fields.solicited == bth.solicited
            assert fields.ack_request == bth.ackreq
            assert fields.becn == bth.becn
            assert got.source_ip == number(packet[IP].src)
            assert (got.traffic_class, got.hop_limit) == (packet[IP].tos, packet[IP].ttl)
            rest = bytes(bth.payload)
            rest = rest[: len(rest) - bth.padcount]
            for name in OPCODES[bth.opcode].headers:
                if name == "atomicacketh":
                    rest = rest[::-1]
                    assert len(rest) == 8
                    break
                if bth.opcode in SUPPORTED:
                    for each, value in HEADERS[name].unpack(rest).items():
                        assert field(got, each) == value
                rest = rest[HEADERS[name].size :]
            assert fields.length == len(rest)
            assert (next(payloads) if rest else b"") == rest
        accepted += len(frames)
    assert accepted > 150


@pytest.mark.parametrize("code", [WRITE_ONLY, ACK, SEND_ONLY, ATOMIC_ACK, COMPARE_SWAP])
def test_rate_and_latency(code):
    """Back to back frames never overflow queues that are emptied, and a header takes at most 6 cycles."""
    rng = make_rng()
    packets = [make(rng, code, 8) for _ in range(40)]
    result = run([frame for frame, _, _ in packets], rng, headers=2)
    check(result, [packet[1:] for packet in packets])
    assert max(result.latency) <= 6


@pytest.mark.parametrize("width", [64, 256])
def test_converts(width):
    """Also where nobody looks at the headers of responses."""
    to_rtlil(Depacketizer(width), "dut")
    responses = set(range(opcode("RC_RDMA_READ_RESPONSE_FIRST"), ATOMIC_ACK + 1))
    to_rtlil(Depacketizer(width, opcodes=SUPPORTED - responses, refused=REFUSED | responses), "dut")


def test_arguments():
    with pytest.raises(ValueError, match="not 4096"):
        Depacketizer(64, depth=4096)
    with pytest.raises(ValueError, match="not 3"):
        Depacketizer(64, headers=3)
    with pytest.raises(ValueError, match="not 28"):
        Depacketizer(64, opcodes=[opcode("RC_FLUSH")])
