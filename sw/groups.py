"""Multicast groups: their addresses, and who of an adapter is in which."""

import errno

from verbena.hdl.abi.gids import GROUP_MEMBERS

from .errors import AdapterError
from .gids import ipv4_of

__all__ = ["Groups", "group_mac", "is_group"]

IPV4_GROUPS, IPV6_GROUPS = 0xE, 0xFF
"""First 4 bits of an IPv4 address of a group (RFC 1112, 4), first 8 of an IPv6 one (RFC 4291, 2.7)."""


def is_group(gid):
    """Whether ``gid``, a number, is the GID of a multicast group of IPv4 or IPv6."""
    ip = ipv4_of(gid)
    return gid >> 120 == IPV6_GROUPS if ip is None else ip >> 28 == IPV4_GROUPS


def group_mac(gid):
    """MAC address of a group (RFC 1112, 6.4; RFC 2464, 7)."""
    ip = ipv4_of(gid)
    return 0x3333 << 32 | gid & 0xFFFFFFFF if ip is None else 0x01005E << 24 | ip & 0x7FFFFF


class Groups:
    """The engine's table of group members. Whoever calls holds the lock of the commands.

    Parameters
    ----------
    control : Control
        Writes a row of the table.
    """

    def __init__(self, control):
        self._control = control
        self._rows = [None] * (GROUP_MEMBERS if control.has_multicast else 0)

    def clear(self):
        """Nobody is in any group."""
        for row in range(len(self._rows)):
            self._write(row, None)

    def attach(self, gid, qpn):
        """Puts a QP into a group; if it is there already, nothing changes. ``AdapterError`` (ENOMEM): the table is
        full.
        """
        if (gid, qpn) in self._rows:
            return
        if None not in self._rows:
            raise AdapterError(errno.ENOMEM, f"{len(self._rows)} times a QP is in a group, and that is all")
        self._write(self._rows.index(None), (gid, qpn))

    def detach(self, gid, qpn):
        """Takes it out. ``AdapterError`` (EINVAL): it is not there."""
        if (gid, qpn) not in self._rows:
            raise AdapterError(errno.EINVAL, f"QP {qpn:#x} is not in the group")
        self._write(self._rows.index((gid, qpn)), None)

    def of(self, qpn):
        """The groups that a QP is in."""
        return [row[0] for row in self._rows if row is not None and row[1] == qpn]

    def _write(self, row, member):
        self._rows[row] = member
        self._control.write_member(row, *(member or (0, None)))
