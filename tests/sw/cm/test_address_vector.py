"""Which of the own addresses packets to a peer come from."""

import errno
from ipaddress import IPv4Address, IPv6Address

import pytest
from verbena.hdl.abi.gids import GidType
from verbena.sw.cm.address_vector import common_bits, source_index
from verbena.sw.errors import AdapterError
from verbena.sw.gids import OwnGid, mapped


def gid(text):
    return int(IPv6Address(text)) if ":" in text else mapped(int(IPv4Address(text)))


OWN = ("10.0.0.1", "fe80::1", None, "fd00:1::1", "10.1.0.1", "2001:db8::1")
V1 = OwnGid(gid("fd00:2::1"), GidType.ROCE_V1)
ROWS = [text and OwnGid(gid(text), GidType.ROCE_V2_IPV6 if ":" in text else GidType.ROCE_V2_IPV4) for text in OWN] + [
    V1
]


def test_common_bits():
    assert (common_bits(0, 0), common_bits(0, 1), common_bits(0, 1 << 127)) == (128, 127, 0)


@pytest.mark.parametrize(
    ("peer", "index"),
    [
        ("10.0.0.2", 0),
        ("192.168.0.1", 0),
        ("10.1.0.2", 4),
        ("fe80::2", 1),
        ("fd00:1::2", 3),
        ("fd00:2::2", 3),  # not of RoCEv1, though it is nearer
        ("fec0::2", 3),  # nearer to the link-local one, which does not lead there
        ("2001:db8::2", 5),
        ("fe80::1", 1),
        ("ff02::5", 1),
        ("ff0e::5", 3),
    ],
)
def test_it_is_the_nearest_of_the_same_kind(peer, index):
    assert source_index(ROWS, gid(peer)) == index


def test_one_that_is_wanted():
    assert source_index(ROWS, gid("10.0.0.2"), gid("10.1.0.1")) == 4
    assert source_index(ROWS, gid("2001:db8::2"), gid("fe80::1")) == 1


@pytest.mark.parametrize(
    ("rows", "peer", "own", "code", "text"),
    [
        (ROWS, "10.0.0.2", "10.0.0.9", errno.EADDRNOTAVAIL, "not the adapter's"),
        (ROWS, "fd00:2::2", "fd00:2::1", errno.EADDRNOTAVAIL, "not the adapter's"),
        (ROWS, "10.0.0.2", "fe80::1", errno.ENETUNREACH, "IPv4"),
        (ROWS[:1], "fe80::2", None, errno.ENETUNREACH, "IPv6"),
    ],
)
def test_there_is_no_way(rows, peer, own, code, text):
    with pytest.raises(AdapterError, match=text) as caught:
        source_index(rows, gid(peer), 0 if own is None else gid(own))
    assert caught.value.errno == code
