"""The tables of GIDs and P_Keys, and what the driver writes of them."""

import ipaddress
from types import SimpleNamespace

import pytest
from verbena.hdl.abi.gids import GidType
from verbena.sw.gids import OwnGid, eui64, gid_writes, ipv4_of, link_local, mapped, own_gids
from verbena.sw.pkeys import own_pkeys

V4, V6, V1 = GidType.ROCE_V2_IPV4, GidType.ROCE_V2_IPV6, GidType.ROCE_V1


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
    first = [OwnGid(mapped(0x0A000001), V4), OwnGid(link_local(0x52_54_00_12_34_56), V6)]
    assert own_gids(port(gids=further), False) == first[:1]
    assert own_gids(port(), True) == first + [None] * 14
    assert own_gids(port(gids=further), True) == first + [OwnGid(gid, V6) for gid in further]
    with pytest.raises(ValueError, match="at most 14 further GIDs, not 15"):
        own_gids(port(gids=[*further, 9]), True)
    with pytest.raises(ValueError, match="twice"):
        own_gids(port(gids=[further[0]] * 2), True)


def test_own_gids_of_both_versions():
    """Rows of RoCEv1 stand behind the others, if the port wants them and the engine knows them."""
    further = [*(n << 64 for n in range(1, 6)), mapped(7)]
    both = port(gids=further, roce_v1=True, vlans={1 << 64: (100, 5)})
    rows = own_gids(both, True, True)
    assert [row.type for row in rows] == [V4, *[V6] * 6, V4, *[V1] * 8]
    assert [row._replace(type=0) for row in rows[8:]] == [row._replace(type=0) for row in rows[:8]]
    assert [(row.vlan, row.priority) for row in rows if row.vlan] == [(100, 5)] * 2
    assert own_gids(both, True) == own_gids(port(gids=further, vlans=both.vlans), True, True) == rows[:8] + [None] * 8
    assert len(own_gids(both, False, True)) == 1
    with pytest.raises(ValueError, match="at most 6 further GIDs, not 7"):
        own_gids(port(gids=[*further, 99], roce_v1=True), True, True)


def test_rows():
    """32 bytes a row: GID, lowest word first; type; bit 31 of word 4 says that it counts."""
    six = 0xFE80 << 112 | 0x0123456789ABCDEF
    written = dict(gid_writes([OwnGid(mapped(0x0A000001), V4), OwnGid(six, V6), None, OwnGid(six, V1)]))
    assert [written[4 * word] for word in range(5)] == [0x0A000001, 0xFFFF, 0, 0, 1 << 31]
    for row, number in ((1, 1), (3, 2)):
        words = [written[32 * row + 4 * word] for word in range(5)]
        assert words == [0x89ABCDEF, 0x01234567, 0, 0xFE800000, 1 << 31 | number]
    assert [written[64 + 4 * word] for word in range(8)] == [0] * 8


def test_vlans():
    gids = [7 << 64, 8 << 64]

    def vlans(vlans):
        return {n: row[2:] for n, row in enumerate(own_gids(port(gids=gids, vlans=vlans), True)) if row and row.vlan}

    first, second = mapped(0x0A000001), link_local(0x52_54_00_12_34_56)
    assert vlans({}) == {}
    assert vlans({7 << 64: (100, 5), second: (4094, 0)}) == {2: (100, 5), 1: (4094, 0)}
    for wrong in ({9 << 64: (100, 5)}, {first: (1, 1)}, {7 << 64: (0, 1)}, {7 << 64: (4095, 1)}, {7 << 64: (1, 8)}):
        with pytest.raises(ValueError, match="VLAN"):
            vlans(wrong)
    written = dict(gid_writes([OwnGid(first, V4), OwnGid(7 << 64, V6, 0xABC, 5)]))
    assert (written[16], written[20]) == (1 << 31, 0)
    assert (written[48], written[52]) == (1 << 31 | 1 << 16 | 0xABC << 4 | 1, 5)


def test_own_pkeys():
    assert own_pkeys(port()) == [0xFFFF] + [0] * 7
    assert own_pkeys(port(pkeys=(0xFFFF, 0x8001, 0, 2))) == [0xFFFF, 0x8001, 0, 2, 0, 0, 0, 0]
    for wrong in ((), [1] * 9, (0x10000,), (-1,)):
        with pytest.raises(ValueError, match=r"P_Key"):
            own_pkeys(port(pkeys=wrong))
