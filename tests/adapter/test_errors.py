"""What is wrong is refused with the specified status, and nothing outside a registered region is touched."""

import errno

import pytest
from ends import (
    FETCH_ADD,
    PATIENCE,
    READ,
    SEND,
    WRITE,
    WRITE_IMM,
    End,
    atomic,
    completion,
    connect,
    fill,
    quiet,
    recv,
    send,
    settle,
    sge,
    world,
)
from scapy.contrib.roce import AETH
from scapy.utils import PcapNgReader, rdpcap
from verbena.sim.pair import join
from verbena.sw.verbs.libibverbs_enums import (
    ibv_access_flags,
    ibv_event_type,
    ibv_qp_attr_mask,
    ibv_qp_state,
    ibv_qp_type,
    ibv_send_flags,
    ibv_wc_status,
    ibv_wr_opcode,
)
from verbena.sw.verbs.mr import MR
from verbena.sw.verbs.pd import PD
from verbena.sw.verbs.pyverbs_error import PyverbsRDMAError
from verbena.sw.verbs.qp import QP, QPAttr, QPCap, QPInitAttr
from verbena.sw.verbs.wr import SGE, SendWR

SIZE = 65536
S = ibv_wc_status
LOCAL, REMOTE_WRITE = ibv_access_flags.IBV_ACCESS_LOCAL_WRITE, ibv_access_flags.IBV_ACCESS_REMOTE_WRITE


@pytest.fixture
def pair():
    with End("sim0", SIZE, sge=2) as a, End("sim1", SIZE, sge=2) as b:
        connect(a, b)
        yield a, b


def events(end):
    end.context._adapter.process_events()
    return [event.event_type for event in end.context._events]


def still_works(a, b):
    """A fresh pair of queue pairs on the same adapters moves data."""
    with End("sim0", 4096) as c, End("sim1", 4096) as d:
        connect(c, d)
        content = fill(c, 99)
        send(c, WRITE, [sge(c, 0, 4096)], remote=(d, 0))
        assert completion(c.cq).status == 0
        assert d.mr.read(4096, 0) == content


def _bad_rkey(a, b):
    return {"rkey": b.mr.rkey ^ 1}


def _unknown_rkey(a, b):
    return {"rkey": 0xFFFFFF00}


def _beyond(a, b):
    return {"remote": (b, SIZE - 3)}


def _before(a, b):
    return {"remote": (b, -1)}


@pytest.mark.parametrize("wrong", [_bad_rkey, _unknown_rkey, _beyond, _before])
def test_remote_access_refused(pair, wrong):
    a, b = pair
    before = fill(b, 1)
    send(a, WRITE, [sge(a, 0, 8)], wr_id=7, **{"remote": (b, 0)} | wrong(a, b))
    send(a, WRITE, [sge(a, 0, 8)], wr_id=8, remote=(b, 0), flags=0)
    first, second = completion(a.cq, 2)
    assert (first.wr_id, first.status) == (7, S.IBV_WC_REM_ACCESS_ERR)
    assert (second.wr_id, second.status) == (8, S.IBV_WC_WR_FLUSH_ERR)
    settle()
    assert b.mr.read(SIZE, 0) == before
    assert a.qp.qp_state == b.qp.qp_state == ibv_qp_state.IBV_QPS_ERR
    assert events(b) == [ibv_event_type.IBV_EVENT_QP_ACCESS_ERR]
    still_works(a, b)


def test_remote_rights_and_pd(pair):
    _, b = pair
    for pd, access in ((b.pd, LOCAL), (PD(b.context), LOCAL | REMOTE_WRITE)):
        with End("sim0", 64) as c, End("sim1", 64) as d:
            connect(c, d)
            mr = MR(pd, 64, access)
            send(c, WRITE, [sge(c, 0, 8)], remote=(d, 0), rkey=mr.rkey)
            assert completion(c.cq).status == S.IBV_WC_REM_ACCESS_ERR


def test_write_without_the_qp_flag():
    with End("sim0", 64) as c, End("sim1", 64) as d:
        connect(c, d, access=0)
        send(c, WRITE, [sge(c, 0, 8)], remote=(d, 0))
        assert completion(c.cq).status == S.IBV_WC_REM_ACCESS_ERR


@pytest.mark.exact
@pytest.mark.every_width
def test_a_peer_that_is_refused_does_not_blame_a_read():
    """Its WRITE comes between the responses of a READ: the READ is flushed, as nothing is wrong with its region."""
    with End("sim0", SIZE) as a, End("sim1", SIZE) as b:
        connect(a, b, mtu=256)
        send(b, READ, [sge(b, 0, SIZE)], wr_id=1, remote=(a, 0))
        settle(800)
        send(a, WRITE, [sge(a, 0, 8)], wr_id=7, remote=(b, 0), rkey=b.mr.rkey ^ 1)
        assert completion(a.cq).status == S.IBV_WC_REM_ACCESS_ERR
        wc = completion(b.cq)
        assert (wc.wr_id, wc.status) == (1, S.IBV_WC_WR_FLUSH_ERR)
        assert events(b) == [ibv_event_type.IBV_EVENT_QP_ACCESS_ERR]


@pytest.mark.parametrize("second", [READ, FETCH_ADD, WRITE])
@pytest.mark.parametrize("first", [READ, FETCH_ADD])
def test_the_first_refusal_is_told_whatever_waits_behind_it(first, second):
    """Both are at the responder before either is answered. Found against Linux, which waited for ever."""
    with End("sim0", 4096) as c, End("sim1", 4096, access=LOCAL) as d:
        connect(c, d, timeout=8, retry_cnt=1)
        wrs = []
        for number, opcode in enumerate((first, second)):
            wr = SendWR(number, opcode, num_sge=1, sg=[sge(c, 2048 * number, 8)])
            if opcode == FETCH_ADD:
                wr.set_wr_atomic(d.mr.rkey, d.mr.buf, 1)
            else:
                wr.set_wr_rdma(d.mr.rkey, d.mr.buf)
            wrs.append(wr)
        wrs[0].next_wr = wrs[1]
        c.qp.post_send(wrs[0])
        assert [wc.status for wc in completion(c.cq, 2)] == [S.IBV_WC_REM_ACCESS_ERR, S.IBV_WC_WR_FLUSH_ERR]


@pytest.mark.parametrize("opcode", [WRITE, READ, FETCH_ADD])
def test_a_nak_does_not_count_what_it_refuses(pair, opcode, tmp_path):
    """The MSN of the NAK is that of the messages before, as Linux' is (IBA 9.7.7.1, C9-148)."""
    a, b = pair
    path = tmp_path / "frames.pcapng"
    world().capture(path)
    for _ in range(3):
        send(a, WRITE, [sge(a, 0, 8)], remote=(b, 0))
    if opcode == FETCH_ADD:
        atomic(a, opcode, [sge(a, 0, 8)], (b, 0), 1, rkey=b.mr.rkey ^ 1)
    else:
        send(a, opcode, [sge(a, 0, 8)], remote=(b, 0), rkey=b.mr.rkey ^ 1)
    assert [wc.status for wc in completion(a.cq, 4)] == [0, 0, 0, S.IBV_WC_REM_ACCESS_ERR]
    world().capture(None)
    naks = {frame[AETH].msn for frame in rdpcap(str(path)) if AETH in frame and frame[AETH].syndrome == 0x62}
    assert naks == {3}


@pytest.mark.parametrize("where", ["key", "range", "pd"])
def test_local_access_refused_sends_nothing(pair, where):
    a, b = pair
    foreign = MR(PD(a.context), 64, LOCAL)
    bad = {
        "key": SGE(a.mr.buf, 8, a.mr.lkey ^ 0x5),
        "range": SGE(a.mr.buf + SIZE - 7, 8, a.mr.lkey),
        "pd": SGE(foreign.buf, 8, foreign.lkey),
    }[where]
    before = fill(b, 1)
    send(a, WRITE, [sge(a, 0, 16)], wr_id=1, remote=(b, 0))
    send(a, WRITE, [sge(a, 0, 300), bad], wr_id=2, remote=(b, 64), flags=0)
    send(a, WRITE, [sge(a, 0, 16)], wr_id=3, remote=(b, 1024))
    wcs = completion(a.cq, 3)
    assert [wc.wr_id for wc in wcs] == [1, 2, 3]
    assert [wc.status for wc in wcs] == [S.IBV_WC_SUCCESS, S.IBV_WC_LOC_PROT_ERR, S.IBV_WC_WR_FLUSH_ERR]
    settle()
    assert b.mr.read(SIZE - 16, 16) == before[16:]
    assert a.qp.qp_state == ibv_qp_state.IBV_QPS_ERR
    assert b.qp.qp_state == ibv_qp_state.IBV_QPS_RTS
    still_works(a, b)


def test_zero_length_needs_no_key(pair):
    a, b = pair
    send(a, WRITE, [SGE(0, 0, 0)], remote=(b, -4096), rkey=0)
    assert completion(a.cq).status == S.IBV_WC_SUCCESS


def test_receive_buffer_too_short(pair):
    a, b = pair
    recv(b, [sge(b, 0, 100)], wr_id=5)
    recv(b, [sge(b, 0, 100)], wr_id=6)
    send(a, SEND, [sge(a, 0, 101)])
    assert completion(a.cq).status == S.IBV_WC_REM_INV_REQ_ERR
    first, second = completion(b.cq, 2)
    assert (first.wr_id, first.status) == (5, S.IBV_WC_LOC_LEN_ERR)
    assert (second.wr_id, second.status) == (6, S.IBV_WC_WR_FLUSH_ERR)


def test_receive_sge_refused(pair):
    a, b = pair
    before = fill(b, 2)
    recv(b, [SGE(b.mr.buf, 100, b.mr.lkey ^ 1)], wr_id=5)
    send(a, SEND, [sge(a, 0, 100)])
    assert completion(a.cq).status == S.IBV_WC_REM_OP_ERR
    assert completion(b.cq).status == S.IBV_WC_LOC_PROT_ERR
    assert b.mr.read(SIZE, 0) == before


def test_everything_outstanding_is_flushed_in_order(pair):
    a, b = pair
    for i in range(100):
        recv(b, [sge(b, 0, 8)], wr_id=i)
    b.qp.modify(QPAttr(qp_state=ibv_qp_state.IBV_QPS_ERR), ibv_qp_attr_mask.IBV_QP_STATE)
    wcs = completion(b.cq, 100)
    assert [wc.wr_id for wc in wcs] == list(range(100))
    assert all(wc.status == S.IBV_WC_WR_FLUSH_ERR for wc in wcs)
    recv(b, [sge(b, 0, 8)], wr_id=500)
    late = completion(b.cq)
    assert (late.wr_id, late.status) == (500, S.IBV_WC_WR_FLUSH_ERR)
    send(b, WRITE, [sge(b, 0, 8)], wr_id=501, remote=(a, 0), flags=0)
    late = completion(b.cq)
    assert (late.wr_id, late.status) == (501, S.IBV_WC_WR_FLUSH_ERR)


def test_reset_and_again(pair):
    a, b = pair
    for i in range(20):
        recv(b, [sge(b, 0, 8)], wr_id=i)
    for end in (a, b):
        end.qp.modify(QPAttr(qp_state=ibv_qp_state.IBV_QPS_RESET), ibv_qp_attr_mask.IBV_QP_STATE)
        assert end.qp.qp_state == ibv_qp_state.IBV_QPS_RESET
    quiet(b.cq)
    connect(a, b, psn=500)
    recv(b, [sge(b, 0, 8)], wr_id=77)
    send(a, SEND, [sge(a, 0, 8)], wr_id=78)
    assert completion(b.cq).wr_id == 77
    assert completion(a.cq).wr_id == 78


def test_destroyed_with_packets_in_flight(pair, tmp_path):
    """What is sent meanwhile goes to the peer, all of it."""
    a, b = pair
    world().capture(tmp_path / "frames.pcapng")
    with End("sim0", SIZE) as c, End("sim1", SIZE) as d:
        connect(c, d)
        numbers = {c.qp.qp_num, d.qp.qp_num}
        control = c.context._adapter.control
        before, limit = control.counters()["tx_packets"], world().cycles + PATIENCE
        for _ in range(16):
            send(c, WRITE, [sge(c, 0, SIZE)], remote=(d, 0))
        while control.counters()["tx_packets"] < before + 5:
            settle(50)
            assert world().cycles < limit
        c.qp.close()
    world().capture(None)
    with PcapNgReader(str(tmp_path / "frames.pcapng")) as packets:
        frames = [bytes(frame) for frame in packets]
    assert len(frames) > 4
    assert {int.from_bytes(frame[47:50], "big") for frame in frames} <= numbers
    assert {frame[:3] for frame in frames} == {b"\x02\x56\x42"}
    still_works(a, b)


def refused(code, function, *args, **kwargs):
    with pytest.raises(PyverbsRDMAError) as caught:
        function(*args, **kwargs)
    assert caught.value.error_code == code


def test_posts_that_the_driver_refuses(pair):
    a, b = pair
    refused(errno.EOPNOTSUPP, send, a, ibv_wr_opcode.IBV_WR_ATOMIC_WRITE, [sge(a, 0, 8)], remote=(b, 0))
    refused(errno.EINVAL, send, a, ibv_wr_opcode.IBV_WR_LOCAL_INV, [sge(a, 0, 8)], remote=(b, 0))
    refused(errno.EINVAL, send, a, 77, [sge(a, 0, 8)])
    refused(errno.EINVAL, send, a, SEND, [sge(a, 0, 8)] * 3)
    refused(errno.EINVAL, send, a, SEND, [sge(a, 0, 33)], flags=ibv_send_flags.IBV_SEND_INLINE)
    refused(errno.EINVAL, recv, b, [sge(b, 0, 8)] * 3)
    with End("sim0", 64, depth=4) as c:
        refused(errno.EINVAL, recv, c, [sge(c, 0, 8)])
        refused(errno.EINVAL, send, c, SEND, [sge(c, 0, 8)])
        connect(c, End("sim1", 64))
        for _ in range(4):
            recv(c, [sge(c, 0, 8)])
        refused(errno.ENOMEM, recv, c, [sge(c, 0, 8)])
        for _ in range(4):
            send(c, WRITE, [sge(c, 0, 8)], remote=(b, 0))
        refused(errno.ENOMEM, send, c, WRITE, [sge(c, 0, 8)], remote=(b, 0))


def test_a_number_is_not_that_of_the_next_queue_pair_in_its_place():
    """A peer goes on sending to a QP that is gone, and whose place another one has: nothing of it counts."""
    with End("sim0", 4096) as a, End("sim1", 4096) as b:
        connect(a, b, timeout=8, retry_cnt=2)
        old, adapter = b.qp.qp_num, b.context._adapter
        content = fill(b, 5)
        b.qp.close()
        adapter.qp_numbers.free.rotate(1)  # the place is the next one in turn
        init = QPInitAttr(ibv_qp_type.IBV_QPT_RC, scq=b.cq, rcq=b.cq, cap=QPCap(), sq_sig_all=0)
        b.qps[0] = new = QP(b.pd, init)
        assert (new.qp_num - old) % adapter.control.max_qp == 0
        assert new.qp_num != old
        join(new, a.qp, a.gid, sq_psn=1, rq_psn=0)
        drops = b.context.query_counters("drop_qp")["drop_qp"]
        send(a, WRITE, [sge(a, 0, 64)], remote=(b, 0))
        assert completion(a.cq).status == S.IBV_WC_RETRY_EXC_ERR
        assert b.context.query_counters("drop_qp")["drop_qp"] == drops + 3
        assert b.mr.read(4096, 0) == content


def test_rings_that_point_outside_memory(pair):
    """A ring whose address is not memory: bus errors, the right status, and no harm to anybody else."""
    a, b = pair
    with End("sim0", 64, push=False) as c, End("sim1", 64) as d:  # what is pushed is not read
        for end in (c, d):
            end.qp._sq.bus = 0xDEAD_0000_0000
            end.qp._rq.bus = 0xBEEF_0000_0000
        connect(c, d)
        send(c, WRITE, [sge(c, 0, 8)], remote=(d, 0))
        assert completion(c.cq).status == S.IBV_WC_LOC_QP_OP_ERR
        assert c.context.query_counters("bus_errors")["bus_errors"] > 0
    still_works(a, b)


def test_tables_that_point_outside_memory(pair):
    a, b = pair
    b.context._adapter.change_region(b.mr._region, mtt_address=0x7777_0000_0000)
    send(a, WRITE, [sge(a, 0, 8)], remote=(b, 0))
    assert completion(a.cq).status == S.IBV_WC_REM_ACCESS_ERR
    still_works(a, b)


def test_write_with_immediate_refused_tells_the_receiver(pair):
    a, b = pair
    recv(b, [sge(b, 0, 8)], wr_id=3)
    send(a, WRITE_IMM, [sge(a, 0, 8)], remote=(b, 0), rkey=b.mr.rkey ^ 1)
    assert completion(a.cq).status == S.IBV_WC_REM_ACCESS_ERR
    got = completion(b.cq)
    assert got.wr_id == 3
    assert got.status == S.IBV_WC_LOC_ACCESS_ERR


def test_the_key_of_a_closed_region_is_gone():
    with End("sim0", 64) as c, End("sim1", 64) as d:
        connect(c, d)
        mr2 = MR(d.pd, 4096, LOCAL | REMOTE_WRITE)
        wr = SGE(c.mr.buf, 8, c.mr.lkey)
        key, there = mr2.rkey, mr2.buf - d.mr.buf
        send(c, WRITE, [wr], remote=(d, there), rkey=key)
        assert completion(c.cq).status == 0
        mr2.close()
        send(c, WRITE, [wr], remote=(d, there), rkey=key)
        assert completion(c.cq).status == S.IBV_WC_REM_ACCESS_ERR
