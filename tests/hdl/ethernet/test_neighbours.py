"""Neighbour discovery and ICMPv6 echo against scapy's packets."""

import ipaddress

import pytest
from ether_frames import IP_ADDRESS, MAC, PEER_IP, PEER_MAC, ip_text, mac_text, padded
from scapy.layers.inet6 import (
    ICMPv6EchoReply,
    ICMPv6EchoRequest,
    ICMPv6ND_NA,
    ICMPv6ND_NS,
    ICMPv6Unknown,
    IPv6,
)
from scapy.layers.l2 import Ether
from scapy.packet import Raw
from station_bench import COUNTERS, REST, Bench, number
from station_frames import PEER, advertisement, arp, arp_answer, solicitation
from verbena.hdl.abi.gids import GidType

WIDTHS = [64, 128, 256, 512]


OWN = {1: "fe80::200:ff:fe00:1", 4: "fd00::1234:5678:9abc", 15: "2001:db8::feed"}
OF_ROCE_V1 = {15}
OTHERS = {0: ("::ffff:10.0.0.1", GidType.ROCE_V2_IPV4), 7: ("fd00::77", None)}
"""An IPv4 address, and a row that is not valid."""


def table(bench):
    """A script that fills the table."""
    kinds = {index: GidType.ROCE_V1 if index in OF_ROCE_V1 else GidType.ROCE_V2_IPV6 for index in OWN}
    rows = {index: (text, kinds[index], 0) for index, text in OWN.items()}
    return bench.table(rows | {index: (*row, 0) for index, row in OTHERS.items()})


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


def asked(gid, row):
    frame = solicitation(gid, source=OWN[row], sender=MAC)
    return bytes(frame)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("gid", [PEER, "2001:db8:1:2:3:4:ff01:203"])
def test_asking(width, gid):
    bench = Bench(width, ipv6=True)
    answer = advertisement(gid, to=OWN[4], mac=PEER_MAC, receiver=MAC)
    assert bench.run([*table(bench), bench.ask_from(4, gid), REST, answer]) == [asked(gid, 4)]
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
    script = [*table(bench), good, REST, bench.ask_from(1, PEER), REST]
    for frame in bad:
        script += [padded(frame), REST]
    assert bench.run(script) == [asked(PEER, 1)]
    assert bench.neighbour is None
    assert bench.run([*table(bench), bench.ask_from(1, PEER), REST, good, REST, bench.ask_from(1, OWN[4])])[
        -1
    ] == asked(OWN[4], 1)
    assert bench.neighbour is None


def test_one_address_at_a_time():
    """An ARP reply does not answer a solicitation, and the other way round."""
    bench = Bench(ipv6=True)
    reply, four = padded(arp(2, to=MAC, target=(MAC, IP_ADDRESS))), ip_text(PEER_IP)
    answer = advertisement(PEER, to=OWN[1], mac=PEER_MAC, receiver=MAC)
    bench.run([*table(bench), bench.ask_from(1, PEER), REST, reply])
    assert bench.neighbour is None
    bench.run([*table(bench), bench.ask_from(0, four), REST, answer])
    assert bench.neighbour is None
    bench.run([*table(bench), bench.ask_from(0, four), REST, reply])
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
