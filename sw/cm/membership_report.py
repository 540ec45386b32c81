"""Packets that tell of membership in multicast groups: IGMPv3 (RFC 3376) and MLDv2 (RFC 3810)."""

import struct

from ..gids import ipv4_of, mapped

__all__ = ["ROUTERS", "ROUTERS6", "checksum", "report"]

ROUTERS, ROUTERS6 = mapped(0xE0000016), 0xFF02 << 112 | 0x16
"""GIDs of the groups that hear reports: 224.0.0.22 and ff02::16."""

IS_EXCLUDE, INCLUDE, EXCLUDE = 2, 3, 4
"""The filter is as it was, all but the named sources, which are none; it changes to them, or to all but them (RFC 3376,
4.2.12).
"""

IGMP, IGMP_REPORT = 2, 0x22
ICMPV6, MLD_REPORT = 58, 143
HOP_BY_HOP = 0
ROUTER_ALERT = bytes((0x94, 4, 0, 0))
"""Option of IPv4 (RFC 2113)."""
HEADER_ALERT = bytes((ICMPV6, 0, 5, 2, 0, 0, 1, 0))
"""Hop-by-hop header with that of IPv6, and padding (RFC 2711)."""
TOS = 0xC0
DONT_FRAGMENT = 0x4000


def checksum(data):
    """Of the internet protocols (RFC 1071), of an even number of bytes."""
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def report(source, group, joins, stays=False):
    """The packet, from its IP header on, by which who has the address ``source`` tells that it joins ``group``, that it
    leaves it, or that it ``stays``; both are GIDs of one kind. It goes to :data:`ROUTERS` or :data:`ROUTERS6`.
    """
    record = IS_EXCLUDE if stays else EXCLUDE if joins else INCLUDE
    return _igmp(source, group, record) if ipv4_of(group) is not None else _mld(source, group, record)


def _igmp(source, group, record):
    body = struct.pack("!BxHHHBBHI", IGMP_REPORT, 0, 0, 1, record, 0, 0, ipv4_of(group))
    body = body[:2] + struct.pack("!H", checksum(body)) + body[4:]
    length = 24 + len(body)
    ends = struct.pack("!II", ipv4_of(source), ipv4_of(ROUTERS)) + ROUTER_ALERT
    head = struct.pack("!BBHHHBBH", 0x46, TOS, length, 0, DONT_FRAGMENT, 1, IGMP, 0)
    return head[:10] + struct.pack("!H", checksum(head + ends)) + ends + body


def _mld(source, group, record):
    ends = source.to_bytes(16, "big") + ROUTERS6.to_bytes(16, "big")
    body = struct.pack("!BBHHHBBH", MLD_REPORT, 0, 0, 0, 1, record, 0, 0) + group.to_bytes(16, "big")
    pseudo_header = ends + struct.pack("!II", len(body), ICMPV6)
    body = body[:2] + struct.pack("!H", checksum(pseudo_header + body)) + body[4:]
    return struct.pack("!IHBB", 6 << 28, len(HEADER_ALERT) + len(body), HOP_BY_HOP, 1) + ends + HEADER_ALERT + body
