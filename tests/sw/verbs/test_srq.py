"""Shared receive queues: life, posting, limit and events, and the queue pairs that have one. Bytes by hand."""

import errno
import gc
import struct
from itertools import pairwise

import pytest
from fake_device import CREATE_QP, CREATE_SRQ, DESTROY_QP, DESTROY_SRQ, ERROR, MODIFY_SRQ, QUEUES, SRQ_PAGES
from verbena.sw.verbs.cq import CQ
from verbena.sw.verbs.device import Context
from verbena.sw.verbs.libibverbs_enums import (
    IBV_SRQT_XRC,
    ibv_qp_attr_mask,
    ibv_qp_init_attr_mask,
    ibv_qp_state,
    ibv_qp_type,
    ibv_srq_attr_mask,
    ibv_srq_init_attr_mask,
)
from verbena.sw.verbs.mem_alloc import posix_memalign, read, write
from verbena.sw.verbs.pd import PD, ParentDomain, ParentDomainInitAttr
from verbena.sw.verbs.pyverbs_error import PyverbsError, PyverbsRDMAError, PyverbsUserError
from verbena.sw.verbs.qp import QP, QPAttr, QPCap, QPInitAttr, QPInitAttrEx
from verbena.sw.verbs.srq import SRQ, SrqAttr, SrqInitAttr, SrqInitAttrEx
from verbena.sw.verbs.wr import SGE, RecvWR

RC, UC, UD = ibv_qp_type.IBV_QPT_RC, ibv_qp_type.IBV_QPT_UC, ibv_qp_type.IBV_QPT_UD
MAX_WR, LIMIT = ibv_srq_attr_mask
GIVEN = ibv_srq_init_attr_mask
SRQ_ERR, LIMIT_REACHED, LAST_WQE_REACHED = 14, 15, 16
RECV, RECV_IMM, FLUSHED = 128, 129, 5


def refused(code, function, *args, **kwargs):
    with pytest.raises(PyverbsRDMAError) as caught:
        function(*args, **kwargs)
    assert caught.value.error_code == code
    return str(caught.value)


def recv(number=0, count=1):
    return RecvWR(number, count, [SGE(0x1000 * (i + 1), 16 * (i + 1), 0xA0 + i) for i in range(count)])


def chain(*wrs):
    for wr, following in pairwise(wrs):
        wr.next_wr = following
    return wrs[0]


def entries(count):
    return b"".join(struct.pack("<QII", 0x1000 * (i + 1), 16 * (i + 1), 0xA0 + i) for i in range(count))


@pytest.fixture
def srq(pd):
    return SRQ(pd, SrqInitAttr(SrqAttr(max_wr=4, max_sge=2)))


@pytest.fixture
def make(pd, cq, srq):
    """A function that makes a QP with the SRQ."""

    def make(qp_type=RC, **fields):
        return QP(pd, QPInitAttr(qp_type, **{"scq": cq, "rcq": cq, "srq": srq, "cap": QPCap()} | fields))

    return make


# Life


@pytest.mark.parametrize(
    ("asked", "sizes", "found"),
    [((100, 1), 0x57, (128, 1)), ((4, 2), 0x62, (4, 3)), ((1, 4), 0x70, (1, 7)), ((16384, 0), 0x5E, (16384, 1))],
)
def test_creation_tells_the_device_everything(device, pd, asked, sizes, found):
    """The capacities are those that there are; the limit does not count."""
    init = SrqInitAttr(SrqAttr(*asked, srq_limit=1))
    with SRQ(pd, init) as srq:
        opcode, number, _, words = device.commands[-1]
        assert (opcode, number) == (CREATE_SRQ, srq.get_srq_num()) == (CREATE_SRQ, 0)
        assert words[0] & 15 == 3
        assert words[14] == sizes
        assert words[15] == 0
        assert words[12] % 4096 == 0
        assert words[13] == 0x72  # contiguous memory
        assert (init.max_wr, init.max_sge) == found
        attr = srq.query()
        assert (attr.max_wr, attr.max_sge, attr.srq_limit) == (*found, 0)
    assert device.commands[-1][:2] == (DESTROY_SRQ, 0)


@pytest.mark.parametrize("attr", [{"max_wr": 0}, {"max_wr": 16385}, {"max_wr": 1.5}, {"max_sge": 8}, {"max_sge": -1}])
def test_creation_refused(device, pd, attr):
    text = refused(errno.EINVAL, SRQ, pd, SrqInitAttr(SrqAttr(**attr)))
    ((name, value),) = attr.items()
    assert text.startswith("Failed to create SRQ")
    assert f"{name} must be " in text
    assert f", not {value}" in text
    assert device.srqs == {}


def test_creation_by_a_context(device, context, pd):
    init = SrqInitAttrEx(max_wr=3, max_sge=5)
    init.comp_mask, init.pd, init.srq_type = GIVEN.IBV_SRQ_INIT_ATTR_PD, pd, IBV_SRQT_XRC  # a type that does not count
    with SRQ(context, init) as srq:
        assert (srq.query().max_wr, srq.query().max_sge) == (init.max_wr, init.max_sge) == (4, 7)
        assert srq.pd is pd
    init.comp_mask |= GIVEN.IBV_SRQ_INIT_ATTR_TYPE
    assert "srq_type" in refused(errno.EOPNOTSUPP, SRQ, context, init)
    init.srq_type = 0
    SRQ(context, init).close()
    for bit in (GIVEN.IBV_SRQ_INIT_ATTR_XRCD, GIVEN.IBV_SRQ_INIT_ATTR_CQ, GIVEN.IBV_SRQ_INIT_ATTR_TM):
        init.comp_mask = GIVEN.IBV_SRQ_INIT_ATTR_PD | bit
        assert bit.name in refused(errno.EOPNOTSUPP, SRQ, context, init)
    init.comp_mask = 1 << 7
    refused(errno.EINVAL, SRQ, context, init)
    init.comp_mask = 0
    assert "a PD of its context" in refused(errno.EINVAL, SRQ, context, init)
    with Context(name=device.name) as other:
        init.comp_mask, init.pd = GIVEN.IBV_SRQ_INIT_ATTR_PD, PD(other)
        refused(errno.EINVAL, SRQ, context, init)


def test_mistakes_of_the_caller(context, pd):
    with pytest.raises(PyverbsError, match="by a PD or a Context, not <class 'str'>"):
        SRQ("pd", SrqInitAttr())
    with pytest.raises(PyverbsUserError, match="SrqInitAttrEx"):
        SRQ(context, SrqInitAttr())
    with pytest.raises(PyverbsUserError, match="SrqInitAttr"):
        SRQ(pd, SrqAttr())
    pd.close()
    assert "PD is closed" in refused(errno.EINVAL, SRQ, pd, SrqInitAttr())


def test_a_device_without(device, context, pd):
    context._adapter.control.max_srq = 0
    assert "the device has none" in refused(errno.EOPNOTSUPP, SRQ, pd, SrqInitAttr())


def test_as_many_as_there_are(device, pd):
    assert device.registers[QUEUES] & 0xFFFF == 2
    keep = [SRQ(pd, SrqInitAttr()) for _ in range(2)]
    assert [srq.get_srq_num() for srq in keep] == [0, 1]
    assert "all 2 SRQs are in use" in refused(errno.ENOMEM, SRQ, pd, SrqInitAttr())
    keep[1].close()
    assert SRQ(pd, SrqInitAttr()).get_srq_num() == 1


def test_creation_that_fails_leaves_nothing(device, pd):
    before = set(device.memory._taken)
    device.refuse[CREATE_SRQ] = 4
    assert "BAD_PARAMETER" in refused(errno.EINVAL, SRQ, pd, SrqInitAttr())
    assert device.memory._taken == before
    del device.refuse[CREATE_SRQ]
    SRQ(pd, SrqInitAttr()).close()
    assert device.memory._taken == before


def test_closing(device, srq):
    srq.close()
    srq.close()
    assert [c[0] for c in device.commands].count(DESTROY_SRQ) == 1
    calls = (srq.query, srq.get_srq_num, lambda: srq.post_recv(recv()), lambda: srq.modify(SrqAttr(), LIMIT))
    for call in calls:
        assert "SRQ is closed" in refused(errno.EINVAL, call)


def test_what_is_forgotten_is_closed(device, pd):
    srq = SRQ(pd, SrqInitAttr())
    assert device.srqs
    del srq
    gc.collect()
    PD(pd.context)
    assert device.srqs == {}


def test_queue_pairs_are_closed_first(device, pd, srq, make):
    """With the queue, with its PD, and with the context: the device asserts the order."""
    qp = make()
    srq.close()
    assert [c[0] for c in device.commands[-2:]] == [DESTROY_QP, DESTROY_SRQ]
    assert "QP is closed" in refused(errno.EINVAL, qp.query)
    other = SRQ(pd, SrqInitAttr())
    make(srq=other)
    pd.close()
    assert (device.qps, device.srqs) == ({}, {})


def test_a_context_closes_all(device, context, make):
    make()
    make()
    context.close()
    assert (device.qps, device.srqs, device.cqs) == ({}, {}, {})


# Posting


def test_a_wqe_stands_in_the_ring_and_in_the_table(device, srq, make):
    qp = make()
    ring, table = device.srq_ring(0), device.recv_ring(qp.qp_num)
    assert ring[0] != table[0]
    assert ring[1:] == table[1:] == (2, 6)
    srq.post_recv(recv(7, 1))
    srq.post_recv(recv(8, 3))
    for at, count in enumerate((1, 3)):
        expected = struct.pack("<HHIQ", at, 0, 0, 0) + entries(count)
        assert device.wqe(ring, at) == device.wqe(table, at) == expected.ljust(64, b"\0")
    assert device.rung(SRQ_PAGES) == [1, 2]


def test_a_list_rings_once(device, srq):
    srq.post_recv(chain(recv(1), recv(2), recv(3)))
    assert device.rung(SRQ_PAGES) == [3]


def test_what_is_posted_is_outstanding_until_its_completion_is_polled(device, srq, cq, make):
    """In any order, and on any queue pair; ENOMEM for one more, at once."""
    qps = [make(), make()]
    srq.post_recv(chain(*(recv(10 + n) for n in range(4))))
    bad = RecvWR()
    assert "Failed to post receive to SRQ" in refused(errno.ENOMEM, srq.post_recv, recv(99), bad)
    assert bad.wr_id == 99
    device.complete(0, qps[1].qp_num, 2, opcode=RECV, length=5)
    device.complete(0, qps[0].qp_num, 0, opcode=RECV_IMM, length=6, imm=7, flags=2)
    refused(errno.ENOMEM, srq.post_recv, recv(99))
    found = cq.poll(1)[1] + cq.poll(1)[1]
    assert [(wc.wr_id, wc.qp_num, wc.byte_len, wc.opcode) for wc in found] == [
        (12, qps[1].qp_num, 5, RECV),
        (10, qps[0].qp_num, 6, RECV_IMM),
    ]
    assert "Cannot allocate memory" in refused(errno.ENOMEM, srq.post_recv, chain(recv(20), recv(21), recv(22)), bad)
    assert bad.wr_id == 22
    ids = [int.from_bytes(device.wqe(device.srq_ring(0), index)[:2], "little") for index in (4, 5)]
    assert ids == [2, 0]
    assert device.rung(SRQ_PAGES) == [4, 6]
    for at, wanted in ((0, 21), (2, 20), (1, 11), (3, 13)):
        device.complete(0, qps[0].qp_num, at, opcode=RECV)
        assert cq.poll()[1][0].wr_id == wanted


def test_requests_that_are_wrong(device, srq):
    bad = RecvWR()
    assert "4 SGEs" in refused(errno.EINVAL, srq.post_recv, chain(recv(1), recv(2, 4), recv(3)), bad)
    assert (bad.wr_id, bad.num_sge) == (2, 4)
    assert device.rung(SRQ_PAGES) == [1]
    refused(errno.EINVAL, srq.post_recv, None)
    assert device.rung(SRQ_PAGES) == [1]


def test_the_index_of_the_doorbell_wraps(device, srq, cq, make):
    """The ids go on as before."""
    qp, number = make(), 0
    for _ in range(0x10000 // 4 + 1):
        srq.post_recv(chain(*(recv(number + n) for n in range(4))))
        for place in range(4):
            device.complete(0, qp.qp_num, place, opcode=RECV)
        assert [wc.wr_id for wc in cq.poll(4)[1]] == [number + n for n in range(4)]
        number += 4
    assert device.rung(SRQ_PAGES)[-3:] == [0xFFFC, 0, 4]


# Limit and events


def test_the_limit(device, context, srq):
    srq.modify(SrqAttr(srq_limit=3), LIMIT)
    assert device.commands[-1][:2] == (MODIFY_SRQ, 0)
    assert device.srqs[0][15] == 3 << 16
    assert srq.query().srq_limit == 3
    device.event(LIMIT_REACHED, 0)
    assert srq.query().srq_limit == 0
    event = context.get_async_event()
    assert (event.event_type, event.element) == (LIMIT_REACHED, srq)
    assert "Device or resource busy" in refused(errno.EBUSY, srq.close)
    event.ack()
    srq.modify(SrqAttr(srq_limit=2), LIMIT)
    srq.modify(SrqAttr(srq_limit=1), LIMIT)
    assert srq.query().srq_limit == 1
    srq.modify(SrqAttr(srq_limit=0), LIMIT)
    assert device.srqs[0][15] == 0
    srq.close()


def test_an_old_event_is_not_one_of_the_new_limit(device, srq):
    srq.modify(SrqAttr(srq_limit=3), LIMIT)
    device.event(LIMIT_REACHED, 0)
    srq.modify(SrqAttr(srq_limit=2), LIMIT)
    assert srq.query().srq_limit == 2


def test_an_old_event_that_becomes_visible_late_is_not_one_of_the_new_limit(device, context, srq, monkeypatch):
    """It is on its way while the limit changes."""
    srq.modify(SrqAttr(srq_limit=3), LIMIT)
    steps = []

    def advance(cycles):
        if device.srqs[0][15] == 0:  # the command is over
            steps.append(cycles)
        if len(steps) == 3:
            device.event(LIMIT_REACHED, 0)
        return True

    monkeypatch.setattr(device, "advance", advance)
    srq.modify(SrqAttr(srq_limit=2), LIMIT)
    assert len(steps) == 3
    assert device.srqs[0][15] == 2 << 16
    assert srq.query().srq_limit == 2
    context.get_async_event().ack()
    device.event(LIMIT_REACHED, 0)
    assert srq.query().srq_limit == 0
    context.get_async_event().ack()


def test_changes_that_are_refused(device, context, srq):
    count = len(device.commands)
    assert "srq_limit must be 0 to 4, not 5" in refused(errno.EINVAL, srq.modify, SrqAttr(srq_limit=5), LIMIT)
    refused(errno.EINVAL, srq.modify, SrqAttr(srq_limit=-1), LIMIT)
    assert "does not resize" in refused(errno.EINVAL, srq.modify, SrqAttr(8, srq_limit=1), MAX_WR | LIMIT)
    assert not context.query_device().device_cap_flags & 1 << 13  # IBV_DEVICE_SRQ_RESIZE
    refused(errno.EINVAL, srq.modify, SrqAttr(), 4)
    srq.modify(SrqAttr(), 0)
    assert len(device.commands) == count
    srq.modify(SrqAttr(srq_limit=2), LIMIT)
    device.refuse[MODIFY_SRQ] = 4
    refused(errno.EINVAL, srq.modify, SrqAttr(srq_limit=3), LIMIT)
    assert srq.query().srq_limit == 2


def test_errors_are_told(device, context, srq, make):
    qp = make()
    device.event(SRQ_ERR, 0)
    device.event(LAST_WQE_REACHED, qp.qp_num)
    events = [context.get_async_event() for _ in range(2)]
    assert [(event.event_type, event.element) for event in events] == [(SRQ_ERR, srq), (LAST_WQE_REACHED, qp)]
    for event in events:
        event.ack()


def test_events_go_with_the_queue(device, context, srq):
    device.event(SRQ_ERR, 0)
    context._adapter.process_events()
    srq.close()
    refused(errno.EDEADLK, context.get_async_event)


# Queue pairs


@pytest.mark.parametrize("qp_type", [RC, UC, UD])
def test_a_queue_pair_with_one(device, pd, srq, cq, make, qp_type):
    other = SRQ(pd, SrqInitAttr())
    qp = make(qp_type, srq=other, cap=QPCap(max_recv_wr=1 << 20, max_recv_sge=99))  # these do not count
    opcode, _, _, words = device.commands[-1]
    assert opcode == CREATE_QP
    assert words[14] >> 8 & 1 == 1
    assert words[14] >> 16 & 255 == 1
    assert words[14] & 255 == 0x57
    attr, init = qp.query()
    assert init.srq is other
    assert (attr.cap.max_recv_wr, attr.cap.max_recv_sge) == (init.max_recv_wr, init.max_recv_sge) == (0, 0)
    assert attr.cap.max_send_wr == 1
    refused(errno.EINVAL, qp.post_recv, recv())
    device.set_state(qp.qp_num, 1)
    assert "its receives are those of SRQ 1" in refused(errno.EINVAL, qp.post_recv, recv())
    without = make(qp_type, srq=None)
    assert device.commands[-1][3][14] >> 8 == 0
    assert without.query()[1].srq is None


def test_an_extended_queue_pair(context, pd, srq, cq, device):
    mask = ibv_qp_init_attr_mask.IBV_QP_INIT_ATTR_PD
    qp = QP(context, QPInitAttrEx(RC, scq=cq, rcq=cq, srq=srq, comp_mask=mask, pd=pd))
    assert device.commands[-1][3][14] >> 8 & 1
    qp.close()


def test_another_pd(device, context, pd, srq, cq, make):
    """Keys are checked against the queue pair's. A parent domain is the PD that it is around."""
    init = QPInitAttr(RC, scq=cq, rcq=cq, srq=srq)
    assert "of another PD" in refused(errno.EINVAL, QP, PD(context), init)
    QP(ParentDomain(context, ParentDomainInitAttr(pd)), init).close()
    with Context(name=device.name) as other:
        foreign = SRQ(PD(other), SrqInitAttr())
        refused(errno.EINVAL, make, srq=foreign)
    srq.close()
    assert "SRQ is closed" in refused(errno.EINVAL, make)


def test_an_error_completion_gives_its_place_back(device, srq, cq, make):
    qp = make()
    srq.post_recv(chain(*(recv(n) for n in range(4))))
    device.complete(0, qp.qp_num, 3, status=FLUSHED, opcode=RECV)
    ((wc,),) = (cq.poll()[1],)
    assert (wc.wr_id, wc.status) == (3, FLUSHED)
    srq.post_recv(recv(4))


def to_error(qp, state=ibv_qp_state.IBV_QPS_ERR):
    qp.modify(QPAttr(qp_state=state), ibv_qp_attr_mask.IBV_QP_STATE)


@pytest.mark.parametrize("way", ["close", "reset", "forgotten"])
def test_completions_that_nobody_gets_give_their_places_back(device, srq, cq, make, way):
    """Of a queue pair that is destroyed or reset; also one that the engine writes during the command."""
    other, qp = make(), make()
    number = qp.qp_num
    srq.post_recv(chain(*(recv(n) for n in range(4))))
    device.complete(0, number, 2, opcode=RECV)
    device.complete(0, other.qp_num, 0, opcode=RECV)
    device.complete(0, number, 1, opcode=RECV, status=FLUSHED)
    if way == "close":
        qp.close()
    elif way == "reset":
        to_error(qp, ibv_qp_state.IBV_QPS_RESET)
    else:
        qp.itself = qp  # so that garbage collection finds it, and has cleared all weak references before
        del qp
        gc.collect()
        cq._collect()
        other.query()
    assert [wc.wr_id for wc in cq.poll(9)[1]] == [0]
    srq.post_recv(chain(*(recv(n) for n in range(3))))
    refused(errno.ENOMEM, srq.post_recv, recv())


def test_a_reset_does_not_empty_it(device, srq, cq, make):
    """Nor does ERR flush it: what is posted is for the others."""
    qp, other = make(), make()
    srq.post_recv(chain(*(recv(n) for n in range(4))))
    to_error(qp, ibv_qp_state.IBV_QPS_RESET)
    attr = QPAttr()
    attr.qp_access_flags = 1
    qp.to_init(attr)
    to_error(qp)
    assert device.commands[-1][2] == ERROR
    qp.close()
    refused(errno.ENOMEM, srq.post_recv, recv())
    device.complete(0, other.qp_num, 0, opcode=RECV)
    assert cq.poll()[1][0].wr_id == 0


def test_two_cqs(device, context, pd, srq):
    """Receives complete in the one for receives."""
    send, receive = CQ(context, 4), CQ(context, 4)
    qp = QP(pd, QPInitAttr(RC, scq=send, rcq=receive, srq=srq))
    srq.post_recv(chain(*(recv(n) for n in range(4))))
    device.complete(1, qp.qp_num, 1, opcode=RECV)
    qp.close()
    srq.post_recv(recv())
    assert (send.poll(), receive.poll()) == ((0, []), (0, []))


def test_the_header_of_a_datagram_goes_where_the_table_says(device, srq, cq, make, pd):
    """Also when the ring has the place for another one already."""
    qp = make(UD)
    buffer = posix_memalign(256)
    write(buffer, b"\xff" * 256, 256)
    srq.post_recv(recv(1))
    srq.post_recv(RecvWR(2, 2, [SGE(buffer, 20, 1), SGE(buffer + 100, 100, 1)]))
    for number in (3, 4):
        srq.post_recv(recv(number))
    device.complete(0, qp.qp_num, 0, opcode=RECV, status=FLUSHED)
    cq.poll()
    srq.post_recv(recv(5))
    device.complete(0, qp.qp_num, 1, opcode=RECV, length=48, flags=1)
    ((wc,),) = (cq.poll()[1],)
    assert (wc.wr_id, wc.byte_len, wc.wc_flags) == (2, 48, 1)
    assert read(buffer, 20) == bytes(20)
    assert read(buffer + 20, 80) == b"\xff" * 80
    assert read(buffer + 100, 1) == b"\x45"
    assert read(buffer + 120, 8) == b"\xff" * 8
