"""Shared receive queues: messages of many queue pairs in the receives of one queue."""

import errno
import random

import pytest
from ends import (
    SEND,
    SEND_IMM,
    SIGNALED,
    WRITE_IMM,
    End,
    completion,
    completions,
    connect,
    fill,
    quiet,
    recv,
    send,
    settle,
    sge,
)
from key_ends import bind_2, entry_of, send_inv
from shared import SIZE, SLOT, ends_with, events, post, received
from streams import make_rng
from verbena.sim.devices import world
from verbena.sim.pair import QKEY, handle, start
from verbena.sim.ports import Faults
from verbena.sw.verbs.libibverbs_enums import (
    ibv_event_type,
    ibv_qp_type,
    ibv_srq_attr_mask,
    ibv_wc_flags,
    ibv_wc_opcode,
    ibv_wc_status,
)
from verbena.sw.verbs.mr import MW
from verbena.sw.verbs.pyverbs_error import PyverbsRDMAError
from verbena.sw.verbs.srq import SrqAttr
from verbena.sw.verbs.wr import SendWR

RC, UC, UD = ibv_qp_type.IBV_QPT_RC, ibv_qp_type.IBV_QPT_UC, ibv_qp_type.IBV_QPT_UD
W = ibv_wc_status
LIMIT_REACHED = ibv_event_type.IBV_EVENT_SRQ_LIMIT_REACHED
RECV, RECV_WRITE = ibv_wc_opcode.IBV_WC_RECV, ibv_wc_opcode.IBV_WC_RECV_RDMA_WITH_IMM
GRH_BYTES = 40
LENGTHS = (0, 1, 63, 64, 255, 256, 257, 600, 1500, 4000)


def is_receive(wc):
    return bool(wc.opcode & RECV)


def datagram(end, ah, qpn, sges, *, wr_id=0, imm=0, qp=None):
    wr = SendWR(wr_id, SEND_IMM, num_sge=len(sges), sg=sges, send_flags=SIGNALED, imm_data=imm)
    wr.set_wr_ud(ah, qpn, QKEY)
    qp.post_send(wr)


# -- Messages.


@pytest.mark.every_width
@pytest.mark.parametrize("opcode", [SEND, SEND_IMM, WRITE_IMM])
@pytest.mark.parametrize("qp_type", [RC, UC])
def test_lengths(qp_type, opcode):
    """Each queue pair in turns; receives are taken in the order in which they were posted."""
    with ends_with(qp_type) as (a, b):
        connect(a, b, mtu=256, psn=0xFFFFF0)
        source, expected = fill(a, 1), bytearray(fill(b, 2))
        for number in range(len(LENGTHS)):
            post(b, number)
        for number, length in enumerate(LENGTHS):
            near, far = a.qps[number % 4], b.qps[number % 4]
            here = 17 * number % 64
            there = (SIZE // 2 if opcode == WRITE_IMM else 0) + SLOT * number
            send(a, opcode, [sge(a, here, length)], remote=(b, there), imm=number + 1, qp=near)
            assert completion(a.cq).status == W.IBV_WC_SUCCESS
            got = completion(b.cq)
            assert (got.wr_id, got.status, got.byte_len) == (number, W.IBV_WC_SUCCESS, length)
            assert (got.qp_num, got.src_qp) == (far.qp_num, near.qp_num)
            assert got.opcode == (RECV_WRITE if opcode == WRITE_IMM else RECV)
            assert bool(got.wc_flags & ibv_wc_flags.IBV_WC_WITH_IMM) == (opcode != SEND)
            assert got.imm_data == number + 1 or opcode == SEND
            expected[there : there + length] = source[here : here + length]
            assert b.mr.read(SIZE, 0) == expected
        assert events(b) == []


@pytest.mark.parametrize("length", [0, 8, 600])
def test_sends_that_invalidate(length):
    """They take a receive as others do, whether they are one packet or several."""
    with ends_with(RC, access=31) as (a, b):
        connect(a, b, mtu=256)
        source = fill(a, 1)
        window = MW(b.pd, 2)
        naks = a.context.query_counters("rx_naks")
        for number in range(3):
            post(b, number)
            key = bind_2(b, window, SIZE // 2, 4096, qp=b.qps[number])
            assert completion(b.cq).status == W.IBV_WC_SUCCESS
            send_inv(a, key, [sge(a, number, length)], qp=a.qps[number])
            assert completion(a.cq).status == W.IBV_WC_SUCCESS
            got = completion(b.cq)
            assert (got.wr_id, got.status, got.byte_len) == (number, W.IBV_WC_SUCCESS, length)
            assert (got.wc_flags, got.imm_data) == (ibv_wc_flags.IBV_WC_WITH_INV, key)
            assert b.mr.read(length, SLOT * number) == source[number : number + length]
            assert not entry_of(b, window)["valid"]
        assert a.context.query_counters("rx_naks") == naks


@pytest.mark.parametrize("qp_type", [pytest.param(RC, marks=pytest.mark.every_width), UC])
def test_many_at_once(qp_type):
    """Messages of several packets, of several queue pairs at a time, into receives of several entries; beside a queue
    pair with its own receives. Each queue pair's messages complete in order, each receive once. (Where queue pairs come
    and go, UC would lose some: there is not room for all that comes meanwhile.)
    """
    rng = random.Random(3)
    count = 16
    with (
        ends_with(qp_type, qps=6, max_wr=128) as (a, b),
        End("sim0", SIZE, depth=64) as c,
        End("sim1", SIZE, depth=64) as d,
    ):
        connect(a, b, mtu=256)
        connect(c, d, mtu=256)
        source, plain = fill(a, 1), fill(c, 2)
        entries = {}
        for number in range(16):
            recv(d, [sge(d, SLOT * number, SLOT)], wr_id=number)

        def refill(number):
            first, second = rng.randrange(1, 700), rng.randrange(1, 700)
            entries[number] = (first, second, 3000 - first - second)
            post(b, number, entries[number])

        for number in range(60):
            refill(number)
        sent, got = {}, {qp.qp_num: [] for qp in b.qps}

        def take(messages):
            for _ in range(messages):
                wc = completion(b.cq)
                assert wc.status == W.IBV_WC_SUCCESS
                got[wc.qp_num].append(wc.imm_data)
                lengths = entries.pop(wc.wr_id)
                if wc.opcode == RECV:
                    assert received(b, wc, lengths) == sent[wc.imm_data], (wc.qp_num, wc.imm_data)
                refill(wc.wr_id)

        for number in range(count):
            for place, qp in enumerate(a.qps):
                length, key = rng.randrange(3000), 100 * place + number
                here = rng.randrange(SIZE - 3000)
                sent[key] = source[here : here + length]
                opcode = SEND_IMM if number % 4 else WRITE_IMM
                at = SIZE - 3000
                send(a, opcode, [sge(a, here, length)], wr_id=key, remote=(b, at), imm=key, qp=qp)
            send(c, SEND, [sge(c, 300 * number, 2500)])
            if qp_type == UC:  # which a wide wire brings faster than there is room for
                take(6)
        if qp_type == RC:
            take(6 * count)
        for place, qp in enumerate(b.qps):
            assert got[qp.qp_num] == [100 * place + number for number in range(count)]
        assert {wc.status for wc in completions(a.cq, 6 * count)} == {W.IBV_WC_SUCCESS}
        found = completions(d.cq, count)
        assert [(wc.wr_id, wc.status) for wc in found] == [(n, W.IBV_WC_SUCCESS) for n in range(count)]
        assert d.mr.read(2500, SLOT * (count - 1)) == plain[300 * (count - 1) :][:2500]
        assert len(entries) == 60


@pytest.mark.every_width
def test_datagrams_to_several_queue_pairs():
    """The header stands in front of each, wherever its entries are."""
    rng = random.Random(9)
    with ends_with(UD, qps=3) as (a, b):
        start(a)
        start(b)
        source, ah = fill(a, 4), handle(a, b.gid)
        entries = {number: (30, 20 + number, 4000) for number in range(40)}
        for number, lengths in entries.items():
            post(b, number, lengths)
        sent = {}
        for key in range(40):
            qp, to, length = rng.choice(a.qps), rng.choice(b.qps), rng.randrange(2000)
            sent[key] = (to.qp_num, qp.qp_num, source[50 * key :][:length])
            datagram(a, ah, to.qp_num, [sge(a, 50 * key, length)], imm=key, qp=qp)
        taken = set()
        for wc in completions(b.cq, 40):
            to, source_qp, data = sent.pop(wc.imm_data)
            assert (wc.status, wc.qp_num, wc.src_qp) == (W.IBV_WC_SUCCESS, to, source_qp)
            assert wc.wc_flags & ibv_wc_flags.IBV_WC_GRH
            content = received(b, wc, entries[wc.wr_id])
            assert content[GRH_BYTES:] == data
            assert content[20] == 0x45
            taken.add(wc.wr_id)
        assert taken == set(range(40))


@pytest.mark.parametrize("qp_type", [RC, UC])
def test_over_a_bad_wire(qp_type):
    """Frames are lost, damaged, doubled and overtaken: RC loses nothing, and what UC completes is whole."""
    rng = make_rng()
    with ends_with(qp_type) as (a, b):
        connect(a, b, mtu=256, timeout=6, min_rnr_timer=1)
        source = fill(a, 1)
        world().set_faults(Faults(lose=0.03, corrupt=0.02, damage=0.02, duplicate=0.03, reorder=0.03))
        sent, arrived, posted = {}, {qp.qp_num: [] for qp in b.qps}, 0
        for number in range(32):
            post(b, number, (500, 200, 1500))

        def take(cq):
            for wc in cq.poll(64)[1]:
                assert wc.status == W.IBV_WC_SUCCESS
                if is_receive(wc):
                    assert received(b, wc, (500, 200, 1500)) == sent[wc.imm_data]
                    arrived[wc.qp_num].append(wc.imm_data)
                    post(b, wc.wr_id, (500, 200, 1500))
                else:
                    yield wc

        for number in range(40):
            for place, qp in enumerate(a.qps):
                key = 100 * place + number
                length, at = rng.choice((8, 256, 700, 2000)), rng.randrange(SIZE - 2000)
                sent[key] = source[at : at + length]
                send(a, SEND_IMM, [sge(a, at, length)], wr_id=key, imm=key, qp=qp)
                posted += 1
            settle(500)
            list(take(b.cq))
            while posted > 24:
                posted -= len(list(take(a.cq)))
                list(take(b.cq))
        while posted:
            posted -= len(list(take(a.cq)))
            list(take(b.cq))
        settle(5000)
        list(take(b.cq))
        world().set_faults(Faults())
        for place, qp in enumerate(b.qps):
            keys = [100 * place + number for number in range(40)]
            if qp_type == RC:
                assert arrived[qp.qp_num] == keys
            else:
                assert 0 < len(set(arrived[qp.qp_num])) < 40  # a message that comes twice arrives twice
        assert b.srq.query().max_wr == 64


# -- No receive.


def test_rc_waits_for_a_receive():
    """Each queue pair is told to come again, and does, when there is one."""
    with ends_with(RC) as (a, b):
        connect(a, b, min_rnr_timer=1)
        for number, qp in enumerate(a.qps):
            a.mr.write(bytes([number]) * 8, 8, 8 * number)
            send(a, SEND_IMM, [sge(a, 8 * number, 8)], imm=number, qp=qp)
        quiet(a.cq, 8000)
        assert b.cq.poll() == (0, [])
        for number in range(3):
            post(b, number)
        found = completions(b.cq, 3)
        assert sorted(wc.wr_id for wc in found) == [0, 1, 2]
        for wc in found:
            assert received(b, wc) == bytes([wc.imm_data]) * 8
        quiet(b.cq, 8000)
        post(b, 3)
        found.append(completion(b.cq))
        assert {wc.imm_data for wc in found} == set(range(4))
        assert {wc.status for wc in completions(a.cq, 4)} == {W.IBV_WC_SUCCESS}


def test_rc_gives_up():
    with ends_with(RC, qps=1) as (a, b):
        connect(a, b, min_rnr_timer=1, rnr_retry=2)
        send(a, SEND, [sge(a, 0, 8)])
        assert completion(a.cq).status == W.IBV_WC_RNR_RETRY_EXC_ERR
        post(b, 0)
        quiet(b.cq)


@pytest.mark.parametrize("qp_type", [UC, UD])
def test_uc_and_ud_drop(qp_type):
    """The message is lost, at no one's cost; the next one arrives."""
    with ends_with(qp_type, qps=2) as (a, b):
        if qp_type == UC:
            connect(a, b)
        else:
            start(a)
            start(b)
        ah = handle(a, b.gid)

        def give(imm):
            qp, far = a.qps[imm % 2], b.qps[imm % 2]
            if qp_type == UC:
                send(a, SEND_IMM, [sge(a, 0, 8)], imm=imm, qp=qp)
            else:
                datagram(a, ah, far.qp_num, [sge(a, 0, 8)], imm=imm, qp=qp)

        give(1)
        give(2)
        assert {wc.status for wc in completions(a.cq, 2)} == {W.IBV_WC_SUCCESS}
        settle(2000)
        post(b, 0)
        quiet(b.cq)
        give(3)
        got = completion(b.cq)
        assert (got.imm_data, got.wr_id, got.status) == (3, 0, W.IBV_WC_SUCCESS)
        assert events(b) == []


# -- The limit.


def test_the_limit():
    """The event comes when fewer are left, once; then the limit is 0, and may be set again."""
    with ends_with(RC, qps=2) as (a, b):
        connect(a, b)
        for number in range(12):
            post(b, number)

        def take(count):
            for number in range(count):
                send(a, SEND, [sge(a, 0, 8)], qp=a.qps[number % 2])
                completion(a.cq)
                completion(b.cq)

        b.srq.modify(SrqAttr(srq_limit=9), ibv_srq_attr_mask.IBV_SRQ_LIMIT)
        assert b.srq.query().srq_limit == 9
        take(3)
        assert events(b) == []
        assert b.srq.query().srq_limit == 9
        take(1)
        assert events(b) == [(LIMIT_REACHED, b.srq)]
        assert b.srq.query().srq_limit == 0
        take(2)
        assert events(b) == []
        b.srq.modify(SrqAttr(srq_limit=9), ibv_srq_attr_mask.IBV_SRQ_LIMIT)  # six are left
        assert events(b) == []
        take(1)
        assert events(b) == [(LIMIT_REACHED, b.srq)]
        b.srq.modify(SrqAttr(srq_limit=1), ibv_srq_attr_mask.IBV_SRQ_LIMIT)
        b.srq.modify(SrqAttr(srq_limit=0), ibv_srq_attr_mask.IBV_SRQ_LIMIT)
        take(5)
        assert events(b) == []


def test_two_queues_have_their_own_limits():
    with ends_with(RC, qps=1) as (a, b), ends_with(RC, qps=1) as (c, d):
        connect(a, b)
        connect(c, d)
        assert b.srq.get_srq_num() != d.srq.get_srq_num()
        for end in (b, d):
            for number in range(4):
                post(end, number)
            end.srq.modify(SrqAttr(srq_limit=4), ibv_srq_attr_mask.IBV_SRQ_LIMIT)
        for near, far in ((a, b), (c, d)):
            send(near, SEND, [sge(near, 0, 8)])
            completion(far.cq)
            assert events(far) == [(LIMIT_REACHED, far.srq)]
        assert d.srq.query().srq_limit == b.srq.query().srq_limit == 0


# -- As many as there are.


def test_all_of_them():
    """Each has its own receives; a number that was given back begins empty."""
    with End("sim1", SIZE) as count:
        most = count.context.query_device().max_srq
    assert most == 16
    ends = [End("sim1", SIZE, srq=SrqAttr(4, 1)) for _ in range(most)]
    with pytest.raises(PyverbsRDMAError, match="all 16 SRQs are in use") as error:
        End("sim1", SIZE, srq=SrqAttr(4, 1))
    assert error.value.error_code == errno.ENOMEM
    with End("sim0", SIZE, qps=most) as a:
        a_qps, a.qps = a.qps, a.qps[:1]
        for number, end in enumerate(ends):
            a.qps = [a_qps[number]]
            connect(a, end, min_rnr_timer=1)
            post(end, number % 4)
        for number in range(most):
            send(a, SEND_IMM, [sge(a, 0, 8)], imm=number, qp=a_qps[number])
        for number, end in enumerate(ends):
            got = completion(end.cq)
            assert (got.wr_id, got.imm_data) == (number % 4, number)
        completions(a.cq, most)
        for number, end in enumerate(ends):
            post(end, number % 4)
            end.close()
        with End("sim1", SIZE, srq=SrqAttr(4, 1)) as again, End("sim0", SIZE) as near:
            connect(near, again, min_rnr_timer=1)
            send(near, SEND, [sge(near, 0, 8)])
            quiet(again.cq, 8000)
            post(again, 3)
            assert completion(again.cq).wr_id == 3


@pytest.mark.slow
def test_the_index_wraps():
    """65,536 receives and some more, by the smallest messages, always as many as there is room for."""
    with ends_with(RC, qps=4, max_wr=64, cqe=4096) as (a, b):
        connect(a, b, min_rnr_timer=1)
        for number in range(60):
            post(b, number, (8,))
        posted = done = 0
        total = (1 << 16) + 500
        expected = {qp.qp_num: 0 for qp in b.qps}
        while done < total:
            while posted < total and posted - done < 60:
                qp = a.qps[posted % 4]
                flags = SIGNALED if posted // 4 % 16 == 15 else 0
                send(a, SEND_IMM, [sge(a, 0, 8)], imm=posted // 4, flags=flags, qp=qp)
                posted += 1
            for wc in b.cq.poll(64)[1]:
                assert (wc.status, wc.imm_data) == (W.IBV_WC_SUCCESS, expected[wc.qp_num])
                expected[wc.qp_num] += 1
                post(b, wc.wr_id, (8,))
                done += 1
            assert {wc.status for wc in a.cq.poll(64)[1]} <= {W.IBV_WC_SUCCESS}
        assert b.srq._queue.producer == total + 60 & 0xFFFF
