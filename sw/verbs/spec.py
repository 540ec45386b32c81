"""Headers that a flow rule may ask for. They only describe: a :class:`.flow.Flow` of them is refused (EOPNOTSUPP)."""

import ipaddress

from .base import PyverbsObject
from .libibverbs_enums import IBV_FLOW_SPEC_INNER, IBV_FLOW_SPEC_TCP, IBV_FLOW_SPEC_UDP, ibv_flow_spec_type
from .number import unsigned
from .pyverbs_error import PyverbsError, PyverbsUserError

__all__ = ["EthSpec", "Ipv4ExtSpec", "Ipv6Spec", "TcpUdpSpec"]

T = ibv_flow_spec_type
MAC_BYTES = 6


def _mac(text):
    """A MAC address as text of two digits each."""
    parts = str(text).split(":")
    try:
        octets = bytes(int(part, 16) for part in parts)
    except ValueError:
        octets = b""
    if len(octets) != MAC_BYTES:
        raise PyverbsUserError(f"{text!r} is no MAC address")
    return octets.hex(":")


def _ip(kind):
    """What makes an address of ``kind`` its usual text."""

    def convert(text):
        try:
            return str(kind(text))
        except ValueError:
            raise PyverbsUserError(f"{text!r} is no address of {kind.__name__}") from None

    return convert


def _number(bits):
    """What lets numbers of so many bits through."""
    return lambda value: unsigned("a value of a spec", value, bits)


class _Field:
    """A value, or its mask, as ``convert`` makes it."""

    def __init__(self, convert):
        self._convert = convert

    def __set_name__(self, owner, name):
        self._name = name

    def __get__(self, instance, owner=None):
        return self if instance is None else vars(instance)[self._name]

    def __set__(self, instance, value):
        vars(instance)[self._name] = self._convert(value)


def _fields(nothing, everything, convert, *names):
    """Makes a class have these fields and their masks. A field that is not given is ``nothing``, and so is its mask;
    one that is given counts with all its bits, ``everything``, unless there is a mask.
    """

    def decorate(kind):
        kind._matched = getattr(kind, "_matched", {}) | dict.fromkeys(names, (nothing, everything))
        for name in (each + end for each in names for end in ("", "_mask")):
            field = _Field(convert)
            field.__set_name__(kind, name)
            setattr(kind, name, field)
        return kind

    return decorate


class Spec(PyverbsObject):
    """One header; ``size`` is that of its structure in C."""

    size = 0
    _type = None
    _matched = {}

    def __init__(self):
        raise NotImplementedError("This class is abstract.")

    def _fill(self, is_inner, given):
        self.spec_type = self._type | (IBV_FLOW_SPEC_INNER if is_inner else 0)
        for name, (nothing, everything) in self._matched.items():
            value, mask = given[name], given[f"{name}_mask"]
            setattr(self, name, nothing if value is None else value)
            setattr(self, f"{name}_mask", nothing if value is None else everything if mask is None else mask)

    @staticmethod
    def type_to_str(spec_type):
        """Name of a spec's type."""
        inner, outer = spec_type & IBV_FLOW_SPEC_INNER, spec_type & ~IBV_FLOW_SPEC_INNER
        if outer not in set(T):
            raise PyverbsError(f"This type {outer} is not implemented yet")
        return f"{'IBV_FLOW_SPEC_INNER ' if inner else ''}{T(outer).name}"

    def __str__(self):
        rows = [("Spec type", self.type_to_str(self.spec_type), ""), ("Size", self.size, "")]
        rows += [(name, getattr(self, name), getattr(self, f"{name}_mask")) for name in self._matched]
        return "\n".join(f"{name:<16}: {value:<20} {mask}".rstrip() for name, value, mask in rows)


@_fields("00:00:00:00:00:00", "ff:ff:ff:ff:ff:ff", _mac, "src_mac", "dst_mac")
@_fields(0, 0xFFFF, _number(16), "ether_type", "vlan_tag")
class EthSpec(Spec):
    """Ethernet: MAC addresses as text, type and VLAN tag."""

    size, _type = 40, T.IBV_FLOW_SPEC_ETH

    def __init__(
        self,
        dst_mac=None,
        dst_mac_mask=None,
        src_mac=None,
        src_mac_mask=None,
        ether_type=None,
        ether_type_mask=None,
        vlan_tag=None,
        vlan_tag_mask=None,
        is_inner=0,
    ):
        self._fill(is_inner, locals())


@_fields("0.0.0.0", "255.255.255.255", _ip(ipaddress.IPv4Address), "src_ip", "dst_ip")
@_fields(0, 0xFF, _number(8), "proto", "tos", "ttl", "flags")
class Ipv4ExtSpec(Spec):
    """IPv4: addresses as text, protocol, type of service, time to live and flags."""

    size, _type = 32, T.IBV_FLOW_SPEC_IPV4_EXT

    def __init__(
        self,
        dst_ip=None,
        dst_ip_mask=None,
        src_ip=None,
        src_ip_mask=None,
        proto=None,
        proto_mask=None,
        tos=None,
        tos_mask=None,
        ttl=None,
        ttl_mask=None,
        flags=None,
        flags_mask=None,
        is_inner=False,
    ):
        self._fill(is_inner, locals())


@_fields("::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", _ip(ipaddress.IPv6Address), "src_ip", "dst_ip")
@_fields(0, 0xFFFFF, _number(20), "flow_label")
@_fields(0, 0xFF, _number(8), "next_hdr", "traffic_class", "hop_limit")
class Ipv6Spec(Spec):
    """IPv6: addresses as text, flow label, next header, traffic class and hop limit."""

    size, _type = 88, T.IBV_FLOW_SPEC_IPV6

    def __init__(
        self,
        dst_ip=None,
        dst_ip_mask=None,
        src_ip=None,
        src_ip_mask=None,
        flow_label=None,
        flow_label_mask=None,
        next_hdr=None,
        next_hdr_mask=None,
        traffic_class=None,
        traffic_class_mask=None,
        hop_limit=None,
        hop_limit_mask=None,
        is_inner=False,
    ):
        self._fill(is_inner, locals())


@_fields(0, 0xFFFF, _number(16), "src_port", "dst_port")
class TcpUdpSpec(Spec):
    """TCP or UDP, as ``spec_type`` says: ports."""

    size = 16

    def __init__(
        self,
        spec_type,
        dst_port=None,
        dst_port_mask=None,
        src_port=None,
        src_port_mask=None,
        is_inner=False,
    ):
        if spec_type not in (IBV_FLOW_SPEC_TCP, IBV_FLOW_SPEC_UDP):
            raise PyverbsError("Spec type must be IBV_FLOW_SPEC_TCP or IBV_FLOW_SPEC_UDP")
        self._type = spec_type
        self._fill(is_inner, locals())
