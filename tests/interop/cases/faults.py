"""The cable loses, doubles, delays and corrupts frames, and a queue pair disappears: nothing is lost or changed."""

import random
from functools import partial

from cable import FAULTS, Faults
from connection import (
    ATOMICS,
    CMP_SWP,
    FETCH_ADD,
    FLUSHED,
    OPS,
    PATIENT,
    READ,
    REQUESTER,
    RESPONDER,
    SEND,
    UNHURRIED,
    WRITE,
    Connection,
)
from frames import ADAPTER, GUEST

from .case import Case

__all__ = ["groups"]

ROLES = (REQUESTER, RESPONDER)
MTU = 256
LENGTH = 4 * MTU + 76
"""Five packets."""
HALF = 2048

TIMED = {"here": PATIENT | {"timeout": 12}, "there": UNHURRIED | {"timeout": 15}}
"""Short, for there are many; what comes too late does no harm, either."""

RETRY_EXC_ERR = 12


def frames(op, packets):
    """How many requester and responder send for a message of so many packets."""
    return {SEND: (packets, 1), WRITE: (packets, 1), READ: (1, packets)}.get(op, (1, 1))


def one(op, role, fault, bench):
    """Each frame of an operation in turn, of both sides."""
    connection = Connection(bench, role, mtu=MTU, size=2 * HALF, **TIMED)
    sides = connection.near.name, connection.far.name
    packets = bench.station.packets
    length = (packets - 1) * MTU + 76
    aims = [(side, number) for side, count in zip(sides, frames(op, packets)) for number in range(count)]
    for turn, (side, number) in enumerate(aims):
        bench.settle()
        bench.cable.harm(turn, aimed=[(side, fault, number)])
        size, place = (8, 8 * turn) if op in ATOMICS else (length, 252 * turn % (HALF - length))
        operands = (connection.far.word(place), 77)
        connection.post(op, [[HALF + place, size]], [[place, size]], operands=operands)
        connection.finish()
    assert bench.cable.harmed[fault] == len(aims), f"{fault} was done {bench.cable.harmed[fault]} times"


def unanswered(role, bench):
    """A WRITE and, behind it, something that brings data back: both answers are lost, and both are asked for again. An
    ACK for the WRITE that comes first then must not pass for the answer to the other.
    """
    connection = Connection(bench, role, mtu=MTU, size=1 << 15, **TIMED)
    for turn, (op, size) in enumerate([(READ, 100), (FETCH_ADD, 8), (CMP_SWP, 8)]):
        bench.settle()
        bench.cable.harm(aimed=[(connection.far.name, "lose", 0), (connection.far.name, "lose", 1)])
        connection.post(WRITE, [[64 * turn, 64]], [[(1 << 14) + 64 * turn, 64]])
        connection.post(op, [[4096 + 128 * turn, size]], [[8192 + 128 * turn, size]], operands=(1, 2))
        connection.finish()
    assert bench.cable.harmed["lose"] == 6, f"{bench.cable.harmed['lose']} answers were lost"


def storm(seed, bench):
    """Many operations of both sides on four queue pairs, and any frame may have any fault."""
    connection = Connection(bench, REQUESTER, mtu=MTU, size=1 << 17, qps=4, depth=64, **TIMED)
    rng = random.Random(seed)
    chances = Faults(lose=0.03, duplicate=0.03, reorder=0.03, corrupt=0.03)
    bench.cable.harm(seed, faults={ADAPTER: chances, GUEST: chances})
    for turn in range(4):
        for number in range(24):
            op = rng.choice([*OPS, *ATOMICS])
            size = 8 if op in ATOMICS else rng.randrange(LENGTH)
            place = (turn * 24 + number) // 2 * 1136
            connection.post(
                op,
                [[place, size]],
                [[(1 << 16) + place // 8 * 8, size]],
                qp=rng.randrange(4),
                operands=(rng.randrange(1 << 64), rng.randrange(1 << 64)),
                back=number % 2 == 1,
            )
        connection.finish()
    assert all(bench.cable.harmed[fault] for fault in FAULTS), f"not every fault was done: {bench.cable.harmed}"


def vanish(role, who, bench):
    """A queue pair is destroyed in the midst of long WRITEs; its neighbour and both memories do not care."""
    few = {"retry_cnt": 2}
    options = {"here": TIMED["here"] | few, "there": TIMED["there"] | few}
    connection = Connection(bench, role, mtu=MTU, size=1 << 20, qps=2, **options)
    far = connection.far
    before = far.memory[: 1 << 19]
    for number in range(4):
        connection.post(WRITE, [[0, 1 << 17]], [[number << 17, 1 << 17]])
    lost = connection.near.awaited.pop((0, False))
    bench.until(lambda: bench.cable.frames > 40)
    victim, survivor = connection.sides if who == "requester" else connection.sides[::-1]
    victim.peer.destroy(qp=0)
    if victim is far:
        wcs = survivor.peer.poll(count=len(lost), seconds=30)
        statuses = [wc["status"] for wc in wcs]
        done = statuses.count(0)
        assert statuses == [0] * done + ([RETRY_EXC_ERR] + [FLUSHED] * 3)[: 4 - done], f"statuses: {statuses}"
    bench.settle(0.05)
    # How much has arrived is nobody's promise; what did not is as before, and there is nothing else.
    far.memory[: 1 << 19] = before
    far.accept(0, 1 << 19, connection.near.gather([[0, 1 << 17]]) * 4)
    bench.settle()
    for op in (SEND, WRITE, READ):
        connection.post(op, [[(1 << 19) + 5, 3000]], [[(1 << 19) + 8192, 3000]], qp=1)
        connection.finish()


def groups(seed):
    return {
        **{
            f"faults as {role}": [
                Case(f"{op}: each frame", role, partial(one, op, role, fault), MTU, fault)
                for op in (SEND, WRITE, READ, FETCH_ADD, CMP_SWP)
                for fault in FAULTS
            ]
            + [Case("WRITE and READ, WRITE and atomic: all answers", role, partial(unanswered, role), MTU, "lose")]
            for role in ROLES
        },
        "storms": [
            Case(
                f"all operations, both directions, seed {storming}", "both", partial(storm, storming), MTU, "3% of each"
            )
            for storming in range(seed, seed + 4)
        ],
        "vanishing": [
            Case(f"the {who}'s queue pair is destroyed in mid-flight", role, partial(vanish, role, who), MTU)
            for who in ("requester", "responder")
            for role in ROLES
        ],
    }
