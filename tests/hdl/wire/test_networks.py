"""Packetizer and depacketizer with all networks: against scapy, and captured frames of Linux."""

import struct

import pytest
from ether_frames import MAC, PEER_MAC, beats, frames_of, number
from framing import Framing
from network_frames import MAPPED, PEER, TABLE, TAGS, frame6_of, frame_over, gid_words, icrc1, is_mapped
from roce_frames import CAPTURES, carried, random_header, random_path, transport_of
from scapy.contrib.roce import BTH, GRH
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Dot1Q, Ether
from scapy.utils import rdpcap
from streams import collect, make_rng, receive_all, send_all, shared, simulate
from verbena.hdl.abi.gids import GidType
from verbena.hdl.wire.depacketizer import Depacketizer
from verbena.hdl.wire.headers import ENCAPSULATIONS, NETWORKS
from verbena.hdl.wire.icrc import icrc
from verbena.hdl.wire.opcodes import OPCODES, REFUSED, SUPPORTED, opcode
from verbena.hdl.wire.packetizer import Packetizer

WIDTHS = [64, 128, 256, 512]
V4, V6, V1 = GidType.ROCE_V2_IPV4, GidType.ROCE_V2_IPV6, GidType.ROCE_V1
WRITE_ONLY = opcode("RC_RDMA_WRITE_ONLY")
SEND_ONLY = opcode("RC_SEND_ONLY")
ACK = opcode("RC_ACKNOWLEDGE")
DROPS = ("not_roce", "malformed", "icrc", "overflow")


def transmit(width, packets, rng, *, stall):
    """Frames of ``packets``: (header, path, index of the own GID, peer's GID, payload)."""
    dut = shared(Framing, width, SUPPORTED, NETWORKS)
    flow, given, size = [], [], 0
    for header, path, index, peer, payload in packets:
        payload = payload or carried(header)
        path = path | {"ip": peer & 0xFFFFFFFF, "gid_high": peer >> 32, "sgid_index": index}
        given.append({"transport": transport_of(header) | {"length": len(payload)}, "path": path})
        flow += beats(payload, width, rng=rng) if payload else []
        network = {V4: 20 + 8, V6: 40 + 8, V1: 40}[TABLE[index][1]]
        whole = 14 + network + 12 + 4 * OPCODES[header["opcode"]].header_words + 4
        whole += (len(payload) + 3) // 4 * 4 if not carried(header) else 0
        size += -(-whole // (width // 8))
    items = []

    async def headers(ctx):
        ctx.set(dut.mac, MAC)
        for write in gid_words():
            ctx.set(dut.gid, write)
            ctx.set(dut.gid_en, 1)
            await ctx.tick()
        ctx.set(dut.gid_en, 0)
        await ctx.tick().repeat(4)
        await send_all(ctx, dut.header, given, rng, stall)

    async def payloads(ctx):
        await send_all(ctx, dut.payload, flow, rng, stall)

    async def frames(ctx):
        items.extend(await receive_all(ctx, dut.o, size, rng, stall))

    async def tagger(ctx):
        """What is said with the beat with byte 12."""
        number, place = 12 * 8 // width, 0
        async for _, _, moves, last, tag in ctx.tick().sample(dut.o.valid & dut.o.ready, dut.o.payload.last, dut.tag):
            if moves and place == number:
                tags.append((tag.vlan, tag.priority) if tag.tagged else (0, 0))
            if moves:
                place = 0 if last else place + 1

    tags = []
    simulate(dut, headers, payloads, frames, background=(tagger,), seed=rng.seed_value, deadline=30_000)
    assert tags == [TAGS.get(index, (0, 0)) for _, _, index, _, _ in packets]
    return [frame for frame, _ in frames_of(items, width)]


def expected(header, path, index, peer, payload):
    fields = {name: path[name] for name in ("source_port", "traffic_class", "hop_limit", "flow_label")}
    ends = {"source": TABLE[index][0], "destination": peer, "source_mac": MAC, "destination_mac": path["mac"]}
    return frame_over(TABLE[index][1], header, payload, **ends, **fields)


def make(rng, code, length, index=None):
    index = rng.choice(list(TABLE)) if index is None else index
    peer = MAPPED | rng.getrandbits(32) if is_mapped(TABLE[index][0]) else rng.getrandbits(128) | 1 << 127
    path = random_path(rng) | {"flow_label": rng.getrandbits(20)}
    payload = rng.randbytes(length if OPCODES[code].payload else 0)
    return random_header(rng, code, len(payload)), path, index, peer, payload


@pytest.mark.parametrize("stall", [0, 0.3])
@pytest.mark.parametrize("width", WIDTHS)
def test_transmitted(width, stall):
    """Every opcode over IPv6 and by RoCEv1, and a mixture of networks, rows and lengths."""
    rng = make_rng()
    packets = [make(rng, code, rng.randrange(width // 4), index) for code in sorted(SUPPORTED) for index in (1, 2)]
    packets += [make(rng, rng.choice([WRITE_ONLY, SEND_ONLY, ACK]), length) for length in range(width // 8 + 5)]
    rng.shuffle(packets)
    frames = transmit(width, packets, rng, stall=stall)
    assert frames == [expected(*packet) for packet in packets]


def receive(frames, rng, *, width=64, mac=MAC, stall=0.0, networks=NETWORKS, groups=True):
    """Headers, payloads and counts of what ``frames`` become."""
    dut = shared(Depacketizer, width, headers=64, networks=networks, groups=groups)
    flow = [beat for frame in frames for beat in beats(frame, width, rng=rng)]
    headers, items, counts = [], [], dict.fromkeys((*DROPS, "packets"), 0)

    async def sender(ctx):
        ctx.set(dut.mac, mac)
        await send_all(ctx, dut.i, flow, rng, stall)
        quiet = 0
        edges = aiter(ctx.tick().sample(dut.empty))
        while quiet < 20:
            *_, empty = await anext(edges)
            quiet = quiet + 1 if empty else 0

    async def taken(ctx):
        await collect(ctx, dut.header, headers, rng, stall)

    async def payloads(ctx):
        await collect(ctx, dut.payload, items, rng, stall)

    async def counters(ctx):
        strobes = (*(getattr(dut, f"count_drop_{name}") for name in DROPS), dut.count_rx_packets)
        async for *_, a, b, c, d, e in ctx.tick().sample(*strobes):
            for name, value in zip(counts, (a, b, c, d, e)):
                counts[name] += value

    background = (taken, payloads, counters)
    simulate(dut, sender, background=background, seed=rng.seed_value, deadline=60_000)
    assert sum(counts.values()) == len(frames)
    return headers, [payload for payload, _ in frames_of(items, width)], counts


def network_of(frame):
    """40 bytes as they stand in front of a datagram."""
    return bytes(20) + frame[14:34] if kind_of(frame) == V4 else frame[14:54]


def kind_of(frame):
    return {b"\x08\0": V4, b"\x86\xdd": V6, b"\x89\x15": V1}[frame[12:14]]


def arrived(rng, code, length, kind, **fields):
    payload = rng.randbytes(length if OPCODES[code].payload else 0)
    header = random_header(rng, code, len(payload))
    mapped = kind == V4 or (kind == V1 and rng.randrange(2))
    ends = {"source": MAPPED | 1, "destination": MAPPED | 2} if mapped else {"source": PEER, "destination": TABLE[1][0]}
    fields = {"traffic_class": rng.getrandbits(8), "hop_limit": rng.getrandbits(8)} | fields
    frame = frame_over(kind, header, payload, source_mac=PEER_MAC, destination_mac=MAC, **ends, **fields)
    if code == opcode("RC_ATOMIC_ACKNOWLEDGE"):
        payload = header["original"].to_bytes(8, "little")
        header["length"] = 8
    return frame + bytes(max(0, 60 - len(frame))), header, payload


def tagged(packet, vlan, priority):
    """The same in a frame with a tag."""
    frame, *rest = packet
    return frame[:12] + struct.pack("!HH", 0x8100, priority << 13 | vlan) + frame[12:], *rest


def check(result, packets):
    headers, payloads, _ = result
    assert payloads == [payload for _, _, payload in packets if payload]
    for got, (frame, header, _) in zip(headers, packets, strict=True):
        transport = got.header.transport
        for name in ("opcode", "solicited", "ack_request", "becn", "pkey", "dest_qpn", "psn", "length"):
            assert getattr(transport, name) == header[name]
        if header["opcode"] in SUPPORTED:
            names = OPCODES[header["opcode"]].headers
            wanted = transport_of(header)
            for name in ("address", "rkey", "dma_length") if "reth" in names else ("immediate",) * ("immdt" in names):
                assert getattr(transport, name) == wanted[name]
        network = network_of(frame)
        assert got.network.to_bytes(40, "little") == network
        kind = kind_of(frame)
        six = kind != V4
        assert got.networks == 1 << kind
        source = int.from_bytes(network[8:24], "big") if six else MAPPED | int.from_bytes(network[32:36], "big")
        assert got.header.source_high << 32 | got.header.source_ip == source
        said = int.from_bytes(network[:2], "big") >> 4 & 255 if six else network[21]
        assert (got.header.traffic_class, got.header.hop_limit) == (said, network[7] if six else network[28])


@pytest.mark.parametrize("stall", [0.0, 0.3])
@pytest.mark.parametrize("width", WIDTHS)
def test_received(width, stall):
    rng = make_rng()
    codes = sorted(SUPPORTED | REFUSED)
    packets = [arrived(rng, code, rng.randrange(width // 4), kind) for code in codes for kind in (V6, V1)]
    mixed = [WRITE_ONLY, SEND_ONLY, ACK, opcode("UD_SEND_ONLY"), opcode("RC_RDMA_WRITE_ONLY_WITH_IMMEDIATE")]
    packets += [arrived(rng, rng.choice(mixed), n, rng.choice([V4, V6, V1])) for n in range(width // 8 + 5)]
    rng.shuffle(packets)
    result = receive([frame for frame, _, _ in packets], rng, width=width, stall=stall)
    check(result, packets)


@pytest.mark.parametrize("width", WIDTHS)
def test_tags(width):
    """Frames with a tag and without, of all networks: what is in them is the same, and the tag is told."""
    rng = make_rng()
    plain, sent, tags = [], [], []
    for _ in range(40):
        kind, vlan, priority = rng.choice([V4, V6, V1]), rng.choice([None, 0, 1, 100, 4094]), rng.randrange(8)
        packet = arrived(rng, rng.choice([WRITE_ONLY, SEND_ONLY, ACK]), rng.randrange(80), kind)
        plain.append(packet)
        sent.append(packet if vlan is None else tagged(packet, vlan, priority))
        tags.append((1, vlan, priority) if vlan else (0,))
    result = receive([frame for frame, *_ in sent], rng, width=width)
    check(result, plain)
    for header, tag in zip(result[0], tags, strict=True):
        assert (header.tag.tagged, header.tag.vlan, header.tag.priority)[: len(tag)] == tag


@pytest.mark.parametrize("kind", [V6, V1])
@pytest.mark.parametrize("width", WIDTHS)
def test_cut_at_any_byte(width, kind):
    """Every frame cut short is dropped, and the one behind it is not, of whatever network it is."""
    rng = make_rng()
    packet = arrived(rng, WRITE_ONLY, 13, kind)
    others = [packet, arrived(rng, SEND_ONLY, 5, V4)]
    frames, good = [], []
    for cut in range(1, len(packet[0]), 1 if width == 64 else 3):
        follower = rng.choice(others)
        frames += [packet[0][:cut], follower[0]]
        good.append(follower)
    check(receive(frames, rng, width=width), good)


@pytest.mark.parametrize("kind", [V6, V1])
@pytest.mark.parametrize("width", WIDTHS)
def test_flipped_bits(width, kind):
    """Any bit but those that nothing protects: source MAC, traffic class, flow label, hop limit, UDP checksum, BTH's
    byte 4.
    """
    rng = make_rng()
    packet = arrived(rng, WRITE_ONLY, 6, kind)
    frame = packet[0]
    bth = 54 if kind == V1 else 62
    places = (*range(6, 12), 15, 16, 17, 21, bth + 4, *(() if kind == V1 else (60, 61)))
    free = {bit for byte in places for bit in range(byte * 8, byte * 8 + 8)}
    free |= {14 * 8 + bit for bit in range(4)}
    bits = rng.sample([bit for bit in range(len(frame) * 8) if bit not in free], 120 if width == 64 else 50)
    frames = []
    for bit in bits:
        damaged = bytearray(frame)
        damaged[bit // 8] ^= 1 << bit % 8
        frames.append(bytes(damaged))
    frames.append(frame)
    for bit in sorted(free - set(range(48, 96)) - {(bth + 4) * 8 + 6}):
        damaged = bytearray(frame)
        damaged[bit // 8] ^= 1 << bit % 8
        frames.append(bytes(damaged))
    headers, _, counts = receive(frames, rng, width=width)
    assert counts["packets"] == len(headers) == len(frames) - len(bits)


def changed(frame, offset, value):
    """With an ICRC that is right as far as IPv6's length goes."""
    frame = bytearray(frame)
    frame[offset : offset + len(value)] = value
    end = 54 + int.from_bytes(frame[18:20], "big")
    if 78 <= end <= len(frame):
        frame[end - 4 : end] = icrc(ENCAPSULATIONS[NETWORKS[1]], bytes(frame[14 : end - 4]))
    return bytes(frame)


@pytest.mark.parametrize("width", WIDTHS)
def test_drop_reasons(width):
    rng = make_rng()
    packet = arrived(rng, WRITE_ONLY, 40, V6)
    frame = packet[0]
    size = int.from_bytes(frame[18:20], "big")
    not_roce = [
        changed(frame, 0, b"\x33\x34\0\0\0\1"),
        changed(frame, 12, b"\x86\xde"),
        changed(frame, 12, b"\x08\0"),  # IPv4 would stand there
        changed(frame, 20, b"\x3a"),
        changed(frame, 20, b"\0"),  # hop-by-hop options
        changed(frame, 20, b"\x2c"),  # a fragment
        changed(frame, 56, b"\x12\xb6"),
    ]
    malformed = [
        changed(frame, 14, b"\x40"),
        *(changed(frame, 18, (size + n).to_bytes(2, "big")) for n in (-4, -2, 4, 60000)),
        changed(frame, 18, b"\0\0"),
        changed(frame, 58, b"\0\x10"),
        changed(frame, 63, b"\x01"),
        changed(frame, 62, bytes([ACK])),
        changed(frame, 62, b"\x81"),
        frame[:-1],
    ]
    wrong = [frame[:-1] + bytes([frame[-1] ^ 1])]
    frames = [each for bad in (*not_roce, *malformed, *wrong) for each in (bad, frame)]
    result = receive(frames, rng, width=width)
    bad = len(frames) // 2
    assert result[2] == {
        "not_roce": len(not_roce),
        "malformed": len(malformed),
        "icrc": 1,
        "overflow": 0,
        "packets": bad,
    }
    check(result, [packet] * bad)


@pytest.mark.parametrize("width", WIDTHS)
def test_drop_reasons_of_rocev1(width):
    rng = make_rng()
    packet = arrived(rng, WRITE_ONLY, 40, V1)
    frame = packet[0]
    size = int.from_bytes(frame[18:20], "big")

    def changed(offset, value):
        """With an ICRC that is right as far as the GRH's length goes."""
        bad = frame[:offset] + value + frame[offset + len(value) :]
        end = 54 + int.from_bytes(bad[18:20], "big")
        return bad[: end - 4] + icrc1(bad[:end]) + bad[end:] if 70 <= end <= len(bad) else bad

    not_roce = [changed(0, b"\x01\0\x5e\x80\0\1"), changed(12, b"\x89\x16"), changed(20, b"\x11"), changed(20, b"\0")]
    malformed = [
        changed(14, b"\x40"),
        *(changed(18, (size + n).to_bytes(2, "big")) for n in (-2, 4, 60000)),
        changed(18, b"\0\0"),
        changed(55, b"\x01"),
        changed(54, bytes([ACK])),
        changed(54, b"\x81"),
        frame[:-1],
    ]
    # A smaller length is another packet: no second length contradicts it, but the ICRC.
    wrong = [frame[:-1] + bytes([frame[-1] ^ 1]), frame[:18] + (size - 4).to_bytes(2, "big") + frame[20:]]
    # What is RoCEv2 but for its ethertype, and the other way.
    v6 = arrived(rng, WRITE_ONLY, 40, V6)[0]
    not_roce += [changed(12, b"\x86\xdd"), v6[:12] + b"\x89\x15" + v6[14:]]
    frames = [each for bad in (*not_roce, *malformed, *wrong) for each in (bad, frame)]
    result = receive(frames, rng, width=width)
    bad = len(frames) // 2
    counts = {"not_roce": len(not_roce), "malformed": len(malformed), "icrc": 2, "overflow": 0, "packets": bad}
    assert result[2] == counts
    check(result, [packet] * bad)


def test_scapy_reads_what_is_transmitted():
    """scapy's own layers of RoCEv1, the GRH and the BTH, from the frame alone."""
    rng = make_rng()
    packets = [make(rng, SEND_ONLY, 9, index) for index in (2, 4)]
    for frame, (header, path, index, peer, payload) in zip(transmit(64, packets, rng, stall=0), packets, strict=True):
        grh, bth = Ether(frame)[GRH], Ether(frame)[BTH]
        assert (grh.ipver, grh.tclass, grh.flowlabel) == (6, path["traffic_class"], path["flow_label"])
        assert (grh.paylen, grh.nexthdr, grh.hoplmt) == (len(frame) - 54, 0x1B, path["hop_limit"])
        assert (grh.sgid, grh.dgid) == (TABLE[index][0], peer)
        assert (bth.dqpn, bth.psn, bytes(bth.payload)[:9]) == (header["dest_qpn"], header["psn"], payload)


def test_two_networks():
    """Without RoCEv1 its frames are not RoCE."""
    rng = make_rng()
    packets = [arrived(rng, WRITE_ONLY, 13, kind) for kind in (V6, V1, V4)]
    result = receive([frame for frame, *_ in packets], rng, networks=NETWORKS[:2])
    assert result[2]["not_roce"] == 1
    check(result, packets[::2])


@pytest.mark.parametrize("width", WIDTHS)
def test_groups(width):
    """A frame to the MAC address of a group comes out, and says so; without ``groups`` it does not."""
    rng = make_rng()
    packets, to_group = [], []
    for kind in (V4, V6, V1) * 10:
        frame, *rest = arrived(rng, opcode("UD_SEND_ONLY"), rng.randrange(99), kind)
        mac = rng.choice([None, b"\x01\0\x5e\x01\x02\x03", b"\x33\x33\xff\x01\x02\x03"])
        packets.append((frame if mac is None else mac + frame[6:], *rest))
        to_group.append(mac is not None)
    frames = [frame for frame, *_ in packets]
    result = receive(frames, rng, width=width, stall=0.3)
    check(result, packets)
    assert [header.group for header in result[0]] == to_group
    alone = receive(frames, rng, width=width, groups=False)
    check(alone, [packet for packet, group in zip(packets, to_group) if not group])
    assert alone[2]["not_roce"] == sum(to_group)


def test_udp_checksum_does_not_count():
    rng = make_rng()
    header = random_header(rng, SEND_ONLY, 4)
    frames = [
        frame6_of(header, b"abcd", source=PEER, destination=1, checksum=checksum) for checksum in (0, None, 0x1234)
    ]
    assert len(set(frames)) == 3
    assert len(receive(frames, rng)[0]) == 3


@pytest.mark.parametrize("width", WIDTHS)
def test_captures(width):
    """What Linux sent over IPv6 is accepted, as scapy reads it."""
    rng = make_rng()
    groups = {}
    for file in sorted(CAPTURES.glob("*.pcap")):
        for packet in rdpcap(str(file)):
            if IPv6 in packet and BTH in packet:
                groups.setdefault(packet[Ether].dst, []).append(packet)
    seen = 0
    for mac, packets in groups.items():
        chosen = packets if width == 64 else packets[::7]
        headers, _, counts = receive([bytes(packet) for packet in chosen], rng, width=width, mac=number(mac))
        assert counts["packets"] == len(chosen)
        for got, packet in zip(headers, chosen, strict=True):
            source = got.header.source_high << 32 | got.header.source_ip
            assert source.to_bytes(16, "big") == bytes(packet[IPv6])[8:24]
            assert (got.header.transport.opcode, got.header.transport.psn) == (packet[BTH].opcode, packet[BTH].psn)
        seen += len(chosen)
    assert seen > (50 if width == 64 else 7)


def test_captures_in_a_vlan():
    """What Linux sent on VLAN 100."""
    rng = make_rng()
    packets = [each for each in rdpcap(str(CAPTURES / "tagged" / "vlan_rc_pingpong.pcap")) if BTH in each]
    assert {packet[Dot1Q].vlan for packet in packets} == {100}
    for mac in {packet[Ether].dst for packet in packets}:
        mine = [packet for packet in packets if packet[Ether].dst == mac]
        headers, _, counts = receive([bytes(packet) for packet in mine], rng, mac=number(mac))
        assert counts["packets"] == len(mine)
        for got, packet in zip(headers, mine, strict=True):
            tag = packet[Dot1Q]
            assert (got.tag.tagged, got.tag.vlan, got.tag.priority) == (1, tag.vlan, tag.prio)
            assert (got.header.transport.opcode, got.header.transport.psn) == (packet[BTH].opcode, packet[BTH].psn)
    assert len(packets) == 12


def test_arguments():
    for block in (Packetizer, Depacketizer):
        for networks in ((), ("RoCEv1",), NETWORKS[::2]):
            with pytest.raises(ValueError, match="networks must be the first"):
                block(64, networks=networks)
