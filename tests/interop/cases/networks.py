"""Connections over IPv6, between the link-local addresses of both sides."""

import ipaddress
import random
from functools import partial

from connection import ATOMICS, OPS, READ, REQUESTER, RESPONDER, Connection
from machine import MAC, mac_text
from verbena.sw.gids import link_local

from .case import Case

__all__ = ["groups"]

MTU = 1024
SIZES = (0, 1, 3, MTU - 1, MTU, MTU + 1, 5 * MTU - 33)


def know_each_other(bench):
    """Both sides know each other's hardware address without asking."""
    ours = ipaddress.IPv6Address(link_local(bench.port.mac))
    bench.guest.run(f"ip -6 neighbour replace {ours} lladdr {mac_text(bench.port.mac)} dev eth0 nud permanent")
    bench.port.add_neighbour(int(ipaddress.ip_address(bench.guest.address)), MAC)


def lengths(op, role, bench):
    """Every size around a boundary."""
    know_each_other(bench)
    half = bench.region // 2
    connection = Connection(bench, role, size=bench.region, mtu=MTU, network="IPv6")
    for number, size in enumerate(SIZES):
        near, far = (half, 0) if op == READ else (0, half)
        connection.post(op, [[near + 17 * number % 64, size]], [[far + 13 * number % 71, size]])
        connection.finish()


def atomics(op, role, bench):
    know_each_other(bench)
    connection = Connection(bench, role, size=4096, network="IPv6")
    for number in range(8):
        before = connection.far.word(8 * number)
        connection.post(op, [[2048 + 8 * number, 8]], [[8 * number, 8]], operands=(before, 5))
        connection.finish()


def many(bench):
    """Eight queue pairs, all operations, at once, in both directions."""
    know_each_other(bench)
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
            *(
                Case(f"{op} over IPv6", role, partial(lengths, op, role), MTU, ip="IPv6")
                for op in OPS
                for role in roles
            ),
            *(Case(f"{op} over IPv6", role, partial(atomics, op, role), ip="IPv6") for op in ATOMICS for role in roles),
            Case("8 queue pairs, all operations, over IPv6", "both", many, 512, ip="IPv6"),
        ]
    }
