"""The way of a packet: from one of the own GIDs to a peer's, and which of the own ones that is."""

import errno
from typing import NamedTuple

from verbena.hdl.abi.gids import GidType

from ..errors import AdapterError
from ..gids import ipv4_of

__all__ = ["AddressVector", "common_bits", "is_link_local", "source_index"]

LINK_LOCAL, LINK_LOCAL_GROUPS = 0xFE80 >> 6, 0xFF02
"""First 10 bits of an IPv6 address that counts on its link alone (RFC 4291, 2.5.6), first 16 of such a group (2.7)."""


class AddressVector(NamedTuple):
    """Index of the own GID, and GID of the peer, a number."""

    sgid_index: int
    dgid: int


def is_link_local(gid):
    """Whether a GID is an IPv6 address, or a group, that counts on its link alone."""
    return gid >> 118 == LINK_LOCAL or gid >> 112 == LINK_LOCAL_GROUPS


def common_bits(one, other):
    """How many of the first bits two GIDs have in common."""
    return 128 - (one ^ other).bit_length()


def source_index(rows, peer, wanted=0):
    """Index of the GID from which packets go to the GID ``peer``: of all ``rows`` of :func:`..gids.own_gids` that are
    of RoCEv2 and of the peer's kind, IPv4 or IPv6, the one of the same scope that has the longest prefix in common with
    it (RFC 6724, 5, rules 2 and 8). ``wanted``, unless 0, is the own GID; of RoCEv2, too.

    ``AdapterError``: EADDRNOTAVAIL if ``wanted`` is none of the own ones, ENETUNREACH if none is of the peer's kind.
    """
    own = [(index, row.gid) for index, row in enumerate(rows) if row is not None and row.type != GidType.ROCE_V1]
    if wanted:
        own = [(index, gid) for index, gid in own if gid == wanted]
        if not own:
            raise AdapterError(errno.EADDRNOTAVAIL, "it is not the adapter's")
    own = [(index, gid) for index, gid in own if (ipv4_of(gid) is None) == (ipv4_of(peer) is None)]
    if not own:
        raise AdapterError(errno.ENETUNREACH, f"no own address is of the kind IPv{6 if ipv4_of(peer) is None else 4}")

    def nearness(row):
        _, gid = row
        return is_link_local(gid) == is_link_local(peer), common_bits(gid, peer)

    return max(own, key=nearness)[0]
