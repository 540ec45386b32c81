"""The table of GIDs: the addresses that an engine sends from, and receives at."""

from enum import IntEnum

from .record import Field, Record

__all__ = [
    "GID_COUNT",
    "GID_ROW",
    "GROUP_MEMBER",
    "GROUP_MEMBERS",
    "MAPPED",
    "TPID",
    "GidType",
]

GID_COUNT = 16
"""Rows of the table of GIDs, at ``GIDS`` of the registers."""

MAPPED = 0xFFFF
"""Upper 96 bits of the GID of an IPv4 address (RFC 4291, 2.5.5.2): the lower 32 are the address."""

TPID = 0x8100
"""Ethertype of a frame with a tag (IEEE 802.1Q, 9.6)."""

GID_ROW = Record(
    "gid_row",
    32,
    [
        Field("gid_low", 64, "lower half of the GID, first byte on the wire is the most significant"),
        Field("gid_high", 64, "upper half; the GID of an IPv4 address is the IPv4-mapped one, ::ffff:a.b.c.d"),
        Field("type", 4, "enum gid_type"),
        Field("vlan", 12, "VLAN of the tag, 1 to 4094; 0 without one"),
        Field("tagged", 1, "its frames have an 802.1Q tag; what comes with another one, or without, is not for it"),
        Field("_", 14),
        Field("valid", 1, "the row counts"),
        Field("priority", 3, "of the tag, of what is sent"),
        Field("_", 29),
        Field("_", 64),
    ],
    "A row of the table of GIDs, at `GIDS` of the registers, where it is written only. A row that changes while "
    "packets of it are under way may send or take one with a part of both. After a hardware reset the table is "
    "undefined: the driver writes all of it. DEVICE_RESET leaves it.",
)


class GidType(IntEnum):
    """What stands around the packets of a row."""

    ROCE_V2_IPV4 = 0
    ROCE_V2_IPV6 = 1
    ROCE_V1 = 2


GROUP_MEMBERS = 32
"""Rows of the table of group members, which are written at ``GROUPS`` of the registers."""

GROUP_MEMBER = Record(
    "group_member",
    32,
    [
        Field("gid_low", 64, "lower half of the group's GID"),
        Field("gid_high", 64, "upper half; the GID of an IPv4 address is the IPv4-mapped one"),
        Field("qpn", 24, "of a queue pair of UD that is in the group"),
        Field("row", 5, "which row is written"),
        Field("_", 2),
        Field("valid", 1, "the row counts"),
        Field("_", 32),
        Field("_", 64),
    ],
    "A queue pair in a multicast group. Each row is written at `GROUPS` of the registers: the 20 bytes that count, in "
    "order, of which the last ones make the row. After a hardware reset the table is undefined: the driver writes all "
    "of it. DEVICE_RESET leaves it.",
)
