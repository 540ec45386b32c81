"""A completion queue without room takes the queue pairs that have completions for it to ERR, and nobody else."""

import pytest
from ends import SEND, WRITE, End, completions, connect, fill, recv, send, settle, sge
from verbena.sim.pair import join
from verbena.sw.verbs.cq import CQ
from verbena.sw.verbs.libibverbs_enums import (
    ibv_event_type,
    ibv_qp_attr_mask,
    ibv_qp_state,
    ibv_qp_type,
    ibv_wc_status,
)
from verbena.sw.verbs.qp import QP, QPAttr, QPCap, QPInitAttr

SIZE = 1 << 16
ROOM = 4
E, S, STATE = ibv_event_type, ibv_wc_status, ibv_qp_state
IMPATIENT = {"timeout": 7, "retry_cnt": 1}


@pytest.fixture
def pair():
    with End("sim0", SIZE) as a, End("sim1", SIZE) as b:
        connect(a, b)
        yield a, b


def queue_pair(end, send_cq, recv_cq):
    cap = QPCap(max_send_wr=32, max_recv_wr=32, max_send_sge=1, max_recv_sge=1)
    return QP(end.pd, QPInitAttr(ibv_qp_type.IBV_QPT_RC, scq=send_cq, rcq=recv_cq, cap=cap, sq_sig_all=0))


def joined(a, near, b, far):
    join(near, far, b.gid, **IMPATIENT)
    join(far, near, a.gid, **IMPATIENT)


def post_recv(end, qp, count):
    usual, end.qps = end.qps, [qp]
    for number in range(count):
        recv(end, [sge(end, 0, 64)], wr_id=number)
    end.qps = usual


def events(end):
    end.context._adapter.process_events()
    found = [(event.event_type, event.element) for event in end.context._events]
    end.context._events.clear()
    return found


def told(end, cq, *qps):
    """CQ_ERR came once, and QP_FATAL once for each of ``qps``."""
    found = events(end)
    assert sorted((kind, id(element)) for kind, element in found) == sorted(
        [(E.IBV_EVENT_CQ_ERR, id(cq)), *((E.IBV_EVENT_QP_FATAL, id(qp)) for qp in qps)]
    )


def statuses(cq, count):
    return [wc.status for wc in completions(cq, count)]


def goes_on(a, b):
    """Queue pairs with CQs of their own are as they were."""
    for near, far in ((a, b), (b, a)):
        content = fill(near, 5)
        recv(far, [sge(far, 0, 3000)])
        send(near, SEND, [sge(near, 0, 3000)])
        assert statuses(near.cq, 1) == statuses(far.cq, 1) == [S.IBV_WC_SUCCESS]
        assert far.mr.read(3000, 0) == content[:3000]


def test_a_send_queue_overruns(pair):
    a, b = pair
    small, other = CQ(a.context, ROOM), CQ(a.context, 64)
    near, far = queue_pair(a, small, other), queue_pair(b, b.cq, b.cq)
    joined(a, near, b, far)
    post_recv(a, near, 6)
    room = small.cqe
    for number in range(room + 8):
        send(a, WRITE, [sge(a, 0, 64)], wr_id=number, remote=(b, 0), qp=near)
    settle(20_000)
    told(a, small, near)
    assert near.qp_state == STATE.IBV_QPS_ERR
    assert statuses(other, 6) == [S.IBV_WC_WR_FLUSH_ERR] * 6
    assert a.context.query_counters("cq_overruns")["cq_overruns"] >= 8
    assert [(wc.wr_id, wc.status) for wc in completions(small, room)] == [(n, 0) for n in range(room)]
    # The peer hears nothing any more.
    assert far.qp_state == STATE.IBV_QPS_RTS
    for _ in range(3):
        send(b, SEND, [sge(b, 0, 64)], qp=far)
    assert statuses(b.cq, 3) == [S.IBV_WC_RETRY_EXC_ERR, S.IBV_WC_WR_FLUSH_ERR, S.IBV_WC_WR_FLUSH_ERR]
    goes_on(a, b)
    assert events(a) == []


def test_a_receive_queue_overruns(pair):
    a, b = pair
    small, other = CQ(a.context, ROOM), CQ(a.context, 64)
    near, far = queue_pair(a, other, small), queue_pair(b, b.cq, b.cq)
    joined(a, near, b, far)
    for number in range(3):  # outstanding: nobody receives them
        send(a, SEND, [sge(a, 0, 64)], wr_id=number, qp=near)
    room = small.cqe
    post_recv(a, near, 32)
    for number in range(room + 8):
        send(b, SEND, [sge(b, 0, 64)], wr_id=number, qp=far)
    done = statuses(b.cq, room + 8)
    told(a, small, near)
    assert near.qp_state == STATE.IBV_QPS_ERR
    assert statuses(other, 3) == [S.IBV_WC_WR_FLUSH_ERR] * 3
    good = done.count(S.IBV_WC_SUCCESS)
    assert good >= room
    assert done[good:] == ([S.IBV_WC_RETRY_EXC_ERR] + [S.IBV_WC_WR_FLUSH_ERR] * (room + 7))[: room + 8 - good]
    goes_on(a, b)
    assert events(a) == []


def test_all_who_use_it_end_with_their_next_completion_and_it_can_be_made_anew(pair):
    a, b = pair
    small = CQ(a.context, ROOM)
    nears, fars = ([queue_pair(end, cq, cq) for _ in range(3)] for end, cq in ((a, small), (b, b.cq)))
    for near, far in zip(nears, fars, strict=True):
        joined(a, near, b, far)
    for _ in range(small.cqe + 2):
        send(a, WRITE, [sge(a, 0, 8)], remote=(b, 0), qp=nears[0])
    settle(10_000)
    told(a, small, nears[0])
    states = [near.qp_state for near in nears]
    assert states == [STATE.IBV_QPS_ERR, STATE.IBV_QPS_RTS, STATE.IBV_QPS_RTS]
    # What asks for no completion loses none.
    send(a, WRITE, [sge(a, 0, 8)], remote=(b, 0), qp=nears[1], flags=0)
    settle(5000)
    assert (nears[1].qp_state, events(a)) == (STATE.IBV_QPS_RTS, [])
    for near in nears[1:]:
        send(a, WRITE, [sge(a, 0, 8)], remote=(b, 0), qp=near)
        settle(5000)
        assert near.qp_state == STATE.IBV_QPS_ERR
        assert [(kind, element is near) for kind, element in events(a)] == [(E.IBV_EVENT_QP_FATAL, True)]
    # The queue pairs' next lives have completion queues of their own.
    for near, far in zip(nears, fars, strict=True):
        for end, qp in ((a, near), (b, far)):
            qp.modify(QPAttr(qp_state=STATE.IBV_QPS_RESET), ibv_qp_attr_mask.IBV_QP_STATE)
            assert qp.qp_state == STATE.IBV_QPS_RESET
            qp.close()
            assert events(end) == []
    small.close()
    fresh = CQ(a.context, ROOM)
    near, far = queue_pair(a, fresh, fresh), queue_pair(b, b.cq, b.cq)
    joined(a, near, b, far)
    for _ in range(3 * fresh.cqe):
        send(a, WRITE, [sge(a, 0, 8)], remote=(b, 0), qp=near)
        assert statuses(fresh, 1) == [S.IBV_WC_SUCCESS]
    goes_on(a, b)
    assert events(a) == []
