"""The packetizer against scapy."""

import itertools

import pytest
from amaranth.back import rtlil
from ether_frames import IP_ADDRESS, MAC, beats, frames_of, number
from framing import Framing
from hypothesis import example, given, settings
from hypothesis import strategies as st
from roce_frames import captured_frames, carried, frame_of, random_header, random_path, transport_of
from scapy.contrib.roce import BTH
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether
from streams import make_rng, receive_all, send_all, shared, simulate
from verbena.hdl.wire.headers import HEADERS
from verbena.hdl.wire.opcodes import OPCODES, SUPPORTED, UNRELIABLE, opcode
from verbena.hdl.wire.packetizer import Packetizer

WIDTHS = [64, 128, 256, 512]
WRITE_ONLY = opcode("RC_RDMA_WRITE_ONLY")
ACK = opcode("RC_ACKNOWLEDGE")


def expected_frame(header, path, payload):
    return frame_of(
        header,
        payload,
        source_mac=MAC,
        source_ip=IP_ADDRESS,
        destination_mac=path["mac"],
        destination_ip=path["ip"],
        **{name: path[name] for name in ("source_port", "traffic_class", "hop_limit")},
    )


def run(width, packets, rng, *, stall=0.3, errors=(), short=(), gap=0, mac=MAC, ip=IP_ADDRESS):
    """Sends ``packets`` of (header, path, payload); returns frames and the cycle at which each beat was taken.

    ``errors``: indices whose payload ends in error; ``short``: of these, those whose payload is an empty beat.
    ``gap``: cycles without a header after one was taken.
    """
    dut = shared(Framing, width)
    flow, given = [], []
    for index, (header, path, payload) in enumerate(packets):
        payload = payload or carried(header)
        given.append({"transport": transport_of(header) | {"length": len(payload)}, "path": path})
        if payload:
            flow += beats(b"" if index in short else payload, width, error=index in errors, rng=rng)
    items, times = [], []
    count = sum(
        -(-(14 + 40 + 4 * OPCODES[h["opcode"]].header_words + len(p) + (-len(p) % 4) + 4) // (width // 8))
        for h, _, p in packets
    )
    done = []

    async def headers(ctx):
        ctx.set(dut.mac, mac)
        ctx.set(dut.ip, ip)
        await ctx.tick().repeat(4)
        for item in given:
            await send_all(ctx, dut.header, [item], rng, stall)
            for _ in range(gap):
                await ctx.tick()

    async def payloads(ctx):
        await ctx.tick().repeat(4)
        await send_all(ctx, dut.payload, flow, rng, stall)

    async def frames(ctx):
        items.extend(await receive_all(ctx, dut.o, count, rng, stall))
        done.append(True)

    async def clock(ctx):
        cycle = 0
        begin = None
        edges = aiter(ctx.tick().sample(dut.o.valid, dut.o.ready, dut.header.valid))
        while not done:
            *_, valid, ready, offered = await anext(edges)
            if offered and begin is None:
                begin = cycle
            if valid and ready:
                times.append(cycle - begin)
            cycle += 1

    simulate(dut, headers, payloads, frames, clock, seed=rng.seed_value, deadline=30_000)
    result = frames_of(items, width)
    assert not any(error for _, error in result)
    return [frame for frame, _ in result], times


def make(rng, code, length):
    if not OPCODES[code].payload:
        length = 0
    return random_header(rng, code, length), random_path(rng), rng.randbytes(length)


@pytest.mark.parametrize("width", WIDTHS)
def test_each_opcode_and_small_length(width):
    rng = make_rng()
    codes = sorted(SUPPORTED)
    packets = [make(rng, code, rng.randrange(0, width // 4)) for code in codes]
    packets += [make(rng, rng.choice(codes), length) for length in range(width // 8 + 5)]
    rng.shuffle(packets)
    frames, _ = run(width, packets, rng)
    assert frames == [expected_frame(*packet) for packet in packets]


@pytest.mark.parametrize("width", WIDTHS)
def test_back_to_back(width):
    """The same without any stall."""
    rng = make_rng()
    codes = sorted(SUPPORTED)
    packets = [make(rng, rng.choice(codes), rng.randrange(0, width // 2)) for _ in range(30)]
    frames, _ = run(width, packets, rng, stall=0)
    assert frames == [expected_frame(*packet) for packet in packets]


@pytest.mark.parametrize("longest", [1000, pytest.param(4096, marks=pytest.mark.slow)])
@settings(max_examples=8)
@given(
    kinds=st.lists(st.tuples(st.sampled_from(sorted(SUPPORTED)), st.integers(0, 4096)), min_size=1, max_size=3),
    seed=st.integers(0, 2**32),
)
@example(kinds=[(WRITE_ONLY, 4096), (ACK, 0), (WRITE_ONLY, 4095)], seed=1)
def test_any_length(longest, kinds, seed):
    """Of random packets up to ``longest``; and the largest."""
    rng = make_rng(seed)
    largest = max(length for _, length in kinds) == 4096
    packets = [make(rng, code, length if largest else length * longest // 4096) for code, length in kinds]
    frames, _ = run(64, packets, rng, stall=0.02)
    assert frames == [expected_frame(*packet) for packet in packets]


@pytest.mark.parametrize("width", WIDTHS)
def test_error_inverts_icrc(width):
    rng = make_rng()
    packets = [make(rng, WRITE_ONLY, length) for length in (8, 100, 3, 64, 300, 40, 1)]
    errors, short = {1, 2, 4, 5}, {4, 5}
    frames, _ = run(width, packets, rng, errors=errors, short=short)
    for index, (frame, packet) in enumerate(zip(frames, packets)):
        good = expected_frame(*packet)
        if index in short:
            assert len(frame) == len(good)
            assert frame[:70] == good[:70]
        elif index in errors:
            assert frame[:-4] == good[:-4]
            assert bytes(byte ^ 0xFF for byte in frame[-4:]) == good[-4:]
        else:
            assert frame == good


def test_checksum_that_carries_twice():
    """Addresses chosen so that adding the carries carries again, or just does not."""
    rng = make_rng()
    header, path, payload = make(rng, ACK, 0)
    frame = expected_frame(header, {**path, "ip": 0}, payload)
    rest = sum(int.from_bytes(frame[14 + i : 16 + i], "big") for i in range(0, 20, 2) if i != 10) + 0xFFFF
    packets = []
    for low in range(0x10000):
        total = rest + low
        if 0xFFFD <= (total & 0xFFFF) + (total >> 16) <= 0x10003:
            packets.append((header, {**path, "ip": 0xFFFF0000 | low}, payload))
    assert len(packets) >= 3
    frames, _ = run(64, packets, rng, stall=0)
    assert frames == [expected_frame(*packet) for packet in packets]


@pytest.mark.parametrize("width", WIDTHS)
def test_waits_for_payload(width):
    """A frame begins without its payload, if that does not stand in the first beat, and stops where it is missing; the
    waiting is counted."""
    rng = make_rng()
    dut = shared(Framing, width)
    header, path, payload = make(rng, WRITE_ONLY, 4)

    async def testbench(ctx):
        ctx.set(dut.o.ready, 1)
        ctx.set(dut.header.payload, {"transport": transport_of(header), "path": path})
        ctx.set(dut.header.valid, 1)
        stalled = begun = 0
        for _ in range(60):
            *_, taken, out, stall = await ctx.tick().sample(dut.header.ready, dut.o.valid, dut.count_stall_tx_payload)
            assert not taken
            begun += out
            stalled += stall
        size, headers = width // 8, 20 + 8 + 12 + 16
        assert begun == (14 + headers // size * size) // size
        assert stalled >= 40
        await send_all(ctx, dut.payload, beats(payload, width))
        over = False
        edges = aiter(ctx.tick().sample(dut.o.valid, dut.o.payload.last))
        while not over:
            _, _, valid, over = await anext(edges)
            over &= valid
            begun += valid
        assert begun == -(-(14 + headers + len(payload) + 4) // size)

    simulate(dut, testbench, seed=rng.seed_value)


RATES = [
    (WRITE_ONLY, 8, 11),
    (WRITE_ONLY, 4, 10),
    (ACK, 0, 8),
    (opcode("RC_RDMA_READ_REQUEST"), 0, 10),
    (opcode("RC_RDMA_READ_RESPONSE_ONLY"), 8, 9),
    (opcode("RC_COMPARE_SWAP"), 0, 11),
    (opcode("RC_ATOMIC_ACKNOWLEDGE"), 0, 9),
    (WRITE_ONLY, 4096, 522),
]


@pytest.mark.parametrize("gap", [0, 1])
@pytest.mark.parametrize(("code", "length", "cycles"), RATES)
def test_rate(code, length, cycles, gap):
    """At 64 bits a packet takes as many cycles as its frame has beats, and the first beat comes 3 after the header; so
    it does if a header comes only 2 cycles after the one before was taken."""
    rng = make_rng()
    packets = [make(rng, code, length) for _ in range(6 if length < 100 else 3)]
    frames, times = run(64, packets, rng, stall=0, gap=gap)
    assert frames == [expected_frame(*packet) for packet in packets]
    assert times[-1] - times[0] + 1 == cycles * len(packets)
    assert times[0] == 3


@pytest.mark.parametrize(("width", "cycles", "latency"), [(128, 6, 7), (256, 4, 8), (512, 3, 8)])
def test_rate_wide(width, cycles, latency):
    rng = make_rng()
    packets = [make(rng, WRITE_ONLY, 8) for _ in range(8)]
    _, times = run(width, packets, rng, stall=0)
    assert times[-1] - times[0] + 1 <= cycles * len(packets)
    assert times[0] <= latency


def test_captures():
    """What rxe sent, rebuilt from the fields that scapy reads: the same frame but for the IP identification."""
    rng = make_rng()
    groups, seen = {}, set()
    captures = (captured_frames(f"{transport}_*.pcap") for transport in ("rc", "uc", "ud"))
    for file, _, packet in itertools.chain.from_iterable(captures):
        code = packet[BTH].opcode
        if code in SUPPORTED and (len(packet) < 400 or code not in seen):
            groups.setdefault((packet[Ether].src, packet[IP].src), []).append((file, packet))
            seen.add(code)
    for (mac, ip), members in groups.items():
        packets = []
        for _, packet in members:
            bth, rest = packet[BTH], bytes(packet[BTH].payload)
            header = dict.fromkeys(random_header(rng, bth.opcode, 0), 0)
            header |= {"opcode": bth.opcode, "solicited": bth.solicited, "ack_request": bth.ackreq, "becn": bth.becn}
            header |= {"pkey": bth.pkey, "dest_qpn": bth.dqpn, "psn": bth.psn}
            for name in OPCODES[bth.opcode].headers:
                header |= HEADERS[name].unpack(rest)
                rest = rest[HEADERS[name].size :]
            path = {"mac": number(packet[Ether].dst), "ip": number(packet[IP].dst), "source_port": packet[UDP].sport}
            path |= {"traffic_class": packet[IP].tos, "hop_limit": packet[IP].ttl}
            packets.append((header, path, rest[: len(rest) - bth.padcount]))
        frames, _ = run(64, packets, rng, stall=0, mac=number(mac), ip=number(ip))
        for frame, (file, packet) in zip(frames, members, strict=True):
            packet = packet.copy()
            packet[IP].id = 0
            del packet[IP].chksum
            packet[BTH].icrc = None
            assert frame == bytes(packet), file
    # The captures hold no long message with immediate data, of UC long ones only, and no datagram with immediate data.
    long = {
        opcode(f"{transport}_{name}_WITH_IMMEDIATE")
        for transport in ("RC", "UC")
        for name in ("SEND_LAST", "RDMA_WRITE_LAST")
    }
    short = {code for code in UNRELIABLE if OPCODES[code].first and OPCODES[code].last}
    unseen = {opcode("UD_SEND_ONLY_WITH_IMMEDIATE"), opcode("RC_SEND_ONLY_WITH_INVALIDATE")}
    assert seen == SUPPORTED - long - short - unseen


@pytest.mark.parametrize("width", [64, 256])
def test_converts(width):
    rtlil.convert(Framing(width))


def test_arguments():
    with pytest.raises(ValueError, match="not 28"):
        Packetizer(64, [opcode("RC_FLUSH")])
    with pytest.raises(ValueError, match="not 96"):
        Packetizer(96)
