"""Addresses of multicast groups, and the table of members."""

import errno
from ipaddress import IPv4Address, IPv6Address
from types import SimpleNamespace

import pytest
from fake_device import FakeDevice
from scapy.layers.inet6 import in6_getnsma, in6_getnsmac
from verbena.hdl.abi.gids import GROUP_MEMBERS
from verbena.hdl.abi.registers import GROUPS
from verbena.sw.control import Control
from verbena.sw.errors import AdapterError
from verbena.sw.gids import mapped
from verbena.sw.groups import Groups, group_mac, is_group


def test_addresses():
    """Against Python's and scapy's; RFC 1112: 23 bits of an IPv4 address count."""
    for text in ("224.0.0.0", "239.255.255.255", "223.255.255.255", "240.0.0.0", "10.0.0.1"):
        ip = IPv4Address(text)
        assert is_group(mapped(int(ip))) == ip.is_multicast
    for text in ("ff02::1", "fe80::1", "feff::", "ff0e::ffff:224.1.2.3", "::", "ffff::"):
        assert is_group(int(IPv6Address(text))) == IPv6Address(text).is_multicast
    assert group_mac(mapped(int(IPv4Address("239.129.2.3")))) == 0x01005E010203
    solicited = in6_getnsma(IPv6Address("fd00::12:3456").packed)
    assert group_mac(int.from_bytes(solicited, "big")) == int(in6_getnsmac(solicited).replace(":", ""), 16)


def test_members():
    rows = {}
    groups = Groups(SimpleNamespace(has_multicast=True, write_member=lambda row, *member: rows.update({row: member})))
    groups.clear()
    assert rows == dict.fromkeys(range(GROUP_MEMBERS), (0, None))
    for _ in range(2):  # once more changes nothing
        groups.attach(5, 7)
    groups.attach(5, 8)
    groups.attach(6, 7)
    assert {row: member for row, member in rows.items() if member[0]} == {0: (5, 7), 1: (5, 8), 2: (6, 7)}
    assert groups.of(7) == [5, 6]
    groups.detach(5, 7)
    assert (rows[0], groups.of(7)) == ((0, None), [6])
    for qpn in range(100, 100 + GROUP_MEMBERS - 2):
        groups.attach(9, qpn)
    groups.attach(6, 7)
    for call, member, code in ((groups.attach, (9, 1), errno.ENOMEM), (groups.detach, (5, 7), errno.EINVAL)):
        with pytest.raises(AdapterError) as caught:
            call(*member)
        assert caught.value.errno == code


def test_what_is_written():
    """The GID's words first, lowest first; the last word makes the row."""
    device = FakeDevice()
    control = Control(device, lambda: None)
    control.write_member(9, 0x11111111_22222222_33333333_44444444, 0xABCDEF)
    control.write_member(31, 0, None)
    words = [0x44444444, 0x33333333, 0x22222222, 0x11111111, 1 << 31 | 9 << 24 | 0xABCDEF, 0, 0, 0, 0, 31 << 24]
    assert device.writes == [(GROUPS + 4 * (n % 5), word) for n, word in enumerate(words)]
