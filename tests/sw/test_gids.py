"""The tables of GIDs and P_Keys, and what the driver writes of them."""

import ipaddress
from types import SimpleNamespace

import pytest
from verbena.sw.gids import eui64, gid_writes, ipv4_of, link_local, mapped, own_gids, own_vlans
from verbena.sw.pkeys import own_pkeys


def port(**more):
    return SimpleNamespace(name="some", ip=0x0A000001, mac=0x52_54_00_12_34_56, **more)


def test_addresses():
    """RFC 4291: the EUI-64 of a MAC address has ff:fe in its middle, and the universal bit turned."""
    assert eui64(0x52_54_00_12_34_56) == 0x50_54_00_FF_FE_12_34_56
    assert str(ipaddress.IPv6Address(link_local(0x52_54_00_12_34_56))) == "fe80::5054:ff:fe12:3456"
    assert ipaddress.IPv6Address(mapped(0x0A000001)).ipv4_mapped == ipaddress.IPv4Address("10.0.0.1")
    assert (ipv4_of(mapped(7)), ipv4_of(link_local(7))) == (7, None)


def test_own_gids():
    further = [int(ipaddress.IPv6Address(f"fd00::{n}")) for n in range(1, 15)]
    assert own_gids(port(gids=further), False) == [mapped(0x0A000001)]
    first = [mapped(0x0A000001), link_local(0x52_54_00_12_34_56)]
    assert own_gids(port(), True) == first + [None] * 14
    assert own_gids(port(gids=further), True) == first + further
    with pytest.raises(ValueError, match="not 15"):
        own_gids(port(gids=[*further, 9]), True)
    with pytest.raises(ValueError, match="twice"):
        own_gids(port(gids=[further[0]] * 2), True)


def test_rows():
    """32 bytes a row: GID, lowest word first; type; bit 31 of word 4 says that it counts."""
    written = dict(gid_writes([mapped(0x0A000001), 0xFE80 << 112 | 0x0123456789ABCDEF, None]))
    assert [written[4 * word] for word in range(5)] == [0x0A000001, 0xFFFF, 0, 0, 1 << 31]
    assert [written[32 + 4 * word] for word in range(5)] == [0x89ABCDEF, 0x01234567, 0, 0xFE800000, 1 << 31 | 1]
    assert [written[64 + 4 * word] for word in range(8)] == [0] * 8


def test_own_vlans():
    own = own_gids(port(gids=[7 << 64, 8 << 64]), True)
    assert own_vlans(port(), own) == {}
    assert own_vlans(port(vlans={7 << 64: (100, 5), own[1]: (4094, 0)}), own) == {2: (100, 5), 1: (4094, 0)}
    for wrong in ({9 << 64: (100, 5)}, {own[0]: (1, 1)}, {7 << 64: (0, 1)}, {7 << 64: (4095, 1)}, {7 << 64: (1, 8)}):
        with pytest.raises(ValueError, match="VLAN"):
            own_vlans(port(vlans=wrong), own)
    written = dict(gid_writes([own[0], 7 << 64], {1: (0xABC, 5)}))
    assert (written[16], written[20]) == (1 << 31, 0)
    assert (written[48], written[52]) == (1 << 31 | 0xABC << 5 | 1 << 4 | 1, 5)


def test_own_pkeys():
    assert own_pkeys(port()) == [0xFFFF] + [0] * 7
    assert own_pkeys(port(pkeys=(0xFFFF, 0x8001, 0, 2))) == [0xFFFF, 0x8001, 0, 2, 0, 0, 0, 0]
    for wrong in ((), [1] * 9, (0x10000,), (-1,)):
        with pytest.raises(ValueError, match=r"P_Key"):
            own_pkeys(port(pkeys=wrong))
