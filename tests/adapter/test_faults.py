"""The fault catalogue: one loss, doubling, delay or lie at a time, at a chosen packet; and what must come of it."""

import struct

import pytest
from ends import (
    CMP_SWP,
    FETCH_ADD,
    READ,
    SEND,
    SEND_IMM,
    SIGNALED,
    WRITE,
    WRITE_IMM,
    End,
    atomic,
    completion,
    completions,
    connect,
    fill,
    quiet,
    recv,
    send,
    settle,
    sge,
    word,
    world,
)
from rocegram import rc_frame
from verbena.hdl.abi.cqe import Syndrome
from verbena.sw.verbs.libibverbs_enums import ibv_event_type, ibv_qp_attr_mask, ibv_qp_state, ibv_wc_status
from verbena.sw.verbs.qp import QPAttr

SIZE = 1 << 16
MTU = 256
TIMEOUT = 7
"""2048 cycles of simulated time: well beyond a round trip, short enough for many tests."""

S = ibv_wc_status
A, B = 0, 1
ACKNOWLEDGE = 0x11
FIRST_PSN = (0xFFFFFE, 0x7FFFFF)
"""Across both ends of the 24 bits."""


@pytest.fixture(params=FIRST_PSN, ids=hex)
def pair(request):
    with End("sim0", SIZE, depth=32, sge=3) as a, End("sim1", SIZE, depth=32, sge=3) as b:
        connect(a, b, mtu=MTU, psn=request.param, timeout=TIMEOUT, min_rnr_timer=1)
        a.psn = request.param
        yield a, b


def harm(side, nth, fault):
    """Does ``fault`` to the ``nth`` frame (from 0) that this side sends from now on."""
    port = world().adapters[side]
    port.fault_at(port.counters["sent_frames"] + nth, fault)


class Deltas:
    """Counters of an end by name, from now on."""

    def __init__(self, end, *names):
        self.end, self.before = end, end.context.query_counters(*names)

    def __getitem__(self, name):
        return self.end.context.query_counters(name)[name] - self.before[name]


def addresses(end, number):
    return world().adapters[number].mac, end.context._adapter.port.ip


def frame_to(a, b, opcode, psn, body=b""):
    """A frame as ``b`` would send it to the queue pair of ``a``."""
    return rc_frame(addresses(b, B), addresses(a, A), a.qp.qp_num, psn, opcode, body)


def acknowledgement(a, b, psn, syndrome=0x1F, msn=0):
    return frame_to(a, b, ACKNOWLEDGE, psn, struct.pack(">I", syndrome << 24 | msn & 0xFFFFFF))


def state(end, new, **values):
    attr = QPAttr(qp_state=new)
    for name, value in values.items():
        setattr(attr, name, value)
    end.qp.modify(attr, ibv_qp_attr_mask.IBV_QP_STATE)


def events(end):
    end.context._adapter.process_events()
    return [event.event_type for event in end.context._events]


def post(a, b, opcode, size, number=0):
    """One operation of any kind, on bytes that belong to ``number``; returns what checks it."""
    here, there = 8192 * number, 8192 * number + 2048
    if opcode in (CMP_SWP, FETCH_ADD):
        before = word(b, there)
        operands = (before, 77) if opcode == CMP_SWP else (5,)
        atomic(a, opcode, [sge(a, here, 8)], (b, there), *operands, wr_id=number)
        after = 77 if opcode == CMP_SWP else before + 5 & (1 << 64) - 1

        def check():
            assert (word(a, here), word(b, there)) == (before, after)

    elif opcode == READ:
        source = b.mr.read(size, there)
        send(a, READ, [sge(a, here, size)], wr_id=number, remote=(b, there))

        def check():
            assert a.mr.read(size, here) == source

    else:
        source = a.mr.read(size, here)
        if opcode != WRITE:
            recv(b, [sge(b, there, 2000)], wr_id=number)
        send(a, opcode, [sge(a, here, size)], wr_id=number, remote=(b, there), imm=number)

        def check():
            assert b.mr.read(size, there) == source
            if opcode != WRITE:
                wc = completion(b.cq)
                assert (wc.wr_id, wc.status, wc.byte_len) == (number, 0, size)

    return check


def good(a, checks):
    """All complete in order, with success, and have had their effect exactly once."""
    wcs = completions(a.cq, len(checks))
    assert [(wc.wr_id, wc.status) for wc in wcs] == [(n, 0) for n in range(len(checks))]
    for check in checks:
        check()
    quiet(a.cq, 1000)


REQUESTS = [
    (opcode, size, packets)
    for opcode in (SEND, SEND_IMM, WRITE, WRITE_IMM)
    for size, packets in ((100, 1), (500, 2), (1000, 4))
] + [(READ, 1000, 1), (CMP_SWP, 8, 1), (FETCH_ADD, 8, 1)]


@pytest.mark.parametrize("fault", ["lose", "corrupt", "damage", "duplicate", "delay", "reorder"])
@pytest.mark.parametrize(("opcode", "size", "packets"), REQUESTS)
def test_each_request_packet(pair, opcode, size, packets, fault):
    """First, middle, last and only packet of each opcode, with something behind it and with nothing."""
    a, b = pair
    fill(a, 1)
    fill(b, 2)
    for nth in {0, 1, packets - 1} & set(range(packets)):
        for behind in (0, 2):
            # Numbers go on, so that a late packet finds nothing of its own any more.
            harm(A, nth, fault)
            deltas = Deltas(a, "retries")
            checks = [post(a, b, opcode, size, 0), *(post(a, b, WRITE, 300, n + 1) for n in range(behind))]
            good(a, checks)
            if fault in ("lose", "damage"):  # a corrupted bit may be one that no check covers
                assert deltas["retries"] >= 1
    assert a.qp.qp_state == b.qp.qp_state == ibv_qp_state.IBV_QPS_RTS


@pytest.mark.parametrize("fault", ["lose", "corrupt", "duplicate", "delay", "reorder"])
@pytest.mark.parametrize("opcode", [SEND, WRITE, WRITE_IMM, CMP_SWP, FETCH_ADD])
def test_each_acknowledgement(pair, opcode, fault):
    a, b = pair
    fill(a, 3)
    fill(b, 4)
    for behind in (0, 1, 3):
        harm(B, 0, fault)
        deltas = Deltas(b, "drop_duplicate", "replays")
        good(a, [post(a, b, opcode, 8, 0), *(post(a, b, opcode, 8, n + 1) for n in range(behind))])
        if fault == "lose" and behind == 0:
            assert deltas["replays" if opcode in (CMP_SWP, FETCH_ADD) else "drop_duplicate"] >= 1


@pytest.mark.parametrize("fault", ["lose", "corrupt", "duplicate", "delay", "reorder"])
@pytest.mark.parametrize("behind", [0, 1])
@pytest.mark.parametrize("nth", [0, 1, 3])
def test_each_read_response(pair, nth, behind, fault):
    """First, middle and last response, with another READ or a WRITE behind."""
    a, b = pair
    fill(a, 5)
    fill(b, 6)
    harm(B, nth, fault)
    deltas = Deltas(a, "retries")
    good(a, [post(a, b, READ, 1000, 0), *(post(a, b, op, 700, 1 + i) for i, op in enumerate([READ, WRITE] * behind))])
    if fault == "lose":
        assert deltas["retries"] >= 1


def test_a_lost_nak(pair):
    """The request behind the gap is refused once; when that is lost, time helps."""
    a, b = pair
    fill(a, 7)
    harm(A, 0, "lose")
    harm(B, 0, "lose")
    deltas, theirs = Deltas(a, "timeouts"), Deltas(b, "tx_naks")
    good(a, [post(a, b, WRITE, 100, n) for n in range(4)])
    assert deltas["timeouts"] >= 1
    assert theirs["tx_naks"] == 1


def test_one_nak_a_gap(pair):
    a, b = pair
    fill(a, 8)
    harm(A, 0, "lose")
    deltas, theirs = Deltas(a, "retries", "timeouts"), Deltas(b, "tx_naks")
    good(a, [post(a, b, WRITE, 100, n) for n in range(7)])
    assert (deltas["retries"], deltas["timeouts"], theirs["tx_naks"]) == (1, 0, 1)


def test_receiver_not_ready_then_posted(pair):
    a, b = pair
    source = fill(a, 9)
    deltas = Deltas(a, "rx_naks", "timeouts")
    send(a, SEND, [sge(a, 0, 600)])
    send(a, WRITE, [sge(a, 0, 64)], remote=(b, 4096))
    quiet(a.cq, 4000)
    recv(b, [sge(b, 0, 600)])
    assert [wc.status for wc in completion(a.cq, 2)] == [0, 0]
    assert completion(b.cq).byte_len == 600
    assert (b.mr.read(600, 0), b.mr.read(64, 4096)) == (source[:600], source[:64])
    assert deltas["rx_naks"] >= 2
    assert deltas["timeouts"] == 0


@pytest.mark.parametrize("count", [0, 2])
def test_receiver_not_ready_exceeded(count):
    with End("sim0", SIZE) as a, End("sim1", SIZE) as b:
        connect(a, b, rnr_retry=count, min_rnr_timer=1, timeout=TIMEOUT)
        deltas = Deltas(a, "rx_naks")
        send(a, SEND, [sge(a, 0, 8)], wr_id=1, flags=0)
        send(a, WRITE, [sge(a, 0, 8)], wr_id=2, remote=(b, 0))
        wcs = completion(a.cq, 2)
        assert [(wc.wr_id, wc.status) for wc in wcs] == [(1, S.IBV_WC_RNR_RETRY_EXC_ERR), (2, S.IBV_WC_WR_FLUSH_ERR)]
        assert deltas["rx_naks"] == count + 1
        assert b.qp.qp_state == ibv_qp_state.IBV_QPS_RTS


@pytest.mark.parametrize("count", [0, 1, 7])
@pytest.mark.parametrize("opcode", [WRITE, READ, FETCH_ADD])
def test_a_peer_that_is_silent_for_ever(opcode, count):
    with End("sim0", SIZE) as a, End("sim1", SIZE) as b:
        connect(a, b, retry_cnt=count, timeout=TIMEOUT)
        state(b, ibv_qp_state.IBV_QPS_RESET)
        deltas = Deltas(a, "retries", "timeouts")
        post(a, b, opcode, 8)
        send(a, WRITE, [sge(a, 0, 8)], wr_id=1, remote=(b, 0), flags=0)
        wcs = completion(a.cq, 2)
        assert [(wc.wr_id, wc.status) for wc in wcs] == [(0, S.IBV_WC_RETRY_EXC_ERR), (1, S.IBV_WC_WR_FLUSH_ERR)]
        assert deltas["timeouts"] == count + 1
        assert deltas["retries"] == count


def test_without_a_timeout_nothing_is_given_up():
    with End("sim0", SIZE) as a, End("sim1", SIZE) as b:
        connect(a, b, timeout=0, retry_cnt=1)
        harm(A, 0, "lose")
        send(a, WRITE, [sge(a, 0, 8)], remote=(b, 0))
        quiet(a.cq, 100_000)
        send(a, WRITE, [sge(a, 0, 8)], remote=(b, 0))
        assert [wc.status for wc in completion(a.cq, 2)] == [0, 0]


@pytest.mark.parametrize("ahead", [1, 1000, 0x7FFFFF])
def test_a_ghost_acknowledgement(pair, ahead):
    """An ACK of what was never sent completes nothing, and does no harm."""
    a, b = pair
    fill(a, 10)
    good(a, [post(a, b, WRITE, 100, n) for n in range(2)])
    deltas = Deltas(a, "drop_response")
    state(b, ibv_qp_state.IBV_QPS_ERR)  # only the ghost speaks
    send(a, WRITE, [sge(a, 0, 8)], remote=(b, 0), wr_id=5)
    world().adapters[A].inject(acknowledgement(a, b, a.psn + 2 + ahead))
    quiet(a.cq, 500)
    assert deltas["drop_response"] == 1
    world().adapters[A].inject(acknowledgement(a, b, a.psn + 2))
    assert (completion(a.cq).wr_id, a.qp.qp_state) == (5, ibv_qp_state.IBV_QPS_RTS)


@pytest.mark.parametrize("syndrome", [0x1F, 0x60, 0x61, 0x62, 0x63, 0x2C])
@pytest.mark.parametrize("back", [1, 3, 1000])
def test_an_answer_for_what_was_acknowledged_long_ago(pair, syndrome, back):
    a, b = pair
    fill(a, 11)
    good(a, [post(a, b, WRITE, 100, n) for n in range(4)])
    deltas = Deltas(a, "drop_response", "retries")
    world().adapters[A].inject(acknowledgement(a, b, a.psn + 4 - back, syndrome))
    settle()
    good(a, [post(a, b, WRITE, 100, n) for n in range(2)])
    assert (deltas["drop_response"], deltas["retries"]) == (1, 0)


@pytest.mark.parametrize("opcode", [0x0D, 0x0E, 0x0F, 0x10, 0x12])
def test_a_response_that_nobody_asked_for(pair, opcode):
    a, b = pair
    before = fill(a, 12)
    good(a, [post(a, b, WRITE, 100, 0)])
    aeth = b"" if opcode == 0x0E else struct.pack(">I", 0x1F000001)
    body = aeth + (bytes(8) if opcode == 0x12 else bytes(MTU))
    for psn in (a.psn, a.psn + 1, a.psn + 2):
        world().adapters[A].inject(frame_to(a, b, opcode, psn, body))
    settle()
    assert a.mr.read(SIZE, 0) == before
    good(a, [post(a, b, READ, 600, 0)])


FIRST, MIDDLE, LAST, ONLY, ATOMIC = 0x0D, 0x0E, 0x0F, 0x10, 0x12


@pytest.mark.parametrize(
    ("answers", "good"),
    [
        ([FIRST, MIDDLE, LAST], True),
        ([FIRST, FIRST, LAST], False),
        ([FIRST, FIRST, ONLY], False),
        ([FIRST, ONLY], False),
        ([ONLY, ONLY, ONLY], False),
        ([MIDDLE, MIDDLE, LAST], False),
        ([FIRST, LAST, LAST], False),
        ([FIRST, MIDDLE, MIDDLE], False),
        ([FIRST, MIDDLE, FIRST], False),
        ([ONLY], True),
        ([FIRST], False),
        ([MIDDLE], False),
        ([LAST], False),
        ([ATOMIC], False),
    ],
)
def test_a_peer_that_names_its_responses_wrongly(pair, answers, good):
    """Of the right PSN and length, each of them."""
    a, b = pair
    fill(a, 25)
    state(b, ibv_qp_state.IBV_QPS_RESET)
    size = (len(answers) - 1) * MTU + 8
    send(a, READ, [sge(a, 0, size)], wr_id=1, remote=(b, 0))
    settle(1500)
    for number, opcode in enumerate(answers):
        payload = bytes([number + 1]) * (MTU if number < len(answers) - 1 else 8)
        aeth = b"" if opcode == MIDDLE else struct.pack(">I", 0x1F000001)
        world().adapters[A].inject(frame_to(a, b, opcode, a.psn + number, aeth + payload))
    wc = completion(a.cq)
    assert (wc.wr_id, wc.status) == (1, 0 if good else S.IBV_WC_BAD_RESP_ERR)
    assert a.qp.qp_state == (ibv_qp_state.IBV_QPS_RTS if good else ibv_qp_state.IBV_QPS_ERR)


@pytest.mark.parametrize("syndrome", [0x20, 0x41, 0x60, 0x61, 0x62, 0x63, 0x7F, 0x9F])
@pytest.mark.parametrize("opcode", [ONLY, ATOMIC])
def test_a_response_that_says_nak(pair, opcode, syndrome):
    """Nothing of it reaches memory."""
    a, b = pair
    before = fill(a, 26)
    state(b, ibv_qp_state.IBV_QPS_RESET)
    post(a, b, READ if opcode == ONLY else FETCH_ADD, 8)
    settle(1500)
    body = struct.pack(">I", syndrome << 24 | 1) + bytes(8)
    world().adapters[A].inject(frame_to(a, b, opcode, a.psn, body))
    wc = completion(a.cq)
    assert (wc.status, wc.vendor_err) == (S.IBV_WC_BAD_RESP_ERR, Syndrome.REMOTE_NAK)
    settle()
    assert a.mr.read(SIZE, 0) == before


@pytest.mark.parametrize(
    ("syndrome", "status"),
    [
        (0x61, S.IBV_WC_REM_INV_REQ_ERR),
        (0x62, S.IBV_WC_REM_ACCESS_ERR),
        (0x63, S.IBV_WC_REM_OP_ERR),
        (0x64, S.IBV_WC_REM_INV_REQ_ERR),
    ],
)
@pytest.mark.parametrize("opcode", [WRITE, READ, FETCH_ADD])
def test_each_fatal_nak(pair, opcode, syndrome, status):
    a, b = pair
    fill(a, 13)
    state(b, ibv_qp_state.IBV_QPS_RESET)
    post(a, b, WRITE, 8, 0)
    post(a, b, opcode, 8, 1)
    send(a, WRITE, [sge(a, 0, 8)], wr_id=2, remote=(b, 0), flags=0)
    settle(1500)
    world().adapters[A].inject(acknowledgement(a, b, a.psn + 1, syndrome))
    wcs = completion(a.cq, 3)
    assert [wc.wr_id for wc in wcs] == [0, 1, 2]
    assert [wc.status for wc in wcs] == [0, status, S.IBV_WC_WR_FLUSH_ERR]


def test_a_sequence_nak_goes_back_without_waiting(pair):
    a, b = pair
    fill(a, 14)
    harm(A, 2, "lose")
    deltas = Deltas(a, "rx_naks", "timeouts")
    good(a, [post(a, b, WRITE, 1000, n) for n in range(3)])
    assert (deltas["rx_naks"], deltas["timeouts"]) == (1, 0)


def test_an_acknowledgement_beyond_a_read_does_not_complete_it(pair):
    """It says that the responses are lost: they are asked for again."""
    a, b = pair
    fill(a, 15)
    fill(b, 16)
    for nth in range(4):
        harm(B, nth, "lose")
    deltas = Deltas(a, "implied_naks")
    good(a, [post(a, b, READ, 1000, 0), post(a, b, WRITE, 100, 1)])
    assert deltas["implied_naks"] >= 1


def test_answers_that_overtake(pair):
    """Every ACK late by another time."""
    a, b = pair
    fill(a, 17)
    fill(b, 18)
    for nth in range(0, 12, 2):
        harm(B, nth, "reorder")
    good(a, [post(a, b, (WRITE, SEND, READ, FETCH_ADD)[n % 4], 8, n) for n in range(7)])


@pytest.mark.parametrize("opcode", [WRITE, SEND, READ, FETCH_ADD])
@pytest.mark.parametrize("who", [A, B])
@pytest.mark.parametrize("how", ["destroy", "reset", "error"])
def test_a_queue_pair_that_ends_with_packets_in_flight(opcode, who, how):
    """Nothing of the old life touches the new one, and the other side gives up."""
    with End("sim0", SIZE, depth=32) as a, End("sim1", SIZE, depth=32) as b:
        connect(a, b, mtu=MTU, timeout=TIMEOUT, retry_cnt=1)
        fill(a, 19)
        for number in range(7):
            post(a, b, opcode, 1000, number)
        settle(250)
        victim = (a, b)[who]
        if how == "destroy":
            victim.qp.close()
        else:
            state(victim, ibv_qp_state.IBV_QPS_RESET if how == "reset" else ibv_qp_state.IBV_QPS_ERR)
        if who == A and how != "error":
            quiet(a.cq, 20_000)
        elif who == A:
            wcs = completion(a.cq, 7)
            assert [wc.wr_id for wc in wcs] == list(range(7))
            statuses = [wc.status for wc in wcs]
            assert statuses == sorted(statuses)
            assert set(statuses) <= {0, S.IBV_WC_WR_FLUSH_ERR}
        else:
            wcs = completion(a.cq, 7)
            statuses = [wc.status for wc in wcs]
            good_ones = statuses.count(0)
            # What it had accepted the peer may still answer.
            answered = opcode in (READ, FETCH_ADD) and good_ones == 7
            flushed = [S.IBV_WC_RETRY_EXC_ERR] + [S.IBV_WC_WR_FLUSH_ERR] * (6 - good_ones)
            assert answered or statuses == [0] * good_ones + flushed
    with End("sim0", SIZE) as a, End("sim1", SIZE) as b:
        connect(a, b, mtu=MTU, timeout=TIMEOUT)
        fill(a, 20)
        good(a, [post(a, b, op, 600, n) for n, op in enumerate((WRITE, SEND, READ, FETCH_ADD))])


def test_reset_in_the_middle_of_a_retry(pair):
    a, b = pair
    fill(a, 21)
    harm(A, 1, "lose")
    for number in range(7):
        post(a, b, WRITE, 1000, number)
    settle(700)
    for end in pair:
        state(end, ibv_qp_state.IBV_QPS_RESET)
    connect(a, b, mtu=MTU, psn=a.psn + 5, timeout=TIMEOUT)
    a.cq.poll(16)
    good(a, [post(a, b, op, 600, n) for n, op in enumerate((WRITE, SEND, READ, FETCH_ADD))])


@pytest.mark.parametrize("opcode", [WRITE, READ])
def test_everything_is_flushed_in_order_after_retries(opcode):
    with End("sim0", SIZE, depth=32) as a, End("sim1", SIZE) as b:
        connect(a, b, mtu=MTU, retry_cnt=1, timeout=TIMEOUT)
        good(a, [post(a, b, opcode, 8, 0)])
        state(b, ibv_qp_state.IBV_QPS_ERR)
        for number in range(7):
            send(
                a,
                (opcode, WRITE)[number % 2],
                [sge(a, 0, 500)],
                wr_id=number,
                remote=(b, 0),
                flags=SIGNALED * (number % 3 == 0),
            )
        wcs = completion(a.cq, 7)
        assert [wc.wr_id for wc in wcs] == list(range(7))
        assert [wc.status for wc in wcs] == [S.IBV_WC_RETRY_EXC_ERR] + 6 * [S.IBV_WC_WR_FLUSH_ERR]
        send(a, WRITE, [sge(a, 0, 8)], wr_id=9, remote=(b, 0))
        assert (completion(a.cq).status, a.qp.qp_state) == (S.IBV_WC_WR_FLUSH_ERR, ibv_qp_state.IBV_QPS_ERR)


def test_a_region_given_up_behind_its_completion_does_not_break_a_retry(pair):
    """A WRITE is complete, its memory is gone, and then the WRITEs behind it go back."""
    from verbena.sw.verbs.mr import MR
    from verbena.sw.verbs.wr import SGE, SendWR

    a, b = pair
    fill(a, 22)
    for _ in range(4):
        mr = MR(a.pd, 4096, 1)
        harm(A, 2, "lose")
        wr = SendWR(0, WRITE, num_sge=1, sg=[SGE(mr.buf, 600, mr.lkey)], send_flags=SIGNALED)
        wr.set_wr_rdma(b.mr.rkey, b.mr.buf)
        a.qp.post_send(wr)
        checks = [post(a, b, WRITE, 600, n) for n in (1, 2)]
        assert completion(a.cq).status == 0
        mr.close()
        assert [wc.status for wc in completion(a.cq, 2)] == [0, 0]
        for check in checks:
            check()


def test_draining(pair):
    """SQD finishes what was begun, tells it, and begins nothing; RTS goes on."""
    a, b = pair
    fill(a, 23)
    harm(A, 2, "lose")
    first = [post(a, b, WRITE, 1000, n) for n in range(3)]
    settle(1500)
    attr = QPAttr(qp_state=ibv_qp_state.IBV_QPS_SQD)
    attr.en_sqd_async_notify = 1
    a.qp.modify(attr, ibv_qp_attr_mask.IBV_QP_STATE | ibv_qp_attr_mask.IBV_QP_EN_SQD_ASYNC_NOTIFY)
    second = [post(a, b, READ, 1000, n) for n in (3, 4)]
    event = a.context.get_async_event()
    assert event.event_type == ibv_event_type.IBV_EVENT_SQ_DRAINED
    event.ack()
    assert a.qp.query()[0].sq_draining == 0
    settle(5000)
    n, wcs = a.cq.poll(16)
    assert [wc.status for wc in wcs] == [0] * n
    assert n < 5
    state(a, ibv_qp_state.IBV_QPS_RTS)
    wcs += completions(a.cq, 5 - n)
    assert [(wc.wr_id, wc.status) for wc in wcs] == [(n, 0) for n in range(5)]
    for check in first + second:
        check()


def test_messages_wait_for_credits(pair):
    """Many SENDs, few receives: with credits the receiver is not ready seldom, and not once for each message."""
    a, b = pair
    fill(a, 24)
    deltas = Deltas(b, "tx_naks")
    total = 30
    for number in range(4):
        recv(b, [sge(b, 64 * number, 64)], wr_id=number)
    for number in range(total):
        send(a, SEND, [sge(a, 64 * number, 64)], wr_id=number)
    posted = 4
    for number in range(total):
        wc = completion(b.cq)
        assert (wc.wr_id, wc.status) == (number, 0)
        if posted < total:
            recv(b, [sge(b, 64 * posted, 64)], wr_id=posted)
            posted += 1
    assert [wc.status for wc in completion(a.cq, total)] == [0] * total
    assert b.mr.read(64 * total, 0) == a.mr.read(64 * total, 0)
    assert deltas["tx_naks"] < total // 2
