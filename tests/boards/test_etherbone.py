"""The bridge behind a station, with packets written after the specification of Etherbone and made by scapy."""

import struct

import pytest
from amaranth.hdl import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from bus_answers import serve
from ether_frames import IP_ADDRESS, MAC, PEER_IP, PEER_MAC, beats, frames_of, ip_text, mac_text, padded
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether
from scapy.packet import Raw
from streams import collect, make_rng, pause, simulate
from verbena.boards.bridge_bus import BridgeBus
from verbena.boards.etherbone import PORT, Etherbone
from verbena.hdl.ethernet.arp_icmp import ArpIcmp
from verbena.hdl.stream.packet import PacketBeat

FRIEND = PEER_IP + 9
TOP = 0x4000
"""From here on nothing is at an address."""


class Node(wiring.Component):
    """A station whose service is the bridge."""

    def __init__(self):
        super().__init__(
            {
                "i": In(PacketBeat(64)),
                "i_valid": In(1),
                "o": Out(stream.Signature(PacketBeat(64))),
                "bus": Out(BridgeBus()),
            }
        )
        self.arp_icmp, self.bridge = ArpIcmp(64, udp_port=PORT), Etherbone(2)

    def elaborate(self, platform):
        m = Module()
        m.submodules.arp_icmp, m.submodules.bridge = arp_icmp, bridge = self.arp_icmp, self.bridge
        wiring.connect(m, arp_icmp.service, bridge.service)
        wiring.connect(m, arp_icmp.o, wiring.flipped(self.o))
        wiring.connect(m, bridge.bus, wiring.flipped(self.bus))
        m.d.comb += [
            arp_icmp.i.eq(self.i),
            arp_icmp.i_valid.eq(self.i_valid),
            arp_icmp.enable.eq(1),
            arp_icmp.mac.eq(MAC),
            arp_icmp.ip.eq(IP_ADDRESS),
            bridge.allowed[0].eq(PEER_IP),
            bridge.allowed[1].eq(FRIEND),
        ]
        return m


def record(writes=(), reads=(), base=0, back=0, flags=0x10, enables=0x0F):
    text = struct.pack(">BBBB", flags, enables, len(writes), len(reads))
    if writes:
        text += struct.pack(f">I{len(writes)}I", base, *writes)
    if reads:
        text += struct.pack(f">I{len(reads)}I", back, *reads)
    return text


def packet(*records, magic=0x4E6F, version=1, flags=0, sizes=0x44):
    return struct.pack(">HBBI", magic, version << 4 | flags, sizes, 0) + b"".join(records)


def frame(payload, sender=PEER_IP):
    return padded(
        Ether(dst=mac_text(MAC), src=mac_text(PEER_MAC), type=0x800)
        / IP(src=ip_text(sender), dst=ip_text(IP_ADDRESS), ttl=3)
        / UDP(sport=PORT, dport=PORT)
        / Raw(payload)
    )


def run(frames, memory, *, rest=400):
    """(payloads of the answers, the bus's writes, counts)."""
    rng = make_rng()
    dut = Node()
    items, writes, counts = [], [], {"served": 0, "denied": 0, "refused": 0}

    async def sender(ctx):
        for text in frames:
            for beat in beats(text, 64, rng=rng):
                await pause(ctx, rng, 0.2)
                ctx.set(dut.i, beat)
                ctx.set(dut.i_valid, 1)
                await ctx.tick()
                ctx.set(dut.i_valid, 0)
            await ctx.tick().repeat(rest + 12 * len(text))

    async def reader(ctx):
        await collect(ctx, dut.o, items, rng)

    def respond(request):
        assert request.address % 4 == 0
        if request.address >= TOP:
            return None
        if request.write:
            memory[request.address] = request.data
            writes.append((request.address, request.data))
        return memory.get(request.address, 0)

    async def bus(ctx):
        await serve(ctx, dut.bus, rng, respond)

    async def counter(ctx):
        strobes = [getattr(dut.bridge, f"count_{name}") for name in counts]
        while True:
            _, _, *values = await ctx.tick().sample(*strobes)
            for name, value in zip(counts, values):
                counts[name] += value

    simulate(dut, sender, background=[reader, bus, counter], seed=rng.seed_value, deadline=300_000)
    answers = []
    for text, _ in frames_of(items, 64):
        answer = Ether(text)
        assert (answer.dst, answer[IP].src, answer[UDP].sport, answer[UDP].dport) == (
            mac_text(PEER_MAC),
            ip_text(IP_ADDRESS),
            PORT,
            PORT,
        )
        answers.append((answer[IP].dst, bytes(answer[UDP].payload)))
    return answers, writes, counts


def counted(**counts):
    return {"served": 0, "denied": 0, "refused": 0} | counts


@pytest.mark.parametrize("count", [1, 2, 3, 30, 255])
def test_reads(count):
    rng = make_rng()
    memory = {n: rng.getrandbits(32) for n in range(0, TOP, 4)}
    reads = [rng.randrange(0, TOP, 4) for _ in range(count)]
    answers, writes, counts = run([frame(packet(record(reads=reads, back=0x12345678)))], memory, rest=8000)
    wanted = packet(record([memory[n] for n in reads], base=0x12345678, flags=0), flags=4)
    assert answers == [(ip_text(PEER_IP), wanted)]
    assert writes == []
    assert counts == counted(served=1)


@pytest.mark.parametrize("count", [1, 2, 30, 255])
def test_writes(count):
    """One behind the other, and no answer."""
    rng = make_rng()
    values = [rng.getrandbits(32) for _ in range(count)]
    answers, writes, counts = run([frame(packet(record(values, base=0x1000)))], {}, rest=8000)
    assert answers == []
    assert writes == [(0x1000 + 4 * n, value) for n, value in enumerate(values)]
    assert counts == counted(served=1)


def test_writes_and_then_reads_and_who_may():
    """Both allowed addresses are served, and each gets its own answer."""
    text = packet(record([7, 8, 9], [0x104, 0x100, 0x200], base=0x100, back=5))
    answers, writes, counts = run([frame(text), frame(text, FRIEND)], {0x200: 1})
    assert answers == [(ip_text(who), packet(record([8, 7, 1], base=5, flags=0), flags=4)) for who in (PEER_IP, FRIEND)]
    assert writes == [(0x100, 7), (0x104, 8), (0x108, 9)] * 2
    assert counts == counted(served=2)


def test_probe():
    answers, _, counts = run([frame(packet(flags=1))], {})
    assert answers == [(ip_text(PEER_IP), packet(flags=2))]
    assert counts == counted(served=1)


def test_others_may_not():
    text = packet(record([7], [0x100], base=0x100))
    senders = [PEER_IP ^ 1 << bit for bit in (0, 15, 16, 31)]
    answers, writes, counts = run([frame(text, who) for who in senders] + [frame(packet(flags=1), 1)], {})
    assert (answers, writes) == ([], [])
    assert counts == counted(denied=5)


WRONG = {
    "magic": packet(record([7]), magic=0x4E6E),
    "version": packet(record([7]), version=2),
    "address size": packet(record([7]), sizes=0x84),
    "port size": packet(record([7]), sizes=0x42),
    "flags": packet(record([7], flags=0x20)),
    "byte enables": packet(record([7], enables=0x07)),
    "nothing in it": packet(record()),
    "no record": packet(),
    "writes cut off": packet(record([7] * 20))[:-1],
    "reads cut off": packet(record(reads=[0x100] * 20))[:-4],
    "255 of nothing": packet(b"\x10\x0f\xff\xff"),
    "empty": b"",
    "a byte": b"\x4e",
}


@pytest.mark.parametrize("text", WRONG.values(), ids=WRONG.keys())
def test_malformed(text):
    """It has no effect, and the next packet is served."""
    answers, writes, counts = run([frame(text), frame(packet(record(reads=[0x100])))], {0x100: 3})
    assert [payload for _, payload in answers] == [packet(record([3], flags=0), flags=4)]
    assert writes == []
    assert counts == counted(served=1, refused=1)


@pytest.mark.parametrize("write", [False, True])
def test_an_address_at_which_nothing_is(write):
    text = packet(record([7, 8, 9], base=TOP - 8) if write else record(reads=[0, TOP, 4]))
    answers, writes, counts = run([frame(text), frame(packet(record(reads=[0x100])))], {0x100: 3})
    assert [payload for _, payload in answers] == [packet(record([3], flags=0), flags=4)]
    assert writes == ([(TOP - 8, 7), (TOP - 4, 8)] if write else [])
    assert counts == counted(served=1, refused=1)
