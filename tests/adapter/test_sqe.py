"""A send queue of UC or UD that fails: the QP goes to SQE, goes on to receive, and comes back (IBA 10.3.1)."""

import errno

import pytest
from ends import SEND, WRITE, End, completion, completions, connect, quiet, recv, send, settle, sge
from streams import make_rng
from verbena.sim.pair import QKEY, handle, start
from verbena.sw.verbs.libibverbs_enums import (
    IBV_SEND_SIGNALED,
    ibv_qp_attr_mask,
    ibv_qp_state,
    ibv_qp_type,
    ibv_wc_status,
)
from verbena.sw.verbs.pyverbs_error import PyverbsRDMAError
from verbena.sw.verbs.qp import QPAttr
from verbena.sw.verbs.wr import SGE, SendWR

RC, UC, UD = ibv_qp_type.IBV_QPT_RC, ibv_qp_type.IBV_QPT_UC, ibv_qp_type.IBV_QPT_UD
S, W, M = ibv_qp_state, ibv_wc_status, ibv_qp_attr_mask


@pytest.fixture(params=[UC, UD], ids=["UC", "UD"])
def pair(request):
    kind = {"qp_type": request.param, "sge": 2}
    with End("sim0", 65536, **kind) as a, End("sim1", 65536, **kind) as b:
        a.way = b.way = None
        if request.param == UD:
            a.way, b.way = handle(a, b.gid), handle(b, a.gid)
            start(a)
            start(b)
        else:
            connect(a, b, mtu=256)
        yield a, b


def post(end, peer, sges, number):
    wr = SendWR(number, SEND, num_sge=len(sges), sg=sges, send_flags=IBV_SEND_SIGNALED)
    if end.way is not None:
        wr.set_wr_ud(end.way, peer.qp.qp_num, QKEY)
    end.qp.post_send(wr)


def bad(end, length=100):
    """An entry whose key is wrong."""
    return SGE(end.mr.buf, length, end.mr.lkey ^ 1)


def back(qp):
    qp.modify(QPAttr(qp_state=S.IBV_QPS_RTS), M.IBV_QP_STATE)


def receive(end, place=0, number=0):
    recv(end, [sge(end, place, 1024)], wr_id=number)


@pytest.mark.every_width
def test_there_and_back(pair):
    """What failed and what stands behind it completes with errors; then the queue is as a new one. Three times."""
    a, b = pair
    header = 40 if a.way is not None else 0
    for number in range(4):
        receive(b, 1024 * number, number)
    for _ in range(3):
        post(a, b, [sge(a, 0, 200)], 1)
        post(a, b, [sge(a, 0, 50), bad(a)], 2)
        for late in (3, 4, 5):
            post(a, b, [sge(a, 0, 8)], late)
        failed = [(2, W.IBV_WC_LOC_PROT_ERR), *((late, W.IBV_WC_WR_FLUSH_ERR) for late in (3, 4, 5))]
        assert [(wc.wr_id, wc.status) for wc in completions(a.cq, 5)] == [(1, W.IBV_WC_SUCCESS), *failed]
        assert a.qp.qp_state == a.qp.query()[0].qp_state == S.IBV_QPS_SQE
        post(a, b, [sge(a, 0, 8)], 6)
        assert completion(a.cq).status == W.IBV_WC_WR_FLUSH_ERR
        assert completion(b.cq).byte_len == header + 200
        quiet(b.cq)
        back(a.qp)
        assert a.qp.qp_state == S.IBV_QPS_RTS
    content = make_rng().randbytes(250)
    a.mr.write(content, 250)
    post(a, b, [sge(a, 0, 250)], 9)
    assert [(wc.wr_id, wc.status) for wc in completions(a.cq, 1)] == [(9, W.IBV_WC_SUCCESS)]
    wc = completion(b.cq)
    assert (wc.wr_id, wc.byte_len) == (3, header + 250)
    assert b.mr.read(250, 3 * 1024 + header) == content


def test_it_goes_on_to_receive(pair):
    """Also what is posted meanwhile; nothing is flushed."""
    a, b = pair
    receive(a, 0, 1)
    post(a, b, [bad(a)], 1)
    assert completion(a.cq).status == W.IBV_WC_LOC_PROT_ERR
    receive(a, 1024, 2)
    for number in (1, 2):
        post(b, a, [sge(b, 0, 77)], number)
        assert completion(b.cq).status == W.IBV_WC_SUCCESS
        wc = completion(a.cq)
        assert (wc.wr_id, wc.status) == (number, W.IBV_WC_SUCCESS)
    quiet(a.cq)
    assert a.qp.qp_state == S.IBV_QPS_SQE


def test_a_receive_that_fails_then_takes_it_to_err(pair):
    a, b = pair
    post(a, b, [bad(a)], 1)
    assert completion(a.cq).status == W.IBV_WC_LOC_PROT_ERR
    recv(a, [bad(a, 1024)], wr_id=2)
    receive(a, 0, 3)
    post(b, a, [sge(b, 0, 77)], 1)
    assert [(wc.wr_id, wc.status) for wc in completions(a.cq, 2)] == [
        (2, W.IBV_WC_LOC_PROT_ERR),
        (3, W.IBV_WC_WR_FLUSH_ERR),
    ]
    assert a.qp.qp_state == S.IBV_QPS_ERR
    post(a, b, [sge(a, 0, 8)], 4)
    assert completion(a.cq).status == W.IBV_WC_WR_FLUSH_ERR
    with pytest.raises(PyverbsRDMAError) as caught:
        back(a.qp)
    assert caught.value.error_code == errno.EINVAL


@pytest.mark.parametrize("state", [S.IBV_QPS_ERR, S.IBV_QPS_RESET])
def test_other_ways_out_of_it(pair, state):
    a, b = pair
    receive(a, 0, 1)
    post(a, b, [bad(a)], 1)
    assert completion(a.cq).status == W.IBV_WC_LOC_PROT_ERR
    a.qp.modify(QPAttr(qp_state=state), M.IBV_QP_STATE)
    assert a.qp.qp_state == state
    if state == S.IBV_QPS_ERR:
        assert completion(a.cq).status == W.IBV_WC_WR_FLUSH_ERR
    quiet(a.cq)


def test_it_comes_back_behind_all_that_was_posted(pair):
    """Also if that has not completed when the call begins: none of it is sent."""
    a, b = pair
    receive(b, 0, 1)
    for life in range(8):
        for number in range(60):
            post(a, b, [bad(a) if number == 3 else sge(a, 0, 16)], number)
        settle(200 + 37 * life)
        while a.qp.qp_state != S.IBV_QPS_SQE:
            settle(10)
        back(a.qp)
        found = completions(a.cq, 60)
        assert [wc.wr_id for wc in found] == list(range(60))
        assert [wc.status for wc in found[3:]] == [W.IBV_WC_LOC_PROT_ERR] + [W.IBV_WC_WR_FLUSH_ERR] * 56
    quiet(a.cq)
    received = b.cq.poll(4)[1]
    assert len(received) == 1


def test_a_queue_pair_of_rc_has_no_sqe():
    with End("sim0", 4096) as a, End("sim1", 4096) as b:
        connect(a, b)
        send(a, WRITE, [bad(a)], remote=(b, 0))
        assert completion(a.cq).status == W.IBV_WC_LOC_PROT_ERR
        assert a.qp.qp_state == S.IBV_QPS_ERR
