"""Extended queue pairs: requests that are built call by call. Bytes are written out by hand."""

import errno
import struct
import threading

import pytest
from fake_device import QP_PAGES
from verbena.sw.verbs import libibverbs_enums as e
from verbena.sw.verbs.addr import AHAttr, GlobalRoute
from verbena.sw.verbs.mem_alloc import posix_memalign, write
from verbena.sw.verbs.mr import MWBindInfo
from verbena.sw.verbs.pd import PD, ParentDomain, ParentDomainInitAttr
from verbena.sw.verbs.pyverbs_error import PyverbsRDMAError, PyverbsUserError
from verbena.sw.verbs.qp import QP, DataBuffer, QPAttr, QPCap, QPEx, QPInitAttr, QPInitAttrEx
from verbena.sw.verbs.wr import SGE, SendWR

SQ_DOORBELL = QP_PAGES
ALL = 127
WITH = e.IBV_QP_INIT_ATTR_PD | e.IBV_QP_INIT_ATTR_SEND_OPS_FLAGS
ADDRESS, KEY = 0x1122334455667788, 0x99AABBCC


def refused(code, function, *args, **kwargs):
    with pytest.raises(PyverbsRDMAError) as caught:
        function(*args, **kwargs)
    assert caught.value.error_code == code
    return str(caught.value)


def attributes(domain, cq, **kwargs):
    kwargs = {
        "cap": QPCap(max_send_wr=4, max_send_sge=2, max_inline_data=32),
        "comp_mask": WITH,
        "pd": domain,
        "send_ops_flags": ALL,
    } | kwargs
    return QPInitAttrEx(kwargs.pop("qp_type", e.IBV_QPT_RC), scq=cq, rcq=cq, **kwargs)


def to_rts(qp):
    attr = QPAttr()
    attr.ah_attr = AHAttr(is_global=1, gr=GlobalRoute("::ffff:10.0.0.162"))
    qp.to_rts(attr)


@pytest.fixture
def qp(context, pd, cq):
    """In RTS, four entries of two SGEs deep."""
    with QPEx(context, attributes(pd, cq)) as qp:
        to_rts(qp)
        yield qp


def entries(device, qp, count):
    return [device.wqe(device.send_ring(qp.qp_num), number) for number in range(count)]


def head(opcode, flags, sges, length, imm=0, address=0, rkey=0):
    return struct.pack("<BBBBIQII", opcode, flags, sges, 0, imm, address, rkey, length)


# Creation


def test_a_context_makes_it_of_what_the_mask_names(device, context, pd, cq):
    attr = attributes(pd, cq, comp_mask=e.IBV_QP_INIT_ATTR_PD, create_flags=2, source_qpn=7, send_ops_flags=1 << 9)
    with QP(context, attr) as qp:
        assert qp.pd is pd
        assert attr.cap.max_send_wr == 4
        assert qp.qp_type == e.IBV_QPT_RC
    with QPEx(context, attr, QPAttr()) as qp:
        assert qp.qp_state == e.IBV_QPS_INIT
        with pytest.raises(PyverbsUserError, match="IBV_QP_INIT_ATTR_SEND_OPS_FLAGS"):
            qp.wr_start()
    assert device.qps == {}


@pytest.mark.parametrize(
    ("kwargs", "code", "text"),
    [
        ({"comp_mask": e.IBV_QP_INIT_ATTR_SEND_OPS_FLAGS}, errno.EINVAL, "needs a PD"),
        ({"pd": None}, errno.EINVAL, "needs a PD"),
        ({"comp_mask": WITH | 1 << 7}, errno.EINVAL, "comp_mask 0xc1"),
        ({"comp_mask": WITH | e.IBV_QP_INIT_ATTR_XRCD}, errno.EOPNOTSUPP, "IBV_QP_INIT_ATTR_XRCD"),
        ({"comp_mask": WITH | e.IBV_QP_INIT_ATTR_RX_HASH}, errno.EOPNOTSUPP, "IBV_QP_INIT_ATTR_RX_HASH"),
        ({"comp_mask": WITH | 4, "create_flags": 2}, errno.EOPNOTSUPP, "IBV_QP_CREATE_BLOCK_SELF_MCAST_LB"),
        ({"send_ops_flags": 1 | 1 << 9}, errno.EOPNOTSUPP, "IBV_QP_EX_WITH_SEND_WITH_INV"),
        ({"send_ops_flags": 1 | 1 << 4, "qp_type": e.IBV_QPT_UC}, errno.EOPNOTSUPP, "IBV_QP_EX_WITH_RDMA_READ"),
        ({"send_ops_flags": 1 << 40}, errno.EOPNOTSUPP, "0x10000000000"),
        ({"send_ops_flags": 1, "qp_type": e.IBV_QPT_UD}, errno.EOPNOTSUPP, "IBV_QP_EX_WITH_RDMA_WRITE"),
        ({"qp_type": e.IBV_QPT_XRC_SEND}, errno.EOPNOTSUPP, "type"),
        ({"cap": QPCap(max_send_wr=1 << 20)}, errno.EINVAL, "max_send_wr"),
    ],
)
def test_creation_refused(device, context, pd, cq, kwargs, code, text):
    message = refused(code, QPEx, context, attributes(pd, cq, **kwargs))
    assert message.startswith("Failed to create QP: ")
    assert text in message
    assert device.qps == {}


def test_no_create_flags_are_none(context, pd, cq):
    QPEx(context, attributes(pd, cq, comp_mask=WITH | e.IBV_QP_INIT_ATTR_CREATE_FLAGS)).close()


def test_who_makes_it_of_what(context, pd, cq):
    with pytest.raises(PyverbsUserError, match="a Context makes it of a QPInitAttrEx"):
        QP(context, QPInitAttr(e.IBV_QPT_RC, scq=cq, rcq=cq))
    with pytest.raises(PyverbsUserError, match="by a PD or a Context"):
        QP(cq, attributes(pd, cq))
    QP(pd, attributes(pd, cq)).close()


def test_in_a_parent_domain(device, context, pd, cq):
    domain = ParentDomain(context, ParentDomainInitAttr(pd))
    qp = QPEx(context, attributes(domain, cq))
    assert device.qps[qp.qp_num][1] == pd.handle
    pd.close()
    assert qp._closed
    PD(context)


# Building


def test_every_operation(device, qp):
    qp.wr_start()
    qp.wr_id, qp.wr_flags = 7, e.IBV_SEND_SIGNALED
    qp.wr_send()
    qp.wr_set_sge(SGE(1, 2, 3))
    qp.wr_id, qp.wr_flags = 8, e.IBV_SEND_FENCE
    qp.wr_send_imm(0x01020304)
    qp.wr_set_sge_list(2, [SGE(1, 2, 3), SGE(4, 5, 6), SGE(7, 8, 9)])
    qp.wr_rdma_write(KEY, ADDRESS)
    qp.wr_set_sge(SGE(1, 2, 3))
    qp.wr_rdma_write_imm(KEY, ADDRESS, 0x01020304)
    qp.wr_set_sge(SGE(1, 2, 3))
    assert device.rung(SQ_DOORBELL) == []
    qp.wr_complete()
    sge, pair = struct.pack("<QII", 1, 2, 3), struct.pack("<QIIQII", 1, 2, 3, 4, 5, 6)
    assert [entry.rstrip(b"\0") for entry in entries(device, qp, 4)] == [
        (head(2, 2, 1, 2) + bytes(8) + sge).rstrip(b"\0"),
        (head(3, 1, 2, 7, imm=0x04030201) + bytes(8) + pair).rstrip(b"\0"),
        (head(0, 1, 1, 2, address=ADDRESS, rkey=KEY) + bytes(8) + sge).rstrip(b"\0"),
        (head(1, 1, 1, 2, imm=0x04030201, address=ADDRESS, rkey=KEY) + bytes(8) + sge).rstrip(b"\0"),
    ]
    assert qp._sq.wr_ids == [7, 8, 8, 8]
    assert device.rung(SQ_DOORBELL) == [4]  # one for all


def test_reads_and_atomics(device, qp):
    qp.wr_start()
    qp.wr_rdma_read(KEY, ADDRESS)
    qp.wr_set_sge(SGE(1, 2, 3))
    qp.wr_atomic_cmp_swp(KEY, ADDRESS, 0x0A, 0x0B)
    qp.wr_set_sge(SGE(1, 8, 3))
    qp.wr_atomic_fetch_add(KEY, ADDRESS, 0x0C)
    qp.wr_set_sge(SGE(1, 8, 3))
    qp.wr_complete()
    read, swap, add = entries(device, qp, 3)
    assert read[:24] == head(4, 0, 1, 2, address=ADDRESS, rkey=KEY)
    assert (swap[0], swap[48:]) == (5, struct.pack("<QQ", 0x0A, 0x0B))
    assert (add[0], add[48:]) == (6, struct.pack("<QQ", 0x0C, 0))


def test_inline_data_is_copied_at_once(device, qp):
    at = posix_memalign(16)
    write(at, "abcdefgh")
    qp.wr_start()
    qp.wr_send()
    qp.wr_set_inline_data_list(2, [DataBuffer(at, 3), DataBuffer(at + 6, 2), DataBuffer(at, 1)])
    qp.wr_send()
    qp.wr_set_inline_data(at, 8)
    write(at, "ABCDEFGH")
    qp.wr_complete()
    first, second = entries(device, qp, 2)
    assert first == (head(2, 8, 0, 5) + bytes(8) + b"abcgh").ljust(64, b"\0")
    assert second == (head(2, 8, 0, 8) + bytes(8) + b"abcdefgh").ljust(64, b"\0")


def test_inline_data_of_no_memory(qp):
    qp.wr_start()
    qp.wr_send()
    qp.wr_set_inline_data(4096, 8)
    with pytest.raises(PyverbsRDMAError, match="the process has no memory at 0x1000") as caught:
        qp.wr_complete()
    assert caught.value.error_code == errno.EFAULT


def test_what_is_aborted_leaves_nothing(device, qp):
    before = device.writes[:]
    qp.wr_start()
    qp.wr_send()
    qp.wr_set_sge(SGE(1, 2, 3))
    qp.wr_abort()
    assert device.writes == before
    assert (qp._sq.producer, qp._sq.free) == (0, 4)
    with pytest.raises(PyverbsUserError, match="wr_start must come first"):
        qp.wr_complete()
    qp.wr_start()
    qp.wr_complete()
    assert device.writes == before


def test_a_second_start_forgets(device, qp):
    qp.wr_start()
    qp.wr_send()
    qp.wr_start()
    qp.wr_complete()
    assert device.rung(SQ_DOORBELL) == []


def test_a_full_queue_takes_nothing(device, qp):
    def build(count):
        qp.wr_start()
        for _ in range(count):
            qp.wr_send()
            qp.wr_set_sge(SGE(1, 2, 3))
        qp.wr_complete()

    build(2)
    assert "ibv_wr_complete failed." in refused(errno.ENOMEM, build, 3)
    assert (qp._sq.producer, device.rung(SQ_DOORBELL)) == (2, [2])
    build(2)
    assert device.rung(SQ_DOORBELL) == [2, 4]


MISTAKES = {
    "no data": (errno.EINVAL, lambda qp: qp.wr_send()),
    "data twice": (errno.EINVAL, lambda qp: (qp.wr_send(), qp.wr_set_sge(SGE(1, 2, 3)), qp.wr_set_sge(SGE(1, 2, 3)))),
    "data first": (errno.EINVAL, lambda qp: (qp.wr_set_sge(SGE(1, 2, 3)), good(qp))),
    "no data, then more": (errno.EINVAL, lambda qp: (qp.wr_send(), good(qp))),
    "too many entries": (errno.EINVAL, lambda qp: (qp.wr_send(), qp.wr_set_sge_list(3, [SGE(1, 2, 3)] * 3))),
    "too much inline": (errno.EINVAL, lambda qp: (qp.wr_send(), qp.wr_set_inline_data(1, 33))),
    "READ inline": (errno.EINVAL, lambda qp: (qp.wr_rdma_read(1, 8), qp.wr_set_inline_data(posix_memalign(8), 8))),
    "atomic of 16 bytes": (errno.EINVAL, lambda qp: (qp.wr_atomic_fetch_add(1, 8, 1), qp.wr_set_sge(SGE(8, 16, 3)))),
    "a UD address": (errno.EINVAL, lambda qp: (good(qp), qp.wr_set_ud_addr(None, 1, 1))),
    "an XRC SRQ": (errno.EINVAL, lambda qp: (good(qp), qp.wr_set_xrc_srqn(1))),
    "a key invalidated by SEND": (errno.EOPNOTSUPP, lambda qp: (qp.wr_send_inv(1), qp.wr_set_sge(SGE(1, 2, 3)))),
    "a key invalidated": (errno.EOPNOTSUPP, lambda qp: qp.wr_local_inv(1)),
    "a window": (errno.EOPNOTSUPP, lambda qp: qp.wr_bind_mw(None, 1, MWBindInfo(None, 0, 0, 0))),
    "segments": (errno.EOPNOTSUPP, lambda qp: (qp.wr_send_tso(0, 0, 0), qp.wr_set_sge(SGE(1, 2, 3)))),
    "an atomic WRITE": (errno.EOPNOTSUPP, lambda qp: qp.wr_atomic_write(1, 8, b"12345678")),
    "a FLUSH": (errno.EOPNOTSUPP, lambda qp: qp.wr_flush(1, 8, 8, 1, 0)),
}


def good(qp):
    qp.wr_send()
    qp.wr_set_sge(SGE(1, 2, 3))


@pytest.mark.parametrize("what", MISTAKES)
def test_a_mistake_is_told_at_the_end_and_nothing_is_posted(device, qp, what):
    code, build = MISTAKES[what]
    before = device.writes[:]
    qp.wr_start()
    good(qp)
    build(qp)
    assert refused(code, qp.wr_complete).startswith("ibv_wr_complete failed. ")
    assert device.writes == before
    qp.wr_start()
    good(qp)
    qp.wr_complete()
    assert device.rung(SQ_DOORBELL) == [1]


def test_only_what_was_asked_for_is_there(context, pd, cq):
    qp = QPEx(context, attributes(pd, cq, send_ops_flags=e.IBV_QP_EX_WITH_RDMA_WRITE))
    to_rts(qp)
    qp.wr_start()
    good(qp)
    assert "IBV_WR_SEND is not in send_ops_flags" in refused(errno.EINVAL, qp.wr_complete)


def test_in_a_state_that_sends_nothing(context, pd, cq):
    qp = QPEx(context, attributes(pd, cq))
    qp.wr_start()
    good(qp)
    assert "IBV_QPS_RESET" in refused(errno.EINVAL, qp.wr_complete)
    qp.close()
    qp.wr_start()
    refused(errno.EINVAL, qp.wr_complete)


def test_numbers_that_do_not_fit(qp):
    qp.wr_start()
    for call in (
        lambda: qp.wr_rdma_write(1 << 32, 0),
        lambda: qp.wr_rdma_write(0, -1),
        lambda: qp.wr_send_imm(1 << 32),
        lambda: qp.wr_set_sge_list(2, [SGE(1, 2, 3)]),
        lambda: qp.wr_set_inline_data_list(1, []),
        lambda: DataBuffer(-1, 1),
        lambda: setattr(qp, "wr_id", 1 << 64),
    ):
        with pytest.raises(PyverbsUserError):
            call()


def test_each_thread_builds_its_own(device, qp):
    qp.wr_start()
    qp.wr_id = 1
    good(qp)

    def other():
        qp.wr_start()
        qp.wr_id = 2
        good(qp)
        good(qp)
        qp.wr_complete()

    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    assert qp.wr_id == 1
    qp.wr_complete()
    assert qp._sq.wr_ids[:3] == [2, 2, 1]
    assert device.rung(SQ_DOORBELL) == [2, 3]


def test_lists_go_on_beside_it(device, qp):
    qp.wr_start()
    good(qp)
    qp.post_send(SendWR(5, num_sge=1, sg=[SGE(1, 2, 3)]))
    qp.wr_complete()
    assert qp._sq.wr_ids[:2] == [5, 0]
    assert "RC, RTS" in repr(qp)
