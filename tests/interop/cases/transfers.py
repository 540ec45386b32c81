"""All operations in both directions, and nothing goes wrong."""

import random
from functools import partial

from connection import (
    ATOMICS,
    CMP_SWP,
    FETCH_ADD,
    OPS,
    READ,
    REQUESTER,
    RESPONDER,
    SEND,
    SEND_IMM,
    WRITE,
    WRITE_IMM,
    Connection,
)

from .case import Case

__all__ = ["groups"]

MTUS = (256, 512, 1024, 2048, 4096)
ROLES = (REQUESTER, RESPONDER)
SMALL_MTU = 256
LAST_PSN = 0xFFFFFF
MANY = 1 << 18


def sizes(mtu, half):
    """Of messages that fit into a half of a region."""
    return [size for size in (0, 1, 3, mtu - 1, mtu, mtu + 1, 5 * mtu - 33, 65536) if size + 100 < half]


def boundaries(op, role, mtu, bench):
    """Every size around a boundary, from and to addresses of many alignments."""
    half = bench.region // 2
    connection = Connection(bench, role, size=bench.region, mtu=mtu)
    for number, size in enumerate(sizes(mtu, half)):
        near, far = (half, 0) if op == READ else (0, half)
        connection.post(op, [[near + 17 * number % 64, size]], [[far + 13 * number % 71, size]])
        connection.finish()


def atomics(op, role, bench):
    """Words at both ends of the numbers; comparisons that hold and others that do not."""
    connection = Connection(bench, role, size=4096)
    for number in range(24):
        at = 8 * (number % 8)
        before = connection.far.word(at)
        if op == FETCH_ADD:
            operands = ((1, (1 << 64) - 1, 1 << 63, -before & (1 << 64) - 1)[number % 4], 0)
        else:
            operands = (before + (number % 3 == 0) & (1 << 64) - 1, 0x0123456789ABCDEF * (number + 1) & (1 << 64) - 1)
        connection.post(op, [[2048 + 8 * number, 8]], [[at, 8]], operands=operands)
        connection.finish()


def pieces(total, parts, rng):
    """``total`` cut into ``parts`` lengths, some of them maybe 0."""
    cuts = sorted(rng.randint(0, total) for _ in range(parts - 1))
    return [b - a for a, b in zip([0, *cuts], [*cuts, total])]


def lay(start, lengths, rng):
    """``[offset, length]`` of pieces with gaps between them."""
    placed = []
    for length in lengths:
        start += rng.randrange(1, 40)
        placed.append([start, length])
        start += length
    return placed


def scattered(op, role, bench):
    """Several scatter/gather entries of any length and alignment on each side that can have them."""
    connection = Connection(bench, role, size=bench.region, mtu=SMALL_MTU, sge=4)
    rng = random.Random(op)
    room = bench.region // 2 - 200
    for _ in range(12):
        total = rng.choice([size for size in (0, 1, 5, 64, 255, 256, 257, 700, 1500, 3000) if size < room])
        near = lay(0, pieces(total, rng.randint(1, 4), rng), rng)
        far = lay(bench.region // 2, pieces(total, rng.randint(1, 4), rng) if op == SEND else [total], rng)
        connection.post(op, near, far)
        connection.finish()


def wrap(op, role, bench):
    """The PSN passes its end in the midst of a message, and between two."""
    for first in (LAST_PSN - 2, LAST_PSN):
        connection = Connection(bench, role, mtu=SMALL_MTU, psn=first, size=4096)
        for number in range(4):
            size = 8 if op in ATOMICS else (1200, 0, 256, 3)[number]
            connection.post(op, [[64 * number, size]], [[2048 + 64 * number, size]], operands=(5, 6))
        connection.finish()


def many(bench):
    """Sixteen queue pairs, all operations, all at once, in both directions."""
    connection = Connection(bench, REQUESTER, qps=16, depth=32, size=2 * MANY, mtu=512)
    rng = random.Random(7)
    ops = [*OPS, *ATOMICS] * 32
    rng.shuffle(ops)
    for number, op in enumerate(ops):
        # Each operation has a place of its own: the lower halves are of who requests.
        place = number // 2 * 1024
        size, shift = (8, 0) if op in ATOMICS else (rng.randrange(1000), rng.randrange(24))
        connection.post(
            op,
            [[place + shift, size]],
            [[MANY + place, size]],
            qp=rng.randrange(16),
            operands=(rng.randrange(1 << 64), rng.randrange(1 << 64)),
            back=number % 2 == 1,
        )
    connection.finish()


def stream(role, bench):
    """A long message of 1 MiB, and behind it on another queue pair a short one."""
    size = 1 << 20
    connection = Connection(bench, role, size=2 * size, mtu=4096, qps=2)
    for op in (WRITE, READ):
        near, far = (size, 0) if op == READ else (0, size)
        connection.post(op, [[near + 1, size - 64]], [[far + 2, size - 64]])
        connection.post(WRITE, [[8, 8]], [[2 * size - 16, 8]], qp=1)
        connection.finish()


def groups(seed):
    return {
        **{
            f"mtu {mtu}": [
                Case(f"{op} at every boundary of length", role, partial(boundaries, op, role, mtu), mtu)
                for op in (SEND, SEND_IMM, WRITE, WRITE_IMM, READ)
                for role in ROLES
            ]
            for mtu in MTUS
        },
        "atomics": [Case(f"{op} on many words", role, partial(atomics, op, role)) for op in ATOMICS for role in ROLES],
        "shapes": [
            *(
                Case(f"{op} with several scatter/gather entries", role, partial(scattered, op, role), SMALL_MTU)
                for op in (SEND, WRITE, READ)
                for role in ROLES
            ),
            *(
                Case(f"{op} over the end of the PSNs", role, partial(wrap, op, role), SMALL_MTU)
                for op in (SEND, WRITE, READ, FETCH_ADD, CMP_SWP)
                for role in ROLES
            ),
            Case("16 queue pairs, all operations, both directions", "both", many, 512),
            *(Case("1 MiB beside 8 bytes", role, partial(stream, role), 4096) for role in ROLES),
        ],
    }
