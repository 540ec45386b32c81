"""Addresses: GIDs, routes, address handles."""

import errno
import ipaddress
import struct
from copy import deepcopy

from verbena.hdl.abi.gids import GidType

from .. import host_memory
from ..gids import ipv4_of, mapped
from ..groups import group_mac, is_group
from .base import PyverbsCM, PyverbsObject, attempt, must_be, refuse
from .libibverbs_enums import IBV_WC_GRH
from .number import within
from .pyverbs_error import PyverbsUserError

__all__ = ["AH", "GID", "GRH", "AHAttr", "GlobalRoute"]


IBA_TRANSPORT = 0x1B
"""``next_hdr`` of a GRH: only RoCEv1 has one on the wire (IBA 8.3)."""


class GID(PyverbsObject):
    """A 128-bit address; ``gid`` is its text of eight groups."""

    def __init__(self, val=None):
        self._value = 0
        if val is not None:
            self.gid = val

    @property
    def gid(self):
        text = f"{self._value:032x}"
        return ":".join(text[i : i + 4] for i in range(0, 32, 4))

    @gid.setter
    def gid(self, val):
        if isinstance(val, GID):
            self._value = val._value
            return
        try:
            self._value = int(ipaddress.IPv6Address(val))
        except ValueError:
            raise PyverbsUserError(f"Invalid GID value {val!r}") from None

    @classmethod
    def of(cls, value):
        """The GID that is the number ``value``."""
        gid = cls()
        gid._value = value
        return gid

    @classmethod
    def from_ipv4(cls, ip):
        """The IPv4-mapped GID of the address ``ip``, a number."""
        return cls.of(mapped(ip))

    @property
    def ipv4(self):
        """The IPv4 address as a number, or None if the GID is not IPv4-mapped."""
        return ipv4_of(self._value)

    def __str__(self):
        return self.gid

    def __repr__(self):
        return f"GID({self.gid!r})"

    def __eq__(self, other):
        return isinstance(other, GID) and self._value == other._value

    def __hash__(self):
        return hash(self._value)

    def __int__(self):
        return self._value


class GRH(PyverbsObject):
    """Global routing header, 40 bytes before the data of a datagram; GIDs take a :class:`GID` or its text, and are read
    as text. ``version_tclass_flow`` and ``paylen`` are in network order, as in C.
    """

    size = 40

    def __init__(self, sgid=None, dgid=None, version_tclass_flow=0, paylen=0, next_hdr=0, hop_limit=1):
        self._sgid, self._dgid = GID(sgid), GID(dgid)
        self.version_tclass_flow = version_tclass_flow
        self.paylen = paylen
        self.next_hdr = next_hdr
        self.hop_limit = hop_limit

    @classmethod
    def unpack(cls, data):
        """The header that 40 bytes of a receive buffer are. Of RoCEv2 over IPv4 the last 20 are an IPv4 header; its
        fields go where those of the GRH are.
        """
        if data[20] >> 4 == 4 and data[0] >> 4 != 6:
            tos, length, ttl, protocol, source, dest = struct.unpack("!xBH4xBBxxII", data[20:40])
            version_tclass_flow = int.from_bytes((6 << 28 | tos << 20).to_bytes(4, "big"), "little")
            paylen = int.from_bytes((length - 20).to_bytes(2, "big"), "little")
            return cls(GID.from_ipv4(source), GID.from_ipv4(dest), version_tclass_flow, paylen, protocol, ttl)
        version_tclass_flow, paylen, next_hdr, hop_limit = struct.unpack("<IHBB", data[:8])
        gids = (GID(str(ipaddress.IPv6Address(bytes(data[at : at + 16])))) for at in (8, 24))
        return cls(*gids, version_tclass_flow, paylen, next_hdr, hop_limit)

    @property
    def sgid(self):
        """Text of the sender's GID."""
        return self._sgid.gid

    @sgid.setter
    def sgid(self, val):
        self._sgid = GID(val)

    @property
    def dgid(self):
        """Text of the receiver's GID."""
        return self._dgid.gid

    @dgid.setter
    def dgid(self, val):
        self._dgid = GID(val)

    def __str__(self):
        return (
            f"GRH: sgid {self.sgid}, dgid {self.dgid}, version_tclass_flow {self.version_tclass_flow:#x}, "
            f"paylen {self.paylen}, next_hdr {self.next_hdr}, hop_limit {self.hop_limit}"
        )


class GlobalRoute(PyverbsObject):
    """Global route of an address handle; ``dgid`` takes a :class:`GID` or its text, and is read as text."""

    def __init__(self, dgid=None, flow_label=0, sgid_index=0, hop_limit=1, traffic_class=0):
        self._dgid = GID(dgid)
        self.flow_label = flow_label
        self.sgid_index = sgid_index
        self.hop_limit = hop_limit
        self.traffic_class = traffic_class

    @property
    def dgid(self):
        return self._dgid.gid

    @dgid.setter
    def dgid(self, val):
        self._dgid = GID(val)

    def __str__(self):
        return ", ".join(
            f"{name} {getattr(self, name)}"
            for name in ("dgid", "flow_label", "sgid_index", "hop_limit", "traffic_class")
        )


def _routed(name):
    """A property of :class:`AHAttr` that lives in its route, and is None if there is none."""

    def read(self):
        return getattr(self.gr, name) if self.is_global else None

    def write(self, val):
        setattr(self.gr, name, val)

    return property(read, write)


class AHAttr(PyverbsObject):
    """Address handle attributes; the route is copied."""

    def __init__(self, dlid=0, sl=0, src_path_bits=0, static_rate=0, is_global=0, port_num=1, gr=None):
        if is_global and gr is None:
            raise PyverbsUserError("Global AH Attr is created but gr parameter is None")
        must_be("GlobalRoute", "gr", gr, none=True)
        self.dlid = dlid
        self.sl = sl
        self.src_path_bits = src_path_bits
        self.static_rate = static_rate
        self.is_global = is_global
        self.port_num = port_num
        self.gr = deepcopy(gr) if is_global else GlobalRoute()

    def __str__(self):
        if not self.is_global:
            return f"port {self.port_num}, no route"
        return f"port {self.port_num}, {self.gr}"

    dgid = _routed("dgid")
    flow_label = _routed("flow_label")
    sgid_index = _routed("sgid_index")
    hop_limit = _routed("hop_limit")
    traffic_class = _routed("traffic_class")


def routable(ah, gids, groups=False):
    """Whether the way that attributes tell leads from one of the own ``gids``, rows by their index, to an address of
    the same kind, IPv4 or IPv6, that a single adapter may have, or with ``groups`` to a multicast group. By RoCEv1,
    too: addresses are resolved alike; but any of its GIDs may send to any group.
    """
    if not ah.is_global or not within(ah.sgid_index, 0, len(gids) - 1) or gids[ah.sgid_index] is None:
        return False
    peer, own = ah.gr._dgid, gids[ah.sgid_index]
    to_group = is_group(int(peer))
    return (
        ah.port_num == 1
        and int(peer) != 0
        and peer.ipv4 != 0
        and (groups or not to_group)
        and ((to_group and own.type == GidType.ROCE_V1) or (peer.ipv4 is None) == (ipv4_of(own.gid) is None))
        and within(ah.flow_label, 0, (1 << 20) - 1)
        and within(ah.hop_limit, 0, 255)
        and within(ah.traffic_class, 0, 255)
    )


class AH(PyverbsCM):
    """An address handle: the way to a receiver of datagrams, whose MAC address is resolved when it is made.

    It is made of ``attr``, an :class:`AHAttr`; or of the completion ``wc`` of a datagram that came in by ``port_num``,
    and of its ``grh``, a :class:`GRH` or the address of the receive buffer: then it leads back to the sender.
    """

    _rank = 6

    def __init__(self, pd, *, attr=None, wc=None, grh=None, port_num=None):
        must_be("PD", "pd", pd)
        must_be("AHAttr", "attr", attr, none=True)
        must_be("WC", "wc", wc, none=True)
        super().__init__(pd)
        failed = "Failed to create AH"
        if (attr is None) == (wc is None):
            raise PyverbsUserError(f"{failed}: it needs either attr or wc")
        if attr is None:
            attr = attributes_of_reply(failed, wc, grh, port_num, pd.context._adapter.gids)
        if not routable(attr, pd.context._adapter.gids, groups=True):
            refuse(f"{failed}: {attr}", errno.EINVAL)
        self.pd = pd
        self._attr = deepcopy(attr)
        peer = int(attr.gr._dgid)
        with attempt(failed):
            control = pd.context._adapter.control
            self._mac = group_mac(peer) if is_group(peer) else control.resolve_gid(peer, attr.sgid_index)
        self._opened()

    def _destroy(self):
        """The device knows nothing of it."""

    def __str__(self):
        return f"AH: {self._attr}, MAC address {self._mac:012x}"


def attributes_of_reply(failed, wc, grh, port_num, gids):
    """Attributes of the way to the sender of a datagram, from the GID of ``gids`` that it came to."""
    if not wc.wc_flags & IBV_WC_GRH or grh is None:
        refuse(f"{failed}: on RoCE it needs a GRH", errno.EINVAL)
    try:
        header = grh if isinstance(grh, GRH) else GRH.unpack(host_memory.read(grh, GRH.size))
    except host_memory.NoMemory as error:
        refuse(f"{failed}: {error}", errno.EFAULT)
    flow = int.from_bytes(header.version_tclass_flow.to_bytes(4, "little"), "big")
    is_v1 = header.next_hdr == IBA_TRANSPORT
    same = (int(header._dgid), is_v1)
    index = next((n for n, row in enumerate(gids) if row and (row.gid, row.type == GidType.ROCE_V1) == same), None)
    if index is None:
        refuse(f"{failed}: {header.dgid} is not this adapter's", errno.EINVAL)
    route = GlobalRoute(header._sgid, flow & 0xFFFFF, index, 0xFF, flow >> 20 & 0xFF)
    return AHAttr(wc.slid, wc.sl, wc.dlid_path_bits, is_global=1, port_num=port_num, gr=route)
