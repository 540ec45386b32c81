"""The table of GIDs: the addresses that an adapter has."""

from verbena.hdl.abi.gids import GID_COUNT, GID_ROW, GidType

__all__ = ["eui64", "gid_writes", "ipv4_of", "link_local", "mapped", "own_gids", "own_vlans"]

MAPPED = 0xFFFF
"""Upper 96 bits of the GID of an IPv4 address (RFC 4291, 2.5.5.2)."""

HALF = (1 << 64) - 1

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


def own_gids(port, table):
    """GIDs of an adapter, by their index, None where there is none: that of its IPv4 address, and with ``table`` its
    link-local one and those of the port (:class:`.port.Port`). ``ValueError`` if they are too many, or twice the same.
    """
    gids = [mapped(port.ip)]
    if table:
        gids += [link_local(port.mac), *getattr(port, "gids", ())]
        if len(gids) > GID_COUNT:
            raise ValueError(f"a port has at most {GID_COUNT - 2} further GIDs, not {len(gids) - 2}")
        if len(set(gids)) < len(gids):
            raise ValueError(f"the port {port.name!r} has a GID twice")
        gids += [None] * (GID_COUNT - len(gids))
    return gids


def own_vlans(port, gids):
    """Dictionary: index of each of the GIDs that is in a VLAN to the VLAN and the priority (:class:`.port.Port`).
    ``ValueError`` if there is no such GID or number.
    """
    found = {}
    for gid, (vlan, priority) in getattr(port, "vlans", {}).items():
        if gid not in gids or gid == gids[0]:
            raise ValueError(f"the port {port.name!r} has no further GID {gid:#x} that could be in a VLAN")
        if not (1 <= vlan <= LAST_VLAN and 0 <= priority <= 7):
            raise ValueError(f"a VLAN is 1 to {LAST_VLAN}, its priority 0 to 7, not {vlan!r} and {priority!r}")
        found[gids.index(gid)] = vlan, priority
    return found


def gid_writes(gids, vlans=None):
    """``(byte offset, word)`` of all that is written into the engine's table; ``vlans`` as of :func:`own_vlans`."""
    for index, gid in enumerate(gids):
        row = GID_ROW.words()
        if gid is not None:
            kind = GidType.ROCE_V2_IPV6 if ipv4_of(gid) is None else GidType.ROCE_V2_IPV4
            vlan, priority = (vlans or {}).get(index, (0, 0))
            tag = {"tagged": vlan != 0, "vlan": vlan, "priority": priority}
            row = GID_ROW.words(gid_low=gid & HALF, gid_high=gid >> 64, type=kind, valid=1, **tag)
        for word, value in enumerate(row):
            yield index * GID_ROW.size + 4 * word, value
