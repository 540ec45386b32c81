"""Frames that are not RoCE, beside the depacketizer that says so."""

from functools import cache

import pytest
from amaranth.hdl import Cat, Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from ether_frames import IP_ADDRESS, MAC, PEER_IP, PEER_MAC, beats, frames_of, ip_text, mac_text
from roce_frames import frame_of, random_header
from scapy.layers.inet import ICMP, IP, TCP, UDP
from scapy.layers.inet6 import ICMPv6EchoRequest, IPv6
from scapy.layers.l2 import ARP, Dot1Q, Ether
from streams import collect, make_rng, send_all, shared, simulate
from verbena.hdl.stream.packet import PacketBeat
from verbena.hdl.wire.depacketizer import Depacketizer
from verbena.hdl.wire.headers import NETWORKS
from verbena.hdl.wire.opcodes import RAW_SEND, opcode
from verbena.hdl.wire.packet_header import ReceiveHeader
from verbena.hdl.wire.raw_receive import RawReceive

SLOW = pytest.mark.slow
WIDTHS = [64, pytest.param(128, marks=SLOW), pytest.param(256, marks=SLOW), 512]
SEND_ONLY = opcode("RC_SEND_ONLY")
QPN = 0x123456
BROADCAST = (1 << 48) - 1
GROUP, OTHER = 0x3333_0000_0001, 0x02_00_00_00_00_77
VERDICTS = ("drop_not_roce", "drop_malformed", "drop_icrc", "drop_overflow", "rx_packets")


class Receiver(wiring.Component):
    """Both blocks as the engine has them."""

    def __init__(self, width, networks):
        self.depacketizer = Depacketizer(width, networks=networks)
        self.raw = RawReceive(width)
        beat = stream.Signature(PacketBeat(width))
        super().__init__(
            {
                "i": In(beat),
                "qpn": In(24),
                "promiscuous": In(1),
                "header": Out(stream.Signature(ReceiveHeader)),
                "payload": Out(beat),
                "packets": Out(1),
                "stored": Out(1),
                "dropped": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.depacketizer, m.submodules.raw = inner, raw = self.depacketizer, self.raw
        wiring.connect(m, wiring.flipped(self.i), inner.i)
        wiring.connect(m, raw.header, wiring.flipped(self.header))
        wiring.connect(m, raw.payload, wiring.flipped(self.payload))
        m.d.comb += [
            *(block.mac.eq(MAC) for block in (inner, raw)),
            inner.ip.eq(IP_ADDRESS),
            inner.header.ready.eq(1),
            inner.payload.ready.eq(1),
            raw.filter.qpn.eq(self.qpn),
            raw.filter.promiscuous.eq(self.promiscuous),
            raw.i.eq(self.i.payload),
            raw.i_valid.eq(self.i.valid),
            raw.judged.eq(Cat(getattr(inner, f"count_{name}") for name in VERDICTS).any()),
            raw.foreign.eq(inner.count_drop_not_roce),
            self.packets.eq(inner.count_rx_packets),
            self.stored.eq(raw.count_raw_rx_packets),
            self.dropped.eq(raw.count_drop_raw),
        ]
        return m


def run(width, frames, rng, *, networks=NETWORKS, qpn=QPN, promiscuous=0, damaged=(), gap=0.0, stall=0.0, hold=0):
    """(headers, payloads, counts) of ``frames``; nothing is taken out for the first ``hold`` cycles."""
    dut = shared(Receiver, width, networks)
    flow = [b for n, frame in enumerate(frames) for b in beats(frame, width, error=n in damaged, rng=rng)]
    headers, items, counts = [], [], [0, 0, 0]

    async def producer(ctx):
        ctx.set(dut.qpn, qpn)
        ctx.set(dut.promiscuous, promiscuous)
        await send_all(ctx, dut.i, flow, rng, gap)
        await ctx.tick().repeat(max(hold, 100 + 6000 * 8 // width))

    def out(port, into):
        async def take(ctx):
            for _ in range(hold):
                await ctx.tick()
            await collect(ctx, port, into, rng, stall)

        return take

    async def count(ctx):
        async for _, _, *strobes in ctx.tick().sample(dut.packets, dut.stored, dut.dropped):
            for number, strobe in enumerate(strobes):
                counts[number] += strobe

    simulate(
        dut,
        producer,
        background=(out(dut.header, headers), out(dut.payload, items), count),
        seed=rng.seed_value,
        deadline=200_000,
    )
    assert all(
        (each.transport.opcode, each.transport.dest_qpn, each.transport.pkey) == (RAW_SEND, qpn, 0xFFFF)
        for each in headers
    )
    payloads = [payload for payload, error in frames_of(items, width)]
    assert [each.transport.length for each in headers] == [len(each) for each in payloads]
    return payloads, counts


def roce(rng, length=40, **fields):
    payload = rng.randbytes(length)
    header = random_header(rng, SEND_ONLY, length)
    ends = {"source_mac": PEER_MAC, "source_ip": PEER_IP, "destination_mac": MAC, "destination_ip": IP_ADDRESS}
    return frame_of(header, payload, **ends | fields)


@cache
def foreign(to=MAC):
    """Frames that are not RoCE, as scapy builds them."""
    ether = Ether(dst=mac_text(to), src=mac_text(PEER_MAC))
    ip = IP(dst=ip_text(IP_ADDRESS), src=ip_text(PEER_IP))
    packets = [
        ether / ARP(pdst=ip_text(IP_ADDRESS)),
        ether / ip / ICMP() / b"ping",
        ether / ip / UDP(dport=53) / b"name",
        ether / ip / UDP(dport=53) / bytes(1460),
        ether / ip / TCP(dport=80) / b"get",
        ether / IPv6() / ICMPv6EchoRequest(),
        ether / Dot1Q(vlan=5) / ip / UDP(dport=53) / b"tagged",
        ether / IP(dst=ip_text(IP_ADDRESS), options=[b"\x07\x07\x04\0\0\0\0"]) / TCP() / b"options",
        Ether(dst=ether.dst, src=ether.src, type=0x88B5) / bytes(range(46)),
        ether / IP(dst=ip_text(IP_ADDRESS), chksum=0x1234, proto=6) / bytes(30),  # a broken header
        ether / IP(dst=ip_text(IP_ADDRESS), version=7, len=3, proto=99) / bytes(30),
    ]
    return [bytes(each).ljust(60, b"\0") for each in packets]


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("gap", [0.0, pytest.param(0.3, marks=SLOW)])
def test_either_raw_or_roce(width, gap):
    """Each frame without a pause, whole, and never both; what is broken RoCE is nobody's."""
    rng = make_rng()
    good, wrong = [roce(rng, n) for n in (1, 8, 300)], [bytearray(roce(rng, 60)) for _ in range(3)]
    wrong[0][-1] ^= 1  # the ICRC
    wrong[1][42] = 0xFF  # the opcode
    wrong[2] = wrong[2][:50]  # cut off
    plain = foreign() + foreign(BROADCAST) + foreign(GROUP)
    frames = [(frame, True) for frame in plain] + [(bytes(frame), False) for frame in good + wrong]
    frames += [(roce(rng, destination_mac=GROUP), True)]
    frames += [(frame, False) for frame in foreign(OTHER)]
    rng.shuffle(frames)
    payloads, counts = run(width, [frame for frame, _ in frames], rng, gap=gap, stall=0.1)
    assert payloads == [frame for frame, wanted in frames if wanted]
    assert counts == [len(good), len(payloads), 0]


@pytest.mark.parametrize("width", [64, 512])
def test_frames_to_others(width):
    rng = make_rng()
    frames = foreign(OTHER)
    assert run(width, frames, rng, promiscuous=1) == (frames, [0, len(frames), 0])
    assert run(width, frames, rng) == ([], [0, 0, 0])
    assert run(width, foreign(), rng, qpn=0) == ([], [0, 0, 0])


@pytest.mark.parametrize("width", WIDTHS)
def test_sizes_and_damage(width):
    """14 to 4096 bytes, with frames of any size between them: too short for an address, and longer than the store."""
    rng = make_rng()
    head = foreign()[8][:14]
    sizes = [*range(14, 70), 4095, 4096, 4097, 5000, 9000, 17000]
    frames = [head + rng.randbytes(n - 14) for n in sizes] + [head[:n] for n in (1, 6, 8, 12, 13)]
    frames += [head + rng.randbytes(60) for _ in range(3)]
    rng.shuffle(frames)
    damaged = {n for n, frame in enumerate(frames) if len(frame) == 74}
    payloads, (_, stored, dropped) = run(width, frames, rng, damaged=damaged)
    assert payloads == [frame for n, frame in enumerate(frames) if 14 <= len(frame) <= 4096 and n not in damaged]
    assert stored == len(payloads)
    assert dropped >= 4 + 3, "too long, or damaged"


@pytest.mark.parametrize("width", [pytest.param(64, marks=SLOW), 512])
@pytest.mark.parametrize("size", [60, 700])
def test_what_finds_no_room(width, size):
    """What is there comes out whole, and afterwards there is room again."""
    rng = make_rng()
    head = foreign()[8][:14]
    frames = [head + rng.randbytes(size - 14) for _ in range(90)]
    payloads, (_, stored, dropped) = run(width, frames, rng, hold=90 * (size * 8 // width + 8))
    assert payloads == frames[: len(payloads)]
    assert (stored, dropped) == (len(payloads), 90 - len(payloads))
    assert len(payloads) >= (64 if size == 60 else 10)
