"""Operations that must be refused: each with the status that the requester must see, and no effect at all."""

from collections.abc import Callable
from dataclasses import dataclass

from verbena.sw.verbs.base import inc_rkey
from verbena.sw.verbs.libibverbs_enums import ibv_event_type, ibv_send_flags, ibv_wc_status, ibv_wr_opcode
from verbena.sw.verbs.wr import SGE, SendWR

__all__ = ["REFUSALS", "Refusal"]

S = ibv_wc_status
W = ibv_wr_opcode
ACCESS_EVENT = (ibv_event_type.IBV_EVENT_QP_ACCESS_ERR,)


@dataclass(frozen=True)
class Refusal:
    """``request(flow, number, local, random)`` makes the work request; ``events`` may come at the peer."""

    name: str
    status: int
    request: Callable
    events: tuple = ()


def _request(flow, number, opcode, local, length, *, lkey=None, rkey=None, address=None):
    lkey = flow.pool_mrs[0].lkey if lkey is None else lkey
    wr = SendWR(number, opcode, 1, sg=[SGE(local, length, lkey)], send_flags=ibv_send_flags.IBV_SEND_SIGNALED)
    if opcode in (W.IBV_WR_ATOMIC_CMP_AND_SWP, W.IBV_WR_ATOMIC_FETCH_AND_ADD):
        wr.set_wr_atomic(rkey, address, 1, 2)
    elif rkey is not None:
        wr.set_wr_rdma(rkey, address)
    return wr


def _length(flow, random):
    return random.choice((1, 8, flow.mtu, flow.mtu + 1, 4000))


def _foreign_key(flow, number, local, random):
    opcode = random.choice((W.IBV_WR_RDMA_WRITE, W.IBV_WR_RDMA_READ, W.IBV_WR_ATOMIC_FETCH_AND_ADD))
    length = 8 if opcode == W.IBV_WR_ATOMIC_FETCH_AND_ADD else _length(flow, random)
    rkey = inc_rkey(flow.slice_mrs[0].rkey)
    return _request(flow, number, opcode, local, length, rkey=rkey, address=flow.slice)


def _beyond(flow, number, local, random):
    """Its first bytes are within the region."""
    opcode = random.choice((W.IBV_WR_RDMA_WRITE, W.IBV_WR_RDMA_READ))
    length = _length(flow, random)
    address = flow.slice + flow.slice_mrs[0].length - random.randrange(length)
    return _request(flow, number, opcode, local, length, rkey=flow.slice_mrs[0].rkey, address=address)


def _without_right(flow, number, local, random):
    opcode = random.choice((W.IBV_WR_RDMA_WRITE, W.IBV_WR_ATOMIC_CMP_AND_SWP))
    length = 8 if opcode == W.IBV_WR_ATOMIC_CMP_AND_SWP else _length(flow, random)
    return _request(flow, number, opcode, local, length, rkey=flow.read_only.rkey, address=flow.slice)


def _own_key(flow, number, local, random):
    opcode = random.choice((W.IBV_WR_SEND, W.IBV_WR_RDMA_WRITE))
    lkey = inc_rkey(flow.pool_mrs[0].lkey)
    return _request(
        flow, number, opcode, local, _length(flow, random), lkey=lkey, rkey=flow.slice_mrs[0].rkey, address=flow.slice
    )


REFUSALS = (
    Refusal("a key that nobody has", S.IBV_WC_REM_ACCESS_ERR, _foreign_key, ACCESS_EVENT),
    Refusal("a range beyond the region", S.IBV_WC_REM_ACCESS_ERR, _beyond, ACCESS_EVENT),
    Refusal("a right that is not granted", S.IBV_WC_REM_ACCESS_ERR, _without_right, ACCESS_EVENT),
    Refusal("an own key that nobody has", S.IBV_WC_LOC_PROT_ERR, _own_key),
)
