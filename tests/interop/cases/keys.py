"""Memory windows, and SENDs that invalidate them: the responder grants a part of its region, and takes it back."""

from functools import partial

from connection import READ, RECEIVE, REQUESTER, RESPONDER, WRITE, Connection
from frames import ADAPTER, GUEST

from .case import Case

__all__ = ["groups"]

ROLES = (REQUESTER, RESPONDER)
SIZE, AT, LENGTH, ROOM = 8192, 1000, 2000, 4000
WITH_WINDOWS = 31
"""Rights of the region: all, and IBV_ACCESS_MW_BIND."""
WRITE_READ, READ_ONLY = 6, 4
REM_ACCESS_ERR, ERR = 10, 6
SEND_INV, WC_RECV = "SEND_WITH_INV", 128
WITH_INV = {ADAPTER: 8, GUEST: 4 | 1}
"""``wc_flags``: Linux' Soft-RoCE gives the kernel's value, and IBV_WC_GRH with it."""


def use(connection, key):
    """WRITE and READ by a window's key, within it."""
    connection.post(WRITE, [[0, LENGTH]], [[AT, LENGTH]], rkey=key)
    connection.post(READ, [[ROOM, 500]], [[AT + 700, 500]], rkey=key)
    connection.finish()


def refuse(connection, op, key, at=AT):
    """It may not; both queue pairs are in error then."""
    connection.post_bad(op, [[0, 100]], [[at, 100]], REM_ACCESS_ERR, rkey=key)
    connection.finish()
    states = [side.peer.state() for side in connection.sides]
    assert states == [ERR, ERR], states


def bound(kind, role, bench):
    """Used, bound anew, used by the new key; the old one is dead."""
    connection = Connection(bench, role, size=SIZE, rights=WITH_WINDOWS)
    window = {"kind": kind, "offset": AT, "length": LENGTH, "access": WRITE_READ}
    old = connection.far.peer.bind(**window)
    use(connection, old)
    if kind == 1:
        new = connection.far.peer.bind(**window)
        assert new != old
        use(connection, new)
    else:
        invalidate(connection, old)
    refuse(connection, WRITE, old)


def invalidate(connection, key):
    """A SEND, whose receiver hears which key is dead."""
    near, far = connection.sides
    place = [[ROOM + 1000, 100]]
    far.peer.recv(sges=place, wr_id=RECEIVE)
    near.peer.post(op=SEND_INV, sges=[[0, 50]], wr_id=77, imm=key)
    near.expect(0, False, wr_id=77, status=0, opcode=0)
    told = {"opcode": WC_RECV, "byte_len": 50, "imm_data": key, "wc_flags": WITH_INV[far.name]}
    far.expect(0, True, wr_id=RECEIVE, status=0, **told)
    far.scatter(place, near.gather([[0, 50]]))
    connection.finish()


def without_the_right(kind, role, bench):
    """A window grants less than its region."""
    connection = Connection(bench, role, size=SIZE, rights=WITH_WINDOWS)
    key = connection.far.peer.bind(kind=kind, offset=AT, length=LENGTH, access=READ_ONLY)
    connection.post(READ, [[ROOM, 500]], [[AT, 500]], rkey=key)
    connection.finish()
    refuse(connection, WRITE, key)


def beyond(kind, role, bench):
    """Outside the window, inside the region."""
    connection = Connection(bench, role, size=SIZE, rights=WITH_WINDOWS)
    key = connection.far.peer.bind(kind=kind, offset=AT, length=LENGTH, access=WRITE_READ)
    refuse(connection, READ, key, AT + LENGTH - 99)


def groups(seed):
    cases = [
        Case(f"windows of type {kind}: {what}", role, partial(case, kind, role))
        for what, case, roles in (
            ("bound, used, invalidated", bound, ROLES),
            ("without the right", without_the_right, ROLES),
            ("beyond its end", beyond, (RESPONDER,)),  # Linux forgets the range of a window
        )
        for kind in (1, 2)
        for role in roles
    ]
    return {"keys": cases}
