"""Queue pairs: life, states, posting, completions. Bytes are written out by hand."""

import errno
import gc
import struct
from itertools import pairwise

import pytest
from fake_device import (
    CREATE_QP,
    DESTROY_QP,
    ERROR,
    MODIFY_QP,
    QP_PAGES,
    QUERY_QP,
    RESET,
    START_RECEIVE,
    START_SEND,
    FakeDevice,
)
from verbena.sw.port import provide
from verbena.sw.verbs.addr import AH, GID, AHAttr, GlobalRoute
from verbena.sw.verbs.cq import CQ
from verbena.sw.verbs.device import Context
from verbena.sw.verbs.libibverbs_enums import ibv_access_flags, ibv_qp_attr_mask, ibv_qp_state, ibv_qp_type
from verbena.sw.verbs.mem_alloc import posix_memalign, write
from verbena.sw.verbs.pd import PD
from verbena.sw.verbs.pyverbs_error import PyverbsRDMAError, PyverbsUserError
from verbena.sw.verbs.qp import QP, QPAttr, QPCap, QPInitAttr
from verbena.sw.verbs.wr import SGE, RecvWR, SendWR

M = ibv_qp_attr_mask
S = ibv_qp_state
PEER = 0x0A0000A2
FIRST = 8  # number of the first QP of the fake device
SQ_DOORBELL, RQ_DOORBELL = QP_PAGES, QP_PAGES + 4
SIGNALED, INLINE = 2, 8
SEND, SEND_IMM, WRITE, WRITE_IMM = 2, 3, 0, 1


def full_attr():
    """Every attribute different from its default and from the others."""
    attr = QPAttr()
    attr.qp_access_flags = 2
    attr.path_mtu = 4
    attr.dest_qp_num = 0xABCDEF
    attr.rq_psn, attr.sq_psn = 0x111111, 0x222222
    attr.max_dest_rd_atomic, attr.max_rd_atomic = 3, 5
    attr.min_rnr_timer, attr.timeout, attr.retry_cnt, attr.rnr_retry = 12, 14, 6, 7
    route = GlobalRoute(GID("::ffff:10.0.0.162"), flow_label=9, hop_limit=64, traffic_class=0x20)
    attr.ah_attr = AHAttr(sl=1, is_global=1, gr=route)
    return attr


@pytest.fixture
def qp(make_qp):
    """In RTS, four entries deep."""
    qp = make_qp(max_send_wr=4, max_recv_wr=4, max_send_sge=2, max_recv_sge=2)
    qp.to_rts(full_attr())
    return qp


def refused(code, function, *args, **kwargs):
    with pytest.raises(PyverbsRDMAError) as caught:
        function(*args, **kwargs)
    assert caught.value.error_code == code
    return str(caught.value)


def send(number=0, opcode=WRITE, flags=SIGNALED, count=1, **kwargs):
    sges = [SGE(0x1000 * (i + 1), 16 * (i + 1), 0xA0 + i) for i in range(count)]
    wr = SendWR(number, opcode, count, sg=sges, send_flags=flags, **kwargs)
    wr.set_wr_rdma(0x55667788, 0x1122334455667788)
    return wr


def recv(number=0, count=1):
    return RecvWR(number, count, [SGE(0x1000 * (i + 1), 16 * (i + 1), 0xA0 + i) for i in range(count)])


def chain(*wrs):
    for wr, following in pairwise(wrs):
        wr.next_wr = following
    return wrs[0]


# Life


def test_creation_tells_the_device_everything(device, cq, pd, make_qp):
    other = CQ(cq.context, 4)
    qp = make_qp(max_send_wr=5, max_recv_wr=3, max_send_sge=3, max_recv_sge=2, rcq=other)
    assert qp.qp_num == FIRST
    opcode, number, _, words = device.commands[-1]
    assert (opcode, number) == (CREATE_QP, FIRST)
    assert words[0] == 0x00000320  # MTU 1024, RC, RESET
    assert words[1] == pd.handle
    assert words[3] & 0xFFFF == 0xFFFF  # P_Key
    assert words[10] == 0x73  # 8 entries of 128 bytes
    assert words[11] == other._number << 16 | cq._number
    assert words[14] == 0x52  # 4 entries of 32 bytes
    assert words[9] == words[13] == 0x72  # contiguous memory
    assert words[8] % 4096 == words[12] % 4096 == 0
    assert qp.qp_state == S.IBV_QPS_RESET


def test_capacities_are_those_that_exist(make_qp, pd, cq):
    init = QPInitAttr(ibv_qp_type.IBV_QPT_RC, scq=cq, rcq=cq, cap=QPCap(5, 3, 1, 3, 0))
    qp = QP(pd, init)
    expected = {"max_send_wr": 8, "max_recv_wr": 4, "max_send_sge": 2, "max_recv_sge": 4, "max_inline_data": 32}
    attr, made = qp.query()
    assert vars(attr.cap) == vars(made.cap) == vars(init.cap) == expected
    wide = make_qp(max_inline_data=33)
    assert wide.query()[1].max_send_sge == 6
    assert wide.query()[1].max_inline_data == 96
    QP(pd, init)  # asks for what the first one got


@pytest.mark.parametrize(
    ("log_most", "asked", "sizes", "found"),
    [
        (8, (2, 1, 32), (6, 4), (2, 1, 32)),
        (8, (6, 9, 97), (8, 8), (14, 16, 224)),
        (8, (14, 16, 0), (8, 8), (14, 16, 224)),
        (9, (14, 8, 225), (9, 7), (16, 8, 480)),
        (9, (16, 16, 480), (9, 8), (16, 16, 480)),
    ],
)
def test_wqes_are_as_large_as_needed(log_most, asked, sizes, found):
    """Of a device that takes larger ones: scatter/gather entries to send and to receive, bytes inline."""
    provide("large0", lambda: FakeDevice("large0", log_wqe_bytes=log_most))
    with Context(name="large0") as context, PD(context) as pd, CQ(context, 10) as cq:
        assert context.query_device().max_sge == {8: 14, 9: 16}[log_most]
        sends, receives, inline = asked
        init = QPInitAttr(ibv_qp_type.IBV_QPT_RC, scq=cq, rcq=cq, cap=QPCap(4, 4, sends, receives, inline))
        qp = QP(pd, init)
        assert (qp._sq.log_stride, qp._rq.log_stride) == sizes
        assert (init.cap.max_send_sge, init.cap.max_recv_sge, init.cap.max_inline_data) == found
        for more in ({"max_send_sge": 17}, {"max_recv_sge": 17}, {"max_inline_data": (1 << log_most) - 31}):
            refused(errno.EINVAL, QP, pd, QPInitAttr(ibv_qp_type.IBV_QPT_RC, scq=cq, rcq=cq, cap=QPCap(**more)))


@pytest.mark.parametrize(
    ("init", "code"),
    [
        ({"qp_type": ibv_qp_type.IBV_QPT_XRC_SEND}, errno.EOPNOTSUPP),
        ({"qp_type": 77}, errno.EINVAL),
        ({"srq": object()}, errno.EINVAL),
        ({"scq": None}, errno.EINVAL),
        ({"rcq": None}, errno.EINVAL),
        ({"cap": QPCap(max_send_wr=16385)}, errno.EINVAL),
        ({"cap": QPCap(max_recv_wr=16385)}, errno.EINVAL),
        ({"cap": QPCap(max_send_sge=7)}, errno.EINVAL),
        ({"cap": QPCap(max_recv_sge=9)}, errno.EINVAL),
        ({"cap": QPCap(max_inline_data=97)}, errno.EINVAL),
        ({"cap": QPCap(max_send_wr=-1)}, errno.EINVAL),
    ],
)
def test_creation_refused(pd, cq, init, code):
    kwargs = {"qp_type": ibv_qp_type.IBV_QPT_RC, "scq": cq, "rcq": cq} | init
    text = refused(code, QP, pd, QPInitAttr(**kwargs))
    assert text.startswith("Failed to create QP")
    if "cap" in init:
        name, value = next(item for item in vars(init["cap"]).items() if item[1] not in (0, 1, 10))
        assert f"{name} must be 0 to " in text
        assert f", not {value}" in text


def test_a_type_that_the_device_has_not(device, pd, cq):
    """It says so in its register `transports`."""
    init = QPInitAttr(ibv_qp_type.IBV_QPT_UC, scq=cq, rcq=cq)
    with QP(pd, init) as qp:
        assert qp.query()[1].qp_type == ibv_qp_type.IBV_QPT_UC
        assert device.commands[-2][3][0] >> 4 & 15 == 3
        assert repr(qp) == f"<QP {qp.qp_num:#x}, UC, Reset>"
    pd.context._adapter.control.qp_types = frozenset({2})
    refused(errno.EOPNOTSUPP, QP, pd, init)


def test_a_connection_of_uc(device, pd, cq):
    """Only its attributes are taken, and none of them makes a timer run."""
    qp = QP(pd, QPInitAttr(ibv_qp_type.IBV_QPT_UC, scq=cq, rcq=cq))
    qp.to_rts(full_attr())
    words = device.qps[qp.qp_num]
    assert (words[0] & 15, words[0] >> 4 & 15) == (3, 3)
    assert words[0] >> 16 == 0  # min_rnr_timer, timeout, retry_count, rnr_retry
    assert words[15] == 0  # READs and atomics
    attr = full_attr()
    for bit in (M.IBV_QP_TIMEOUT, M.IBV_QP_RETRY_CNT, M.IBV_QP_MIN_RNR_TIMER, M.IBV_QP_MAX_QP_RD_ATOMIC):
        assert "do not belong" in refused(errno.EINVAL, qp.modify, attr, bit)
    read = SendWR(1, 4, 1, sg=[SGE(0, 8, 0)])
    assert "IBV_WR_RDMA_READ" in refused(errno.EINVAL, qp.post_send, read)


def datagram_attr(qkey=0x11111111):
    attr = QPAttr()
    attr.qkey, attr.sq_psn = qkey, 0x123456
    return attr


def test_a_queue_pair_of_ud(device, pd, cq):
    """With attributes it starts in RTS. It sends as itself, packets of what the port carries."""
    with QP(pd, QPInitAttr(ibv_qp_type.IBV_QPT_UD, scq=cq, rcq=cq), datagram_attr()) as qp:
        words = device.qps[qp.qp_num]
        assert (words[0] & 15, words[0] >> 4 & 15, words[0] >> 8 & 15) == (3, 4, 5)
        assert words[0] >> 16 == 0
        assert words[2] == qp.qp_num
        assert words[18] == 0x11111111
        assert words[16] == 0x123456
        assert qp.peer is None
        assert qp.query()[0].qkey == 0x11111111
        assert "do not belong" in refused(errno.EINVAL, qp.modify, full_attr(), M.IBV_QP_AV)


def datagram(ah, qkey=0x11111111, opcode=2):
    wr = SendWR(1, opcode, 1, sg=[SGE(0, 8, 0)])
    wr.set_wr_ud(ah, 0xABCDEF, qkey)
    return wr


def test_where_a_datagram_goes(device, context, pd, cq):
    qp = QP(pd, QPInitAttr(ibv_qp_type.IBV_QPT_UD, scq=cq, rcq=cq, cap=QPCap(8, 1, 1, 1)), datagram_attr())
    ip = device.ip + 1
    route = GlobalRoute(GID(f"::ffff:10.0.0.{ip & 255}"), hop_limit=63, traffic_class=0x48)
    ah = AH(pd, attr=AHAttr(is_global=1, port_num=1, gr=route))
    for number, (qkey, wanted) in enumerate(
        ((0x7654321, 0x7654321), (0x80000000, 0x11111111), (0xFFFFFFFF, 0x11111111))
    ):
        qp.post_send(datagram(ah, qkey))
        wqe = qp._sq.entry(number)
        assert wqe[3] == 0x48
        assert int.from_bytes(wqe[8:16], "little") == wanted << 32 | 63 << 24 | 0xABCDEF
        assert int.from_bytes(wqe[16:20], "little") == ip
        assert int.from_bytes(wqe[24:30], "little") == device.neighbours[ip]
        assert int.from_bytes(wqe[30:32], "little") == 0xC000 | (qp.qp_num * 0x61C88647 & 0xFFFFFFFF) >> 18
    route.flow_label = 0xB01E6
    qp.post_send(datagram(AH(pd, attr=AHAttr(is_global=1, port_num=1, gr=route))))
    assert int.from_bytes(qp._sq.entry(3)[30:32], "little") == 0xC1CA


def test_datagrams_that_are_refused(device, context, pd, cq):
    qp = QP(pd, QPInitAttr(ibv_qp_type.IBV_QPT_UD, scq=cq, rcq=cq), datagram_attr())
    attr = AHAttr(is_global=1, port_num=1, gr=GlobalRoute(GID("::ffff:10.0.0.162"), hop_limit=64))
    assert "needs an AH" in refused(errno.EINVAL, qp.post_send, SendWR(1, 2, 1, sg=[SGE(0, 8, 0)]))
    assert "of another PD" in refused(errno.EINVAL, qp.post_send, datagram(AH(PD(context), attr=attr)))
    closed = AH(pd, attr=attr)
    closed.close()
    assert "closed" in refused(errno.EINVAL, qp.post_send, datagram(closed))
    for opcode in (0, 1, 4, 5, 6):
        assert "opcode" in refused(errno.EINVAL, qp.post_send, datagram(AH(pd, attr=attr), opcode=opcode))


def test_creation_with_foreign_cqs(device, pd, cq):
    init = QPInitAttr(ibv_qp_type.IBV_QPT_RC, scq=cq, rcq=cq)
    with Context(name=device.name) as other:
        init.send_cq = CQ(other, 4)
        refused(errno.EINVAL, QP, pd, init)


def test_creation_that_fails_leaves_nothing(device, make_qp, monkeypatch):
    taken = []
    for name in ("alloc_contiguous", "free"):
        original = getattr(device.memory, name)

        def spy(*args, name=name, original=original):
            result = original(*args)
            if name == "free":
                taken.remove(args[0])
            else:
                taken.append(result[0])
            return result

        monkeypatch.setattr(device.memory, name, spy)
    device.refuse[CREATE_QP] = 4
    text = refused(errno.EINVAL, make_qp)
    assert "BAD_PARAMETER" in text
    assert taken == []
    del device.refuse[CREATE_QP]
    keep = [make_qp() for _ in range(8)]
    assert "Cannot allocate memory" in refused(errno.ENOMEM, make_qp)
    assert len(taken) == 16
    free = keep[3].qp_num
    keep[3].close()
    assert make_qp().qp_num == free


def test_numbers_rest_as_long_as_they_can(make_qp):
    numbers = []
    for _ in range(9):
        with make_qp() as qp:
            numbers.append(qp.qp_num)
    assert numbers == [8, *range(10, 16), 8, 10]  # the place of QP1 is taken when no other is free


def test_close_is_idempotent_and_ends_everything(device, make_qp, cq):
    qp = make_qp()
    qp.close()
    qp.close()
    assert [c[0] for c in device.commands].count(DESTROY_QP) == 1
    for function in (qp.query, lambda: qp.qp_state, lambda: qp.post_recv(recv()), lambda: qp.post_send(send())):
        assert "QP is closed" in refused(errno.EINVAL, function)


def test_with_attributes_it_starts_in_init(make_qp, device):
    qp = make_qp(qp_attr=full_attr())
    assert qp.qp_state == S.IBV_QPS_INIT
    bad = full_attr()
    bad.port_num = 2
    refused(errno.EINVAL, make_qp, qp_attr=bad)
    assert list(device.qps) == [qp.qp_num]


# States


@pytest.mark.parametrize("begin", ["RESET", "INIT", "RTR"])
def test_the_state_is_asked_for_once(device, make_qp, begin):
    qp = make_qp()
    if begin != "RESET":
        (qp.to_init if begin == "INIT" else qp.to_rtr)(full_attr())
    before = len(device.commands)
    qp.to_rts(full_attr())
    asked = [opcode for opcode, *_ in device.commands[before:]]
    steps = ["RESET", "INIT", "RTR", "RTS"]
    assert asked == [QUERY_QP] + [MODIFY_QP] * (3 - steps.index(begin))
    assert qp.qp_state == S.IBV_QPS_RTS


def test_transitions_write_what_they_should(device, make_qp):
    qp = make_qp()
    qp.to_rts(full_attr())
    modifies = [c for c in device.commands if c[0] == MODIFY_QP]
    assert [(action, words[0] & 15) for _, _, action, words in modifies] == [
        (0, 1),
        (START_RECEIVE, 2),
        (START_SEND, 3),
    ]
    words = modifies[-1][3]
    assert words[0] == 3 | 2 << 4 | 4 << 8 | 2 << 12 | 12 << 16 | 14 << 21 | 6 << 26 | 7 << 29
    assert words[2] == 0xABCDEF | 0x20 << 24
    assert words[3] == 0xFFFF | 0xC009 << 16  # of the flow label, which is 9
    assert words[4] | words[5] << 32 == 0x0256420000A2 | 64 << 48
    assert words[6] == PEER
    assert words[15] == 5 | 3 << 8
    assert words[16:18] == [0x222222, 0x111111]
    # Earlier steps took only what belongs to them.
    assert modifies[0][3][6] == 0
    assert modifies[1][3][16] == 0


ROWS = [
    (S.IBV_QPS_RESET, S.IBV_QPS_INIT, "PKEY_INDEX PORT ACCESS_FLAGS", ""),
    (S.IBV_QPS_INIT, S.IBV_QPS_INIT, "", "PKEY_INDEX PORT ACCESS_FLAGS"),
    (
        S.IBV_QPS_INIT,
        S.IBV_QPS_RTR,
        "AV PATH_MTU DEST_QPN RQ_PSN MAX_DEST_RD_ATOMIC MIN_RNR_TIMER",
        "ALT_PATH ACCESS_FLAGS PKEY_INDEX",
    ),
    (
        S.IBV_QPS_RTR,
        S.IBV_QPS_RTS,
        "TIMEOUT RETRY_CNT RNR_RETRY SQ_PSN MAX_QP_RD_ATOMIC",
        "CUR_STATE ALT_PATH ACCESS_FLAGS MIN_RNR_TIMER PATH_MIG_STATE",
    ),
    (S.IBV_QPS_RTS, S.IBV_QPS_RTS, "", "CUR_STATE ALT_PATH ACCESS_FLAGS MIN_RNR_TIMER PATH_MIG_STATE"),
    *((s, S.IBV_QPS_RESET, "", "") for s in (0, 1, 2, 3, 4, 6)),
    *((s, S.IBV_QPS_ERR, "", "") for s in (1, 2, 3, 4, 6)),
]


def mask_of(names):
    return sum(M[f"IBV_QP_{name}"] for name in names.split())


@pytest.mark.parametrize(("before", "after", "required", "optional"), ROWS)
def test_each_row_wants_its_bits_and_no_others(device, make_qp, before, after, required, optional):
    qp = make_qp()

    def fresh():
        device.set_state(qp.qp_num, before)
        attr = full_attr()
        attr.qp_state, attr.cur_qp_state = after, before
        return attr

    required, optional = mask_of(required), mask_of(optional)
    for bit in M:
        mask = M.IBV_QP_STATE | required ^ bit
        if bit == M.IBV_QP_STATE:
            continue
        count = len(device.commands)
        if bit & optional & (M.IBV_QP_ALT_PATH | M.IBV_QP_PATH_MIG_STATE):
            refused(errno.EOPNOTSUPP, qp.modify, fresh(), mask)
        elif bit & optional:
            qp.modify(fresh(), mask)
            assert device.qps[qp.qp_num][0] & 15 == after
            continue
        else:
            text = refused(errno.EINVAL, qp.modify, fresh(), mask)
            assert text.startswith("Failed to modify QP")
            assert text.endswith("Errno: 22, Invalid argument")
        assert MODIFY_QP not in [c[0] for c in device.commands[count:]]
    qp.modify(fresh(), M.IBV_QP_STATE | required)
    assert device.qps[qp.qp_num][0] & 15 == after


@pytest.mark.parametrize(
    "way", ["02", "03", "04", "06", "13", "14", "21", "22", "24", "31", "32", "35", "42", "61", "63"]
)
def test_there_is_no_other_way(device, make_qp, way):
    before, after = map(int, way)
    qp = make_qp()
    device.set_state(qp.qp_num, before)
    attr = full_attr()
    attr.qp_state = after
    assert "there is no way" in refused(errno.EINVAL, qp.modify, attr, M.IBV_QP_STATE)


def test_a_mask_without_state_stays_where_it_is(qp, device):
    attr = QPAttr()
    attr.qp_access_flags = 4
    qp.modify(attr, M.IBV_QP_ACCESS_FLAGS)
    assert device.qps[FIRST][0] >> 12 & 15 == 4
    assert device.qps[FIRST][0] & 15 == 3


@pytest.mark.parametrize("wanted", [0, 1])
def test_draining(qp, device, context, wanted):
    """A drained queue stays drained, and the event comes to those who asked for it."""
    attr = QPAttr(qp_state=S.IBV_QPS_SQD)
    attr.en_sqd_async_notify = wanted
    qp.modify(attr, M.IBV_QP_STATE | M.IBV_QP_EN_SQD_ASYNC_NOTIFY)
    assert device.commands[-1][:3] == (2, FIRST, 7)
    assert qp.query()[0].sq_draining == 1
    qp.post_send(send())
    device.event(5, FIRST)
    assert qp.query()[0].sq_draining == 0
    if wanted:
        event = context.get_async_event()
        assert (event.event_type, event.element) == (5, qp)
        event.ack()
    else:
        refused(errno.EDEADLK, context.get_async_event)
    attr = full_attr()
    attr.timeout = 3
    qp.modify(attr, M.IBV_QP_TIMEOUT)
    assert device.qps[FIRST][0] & 15 == 4
    attr.qp_state = S.IBV_QPS_RTS
    qp.modify(attr, M.IBV_QP_STATE)
    assert device.commands[-1][:3] == (2, FIRST, 6)
    assert qp.query()[0].sq_draining == 0


def test_what_is_not_there_is_not_pretended(qp):
    attr = full_attr()
    attr.qp_state = S.IBV_QPS_RTS
    refused(errno.EOPNOTSUPP, qp.modify, attr, M.IBV_QP_STATE | M.IBV_QP_ALT_PATH)
    refused(errno.EOPNOTSUPP, qp.modify, attr, M.IBV_QP_STATE | M.IBV_QP_PATH_MIG_STATE)
    refused(errno.EOPNOTSUPP, qp.bind_mw, None, None)
    refused(errno.EOPNOTSUPP, qp.modify_rate_limit, None)
    assert qp.query_data_in_order(0) == 0


def test_cur_state_must_be_true(qp):
    attr = full_attr()
    attr.qp_state = S.IBV_QPS_RTS
    for cur in (S.IBV_QPS_RTR, S.IBV_QPS_INIT, S.IBV_QPS_ERR):
        attr.cur_qp_state = cur
        assert "cur_qp_state" in refused(errno.EINVAL, qp.modify, attr, M.IBV_QP_STATE | M.IBV_QP_CUR_STATE)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("port_num", 0),
        ("port_num", 2),
        ("pkey_index", 1),
        ("path_mtu", 0),
        ("path_mtu", 6),
        ("dest_qp_num", 1 << 24),
        ("timeout", 32),
        ("retry_cnt", 8),
        ("rnr_retry", 8),
        ("min_rnr_timer", 32),
        ("max_rd_atomic", 17),
        ("max_dest_rd_atomic", 17),
        ("ah_attr", AHAttr()),
        ("ah_attr", AHAttr(is_global=1, gr=GlobalRoute(GID("fe80::1")))),
        ("ah_attr", AHAttr(is_global=1, gr=GlobalRoute(GID("::ffff:0.0.0.0")))),
        ("ah_attr", AHAttr(is_global=1, gr=GlobalRoute(GID("::ffff:10.0.0.162"), sgid_index=1))),
        ("ah_attr", AHAttr(is_global=1, gr=GlobalRoute(GID("::ffff:10.0.0.162"), hop_limit=256))),
        ("ah_attr", AHAttr(is_global=1, gr=GlobalRoute(GID("::ffff:10.0.0.162"), traffic_class=256))),
        ("ah_attr", AHAttr(is_global=1, port_num=2, gr=GlobalRoute(GID("::ffff:10.0.0.162")))),
    ],
)
def test_wrong_values(make_qp, name, value):
    attr = full_attr()
    setattr(attr, name, value)
    assert "Invalid argument" in refused(errno.EINVAL, make_qp().to_rts, attr)


def test_an_mtu_that_the_network_does_not_carry(make_qp):
    qp = make_qp()
    qp._adapter.port.mtu = 512
    attr = full_attr()
    attr.path_mtu = 3
    assert "the network carries an MTU of 512, not 1024" in refused(errno.EINVAL, qp.to_rts, attr)
    attr.path_mtu = 2
    qp.to_rts(attr)


def test_an_address_that_nobody_has(make_qp):
    attr = full_attr()
    attr.ah_attr.dgid = "::ffff:10.9.9.9"
    qp = make_qp()
    assert "10.9.9.9" in refused(errno.EHOSTUNREACH, qp.to_rtr, attr)
    assert qp.qp_state == S.IBV_QPS_INIT
    qp.to_rts(full_attr())


def test_a_neighbour_that_left_is_not_needed_for_the_end(qp, device):
    device.neighbours.clear()
    qp.modify(QPAttr(qp_state=S.IBV_QPS_ERR), M.IBV_QP_STATE)
    assert device.commands[-1][2] == ERROR
    qp.modify(QPAttr(qp_state=S.IBV_QPS_RESET), M.IBV_QP_STATE)
    assert device.commands[-1][2] == RESET


def test_a_refused_command_changes_nothing(qp, device):
    device.refuse[MODIFY_QP] = 3
    attr = QPAttr(qp_state=S.IBV_QPS_RTS)
    attr.min_rnr_timer = 31
    assert "BAD_STATE" in refused(errno.EINVAL, qp.modify, attr, M.IBV_QP_STATE | M.IBV_QP_MIN_RNR_TIMER)
    assert qp.query()[0].min_rnr_timer == 12


def test_access_flags_that_are_unknown_are_ignored(make_qp, device):
    attr = full_attr()
    attr.qp_access_flags = 0x30E
    make_qp(qp_attr=attr)
    assert device.qps[FIRST][0] >> 12 & 15 == 14


def test_query_tells_everything_and_brings_a_reset_qp_back(qp, device):
    device.dynamic[FIRST] = (0x222230, 0x111120, 5, 6, 4)
    attr, init = qp.query(0x1FFFFFF)
    expected = full_attr()
    for name in vars(expected):
        if name not in ("qp_state", "cur_qp_state", "rq_psn", "sq_psn", "cap", "ah_attr", "alt_ah_attr"):
            assert getattr(attr, name) == getattr(expected, name), name
    for name in ("sl", "port_num", "is_global", "dgid", "flow_label", "sgid_index", "hop_limit", "traffic_class"):
        assert getattr(attr.ah_attr, name) == getattr(expected.ah_attr, name)
    assert (attr.qp_state, attr.cur_qp_state, attr.sq_psn, attr.rq_psn) == (3, 3, 0x222230, 0x111120)
    assert (init.qp_type, init.qp_context, init.send_cq, init.recv_cq) == (2, "mine", qp._scq, qp._rcq)
    qp.modify(QPAttr(qp_state=S.IBV_QPS_RESET), M.IBV_QP_STATE)
    before = device.qps[FIRST]
    qp.to_rts(attr)
    after = device.qps[FIRST]
    assert after[16:18] == [0x222230, 0x111120]
    assert after[1:16] == before[1:16]
    assert after[0] == before[0] | 3


def test_attributes_are_copied(qp):
    attr = full_attr()
    qp.modify(QPAttr(qp_state=S.IBV_QPS_RESET), M.IBV_QP_STATE)
    qp.to_rts(attr)
    attr.ah_attr.dgid = "::1"
    told = qp.query()[0]
    assert told.ah_attr.dgid == "0000:0000:0000:0000:0000:ffff:0a00:00a2"
    told.ah_attr.hop_limit = 1
    told.cap.max_send_wr = 1
    assert qp.query()[0].ah_attr.hop_limit == 64
    assert qp.query()[0].cap.max_send_wr == 4


# Posting


def test_send_wqe_byte_by_byte(qp, device):
    qp.post_send(send(7, WRITE_IMM, SIGNALED | 1 | 4, 2, imm_data=0x04030201))
    expected = struct.pack("<BBBBIQII", 1, 7, 2, 0, 0x04030201, 0x1122334455667788, 0x55667788, 48) + bytes(8)
    expected += struct.pack("<QIIQII", 0x1000, 16, 0xA0, 0x2000, 32, 0xA1)
    assert device.wqe(device.send_ring(FIRST), 0) == expected
    assert device.rung(SQ_DOORBELL) == [1]


def test_six_entries_and_one_that_leaves_no_trace_of_the_last(make_qp, device):
    qp = make_qp(max_send_wr=1, max_send_sge=6)
    qp.to_rts(full_attr())
    qp.post_send(send(count=6))
    ring = device.send_ring(FIRST)
    sges = b"".join(struct.pack("<QII", 0x1000 * i, 16 * i, 0x9F + i) for i in range(1, 7))
    assert device.wqe(ring, 0)[32:] == sges
    device.complete(0, FIRST, 0)
    assert qp._scq.poll()[0] == 1
    qp.post_send(send(count=1))
    assert device.wqe(ring, 1)[32:] == sges[:16] + bytes(80)


def test_inline_data_is_copied_now(qp, device):
    at = posix_memalign(64)
    write(at, b"inline data, two pieces")
    wr = SendWR(1, SEND, 2, sg=[SGE(at, 7, 0), SGE(at + 13, 10, 0)], send_flags=INLINE)
    qp.post_send(wr)
    write(at, bytes(64))
    entry = device.wqe(device.send_ring(FIRST), 0)
    assert entry[:32] == struct.pack("<BBBBIQII", 2, 8, 0, 0, 0, 0, 0, 17) + bytes(8)
    assert entry[32:] == b"inline two pieces" + bytes(15)


def test_inline_data_of_no_memory(qp):
    """An address that is wrong is an error, and not the end of the process."""
    with pytest.raises(PyverbsRDMAError, match="the process has no memory at 0x1000") as caught:
        qp.post_send(SendWR(1, SEND, 1, sg=[SGE(4096, 7, 0)], send_flags=INLINE))
    assert caught.value.error_code == errno.EFAULT
    with pytest.raises(PyverbsUserError, match="the process has no memory at 0x1008"):
        SGE(4096, 16, 0).read(8, 8)


def test_sq_sig_all(make_qp, device):
    qp = make_qp(sq_sig_all=1)
    qp.to_rts(full_attr())
    qp.post_send(send(flags=0))
    assert device.wqe(device.send_ring(FIRST), 0)[1] == 2


def test_recv_wqe_byte_by_byte(qp, device):
    qp.post_recv(chain(recv(1, 2), recv(2, 1), recv(3, 0)))
    ring = device.recv_ring(FIRST)
    assert device.wqe(ring, 0) == struct.pack("<QIIQII", 0x1000, 16, 0xA0, 0x2000, 32, 0xA1)
    assert device.wqe(ring, 1) == struct.pack("<QIIQII", 0x1000, 16, 0xA0, 0, 0, 0)
    assert device.wqe(ring, 2) == bytes(32)
    assert device.rung(RQ_DOORBELL) == [3]


@pytest.mark.parametrize("state", [0, 1, 2])
def test_send_is_too_early(device, make_qp, state):
    qp = make_qp()
    for step in (qp.to_init, qp.to_rtr)[:state]:
        step(full_attr())
    bad = send(99)
    assert "state" in refused(errno.EINVAL, qp.post_send, chain(send(1), send(2)), bad)
    assert bad.wr_id == 1
    assert device.rung(SQ_DOORBELL) == []


def test_receives_may_be_posted_from_init_on(device, make_qp):
    qp = make_qp()
    assert "state" in refused(errno.EINVAL, qp.post_recv, recv())
    qp.to_init(full_attr())
    qp.post_recv(recv())
    assert device.rung(RQ_DOORBELL) == [1]


def test_in_error_everything_may_be_posted(device, make_qp):
    qp = make_qp()
    qp.to_rtr(full_attr())
    device.set_state(FIRST, 6)  # nobody told the driver
    qp.post_send(send())
    qp.post_recv(recv())
    assert device.rung(SQ_DOORBELL) == device.rung(RQ_DOORBELL) == [1]


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        (lambda: send(2, opcode=4, flags=INLINE), errno.EINVAL),
        (lambda: send(2, opcode=5), errno.EINVAL),  # 16 bytes
        (lambda: send(2, opcode=7), errno.EOPNOTSUPP),
        (lambda: send(2, opcode=10), errno.EINVAL),
        (lambda: send(2, opcode=77), errno.EINVAL),
        (lambda: send(2, flags=16), errno.EINVAL),
        (lambda: send(2, count=3), errno.EINVAL),
        (lambda: send(2, flags=INLINE, count=2), errno.EINVAL),  # 48 bytes
        (lambda: SendWR(2, SEND, 2, sg=[SGE(0, 1 << 31, 0), SGE(0, 1, 0)]), errno.EINVAL),
    ],
)
def test_a_list_stops_at_the_bad_request(qp, device, wrong, code):
    bad = send(99)
    text = refused(code, qp.post_send, chain(send(1), wrong(), send(3)), bad)
    assert text.startswith("Failed to post send")
    assert (bad.wr_id, bad.next_wr.wr_id) == (2, 3)
    assert device.rung(SQ_DOORBELL) == [1]
    qp.post_send(send(4))
    assert device.rung(SQ_DOORBELL) == [1, 2]
    assert device.wqe(device.send_ring(FIRST), 1)[0] == WRITE


def test_a_list_of_receives_stops_at_the_bad_one(qp, device):
    bad = RecvWR()
    text = refused(errno.EINVAL, qp.post_recv, chain(recv(1), recv(2, 3), recv(3)), bad)
    assert text.startswith("Failed to post recv")
    assert bad.wr_id == 2
    assert device.rung(RQ_DOORBELL) == [1]


@pytest.fixture
def pusher(qp, device):
    """Of a device that takes pushed WQEs."""
    qp.context._push = True
    device.writes.clear()
    return qp


def pushed(device):
    """The WQEs that were pushed and committed, as the device puts them together; and producer indices as rung."""
    found, words = [], None
    for offset, value in device.writes:
        at = offset - QP_PAGES
        if 0x100 <= at < 0x180:
            words = [0] * 32 if at == 0x100 else words
            words[(at - 0x100) // 4] = value
        elif at == 8:
            found.append((struct.pack("<32I", *words), value))
            words = None
        elif at == 0:
            found.append((None, value))
    assert words is None
    return found


@pytest.mark.parametrize("opcode", [SEND, WRITE])
def test_what_is_posted_alone_to_an_empty_queue_is_pushed(pusher, cq, device, opcode):
    for number in range(6):
        pusher.post_send(send(number, opcode, flags=2 * (number > 0)))
        wqe = device.wqe(device.send_ring(FIRST), number)
        assert pushed(device) == [(wqe.ljust(128, b"\0"), number + 1)]
        device.writes.clear()
        device.complete(0, FIRST, number)
        assert cq.poll(1)[0] == 1
        device.writes.clear()


def test_what_is_posted_behind_others_is_not_pushed(pusher, cq, device):
    pusher.post_send(chain(send(), send()))
    pusher.post_send(send())
    device.complete(0, FIRST, 1)
    cq.poll(1)
    pusher.post_send(send())
    device.complete(0, FIRST, 3)
    cq.poll(1)
    pusher.post_recv(recv())
    assert [(wqe is None, index) for wqe, index in pushed(device)] == [(True, 2), (True, 3), (True, 4)]
    device.writes.clear()
    refused(errno.EINVAL, pusher.post_send, chain(send(), send(flags=0x100)))
    assert [(wqe is None, index) for wqe, index in pushed(device)] == [(False, 5)]


def test_what_wraps_is_pushed_too(pusher, cq, device):
    pusher._sq.producer = pusher._sq.completed = 0xFFFF
    pusher.post_send(send())
    assert [(wqe is None, index) for wqe, index in pushed(device)] == [(False, 0)]


def test_without_leave_nothing_is_pushed(qp, device):
    device.writes.clear()
    qp.post_send(send())
    assert pushed(device) == [(None, 1)]


def test_nothing_to_post(qp):
    refused(errno.EINVAL, qp.post_send, None)
    refused(errno.EINVAL, qp.post_recv, None)


def test_the_queues_hold_what_they_promise_and_no_more(qp, device):
    bad = send(99)
    text = refused(errno.ENOMEM, qp.post_send, chain(*(send(i) for i in range(5))), bad)
    assert "Cannot allocate memory" in text
    assert bad.wr_id == 4
    bad = RecvWR()
    refused(errno.ENOMEM, qp.post_recv, chain(*(recv(i) for i in range(5))), bad)
    assert bad.wr_id == 4
    assert device.rung(SQ_DOORBELL) == device.rung(RQ_DOORBELL) == [4]


# Completions


LAST = (1 << 64) - 1


def test_ids_come_back_over_many_turns_of_the_ring(qp, cq, device):
    """Beyond the wrap of the 16-bit indices, too; three unsignaled sends go with a signaled one."""
    total = 65536 + 40
    for start in range(0, total, 4):
        qp.post_send(chain(*(send(start + i, flags=SIGNALED if i == 3 else 0) for i in range(4))))
        device.complete(cq._number, FIRST, start + 3)
        count, (wc,) = cq.poll()
        assert (count, wc.wr_id) == (1, start + 3)
        if start > 40 and start < 65500:
            # Everything but the wrap is the same 16,000 times: jump close to it.
            break
    for ring in (qp._sq, qp._rq):
        ring.producer = ring.completed = 65532
    for start in range(65532, 65560, 4):
        qp.post_send(chain(*(send(start + i, flags=SIGNALED if i == 3 else 0) for i in range(4))))
        qp.post_recv(chain(*(recv(LAST - start - i) for i in range(4))))
        refused(errno.ENOMEM, qp.post_send, send())
        for i in range(4):
            device.complete(cq._number, FIRST, start + i, opcode=128)
        device.complete(cq._number, FIRST, start + 3)
        wcs = cq.poll(16)[1]
        assert [wc.wr_id for wc in wcs] == [*(LAST - start - i for i in range(4)), start + 3]
    assert device.rung(SQ_DOORBELL)[-1] == 65560 & 0xFFFF
    assert device.rung(RQ_DOORBELL)[-1] == 65560 & 0xFFFF


def test_unsignaled_sends_free_their_slots_only_with_a_later_completion(qp, cq, device):
    qp.post_send(chain(*(send(i, flags=0) for i in range(4))))
    refused(errno.ENOMEM, qp.post_send, send(4))
    device.complete(cq._number, FIRST, 1, status=10, syndrome=19)
    (wc,) = cq.poll()[1]
    assert (wc.wr_id, wc.status, wc.vendor_err, wc.qp_num) == (1, 10, 19, FIRST)
    qp.post_send(chain(send(4), send(5)))
    refused(errno.ENOMEM, qp.post_send, send(6))


def test_reset_forgets_what_was_posted_and_what_is_complete(qp, cq, device, make_qp):
    other = make_qp()
    other.to_rts(full_attr())
    qp.post_send(chain(send(1), send(2), send(3)))
    qp.post_recv(recv(4))
    other.post_send(send(50))
    device.complete(cq._number, FIRST, 0)
    device.complete(cq._number, other.qp_num, 0)
    device.complete(cq._number, FIRST, 0, opcode=128)
    qp.modify(QPAttr(qp_state=S.IBV_QPS_RESET), M.IBV_QP_STATE)
    assert [wc.wr_id for wc in cq.poll(16)[1]] == [50]
    # One that was still on its way to memory.
    device.complete(cq._number, FIRST, 1)
    qp.to_rts(full_attr())
    assert cq.poll() == (0, [])
    qp.post_send(chain(*(send(10 + i) for i in range(4))))
    refused(errno.ENOMEM, qp.post_send, send())
    assert device.rung(SQ_DOORBELL) == [3, 4]
    device.complete(cq._number, FIRST, 0)
    assert cq.poll()[1][0].wr_id == 10


def test_completions_of_a_closed_qp_are_gone(qp, cq, device):
    qp.post_send(send(1))
    device.complete(cq._number, FIRST, 0)
    qp.close()
    device.complete(cq._number, FIRST, 1)
    assert cq.poll() == (0, [])


# Events


def test_an_event_holds_the_qp_until_it_is_acknowledged(qp, device, context):
    device.event(3, FIRST)
    event = context.get_async_event()
    assert event.event_type == 3
    assert event.element is qp
    assert "Device or resource busy" in refused(errno.EBUSY, qp.close)
    event.ack()
    event.ack()
    qp.close()
    assert event.element is qp


def test_an_event_that_nobody_took_holds_nothing(qp, device, context):
    device.event(1, FIRST)
    device.script.append(lambda: None)
    context._adapter.advance(1)
    qp.close()
    refused(errno.EDEADLK, context.get_async_event)


def test_the_end_of_the_context_waits_for_nobody(qp, device, context):
    device.event(1, FIRST)
    context.get_async_event()
    context.close()
    assert device.qps == {}


def test_garbage(device, make_qp, cq):
    qp = make_qp()
    first = qp.qp_num
    device.event(1, first)
    del qp
    assert cq.poll() == (0, [])
    assert first not in device.qps
    knot = [make_qp()]
    knot.append(knot)
    del knot
    gc.collect()
    cq.poll()
    assert device.qps == {}


def test_user_errors_are_not_device_errors(pd):
    with pytest.raises(PyverbsUserError):
        SendWR(1, SEND)
    assert ibv_access_flags.IBV_ACCESS_REMOTE_WRITE == 2
    assert PD(pd.context).handle != pd.handle


# A QP that the device has lost

with_table = pytest.mark.parametrize("device", [True], ids=["table"], indirect=True)


@pytest.fixture
def lost(device, context, make_qp):
    """Connected, with a request in each queue, when the device forgets it."""
    qp = make_qp(max_send_wr=4, max_recv_wr=4)
    qp.to_rts(full_attr())
    qp.post_recv(recv())
    qp.post_send(send())
    device.lose(qp.qp_num)
    return qp


@with_table
def test_a_lost_qp_is_in_error(lost, context):
    event = context.get_async_event()
    assert (event.event_type, event.element) == (1, lost)
    event.ack()
    refused(errno.EDEADLK, context.get_async_event)
    assert lost.qp_state == S.IBV_QPS_ERR
    attr, init = lost.query()
    assert (attr.qp_state, attr.cur_qp_state, attr.rq_psn, attr.sq_psn) == (S.IBV_QPS_ERR, S.IBV_QPS_ERR, 0, 0)
    assert attr.dest_qp_num == 0xABCDEF
    assert init.cap.max_send_wr == 4


@with_table
def test_a_lost_qp_goes_nowhere(lost, context, device):
    context._adapter.process_events()
    said = len(device.commands)
    for state in (S.IBV_QPS_RESET, S.IBV_QPS_ERR):
        assert "the device has lost this QP" in refused(errno.EIO, lost.modify, QPAttr(qp_state=state), M.IBV_QP_STATE)
    refused(errno.EINVAL, lost.to_rts, full_attr())  # nor does any other QP in ERR
    assert lost.qp_state == S.IBV_QPS_ERR
    assert len(device.commands) == said


@with_table
def test_what_is_posted_to_a_lost_qp_is_not_rung(lost, context, device):
    context._adapter.process_events()
    said = len(device.writes)
    for number in range(3):
        lost.post_send(send(number))
        lost.post_recv(recv(number))
    refused(errno.ENOMEM, lost.post_send, send())
    refused(errno.ENOMEM, lost.post_recv, recv())
    assert len(device.writes) == said


@with_table
def test_a_qp_that_is_lost_before_it_may_send(device, context, make_qp):
    """Posting is refused in INIT, and not in ERR."""
    qp = make_qp()
    refused(errno.EINVAL, qp.post_send, send())
    device.lose(qp.qp_num)
    context._adapter.process_events()
    qp.post_send(send())
    qp.post_recv(recv())


@with_table
@pytest.mark.parametrize("known", [False, True])
def test_a_lost_qp_is_closed(lost, context, device, cq, make_qp, known):
    """Also before its event was taken, which the program then does not see; and another one takes its place."""
    if known:
        context._adapter.process_events()
    number = lost.qp_num
    device.complete(cq._number, number, 0)  # written before
    lost.close()
    assert [command[:2] for command in device.commands].count((DESTROY_QP, number)) == (not known)
    refused(errno.EDEADLK, context.get_async_event)
    assert cq.poll()[0] == 0
    qps = [make_qp() for _ in range(8)]
    assert len({qp.qp_num for qp in qps}) == 8
    assert all(qp.qp_state == S.IBV_QPS_RESET for qp in qps)


@with_table
def test_a_lost_qp_that_is_forgotten(device, context, cq, make_qp):
    """Garbage collection closes it as any other, without a word to the device."""
    qp = make_qp()
    number = qp.qp_num
    device.lose(number)
    context._adapter.process_events()
    said = len(device.commands)
    del qp
    gc.collect()
    cq.poll()
    assert number not in context._adapter.qps
    assert len(device.commands) == said
