"""What must be refused is, with the right status on both sides, and touches nothing."""

from functools import partial

from connection import (
    FETCH_ADD,
    FLUSHED,
    PATIENT,
    READ,
    REQUESTER,
    RESPONDER,
    SEND,
    UNHURRIED,
    WRITE,
    WRITE_IMM,
    Connection,
)
from frames import ADAPTER, GUEST

from .case import Case

__all__ = ["groups"]

ROLES = (REQUESTER, RESPONDER)
SIZE = 4096
AT, BEHIND = 1000, 4080
LOC_LEN_ERR, LOC_QP_OP_ERR, LOC_ACCESS_ERR = 1, 2, 8
REM_INV_REQ_ERR, REM_ACCESS_ERR, REM_OP_ERR, RNR_RETRY_EXC_ERR = 9, 10, 11, 13
RTS, ERR = 3, 6
LOCAL_WRITE = 1


def wrong_key(info):
    return {"rkey": info["rkey"] ^ 1}


def unknown_key(info):
    return {"rkey": 0xFFFFFF00}


def beyond(info):
    return {"address": info["address"] + SIZE}


def across_the_end(info):
    return {"address": info["address"] + SIZE - 1000}


def before(info):
    return {"address": info["address"] - 8}


def nothing(info):
    return {}


REFUSED = {
    # name: what is wrong with a request, and options of the connection
    "a key that was never given": (unknown_key, {}),
    "a key of another generation": (wrong_key, {}),
    "an address before the region": (before, {}),
    "an address beyond the region": (beyond, {}),
    "a range that leaves the region": (across_the_end, {}),
    "a region without the right": (nothing, {"rights": LOCAL_WRITE}),
    "a queue pair without the right": (nothing, {"access": 0}),
}

BY_LINUX = {
    "a queue pair without the right": (REM_INV_REQ_ERR, "Linux: NAK invalid request (0x61), not remote access (0x62)"),
}
"""Where Linux refuses with another status than the specification, and what to say about it."""

TOO_LONG = "Linux: NAK remote operational error (0x63), not invalid request (0x61)"
RECEIVER = "Linux: the receive fails with REM_ACCESS_ERR, not LOC_ACCESS_ERR"


def refused(name, role, bench):
    """WRITE, READ and an atomic: the request fails, what follows it is flushed, both queue pairs are in error.

    A WRITE behind a READ may be executed before it, and is flushed all the same: so it follows only where it is refused
    itself.
    """
    wrong, options = REFUSED[name]
    for op, size in ((WRITE, 3000), (READ, 3000), (FETCH_ADD, 8)):
        if op == FETCH_ADD and wrong is across_the_end:
            continue
        connection = Connection(bench, role, size=SIZE, **options)
        status = REM_ACCESS_ERR
        if name in BY_LINUX and connection.far.name == GUEST:
            status, _ = BY_LINUX[name]
        connection.post_bad(op, [[0, size]], [[AT, size]], status, **wrong(connection.far.info))
        connection.post_bad(WRITE if op == WRITE or options else READ, [[0, 8]], [[BEHIND, 8]], FLUSHED)
        connection.finish()
        states = [side.peer.state() for side in connection.sides]
        assert states == [ERR, ERR], f"states of requester and responder after {op}: {states}"


def zero_length(role, bench):
    """No byte is moved, so no key and no address is looked at (C9-88)."""
    connection = Connection(bench, role, size=SIZE)
    for op in (WRITE, READ, WRITE_IMM):
        connection.post(op, [[0, 0]], [[0, 0]], rkey=0, address=0)
    connection.finish()


def too_long(role, bench):
    """A SEND longer than the receive that it meets. What that holds then is undefined, so it is empty."""
    connection = Connection(bench, role, size=SIZE)
    statuses = {ADAPTER: (LOC_LEN_ERR, REM_INV_REQ_ERR), GUEST: (LOC_QP_OP_ERR, REM_OP_ERR)}
    received, status = statuses[connection.far.name]
    connection.post_bad(SEND, [[0, 1]], [[AT, 0]], status, received=received)
    connection.finish()


def receiver_hears(role, bench):
    """A WRITE with immediate that is refused fails the receive that it meets."""
    connection = Connection(bench, role, size=SIZE)
    received = {ADAPTER: LOC_ACCESS_ERR, GUEST: REM_ACCESS_ERR}[connection.far.name]
    wrong = unknown_key(connection.far.info)
    connection.post_bad(WRITE_IMM, [[0, 100]], [[AT, 100]], REM_ACCESS_ERR, received=received, **wrong)
    connection.finish()


def late_receives(role, bench):
    """The receiver is not ready, and then it is."""
    connection = Connection(bench, role, size=SIZE)
    for op in (SEND, WRITE_IMM):
        known = bench.cable.retries
        connection.post(op, [[0, 3000]], [[AT, 3000]], late=True)
        bench.until(lambda known=known: bench.cable.retries > known)
        connection.receive()
        connection.finish()


def no_receive(role, bench):
    """The receiver is never ready: the requester gives up after its retries, the receiver stays as it is."""
    few = {"rnr_retry": 2}
    connection = Connection(bench, role, size=SIZE, here=PATIENT | few, there=UNHURRIED | few)
    connection.post_bad(SEND, [[0, 10]], [[AT, 10]], RNR_RETRY_EXC_ERR, late=True)
    connection.finish()
    states = [side.peer.state() for side in connection.sides]
    assert states == [ERR, RTS], f"states of requester and responder: {states}"


def groups(seed):
    return {
        "refusals": [
            *(
                Case(
                    f"refused: {name}",
                    role,
                    partial(refused, name, role),
                    reason=BY_LINUX[name][1] if name in BY_LINUX and role == REQUESTER else "",
                )
                for name in REFUSED
                for role in ROLES
            ),
            *(Case("nothing to move, and no key", role, partial(zero_length, role)) for role in ROLES),
            Case("SEND longer than its receive", REQUESTER, partial(too_long, REQUESTER), reason=TOO_LONG),
            Case("SEND longer than its receive", RESPONDER, partial(too_long, RESPONDER)),
            Case("WRITE with immediate refused", REQUESTER, partial(receiver_hears, REQUESTER), reason=RECEIVER),
            Case("WRITE with immediate refused", RESPONDER, partial(receiver_hears, RESPONDER)),
            *(Case("receiver not ready, and then it is", role, partial(late_receives, role)) for role in ROLES),
            *(Case("receiver never ready", role, partial(no_receive, role)) for role in ROLES),
        ]
    }
