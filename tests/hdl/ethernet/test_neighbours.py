"""Neighbour discovery and ICMPv6 echo against scapy's packets."""

import ipaddress

import pytest
from ether_frames import MAC, PEER_MAC, mac_text, padded
from scapy.layers.inet6 import (
    ICMPv6EchoReply,
    ICMPv6EchoRequest,
    ICMPv6ND_NA,
    ICMPv6ND_NS,
    ICMPv6NDOptDstLLAddr,
    ICMPv6NDOptSrcLLAddr,
    ICMPv6Unknown,
    IPv6,
    in6_getnsma,
    in6_getnsmac,
)
from scapy.layers.l2 import Ether
from scapy.packet import Raw
from station_bench import COUNTERS, REST, Bench, arp, arp_answer
from verbena.hdl.abi.gids import GID_ROW, GID_WORDS, GidType

WIDTHS = [64, 128, 256, 512]


def number(text):
    return int(ipaddress.IPv6Address(text))


PEER = "fe80::a5:5afe:1"
OWN = {1: "fe80::200:ff:fe00:1", 4: "fd00::1234:5678:9abc", 15: "2001:db8::feed"}
OF_ROCE_V1 = {15}
OTHERS = {0: ("::ffff:10.0.0.1", GidType.ROCE_V2_IPV4), 7: ("fd00::77", None)}
"""An IPv4 address, and a row that is not valid."""


def rows():
    kinds = {index: GidType.ROCE_V1 if index in OF_ROCE_V1 else GidType.ROCE_V2_IPV6 for index in OWN}
    table = {index: (text, kinds[index]) for index, text in OWN.items()} | OTHERS
    for index in range(16):
        text, kind = table.get(index, ("::", None))
        gid = number(text)
        fields = {"gid_low": gid & (1 << 64) - 1, "gid_high": gid >> 64}
        row = GID_ROW.words(**fields, type=GidType.ROCE_V2_IPV6 if kind is None else kind, valid=kind is not None)
        yield from ({"index": index, "word": word, "data": row[word]} for word in range(GID_WORDS))


def table(bench):
    """A script that fills the table."""

    def write(item):
        def action(ctx):
            ctx.set(bench.dut.gid, item)
            ctx.set(bench.dut.gid_en, 1)

        return action

    def end(ctx):
        ctx.set(bench.dut.gid_en, 0)
        ctx.set(bench.dut.neighbour_ask6, 0)

    return [*map(write, rows()), end]


def solicitation(target, *, to=None, source=PEER, sender=PEER_MAC, **fields):
    ip = IPv6(src=source, dst=to or _group(target), hlim=255, **fields)
    ns = ICMPv6ND_NS(tgt=target) / ICMPv6NDOptSrcLLAddr(lladdr=mac_text(sender))
    mac = in6_getnsmac(_packed(_group(target))) if to is None else mac_text(MAC)
    return Ether(dst=mac, src=mac_text(sender)) / ip / ns


def _packed(text):
    return ipaddress.IPv6Address(text).packed


def _group(target):
    return str(ipaddress.IPv6Address(in6_getnsma(_packed(target))))


def advertisement(target, *, to=PEER, mac=MAC, receiver=PEER_MAC, **fields):
    na = ICMPv6ND_NA(tgt=target, R=0, S=1, O=1) / ICMPv6NDOptDstLLAddr(lladdr=mac_text(mac))
    ip = IPv6(src=target, dst=to, hlim=255, **fields)
    return bytes(Ether(dst=mac_text(receiver), src=mac_text(mac)) / ip / na)


@pytest.mark.parametrize("width", WIDTHS)
def test_solicitation(width):
    """For each own address, to the group and to us alone."""
    bench = Bench(width, ipv6=True)
    script, expected = table(bench), []
    for target in OWN.values():
        for to in (None, target):
            script += [bytes(solicitation(target, to=to)), REST]
            expected.append(advertisement(target))
    assert bench.run(script) == expected
    assert bench.counted(arp_replies=2 * len(OWN))


def test_not_for_us():
    """Other addresses, also if they differ in one bit, and solicitations that are no good."""
    bench = Bench(ipv6=True)
    target = OWN[4]
    frames = [solicitation(str(ipaddress.IPv6Address(number(target) ^ 1 << bit))) for bit in range(0, 128, 9)]
    frames += [solicitation(text) for text, _ in OTHERS.values()]
    frames += [solicitation("::"), solicitation("fe80::1234:5678:9abc"), solicitation("fd00::feed")]  # of two rows
    far = solicitation(target)
    far[IPv6].hlim = 254
    frames.append(far)
    probe = Ether(dst=mac_text(MAC), src=mac_text(PEER_MAC)) / IPv6(src="::", dst=target, hlim=255)
    frames.append(probe / ICMPv6ND_NS(tgt=target))
    group = solicitation(target, sender=0x3333_0000_0001)
    frames.append(group)
    frames.append(bytes(solicitation(target))[:-1])
    frames.append(bytes(solicitation(target))[:60])
    script = table(bench)
    for frame in frames:
        script += [padded(frame), REST]
    script += [bytes(solicitation(target))]
    assert bench.run(script) == [advertisement(target)]


@pytest.mark.parametrize("width", WIDTHS)
def test_echo(width):
    bench = Bench(width, ipv6=True)
    script, expected = table(bench), []
    for size in (0, 1, 2, 7, 56, 300):
        target, data = bench.rng.choice(list(OWN.values())), bench.rng.randbytes(size)
        fields = {"tc": bench.rng.randrange(256), "fl": bench.rng.getrandbits(20)}
        ids = {"id": bench.rng.getrandbits(16), "seq": bench.rng.getrandbits(16)}
        request = Ether(dst=mac_text(MAC), src=mac_text(PEER_MAC)) / IPv6(src=PEER, dst=target, hlim=9, **fields)
        script += [bytes(request / ICMPv6EchoRequest(**ids, data=data)), REST]
        answer = Ether(dst=mac_text(PEER_MAC), src=mac_text(MAC)) / IPv6(src=target, dst=PEER, hlim=64, **fields)
        expected.append(bytes(answer / ICMPv6EchoReply(**ids, data=data)))
    for wrong in ("fd00::77", "ff02::1"):
        request = Ether(dst=mac_text(MAC), src=mac_text(PEER_MAC)) / IPv6(src=PEER, dst=wrong) / ICMPv6EchoRequest()
        script += [padded(request), REST]
    script += [padded(Ether(dst=mac_text(MAC)) / IPv6(src=PEER, dst=OWN[1]) / ICMPv6Unknown(type=133)), REST]
    assert bench.run(script, deadline=200_000) == expected
    assert bench.counted(echo_replies=len(expected))


def ask6(bench, gid, row):
    def action(ctx):
        ctx.set(bench.dut.neighbour_gid, number(gid))
        ctx.set(bench.dut.neighbour_row, row)
        ctx.set(bench.dut.neighbour_ask6, 1)

    def end(ctx):
        ctx.set(bench.dut.neighbour_ask6, 0)

    return [action, end]


def asked(gid, row):
    frame = solicitation(gid, source=OWN[row], sender=MAC)
    return bytes(frame)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("gid", [PEER, "2001:db8:1:2:3:4:ff01:203"])
def test_asking(width, gid):
    bench = Bench(width, ipv6=True)
    answer = advertisement(gid, to=OWN[4], mac=PEER_MAC, receiver=MAC)
    assert bench.run([*table(bench), *ask6(bench, gid, 4), REST, answer]) == [asked(gid, 4)]
    assert bench.neighbour == PEER_MAC


def test_answers_that_do_not_count():
    """Of others, damaged, from afar, without a MAC address, from a group; and one that nobody asked for."""
    bench = Bench(ipv6=True)
    good = advertisement(PEER, to=OWN[1], mac=PEER_MAC, receiver=MAC)
    bad = [advertisement(other, to=OWN[1], mac=PEER_MAC, receiver=MAC) for other in ("fe80::a5:5afe:2", "fd00::1")]
    bad += [good[:at] + bytes([good[at] ^ 4]) + good[at + 1 :] for at in (22, 38, 56, 58, 80, 85)]
    bad.append(good[:21] + b"\xfe" + good[22:])
    bad.append(bytes(Ether(good[:14]) / IPv6(src=PEER, dst=OWN[1], hlim=255) / ICMPv6ND_NA(tgt=PEER)))
    bad.append(advertisement(PEER, to=OWN[1], mac=0x333300000001, receiver=MAC))
    script = [*table(bench), good, REST, *ask6(bench, PEER, 1), REST]
    for frame in bad:
        script += [padded(frame), REST]
    assert bench.run(script) == [asked(PEER, 1)]
    assert bench.neighbour is None
    assert bench.run([*table(bench), *ask6(bench, PEER, 1), REST, good, REST, *ask6(bench, OWN[4], 1)])[-1] == asked(
        OWN[4], 1
    )
    assert bench.neighbour is None


def test_one_address_at_a_time():
    """An ARP reply does not answer a solicitation, and the other way round."""
    bench = Bench(ipv6=True)
    reply = padded(arp(2, to=MAC, target=(MAC, 0x0A000001)))
    answer = advertisement(PEER, to=OWN[1], mac=PEER_MAC, receiver=MAC)
    bench.run([*table(bench), *ask6(bench, PEER, 1), REST, reply])
    assert bench.neighbour is None
    bench.run([*table(bench), bench.ask(), REST, answer])
    assert bench.neighbour is None
    bench.run([*table(bench), bench.ask(), REST, reply])
    assert bench.neighbour == PEER_MAC


def test_arp_goes_on():
    bench = Bench(ipv6=True)
    assert bench.run([*table(bench), padded(arp()), REST, bytes(solicitation(OWN[1]))]) == [
        arp_answer(),
        advertisement(OWN[1]),
    ]


def test_without_the_switch_nothing_is_answered():
    bench = Bench()
    assert bench.run([bytes(solicitation(OWN[1])), REST]) == []
    assert bench.counts == dict.fromkeys(COUNTERS, 0)


def test_garbage():
    """Changed bytes: whatever is answered is a whole frame, and an answer to the right one follows."""
    bench = Bench(ipv6=True)
    script = table(bench)
    whole = bytes(solicitation(OWN[15])) + bytes(Raw(b""))
    for _ in range(40):
        frame = bytearray(whole)
        for _ in range(bench.rng.randrange(1, 4)):
            frame[bench.rng.randrange(12, len(frame))] = bench.rng.getrandbits(8)
        script += [bytes(frame)[: bench.rng.randrange(20, 87)], REST]
    script += [whole]
    frames = bench.run(script, deadline=200_000)
    assert frames[-1] == advertisement(OWN[15])
    assert all(len(frame) >= 86 for frame in frames)
