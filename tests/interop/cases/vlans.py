"""A VLAN of Linux': each side finds the other there, by both versions of IP, and connects."""

import errno
import ipaddress
from functools import partial
from unittest import mock

import pytest
from connection import FETCH_ADD, OPS, READ, REQUESTER, RESPONDER, Connection
from frames import ADAPTER, GUEST
from machine import MAC, mac_text
from verbena.hdl.abi.gids import GidType
from verbena.sw.adapter import AdapterError
from verbena.sw.gids import OwnGid, mapped

from .addresses import SHORT_NS
from .case import Case

__all__ = ["groups"]

VLAN, PRIORITY = 100, 3
DEVICE = f"vlan{VLAN}"
MTU = 1024
SIZES = (0, 1, 3, MTU - 1, MTU + 1, 5 * MTU - 33)


def number(text):
    address = ipaddress.ip_address(text)
    return int(address) if address.version == 6 else mapped(int(address))


ROWS = {
    "IPv4": (4, GidType.ROCE_V2_IPV4, "10.1.0.1", "10.1.0.240"),
    "IPv6": (5, GidType.ROCE_V2_IPV6, "fd00:100::1", "fd00:100::f0"),
}
"""Of the adapter: row, type, address; and the guest's address."""


def enter(bench):
    """Gives both sides their addresses in the VLAN, once; neither knows the other's hardware address."""
    adapter = bench.context._adapter
    for index, kind, ours, _ in ROWS.values():
        adapter.gids[index] = OwnGid(number(ours), kind, VLAN, PRIORITY)
    adapter.control.write_gids(adapter.gids)
    add = [f"ip link add link eth0 name {DEVICE} type vlan id {VLAN}"]
    add += [f"ip addr add {theirs}/{24 if network == 'IPv4' else 64} dev {DEVICE}" for network, theirs in guests()]
    add += [f"echo 0 > /proc/sys/net/ipv6/conf/{DEVICE}/accept_dad", f"ip link set {DEVICE} up"]
    bench.guest.run(f"[ -e /sys/class/net/{DEVICE} ] || ( {' && '.join((add[0], add[-2], *add[1:-2], add[-1]))} )")
    for family in ("-4", "-6"):
        bench.guest.run(f"ip {family} neighbour flush dev {DEVICE}")


def guests():
    return [(network, theirs) for network, (*_, theirs) in ROWS.items()]


def asked(network, bench):
    """The guest asks who has our address, and pings it."""
    enter(bench)
    _, _, ours, _ = ROWS[network]
    for size in (0, 56, 1400):
        out = bench.guest.run(f"ping -c 1 -W 20 -s {size} {ours} || true")
        assert " 0% packet loss" in out, out
    entry = bench.guest.run(f"ip neighbour show {ours} dev {DEVICE}")
    assert mac_text(bench.port.mac) in entry, entry


def asking(network, bench):
    """We ask for the guest's address in its VLAN, and in none."""
    enter(bench)
    index, _, _, theirs = ROWS[network]
    resolve = bench.context._adapter.control.resolve_gid
    assert resolve(number(theirs), index) == MAC
    with mock.patch.object(type(bench.port), "second_ns", SHORT_NS):
        with pytest.raises(AdapterError) as caught:
            resolve(number(theirs) + 1, index)
    assert caught.value.errno == errno.EHOSTUNREACH


def gid_index(bench, network):
    """The guest's index of its address in the VLAN."""
    gid = ipaddress.IPv6Address(number(ROWS[network][-1])).exploded
    out = bench.guest.run(f"cd /sys/class/infiniband/rxe0/ports/1 && grep -l {gid} gids/*")
    found = [int(path.rpartition("/")[2]) for path in out.split()]
    version = {
        each: bench.guest.run(f"cat /sys/class/infiniband/rxe0/ports/1/gid_attrs/types/{each}") for each in found
    }
    return next(each for each in found if "v2" in version[each])


def transfers(role, network, bench):
    """Every size around a boundary, all operations."""
    enter(bench)
    half = bench.region // 2
    gids = {ADAPTER: ROWS[network][0], GUEST: gid_index(bench, network)}
    connection = Connection(bench, role, size=bench.region, mtu=MTU, gids=gids)
    for op in OPS:
        for place, size in enumerate(SIZES):
            near, far = (half, 0) if op == READ else (0, half)
            connection.post(op, [[near + 17 * place, size]], [[far + 13 * place, size]])
            connection.finish()
    for place in range(4):
        before = connection.far.word(8 * place)
        connection.post(FETCH_ADD, [[half - 8, 8]], [[8 * place, 8]], operands=(before, 5))
        connection.finish()


def groups(seed):
    tagged = {"VLAN": []}
    for network in ROWS:
        tagged["VLAN"] += [
            Case("the guest asks in a VLAN, and pings", "asked", partial(asked, network), ip=network),
            Case("the adapter asks in a VLAN", "asking", partial(asking, network), ip=network),
            *(
                Case("all operations in a VLAN", role, partial(transfers, role, network), MTU, ip=network)
                for role in (REQUESTER, RESPONDER)
            ),
        ]
    return tagged
