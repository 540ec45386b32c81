"""Addresses: GID, global route, address handle attributes."""

import ipaddress
from copy import deepcopy

from .base import PyverbsObject
from .pyverbs_error import PyverbsUserError

__all__ = ["GID", "AHAttr", "GlobalRoute"]


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
    def from_ipv4(cls, ip):
        """The IPv4-mapped GID of the address ``ip``, a number."""
        gid = cls()
        gid._value = 0xFFFF << 32 | ip
        return gid

    @property
    def ipv4(self):
        """The IPv4 address as a number, or None if the GID is not IPv4-mapped."""
        return self._value & 0xFFFFFFFF if self._value >> 32 == 0xFFFF else None

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
        route = self.gr
        return (
            f"port {self.port_num}, sgid_index {route.sgid_index}, dgid {route.dgid}, flow_label {route.flow_label}, "
            f"hop_limit {route.hop_limit}, traffic_class {route.traffic_class}"
        )

    dgid = _routed("dgid")
    flow_label = _routed("flow_label")
    sgid_index = _routed("sgid_index")
    hop_limit = _routed("hop_limit")
    traffic_class = _routed("traffic_class")
