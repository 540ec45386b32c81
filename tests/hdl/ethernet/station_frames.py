"""What is said to a station, and what it answers, as scapy has it."""

import ipaddress

from ether_frames import IP_ADDRESS, MAC, PEER_IP, PEER_MAC, ip_text, mac_text
from scapy.layers.inet import ICMP, IP, UDP
from scapy.layers.inet6 import (
    ICMPv6ND_NA,
    ICMPv6ND_NS,
    ICMPv6NDOptDstLLAddr,
    ICMPv6NDOptSrcLLAddr,
    IPv6,
    in6_getnsma,
    in6_getnsmac,
)
from scapy.layers.l2 import ARP, Dot1Q, Ether
from scapy.packet import Raw

__all__ = [
    "BROADCAST",
    "PEER",
    "advertisement",
    "arp",
    "arp_answer",
    "echo",
    "echo_answer",
    "in_vlan",
    "internet_sum",
    "plain",
    "solicitation",
    "udp",
]

BROADCAST = 0xFFFFFFFFFFFF
PEER = "fe80::a5:5afe:1"


def arp(operation=1, *, to=BROADCAST, sender=(PEER_MAC, PEER_IP), target=(0, IP_ADDRESS), **fields):
    return Ether(dst=mac_text(to), src=mac_text(sender[0]), type=0x806) / ARP(
        op=operation,
        hwsrc=mac_text(sender[0]),
        psrc=ip_text(sender[1]),
        hwdst=mac_text(target[0]),
        pdst=ip_text(target[1]),
        **fields,
    )


def arp_answer(sender=(PEER_MAC, PEER_IP)):
    return bytes(arp(2, to=sender[0], sender=(MAC, IP_ADDRESS), target=sender))


def echo(payload=b"", *, to=MAC, ip=None, icmp=None):
    """An echo request; ``ip`` and ``icmp`` are fields of their headers."""
    return (
        Ether(dst=mac_text(to), src=mac_text(PEER_MAC), type=0x800)
        / IP(**{"src": ip_text(PEER_IP), "dst": ip_text(IP_ADDRESS), "ttl": 9, "id": 0x1234, **(ip or {})})
        / ICMP(**{"type": 8, "id": 0xBEEF, "seq": 7, **(icmp or {})})
        / Raw(payload)
    )


def echo_answer(request):
    """What scapy makes of the request: addresses turned, TTL 64, checksums anew."""
    request = Ether(bytes(request))
    return bytes(
        Ether(dst=request.src, src=request.dst, type=0x800)
        / IP(
            src=request[IP].dst,
            dst=request[IP].src,
            ttl=64,
            tos=request[IP].tos,
            id=request[IP].id,
            flags=request[IP].flags,
        )
        / ICMP(type=0, id=request[ICMP].id, seq=request[ICMP].seq)
        / Raw(bytes(request[ICMP].payload)[: request[IP].len - 28])
    )


def plain(frame):
    """The frame with zeros for a checksum of all ones, which says the same."""
    frame = bytearray(frame)
    for at in (24, 36):
        if frame[12:14] == b"\x08\x00" and frame[at : at + 2] == b"\xff\xff":
            frame[at : at + 2] = b"\0\0"
    return bytes(frame)


def internet_sum(data):
    """As a receiver has it (RFC 1071): all ones is right."""
    data += bytes(len(data) % 2)
    total = sum(int.from_bytes(data[n : n + 2], "big") for n in range(0, len(data), 2))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total


def udp(payload, *, port=1234, ip=None, **fields):
    return (
        Ether(dst=mac_text(MAC), src=mac_text(PEER_MAC), type=0x800)
        / IP(**{"src": ip_text(PEER_IP), "dst": ip_text(IP_ADDRESS), "ttl": 7, "id": 5} | (ip or {}))
        / UDP(sport=4660, dport=port, **fields)
        / Raw(payload)
    )


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


def in_vlan(frame, vlan, priority=0):
    """The frame with a tag."""
    frame = Ether(bytes(frame))
    return bytes(Ether(dst=frame.dst, src=frame.src) / Dot1Q(vlan=vlan, prio=priority, type=frame.type) / frame.payload)
