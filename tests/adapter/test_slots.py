"""More queue pairs than slots: who has none is in host memory, and comes when he is needed."""

import os
import random

import pytest
from ends import CMP_SWP, FETCH_ADD, PATIENCE, READ, SEND, WRITE, End, atomic, connect, fill, recv, send, sge, word
from verbena.sim.model import rnic
from verbena.sim.pair import join
from verbena.sim.world import World
from verbena.sw.verbs.libibverbs_enums import (
    IBV_QPT_RC,
    ibv_event_type,
    ibv_qp_attr_mask,
    ibv_qp_state,
    ibv_wc_status,
)
from verbena.sw.verbs.pyverbs_error import PyverbsRDMAError
from verbena.sw.verbs.qp import QP, QPAttr, QPCap, QPInitAttr

pytestmark = pytest.mark.few_slots

SLOTS = 4
PAIRS = 12
SIZE = 1 << 14
PATIENT = {"timeout": 10}
STATUS = ibv_wc_status
WIDTH = int(os.environ.get("VERBENA_DATA_WIDTH") or 64)


@pytest.fixture(scope="module")
def world():
    with World(2, rnic(data_width=WIDTH, slots=SLOTS), seed=5) as world:
        yield world


@pytest.fixture(scope="module")
def connections(world):
    with End("sim0", SIZE, qps=PAIRS, world=world) as a, End("sim1", SIZE, qps=PAIRS, world=world) as b:
        connect(a, b, **PATIENT)
        yield a, b


@pytest.fixture
def ends(connections):
    """Both ends of :data:`PAIRS` connections: a context, a region and a CQ a side. In the place of those that a test
    uses up the next one finds others.
    """
    yield connections
    a, b = connections
    if a.context._closed:
        return
    for number in range(PAIRS):
        if usable(a.qps[number]):
            continue
        for end in connections:
            end.qps[number].close()
            init = QPInitAttr(IBV_QPT_RC, scq=end.cq, rcq=end.cq, cap=QPCap(128, 128), sq_sig_all=0)
            end.qps[number] = QP(end.pd, init)
        for near, far in ((a, b), (b, a)):
            join(near.qps[number], far.qps[number], far.gid, **PATIENT)
    for end in connections:
        while end.cq.poll(64)[0]:
            pass


def usable(qp):
    try:
        return qp.qp_state == ibv_qp_state.IBV_QPS_RTS
    except PyverbsRDMAError:  # it is closed
        return False


def completions(end, count):
    found, limit = [], end.world_cycles() + PATIENCE
    while len(found) < count:
        found += end.cq.poll(count - len(found))[1]
        assert end.world_cycles() < limit, f"{count} completions wanted, {len(found)} came"
    return found


@pytest.fixture(autouse=True)
def clock(world, monkeypatch):
    monkeypatch.setattr(End, "world_cycles", lambda end: world.cycles, raising=False)


def crowd_out(a, b, numbers):
    """These queue pairs of both ends are in host memory: others have been used."""
    others = [number for number in range(PAIRS) if number not in numbers]
    for number in others + others[:SLOTS]:
        send(a, WRITE, [sge(a, 0, 8)], remote=(b, SIZE - 8), qp=a.qps[number])
        (done,) = completions(a, 1)
        assert done.status == STATUS.IBV_WC_SUCCESS


def fetches(end):
    return end.context.query_counters("qp_fetches")["qp_fetches"]


def test_every_operation_of_queue_pairs_in_turn(ends):
    """Nothing is lost or changed, and queue pairs come and go for it."""
    a, b = ends
    rng = random.Random(3)
    source = fill(a, 1)
    expected, before = bytearray(fill(b, 2)), fetches(a)
    expected[-8:] = bytes(8)
    b.mr.write(bytes(8), 8, SIZE - 8)
    added = 0
    for turn in range(48):
        number = rng.randrange(PAIRS)
        qp, place = a.qps[number], 64 * turn
        if turn % 4 == 0:
            recv(b, [sge(b, place, 64)], wr_id=turn, qp=b.qps[number])
            send(a, SEND, [sge(a, place, 64)], wr_id=turn, qp=qp)
        elif turn % 4 == 1:
            send(a, WRITE, [sge(a, place, 64)], wr_id=turn, remote=(b, place), qp=qp)
        elif turn % 4 == 2:
            send(a, READ, [sge(a, SIZE // 2, 2048)], wr_id=turn, remote=(b, 1024), qp=qp)
        else:
            atomic(a, FETCH_ADD, [sge(a, SIZE - 64, 8)], (b, SIZE - 8), turn, wr_id=turn, qp=qp)
            added += turn
        (done,) = completions(a, 1)
        assert (done.wr_id, done.status, done.qp_num) == (turn, STATUS.IBV_WC_SUCCESS, qp.qp_num)
        if turn % 4 < 2:
            expected[place : place + 64] = source[place : place + 64]
        elif turn % 4 == 2:
            assert a.mr.read(2048, SIZE // 2) == bytes(expected[1024:3072])
    assert b.mr.read(SIZE - 8, 0) == bytes(expected[:-8])
    assert word(b, SIZE - 8) == added
    assert [done.status for done in completions(b, 12)] == [STATUS.IBV_WC_SUCCESS] * 12
    assert fetches(a) - before > 20
    assert fetches(b) > 20


@pytest.mark.parametrize("cycles", [75_000, pytest.param(150_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("both", [False, True], ids=["one way", "both ways"])
def test_all_get_on_evenly(ends, world, both, cycles):
    """Each always has a few messages to send, so all want slots all the time: over a while nobody has done twice as
    much as another. What comes meanwhile finds room, so that nobody waits for a timeout."""
    a, b = ends
    fill(a, 4)
    fill(b, 5)
    senders = ((a, b), (b, a)) if both else ((a, b),)
    done = {near: dict.fromkeys((qp.qp_num for qp in near.qps), 0) for near, _ in senders}
    dropped = [end.context.query_counters("drop_overflow") for end in ends]

    def post(near, far, qp):
        place = 8192 * (near is b)
        send(near, WRITE, [sge(near, place, 512)], remote=(far, place + 1024), qp=qp)

    for near, far in senders:
        for qp in near.qps:
            for _ in range(3):
                post(near, far, qp)
    end = world.cycles + cycles
    while world.cycles < end:
        for near, far in senders:
            for wc in near.cq.poll(16)[1]:
                assert wc.status == STATUS.IBV_WC_SUCCESS
                done[near][wc.qp_num] += 1
                post(near, far, next(qp for qp in near.qps if qp.qp_num == wc.qp_num))
    assert [end.context.query_counters("drop_overflow") for end in ends] == dropped
    for each in done.values():
        assert min(each.values()) >= cycles // 15_000
        assert max(each.values()) <= 2 * min(each.values())
    for near, far in senders:
        completions(near, 3 * PAIRS)
        assert far.mr.read(512, 1024 + 8192 * (near is b)) == near.mr.read(512, 8192 * (near is b))


def test_a_receiver_that_is_not_ready_while_both_are_away(ends, world):
    """The wait after an RNR NAK runs in host memory; then the message arrives."""
    a, b = ends
    fill(a, 6)
    send(a, SEND, [sge(a, 64, 128)], wr_id=7, qp=a.qps[3])
    start = world.cycles
    while world.cycles < start + 2000:
        assert a.cq.poll(1)[1] == []
    crowd_out(a, b, [3])
    recv(b, [sge(b, 4096, 128)], wr_id=9, qp=b.qps[3])
    (done,) = completions(a, 1)
    assert (done.wr_id, done.status) == (7, STATUS.IBV_WC_SUCCESS)
    (done,) = completions(b, 1)
    assert (done.wr_id, done.status, done.byte_len) == (9, STATUS.IBV_WC_SUCCESS, 128)
    assert b.mr.read(128, 4096) == a.mr.read(128, 64)


def test_who_leaves_has_its_completions_in_memory(ends, world):
    """However long a write takes: one that fails is told of while the slot is still its queue pair's."""
    a, b = ends
    late = PAIRS - 1
    crowd_out(a, b, [late])  # the first ones have slots now
    source = fill(a, 9)
    fill(b, 10)
    port = world.adapters[0]
    port.set_memory(read_latency=128, write_latency=12_000)
    found = []
    try:
        start = world.cycles
        for number in range(SLOTS):
            send(a, WRITE, [sge(a, 0, 64)], wr_id=number, remote=(b, 0), qp=a.qps[number])
        while world.cycles < start + 2000:
            assert a.cq.poll(1)[1] == []
        send(a, WRITE, [sge(a, 64, 64)], wr_id=late, remote=(b, 64), qp=a.qps[late])
        while b.mr.read(64, 64) != source[64:128]:
            found += a.cq.poll(SLOTS)[1]
            assert world.cycles < start + PATIENCE
        assert found, "a queue pair has left its slot before its completion was in memory"
    finally:
        port.set_memory(read_latency=128, write_latency=32)
    found += completions(a, SLOTS + 1 - len(found))
    assert sorted(done.wr_id for done in found) == [*range(SLOTS), late]
    assert {done.status for done in found} == {STATUS.IBV_WC_SUCCESS}


def test_silent_peers_stop_nobody(world):
    """Peers that do not answer: each message ends with RETRY_EXC, by timers of queue pairs in host memory, and those
    whose peers answer get on meanwhile."""
    with End("sim0", SIZE, qps=PAIRS, world=world) as a, End("sim1", SIZE, qps=PAIRS, world=world) as b:
        for number, (near, far) in enumerate(zip(a.qps, b.qps)):
            silent = number % 2
            join(near, far, b.gid, timeout=9 if silent else 12, retry_cnt=2)
            if not silent:
                join(far, near, a.gid)
        for number in range(1, PAIRS, 2):
            send(a, WRITE, [sge(a, 0, 8)], wr_id=number, remote=(b, 0), qp=a.qps[number])
        failed, good, limit = [], 0, world.cycles + PATIENCE
        while len(failed) < PAIRS // 2:
            number = 2 * (good % (PAIRS // 2))
            send(a, WRITE, [sge(a, 0, 8)], wr_id=100, remote=(b, 0), qp=a.qps[number])
            mine = False
            while not mine:
                assert world.cycles < limit, failed
                for wc in a.cq.poll(16)[1]:
                    if wc.wr_id == 100:
                        assert wc.status == STATUS.IBV_WC_SUCCESS
                        mine = True
                    else:
                        assert wc.status == STATUS.IBV_WC_RETRY_EXC_ERR
                        failed.append(wc.wr_id)
            good += 1
        assert sorted(failed) == list(range(1, PAIRS, 2))
        assert good > 20


def test_a_queue_pair_that_is_away_is_flushed(ends):
    """To ERR: what was posted before completes with WR_FLUSH_ERR, and so does what is posted when it is away again."""
    a, b = ends
    qp = a.qps[5]
    for number in range(6):
        recv(a, [sge(a, 0, 8)], wr_id=number, qp=qp)
    crowd_out(a, b, [5])
    qp.modify(QPAttr(qp_state=ibv_qp_state.IBV_QPS_ERR), ibv_qp_attr_mask.IBV_QP_STATE)
    flushed = completions(a, 6)
    assert [(wc.wr_id, wc.status) for wc in flushed] == [(n, STATUS.IBV_WC_WR_FLUSH_ERR) for n in range(6)]
    crowd_out(a, b, [5])
    for number in range(6, 9):
        recv(a, [sge(a, 0, 8)], wr_id=number, qp=qp)
        send(a, WRITE, [sge(a, 0, 8)], wr_id=10 + number, remote=(b, 0), qp=qp)
    flushed = completions(a, 6)
    assert {wc.status for wc in flushed} == {STATUS.IBV_WC_WR_FLUSH_ERR}
    assert sorted(wc.wr_id for wc in flushed) == [6, 7, 8, 16, 17, 18]
    crowd_out(a, b, [5])


def test_an_atomic_is_not_done_twice_though_its_queue_pair_was_away(ends, world):
    """Its response is lost; meanwhile the responder's queue pair leaves. When it is asked for again it is answered from
    what was kept."""
    a, b = ends
    b.mr.write((40).to_bytes(8, "little"), 8, 0)
    send(a, WRITE, [sge(a, 128, 8)], remote=(b, 256), qp=a.qps[2])
    completions(a, 1)
    before = b.context.query_counters("replays")["replays"]
    for frame in range(4):
        responder = world.adapters[1]
        responder.fault_at(responder.counters["sent_frames"] + frame, "lose")
    atomic(a, CMP_SWP, [sge(a, 512, 8)], (b, 0), 40, 41, wr_id=1, qp=a.qps[2])
    start = world.cycles
    while world.cycles < start + 1500:
        assert a.cq.poll(1)[1] == []
    assert word(b, 0) == 41
    b.mr.write((40).to_bytes(8, "little"), 8, 0)  # it would succeed once more
    for number in (6, 7, 8, 9, 10, 11):
        send(b, WRITE, [sge(b, 1024, 8)], remote=(a, 2048), qp=b.qps[number])
        assert completions(b, 1)[0].status == STATUS.IBV_WC_SUCCESS
    (done,) = completions(a, 1)
    assert (done.wr_id, done.status) == (1, STATUS.IBV_WC_SUCCESS)
    assert word(a, 512) == 40
    assert word(b, 0) == 40
    assert b.context.query_counters("replays")["replays"] > before


def event(end):
    found = end.context.get_async_event()
    found.ack()
    return found.event_type, found.element


def test_a_record_that_was_overwritten(ends):
    """Random bits in a record break its own connection and nothing else: QP_FATAL, and calls that say so."""
    a, b = ends
    adapter = a.context._adapter
    for number, where in ((4, 64), (8, 100)):
        qp = a.qps[number]
        crowd_out(a, b, [4, 8])
        table = adapter.qp_table
        table.memory.write(table._at(qp.qp_num % adapter.control.max_qp) + where, random.Random(number).randbytes(64))
        send(a, WRITE, [sge(a, 0, 8)], remote=(b, 0), qp=qp)
        kind, element = event(a)
        assert (kind, element) == (ibv_event_type.IBV_EVENT_QP_FATAL, qp)
        assert qp.qp_state == ibv_qp_state.IBV_QPS_ERR
        with pytest.raises(PyverbsRDMAError, match="has lost this QP"):
            qp.modify(QPAttr(qp_state=ibv_qp_state.IBV_QPS_RESET), ibv_qp_attr_mask.IBV_QP_STATE)
        qp.close()
    crowd_out(a, b, [4, 8])


def test_a_queue_pair_that_is_lost_before_its_event_has_come(ends, world):
    """The device knows it no more, and the event is on its way to memory: calls say the same as after the event."""
    a, b = ends
    qp, port = a.qps[7], world.adapters[0]
    crowd_out(a, b, [7])
    adapter = a.context._adapter
    table = adapter.qp_table
    table.memory.write(table._at(qp.qp_num % adapter.control.max_qp) + 64, random.Random(7).randbytes(64))
    port.set_memory(write_latency=8000)
    try:
        send(a, WRITE, [sge(a, 0, 8)], remote=(b, 0), qp=qp)
        start = world.cycles
        while world.cycles < start + 3000:
            world.advance(100, stop=0)
        assert qp.qp_state == ibv_qp_state.IBV_QPS_ERR
    finally:
        port.set_memory(write_latency=32)
    assert event(a) == (ibv_event_type.IBV_EVENT_QP_FATAL, qp)
    qp.close()
    crowd_out(a, b, [7])


def test_a_table_that_is_not_there(ends):
    """Who leaves is lost, and told; a command for it fails. The others, who never leave, go on."""
    a, b = ends
    adapter = a.context._adapter
    crowd_out(a, b, [0])
    adapter.control.write("qpc_high", 0xDEAD)
    lost = a.qps[0]
    assert lost.qp_state == ibv_qp_state.IBV_QPS_ERR
    kind, element = event(a)
    assert kind == ibv_event_type.IBV_EVENT_QP_FATAL
    assert element in a.qps
    adapter.control.write("qpc_high", adapter.qp_table.bus >> 32)
    good = 0
    for qp in a.qps:
        if qp.qp_state == ibv_qp_state.IBV_QPS_RTS:
            send(a, WRITE, [sge(a, 0, 8)], remote=(b, 0), qp=qp)
            good += completions(a, 1)[0].status == STATUS.IBV_WC_SUCCESS
    assert good >= PAIRS - 3


def test_a_new_life_finds_an_empty_table(ends, world):
    """Who was in host memory when the adapter was reset does not come back, whatever packets come for it. (The last of
    these tests, for it takes an end away.)"""
    a, b = ends
    with End("sim1", SIZE, qps=2, world=world) as peer:
        with End("sim0", SIZE, qps=2, world=world) as old:
            connect(old, peer, timeout=8, retry_cnt=1)
            crowd_out(a, b, [])
            a.close()
        with End("sim0", SIZE, qps=2, world=world) as new:
            for number, qp in enumerate(peer.qps):
                send(peer, WRITE, [sge(peer, 0, 8)], wr_id=number, remote=(new, 0), qp=qp)
            assert {wc.status for wc in completions(peer, 2)} == {STATUS.IBV_WC_RETRY_EXC_ERR}
            assert fetches(new) == new.context.query_counters("qp_fetches")["qp_fetches"]
