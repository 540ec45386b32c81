"""Reports of membership, as scapy takes them apart, and as Linux sends them."""

from ipaddress import IPv4Address, IPv6Address

import pytest
from mads import CAPTURES
from scapy.layers.igmp import IGMPv3_MR
from scapy.layers.inet import IP, IPOption_Router_Alert
from scapy.layers.inet6 import ICMPv6MLReport2, IPv6, IPv6ExtHdrHopByHop, RouterAlert
from verbena.sim.trace.capture_file import read_capture
from verbena.sw.cm.membership_report import ROUTERS, ROUTERS6, checksum, report
from verbena.sw.gids import link_local, mapped
from verbena.sw.groups import group_mac

OWN, GROUP = "10.0.0.1", "239.1.2.3"
OWN6, GROUP6 = str(IPv6Address(link_local(0x020000000001))), "ff0e::1:2:3"

KINDS = pytest.mark.parametrize(("kind", "joins", "stays"), [(4, True, False), (3, False, False), (2, True, True)])


def number(text):
    return int(IPv6Address(text)) if ":" in text else mapped(int(IPv4Address(text)))


def test_checksum():
    """The example of RFC 1071, 3."""
    assert checksum(bytes.fromhex("0001f203f4f5f6f7")) == ~0xDDF2 & 0xFFFF
    assert checksum(b"\xff\xff" * 4) == 0


def test_routers():
    assert (group_mac(ROUTERS), group_mac(ROUTERS6)) == (0x01005E000016, 0x333300000016)


@KINDS
def test_igmp(kind, joins, stays):
    raw = report(number(OWN), number(GROUP), joins, stays)
    packet = IP(raw)
    assert (packet.src, packet.dst, packet.ttl, packet.proto, packet.len) == (OWN, "224.0.0.22", 1, 2, len(raw))
    assert [type(option) for option in packet.options] == [IPOption_Router_Alert]
    assert (packet[IGMPv3_MR].type, packet[IGMPv3_MR].numgrp) == (0x22, 1)
    (record,) = packet[IGMPv3_MR].records
    assert (record.rtype, record.maddr, record.numsrc, record.auxdlen) == (kind, GROUP, 0, 0)
    del packet[IP].chksum, packet[IGMPv3_MR].chksum
    assert bytes(packet) == raw


@KINDS
def test_mld(kind, joins, stays):
    raw = report(number(OWN6), number(GROUP6), joins, stays)
    packet = IPv6(raw)
    assert (packet.src, packet.dst, packet.hlim, packet.plen) == (OWN6, "ff02::16", 1, len(raw) - 40)
    assert isinstance(packet[IPv6ExtHdrHopByHop].options[0], RouterAlert)
    assert packet[IPv6ExtHdrHopByHop].options[0].value == 0
    (record,) = packet[ICMPv6MLReport2].records
    assert (record.rtype, record.dst, record.sources_number) == (kind, GROUP6, 0)
    del packet[ICMPv6MLReport2].cksum
    assert bytes(packet) == raw


def test_it_is_what_linux_sends():
    frames = [bytes(frame.data) for frame in read_capture(CAPTURES / "rc_send_0.pcap").frames]
    reports = [frame for frame in frames if frame[:6] == group_mac(ROUTERS).to_bytes(6, "big")]
    assert reports
    for frame in reports:
        source = mapped(int.from_bytes(frame[26:30], "big"))
        assert frame[14:] == report(source, number("239.1.1.1"), False)
