"""The table of GIDs: the addresses that an adapter has."""

from typing import NamedTuple

from verbena.hdl.abi.gids import GID_COUNT, GID_ROW, MAPPED, GidType

__all__ = ["PORT_ADDRESS", "OwnGid", "eui64", "gid_writes", "ipv4_of", "link_local", "mapped", "own_gids", "port_gids"]

HALF = (1 << 64) - 1

PORT_ADDRESS = 0
"""The row of the port's own IPv4 address."""

LAST_VLAN = 4094


def mapped(ip):
    """GID of the IPv4 address ``ip``, both numbers."""
    return MAPPED << 32 | ip


def ipv4_of(gid):
    """The IPv4 address that a GID stands for, or None: it is an IPv6 address."""
    return gid & 0xFFFFFFFF if gid >> 32 == MAPPED else None


def eui64(mac):
    """EUI-64 of a MAC address (RFC 4291, appendix A)."""
    return (mac >> 24 << 40 | 0xFFFE << 24 | mac & 0xFFFFFF) ^ 1 << 57


def link_local(mac):
    """The IPv6 address that an interface with this MAC address has on its link (RFC 4862, 5.3)."""
    return 0xFE80 << 112 | eui64(mac)


class OwnGid(NamedTuple):
    """A row of the table: ``gid``, a number, of a :class:`GidType`. Its frames are in ``vlan``, with ``priority``, or
    have no tag if that is 0.
    """

    gid: int
    type: GidType
    vlan: int = 0
    priority: int = 0


def port_gids(port):
    """The GIDs, numbers, of a port (:class:`.port.Port`): of its IPv4 address, the link-local one, and further ones. Of
    who opens a port those that it tells; none if it does not tell the IPv4 address.
    """
    if not hasattr(port, "ip"):
        return []
    local = [link_local(port.mac)] if hasattr(port, "mac") else []
    return [mapped(port.ip), *local, *getattr(port, "gids", ())]


def own_gids(port, table, roce_v1=False):
    """Rows of an adapter, :class:`OwnGid` by their index, None where there is none: of its IPv4 address, and with
    ``table`` of its link-local one and those of the port (:class:`.port.Port`), all of RoCEv2; then with ``roce_v1``,
    if the port wants it, the same ones of RoCEv1. ``ValueError`` if they are too many, or twice the same, or if a VLAN
    is wrong.
    """
    if not table:
        return [OwnGid(mapped(port.ip), GidType.ROCE_V2_IPV4)]
    gids = port_gids(port)
    types = 2 if roce_v1 and getattr(port, "roce_v1", False) else 1
    if len(gids) * types > GID_COUNT:
        raise ValueError(f"a port has at most {GID_COUNT // types - 2} further GIDs, not {len(gids) - 2}")
    if len(set(gids)) < len(gids):
        raise ValueError(f"the port {port.name!r} has a GID twice")
    vlans = _own_vlans(port, gids)
    rows = [
        OwnGid(gid, GidType.ROCE_V2_IPV6 if ipv4_of(gid) is None else GidType.ROCE_V2_IPV4, *vlans.get(gid, ()))
        for gid in gids
    ]
    rows += [row._replace(type=GidType.ROCE_V1) for row in rows] if types > 1 else []
    return rows + [None] * (GID_COUNT - len(rows))


def _own_vlans(port, gids):
    """Dictionary: GID to its VLAN and priority."""
    vlans = getattr(port, "vlans", {})
    for gid, (vlan, priority) in vlans.items():
        if gid not in gids or gid == gids[0]:
            raise ValueError(f"the port {port.name!r} has no further GID {gid:#x} that could be in a VLAN")
        if not (1 <= vlan <= LAST_VLAN and 0 <= priority <= 7):
            raise ValueError(f"a VLAN is 1 to {LAST_VLAN}, its priority 0 to 7, not {vlan!r} and {priority!r}")
    return vlans


def gid_writes(rows):
    """``(byte offset, word)`` of all that is written into the engine's table."""
    for index, row in enumerate(rows):
        words = GID_ROW.words()
        if row is not None:
            tag = {"tagged": row.vlan != 0, "vlan": row.vlan, "priority": row.priority}
            words = GID_ROW.words(gid_low=row.gid & HALF, gid_high=row.gid >> 64, type=row.type, valid=1, **tag)
        for word, value in enumerate(words):
            yield index * GID_ROW.size + 4 * word, value
