"""Connections over IPv6, between the link-local addresses of both sides."""

import errno
import ipaddress
import random
from functools import partial
from unittest import mock

import pytest
from connection import ATOMICS, OPS, READ, REQUESTER, RESPONDER, Connection
from machine import MAC, mac_text
from verbena.sw.adapter import AdapterError
from verbena.sw.gids import link_local

from .addresses import SHORT_NS
from .case import Case

__all__ = ["groups"]

MTU = 1024
SIZES = (0, 1, 3, MTU - 1, MTU, MTU + 1, 5 * MTU - 33)


def forget(bench):
    """Neither side knows the other's hardware address: both ask, by neighbour solicitations."""
    bench.guest.run("ip -6 neighbour flush dev eth0")


def asked(bench):
    """The guest asks who has our address, and pings it."""
    ours = ipaddress.IPv6Address(link_local(bench.port.mac))
    forget(bench)
    for size in (0, 56, 1400):
        out = bench.guest.run(f"ping -6 -c 1 -W 20 -s {size} {ours}%eth0 || true")
        assert " 0% packet loss" in out, out
    entry = bench.guest.run(f"ip -6 neighbour show {ours}")
    assert mac_text(bench.port.mac) in entry, entry


def asking(bench):
    """We ask for the guest's address, and for one that nobody has, with a second that is shorter."""
    resolve = bench.context._adapter.control.resolve_gid
    assert resolve(link_local(MAC), 1) == MAC
    with mock.patch.object(type(bench.port), "second_ns", SHORT_NS):
        with pytest.raises(AdapterError) as caught:
            resolve(link_local(MAC + 5), 1)
    assert caught.value.errno == errno.EHOSTUNREACH


def lengths(op, role, bench):
    """Every size around a boundary."""
    forget(bench)
    half = bench.region // 2
    connection = Connection(bench, role, size=bench.region, mtu=MTU, network="IPv6")
    for number, size in enumerate(SIZES):
        near, far = (half, 0) if op == READ else (0, half)
        connection.post(op, [[near + 17 * number % 64, size]], [[far + 13 * number % 71, size]])
        connection.finish()


def atomics(op, role, bench):
    forget(bench)
    connection = Connection(bench, role, size=4096, network="IPv6")
    for number in range(8):
        before = connection.far.word(8 * number)
        connection.post(op, [[2048 + 8 * number, 8]], [[8 * number, 8]], operands=(before, 5))
        connection.finish()


def many(bench):
    """Eight queue pairs, all operations, at once, in both directions."""
    forget(bench)
    connection = Connection(bench, REQUESTER, qps=8, depth=32, size=1 << 17, mtu=512, network="IPv6")
    rng = random.Random(11)
    ops = [*OPS, *ATOMICS] * 12
    rng.shuffle(ops)
    for number, op in enumerate(ops):
        place = number // 2 * 1024
        size = 8 if op in ATOMICS else rng.randrange(1000)
        operands = (rng.randrange(1 << 64), rng.randrange(1 << 64))
        sges = [[place, size]], [[1 << 16 | place, size]]
        connection.post(op, *sges, qp=rng.randrange(8), operands=operands, back=number % 2 == 1)
    connection.finish()


def groups(seed):
    roles = (REQUESTER, RESPONDER)
    return {
        "IPv6": [
            Case("neighbour discovery: the guest asks, and pings", "asked", asked, ip="IPv6"),
            Case("neighbour discovery: the adapter asks", "asking", asking, ip="IPv6"),
            *(
                Case(f"{op} over IPv6", role, partial(lengths, op, role), MTU, ip="IPv6")
                for op in OPS
                for role in roles
            ),
            *(Case(f"{op} over IPv6", role, partial(atomics, op, role), ip="IPv6") for op in ATOMICS for role in roles),
            Case("8 queue pairs, all operations, over IPv6", "both", many, 512, ip="IPv6"),
        ]
    }
