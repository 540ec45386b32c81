"""Shared receive queues when something goes wrong: queue pairs that end in the midst of a message, and bad receives."""

import random
from types import SimpleNamespace

import pytest
from ends import SEND, SEND_IMM, End, completion, completions, connect, fill, quiet, recv, send, settle, sge
from raw_peer import ACK, MTU, NAK_INVALID, RawPeer, reth
from shared import SIZE, SLOT, Lone, ends_with, events, post, received
from verbena.hdl.abi.cqe import Syndrome
from verbena.sim.devices import world
from verbena.sim.pair import join, start
from verbena.sw.verbs.libibverbs_enums import ibv_event_type, ibv_qp_attr_mask, ibv_qp_state, ibv_qp_type, ibv_wc_status
from verbena.sw.verbs.pyverbs_error import PyverbsRDMAError
from verbena.sw.verbs.qp import QPAttr
from verbena.sw.verbs.srq import SRQ, SrqAttr
from verbena.sw.verbs.wr import SGE

RC, UC, UD = ibv_qp_type.IBV_QPT_RC, ibv_qp_type.IBV_QPT_UC, ibv_qp_type.IBV_QPT_UD
W, S = ibv_wc_status, ibv_qp_state
E = ibv_event_type
LAST = E.IBV_EVENT_QP_LAST_WQE_REACHED
SEND_FIRST, SEND_MIDDLE, SEND_LAST, SEND_ONLY, WRITE_FIRST, WRITE_MIDDLE, WRITE_LAST_IMM = 0, 1, 2, 4, 6, 7, 9
UC_SENDS = 0x20
ENTRIES = (300, 200, 500)
"""Of a receive: no entry ends where a packet does."""
BTH_BYTES = 14 + 20 + 8 + 12
RNR_NAK = 0x20 | 12


def modify(qp, state):
    qp.modify(QPAttr(qp_state=state), ibv_qp_attr_mask.IBV_QP_STATE)


def go_on(lone, count=1):
    """The others' messages arrive, in receives of which each is posted again; ``wr_id`` of those."""
    used = []
    for number in range(count):
        for near, far in zip(lone.other.qps, lone.end.qps[1:], strict=True):
            send(lone.other, SEND_IMM, [sge(lone.other, 1000 * number, 700)], imm=number, qp=near)
            wc = completion(lone.end.cq)
            assert (wc.status, wc.qp_num, wc.imm_data) == (W.IBV_WC_SUCCESS, far.qp_num, number)
            assert received(lone.end, wc, ENTRIES) == lone.other.mr.read(700, 1000 * number)
            assert completion(lone.other.cq).status == W.IBV_WC_SUCCESS
            post(lone.end, wc.wr_id, ENTRIES)
            used.append(wc.wr_id)
    return used


def all_free(lone, outstanding):
    """Exactly so many receives are outstanding."""
    for _ in range(lone.end.srq.query().max_wr - outstanding):
        post(lone.end, 0)
    with pytest.raises(PyverbsRDMAError, match="Cannot allocate memory"):
        post(lone.end, 0)


# -- Messages that take their time.


def test_a_silent_peer_does_not_hold_up_the_others():
    """In the midst of its message it has one receive, while the others go round the ring several times. Then the
    message goes on where it was, though the place in the ring has long been another receive's.
    """
    with Lone(max_wr=4) as lone:
        fill(lone.other, 1)
        before = fill(lone.end, 2)
        for number in range(4):
            post(lone.end, number, ENTRIES)
        lone.send(SEND_FIRST, 0, MTU * b"a")
        assert lone.peer.answers() == []
        assert set(go_on(lone, 10)) == {1, 2, 3}
        lone.send(SEND_MIDDLE, 1, MTU * b"b")
        assert go_on(lone, 3)
        lone.send(SEND_LAST, 2, 100 * b"c", ack=1)
        wc = completion(lone.end.cq)
        assert (wc.wr_id, wc.status, wc.byte_len) == (0, W.IBV_WC_SUCCESS, 2 * MTU + 100)
        assert received(lone.end, wc, ENTRIES) == MTU * b"a" + MTU * b"b" + 100 * b"c"
        for at in (300, 501):
            assert lone.end.mr.read(1, at) == before[at : at + 1]
        assert [answer.syndrome for answer in lone.peer.answers()] == [ACK]
        post(lone.end, 0, ENTRIES)
        assert len(set(go_on(lone, 4))) == 4
        all_free(lone, 4)


def test_a_write_takes_its_receive_at_the_end():
    """Before, the others may have all of them."""
    with Lone(max_wr=4) as lone:
        fill(lone.other, 1)
        post(lone.end, 0, ENTRIES)
        mr = lone.end.mr
        lone.send(WRITE_FIRST, 0, reth(mr.buf + SIZE // 2, mr.rkey, 2 * MTU) + MTU * b"a")
        assert lone.peer.answers() == []
        assert set(go_on(lone)) == {0}
        lone.send(WRITE_LAST_IMM, 1, b"IMMD" + MTU * b"b")
        wc = completion(lone.end.cq)
        assert (wc.wr_id, wc.qp_num, wc.byte_len) == (0, lone.end.qp.qp_num, 2 * MTU)
        assert wc.imm_data.to_bytes(4, "little") == b"IMMD"
        assert mr.read(2 * MTU, SIZE // 2) == MTU * b"a" + MTU * b"b"


@pytest.mark.every_width
def test_many_messages_halfway():
    """Each queue pair has a receive of its own, and each message ends in it, whatever the order of the packets."""
    count, rng = 12, random.Random(4)
    with End("sim1", SIZE, qps=count, srq=SrqAttr(16, 3)) as end:
        for number in range(16):
            post(end, number, ENTRIES)
        peers = [RawPeer(SimpleNamespace(qp=qp, context=end.context, mr=end.mr)) for qp in end.qps]
        held = {}
        for step, opcode in enumerate((SEND_FIRST, SEND_MIDDLE, SEND_MIDDLE, SEND_LAST)):
            order = rng.sample(range(count), count)
            for place in order:
                length = MTU if opcode != SEND_LAST else 10 + place
                peers[place].send(opcode, step, bytes([16 * step + place]) * length)
                settle(rng.choice((10, 300)))
            if step == 0:
                held = dict(zip(order, range(count), strict=True))
        settle(3000)
        for wc in completions(end.cq, count):
            place = [qp.qp_num for qp in end.qps].index(wc.qp_num)
            expected = b"".join(bytes([16 * step + place]) * MTU for step in range(3))
            assert (wc.status, wc.wr_id) == (W.IBV_WC_SUCCESS, held[place])
            assert received(end, wc, ENTRIES) == expected + bytes([48 + place]) * (10 + place)
        assert end.srq._queue.free == count


def test_what_a_peer_hears():
    """An RNR NAK while there is no receive; then an ACK, which tells of no credits (IBA 9.7.7.2)."""
    with Lone() as lone:
        lone.send(SEND_ONLY, 0, b"data", ack=1)
        assert [(answer.psn, answer.syndrome) for answer in lone.peer.answers()] == [(0, RNR_NAK)]
        lone.send(SEND_ONLY, 0, b"data", ack=1)
        assert [(answer.psn, answer.syndrome) for answer in lone.peer.answers()] == [(0, RNR_NAK)]
        for number in range(3):
            post(lone.end, number)
        lone.send(SEND_ONLY, 0, b"data", ack=1)
        settle()
        frame = lone.peer.tap.receive()
        assert frame[BTH_BYTES] == 0x1F
        assert int.from_bytes(frame[BTH_BYTES + 1 : BTH_BYTES + 4], "big") == 1  # MSN
        assert completion(lone.end.cq).wr_id == 0
        lone.send(SEND_ONLY, 0, b"data", ack=1)  # once more: it takes no receive
        quiet(lone.end.cq)
        lone.send(SEND_ONLY, 1, b"data")
        assert completion(lone.end.cq).wr_id == 1


# -- Queue pairs that end.


def too_long(lone):
    lone.send(SEND_MIDDLE, 1, MTU * b"b")
    lone.send(SEND_MIDDLE, 2, MTU * b"c")
    lone.send(SEND_LAST, 3, MTU * b"d")


WAYS = {
    "told to": (lambda lone: modify(lone.end.qp, S.IBV_QPS_ERR), W.IBV_WC_WR_FLUSH_ERR, [], []),
    "another message": (
        lambda lone: lone.send(SEND_ONLY, 1, b"data"),
        W.IBV_WC_WR_FLUSH_ERR,
        [NAK_INVALID],
        [E.IBV_EVENT_QP_REQ_ERR],
    ),
    "too long": (too_long, W.IBV_WC_LOC_LEN_ERR, [NAK_INVALID], []),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_queue_pair_ends_in_the_midst_of_a_message(way):
    """Of the queue only the receive that it has is flushed, and an event tells that no other will come; once."""
    end_it, status, answered, told = WAYS[way]
    with Lone(max_wr=4) as lone:
        fill(lone.other, 1)
        for number in range(4):
            post(lone.end, number, ENTRIES)
        lone.send(SEND_FIRST, 0, MTU * b"a")
        assert lone.peer.answers() == []
        end_it(lone)
        wc = completion(lone.end.cq)
        assert (wc.wr_id, wc.status, wc.qp_num) == (0, status, lone.end.qp.qp_num)
        quiet(lone.end.cq)
        assert lone.end.qp.qp_state == S.IBV_QPS_ERR
        assert [answer.syndrome for answer in lone.peer.answers()] == answered
        qp = lone.end.qp
        assert sorted(events(lone.end), key=lambda event: event[0]) == [*((kind, qp) for kind in told), (LAST, qp)]
        modify(qp, S.IBV_QPS_ERR)
        assert events(lone.end) == []
        quiet(lone.end.cq)
        post(lone.end, 0, ENTRIES)
        assert set(go_on(lone, 4)) == {0, 1, 2, 3}
        all_free(lone, 4)


@pytest.mark.parametrize("state", [S.IBV_QPS_INIT, S.IBV_QPS_RTS])
@pytest.mark.parametrize("qp_type", [RC, UC, UD])
def test_a_queue_pair_ends_between_two_messages(qp_type, state):
    """Nothing is flushed; the event comes all the same, also of a second end."""
    with End("sim1", SIZE, qp_type=qp_type, qps=2, srq=SrqAttr(4, 1)) as end:
        post(end, 0)
        for _ in range(2):
            attr = QPAttr()
            attr.qp_access_flags = 14
            if state == S.IBV_QPS_INIT:
                end.qp.to_init(attr)
            elif qp_type == UD:
                start(SimpleNamespace(qps=[end.qp]))
            else:
                join(end.qp, end.qps[1], end.gid)
            modify(end.qp, S.IBV_QPS_ERR)
            assert events(end) == [(LAST, end.qp)]
            quiet(end.cq)
            modify(end.qp, S.IBV_QPS_RESET)
            assert events(end) == []
        assert end.srq._queue.free == 3


def test_a_sender_that_fails_ends_its_queue_pair():
    """Its own error, with nothing of the receives' about it: the event tells of those."""
    with Lone() as lone:
        post(lone.end, 0, ENTRIES)
        send(lone.end, SEND, [SGE(lone.end.mr.buf, 8, lone.end.mr.lkey ^ 1)], wr_id=9, qp=lone.end.qps[1])
        wc = completion(lone.end.cq)
        assert (wc.wr_id, wc.status) == (9, W.IBV_WC_LOC_PROT_ERR)
        assert events(lone.end) == [(LAST, lone.end.qps[1])]
        quiet(lone.end.cq)
        assert lone.end.srq._queue.free == 7


@pytest.mark.parametrize("way", ["reset", "destroy"])
@pytest.mark.parametrize("qp_type", [RC, UC])
def test_a_queue_pair_goes_in_the_midst_of_a_message(way, qp_type):
    """Nobody gets a completion, and the receive's place is free again. After RESET the queue pair takes another one."""
    base = 0 if qp_type == RC else UC_SENDS
    with Lone(qp_type, max_wr=4) as lone:
        fill(lone.other, 1)
        for number in range(4):
            post(lone.end, number, ENTRIES)
        lone.send(base + SEND_FIRST, 0, MTU * b"a")
        assert lone.peer.answers() == []
        if way == "reset":
            modify(lone.end.qp, S.IBV_QPS_RESET)
        else:
            lone.end.qps[0].close()
        quiet(lone.end.cq)
        assert lone.end.srq._queue.free == 1
        assert set(go_on(lone, 4)) == {1, 2, 3}
        if way == "reset":
            peer = RawPeer(lone.end, 7)
            peer.send(base + SEND_FIRST, 7, MTU * b"x", ack=0)
            peer.send(base + SEND_LAST, 8, b"y")
            wc = completion(lone.end.cq)
            assert (wc.status, received(lone.end, wc, ENTRIES)) == (W.IBV_WC_SUCCESS, MTU * b"x" + b"y")
            post(lone.end, wc.wr_id, ENTRIES)
        assert events(lone.end) == []
        all_free(lone, 3)


def test_a_reset_while_a_packet_waits_for_its_receive():
    """The engine has not read it yet."""
    with Lone(max_wr=4) as lone:
        fill(lone.other, 1)
        for number in range(4):
            post(lone.end, number, ENTRIES)
        lone.send(SEND_FIRST, 0, MTU * b"a")
        modify(lone.end.qp, S.IBV_QPS_RESET)
        quiet(lone.end.cq)
        assert lone.end.srq._queue.free in (0, 1)
        assert len(go_on(lone, 2)) == 4


def test_what_a_reset_completes_is_there_before_it_ends():
    """However long a write to memory takes: nobody gets a completion of the life that is over."""
    with Lone(max_wr=4) as lone:
        fill(lone.other, 1)
        for number in range(4):
            post(lone.end, number, ENTRIES)
        lone.send(SEND_FIRST, 0, MTU * b"a")
        settle()
        port = world().adapters[1]
        port.set_memory(read_latency=128, write_latency=3000)
        try:
            modify(lone.end.qp, S.IBV_QPS_RESET)
            assert lone.end.srq._queue.free == 1
            quiet(lone.end.cq, 8000)
        finally:
            port.set_memory(read_latency=128, write_latency=32)
        assert len(go_on(lone, 2)) == 4


def test_queue_pairs_come_and_go():
    """Each is reset in the midst of a message, again and again, and no receive is lost."""
    with Lone(max_wr=4) as lone:
        fill(lone.other, 1)
        for number in range(4):
            post(lone.end, number, ENTRIES)
        for turn in range(12):
            lone.send(SEND_FIRST, 0, MTU * b"a")
            if turn % 3 == 0:
                settle(40 * turn)  # it may be anywhere
            elif turn % 3 == 1:
                settle()
                modify(lone.end.qp, S.IBV_QPS_ERR)
            modify(lone.end.qp, S.IBV_QPS_RESET)
            free = lone.end.srq._queue.free
            assert free in (0, 1)
            if free:
                post(lone.end, 9, ENTRIES)
            lone.peer = RawPeer(lone.end)
        found = lone.end.cq.poll(64)[1]
        assert found == []
        quiet(lone.end.cq)
        assert {event for event, _ in events(lone.end)} <= {LAST}
        assert len(go_on(lone, 2)) == 4
        all_free(lone, 4)


# -- Receives that do not do.


@pytest.mark.parametrize("packets", [1, 3])
def test_a_message_that_is_too_long(packets):
    with ends_with(RC, qps=2) as (a, b):
        connect(a, b, mtu=256)
        fill(a, 1)
        post(b, 0, (100, 100) if packets == 1 else (300, 200))
        post(b, 1)
        send(a, SEND, [sge(a, 0, 201 if packets == 1 else 600)])
        assert completion(a.cq).status == W.IBV_WC_REM_INV_REQ_ERR
        wc = completion(b.cq)
        assert (wc.wr_id, wc.status, wc.qp_num) == (0, W.IBV_WC_LOC_LEN_ERR, b.qp.qp_num)
        assert events(b) == [(LAST, b.qp)]
        send(a, SEND, [sge(a, 0, 600)], qp=a.qps[1])
        wc = completion(b.cq)
        assert (wc.wr_id, wc.status, wc.qp_num) == (1, W.IBV_WC_SUCCESS, b.qps[1].qp_num)
        assert b.mr.read(600, SLOT) == a.mr.read(600, 0)


@pytest.mark.parametrize("qp_type", [RC, UC])
@pytest.mark.parametrize("packets", [1, 3])
def test_memory_that_may_not_be_written(packets, qp_type):
    with ends_with(qp_type, qps=2) as (a, b):
        connect(a, b, mtu=256)
        good = [sge(b, 0, 256 * (packets - 1) or 4)]
        recv(b, [*good, SGE(b.mr.buf + SLOT, 300, b.mr.lkey ^ 1)], wr_id=5, qp=b.srq)
        post(b, 1)
        send(a, SEND, [sge(a, 0, 256 * packets)])
        assert completion(a.cq).status == (W.IBV_WC_REM_OP_ERR if qp_type == RC else W.IBV_WC_SUCCESS)
        wc = completion(b.cq)
        assert (wc.wr_id, wc.status, wc.vendor_err) == (5, W.IBV_WC_LOC_PROT_ERR, Syndrome.KEY)
        assert (LAST, b.qp) in events(b)
        send(a, SEND, [sge(a, 0, 8)], qp=a.qps[1])
        assert completion(b.cq).wr_id == 1
        assert b.qps[1].qp_state == S.IBV_QPS_RTS


def test_uc_takes_the_receive_of_a_lost_message_again():
    """It stays the queue pair's own: the others take the next ones."""
    with Lone(UC, max_wr=4) as lone:
        fill(lone.other, 1)
        for number in range(4):
            post(lone.end, number, ENTRIES)
        for psn in (0, 100, 200):
            lone.send(UC_SENDS + SEND_FIRST, psn, MTU * b"a")
            assert lone.peer.answers() == []
        assert go_on(lone) == [1, 2]
        lone.send(UC_SENDS + SEND_ONLY, 300, b"whole")
        wc = completion(lone.end.cq)
        assert (wc.wr_id, wc.status) == (0, W.IBV_WC_SUCCESS)
        assert received(lone.end, wc, ENTRIES) == b"whole"


# -- The queue itself.


def broken(end, who):
    """What ``who`` hears when it needs a receive of a queue that cannot be read."""
    found = events(end)
    assert sorted(kind for kind, _ in found) == sorted([E.IBV_EVENT_SRQ_ERR, E.IBV_EVENT_QP_FATAL, LAST])
    assert {element for kind, element in found if kind == E.IBV_EVENT_SRQ_ERR} == {end.srq}
    assert {element for kind, element in found if kind != E.IBV_EVENT_SRQ_ERR} == {who}


@pytest.mark.parametrize("posted", [0, 1])
def test_a_doorbell_that_claims_too_much(posted):
    """Who needs a receive ends; who does not lives; another queue is not touched. A receive that the engine had before
    may still be taken.
    """
    with Lone(max_wr=4, qps=2) as lone, ends_with(RC, qps=1) as (c, d):
        connect(c, d)
        for number in range(posted):
            post(lone.end, number)
        settle()
        lone.end.context._adapter.ring_srq(lone.end.srq.get_srq_num(), 100)
        for _ in range(posted + 1):
            send(lone.other, SEND, [sge(lone.other, 0, 8)])
        found = [wc.status for wc in completions(lone.other.cq, posted + 1)]
        assert W.IBV_WC_REM_OP_ERR in found
        assert {wc.status for wc in lone.end.cq.poll(8)[1]} <= {W.IBV_WC_SUCCESS}
        broken(lone.end, lone.end.qps[1])
        assert lone.end.qp.qp_state == S.IBV_QPS_RTS
        assert lone.end.qps[1].qp_state == S.IBV_QPS_ERR
        post(d, 0)
        send(c, SEND, [sge(c, 0, 8)])
        assert completion(d.cq).wr_id == 0


def test_a_queue_that_cannot_be_read(monkeypatch):
    original = SRQ._context_of
    nowhere = {"rq_base": 0xDEAD_0000_0000}
    monkeypatch.setattr(SRQ, "_context_of", lambda self, limit: original(self, limit) | nowhere)
    with ends_with(RC, qps=1) as (a, b):
        connect(a, b)
        post(b, 0)
        send(a, SEND, [sge(a, 0, 8)])
        assert completion(a.cq).status == W.IBV_WC_REM_OP_ERR
        broken(b, b.qp)
    monkeypatch.undo()
    with ends_with(RC, qps=1) as (a, b):  # the same number
        connect(a, b)
        post(b, 0)
        send(a, SEND, [sge(a, 0, 8)])
        assert completion(b.cq).wr_id == 0
