"""RC READ and atomics between two adapters, every byte checked."""

import itertools

import pytest
from ends import (
    CMP_SWP,
    FETCH_ADD,
    READ,
    SEND,
    SIGNALED,
    WRITE,
    End,
    atomic,
    completion,
    connect,
    fill,
    recv,
    send,
    settle,
    sge,
    word,
)
from streams import make_rng
from verbena.sw.verbs.libibverbs_enums import (
    ibv_access_flags,
    ibv_event_type,
    ibv_qp_state,
    ibv_send_flags,
    ibv_wc_opcode,
    ibv_wc_status,
)
from verbena.sw.verbs.mr import MR
from verbena.sw.verbs.pd import PD
from verbena.sw.verbs.wr import SGE

SIZE = 1 << 18
ALL_ONES = (1 << 64) - 1
FENCE = ibv_send_flags.IBV_SEND_FENCE
A, S = ibv_access_flags, ibv_wc_status


@pytest.fixture
def pair():
    with End("sim0", SIZE, sge=6, inline=96, depth=64) as a, End("sim1", SIZE, sge=4, depth=64) as b:
        yield a, b


def events(end):
    end.context._adapter.process_events()
    return [event.event_type for event in end.context._events]


@pytest.mark.parametrize("mtu", [256, 1024, 4096])
def test_read_at_every_boundary_of_length_and_every_alignment(pair, mtu):
    a, b = pair
    connect(a, b, mtu=mtu, psn=0xFFFFF0)
    expected, source = bytearray(fill(a, 1)), fill(b, 2)
    for number, size in enumerate([0, 1, 3, 4, 7, 8, 9, 63, 64, 65, mtu - 1, mtu, mtu + 1, 2 * mtu, 5000, 65536]):
        here, there = 4096 + 17 * number % 64, 13 * number % 71
        send(a, READ, [sge(a, here, size)], wr_id=number, remote=(b, there))
        wc = completion(a.cq)
        assert (wc.wr_id, wc.status, wc.opcode) == (number, 0, ibv_wc_opcode.IBV_WC_RDMA_READ)
        assert wc.byte_len == size
        expected[here : here + size] = source[there : there + size]
        assert a.mr.read(SIZE, 0) == expected
        assert b.mr.read(SIZE, 0) == source


@pytest.mark.every_width
def test_a_response_is_scattered(pair):
    a, b = pair
    connect(a, b, mtu=256)
    rng = make_rng()
    expected, source = bytearray(fill(a, 3)), fill(b, 4)
    for _ in range(24):
        cuts = [rng.choice((0, 1, 5, 256, 300, rng.randrange(2000))) for _ in range(rng.randrange(1, 7))]
        places = rng.sample(range(0, SIZE - 4096, 4096), len(cuts))
        at = rng.randrange(4096)
        send(a, READ, [sge(a, place, n) for place, n in zip(places, cuts)], remote=(b, at))
        wc = completion(a.cq)
        assert (wc.status, wc.byte_len) == (0, sum(cuts))
        for place, n in zip(places, cuts):
            expected[place : place + n] = source[at : at + n]
            at += n
        assert a.mr.read(SIZE, 0) == expected


@pytest.mark.every_width
def test_many_reads_outstanding_in_both_directions(pair):
    a, b = pair
    connect(a, b)
    contents = {a: fill(a, 5), b: fill(b, 6)}
    half = SIZE // 2
    for number in range(40):
        for here, there in ((a, b), (b, a)):
            send(here, READ, [sge(here, half + 2000 * number, 1999)], wr_id=number, remote=(there, 1777 * number))
    for here, there in ((a, b), (b, a)):
        wcs = completion(here.cq, 40)
        assert [(wc.wr_id, wc.status) for wc in wcs] == [(n, 0) for n in range(40)]
        for n in range(40):
            assert here.mr.read(1999, half + 2000 * n) == contents[there][1777 * n : 1777 * n + 1999]


@pytest.mark.parametrize("depth", [1, 2, 16])
def test_the_initiator_depth_is_kept(pair, depth):
    """More READs than that are never outstanding: the peer would refuse them."""
    a, b = pair
    connect(a, b, max_rd_atomic=depth, max_dest_rd_atomic=depth)
    source = fill(b, 7)
    for number in range(48):
        send(a, READ, [sge(a, 64 * number, 64)], wr_id=number, remote=(b, 100 * number))
    assert [(wc.wr_id, wc.status) for wc in completion(a.cq, 48)] == [(n, 0) for n in range(48)]
    assert all(a.mr.read(64, 64 * n) == source[100 * n : 100 * n + 64] for n in range(48))


def test_more_reads_than_responder_resources(pair):
    a, b = pair
    connect(a, b, max_rd_atomic=16, max_dest_rd_atomic=2)
    for number in range(12):
        send(a, READ, [sge(a, 4096 * number, 4096)], wr_id=number, remote=(b, 0))
    wcs = completion(a.cq, 12)
    failed = [wc.status for wc in wcs].index(S.IBV_WC_REM_INV_REQ_ERR)
    assert failed >= 2
    assert all(wc.status == 0 for wc in wcs[:failed])
    assert all(wc.status == S.IBV_WC_WR_FLUSH_ERR for wc in wcs[failed + 1 :])
    assert events(b) == [ibv_event_type.IBV_EVENT_QP_REQ_ERR]


def test_no_reads_without_depth(pair):
    a, b = pair
    connect(a, b, max_rd_atomic=0, max_dest_rd_atomic=0)
    send(a, READ, [sge(a, 0, 8)], remote=(b, 0))
    assert completion(a.cq).status == S.IBV_WC_LOC_QP_OP_ERR


@pytest.mark.parametrize(("compare", "swapped"), [(0x1122334455667788, True), (0x1122334455667789, False)])
def test_compare_and_swap(pair, compare, swapped):
    a, b = pair
    connect(a, b)
    fill(a, 8)
    before = bytearray(fill(b, 9))
    original = 0x1122334455667788
    before[16:24] = original.to_bytes(8, "little")
    b.mr.write(bytes(before), SIZE)
    atomic(a, CMP_SWP, [sge(a, 40, 8)], (b, 16), compare, 0xAABBCCDDEEFF0011)
    wc = completion(a.cq)
    assert (wc.status, wc.opcode, wc.byte_len) == (0, ibv_wc_opcode.IBV_WC_COMP_SWAP, 8)
    assert word(a, 40) == original
    if swapped:
        before[16:24] = (0xAABBCCDDEEFF0011).to_bytes(8, "little")
    assert b.mr.read(SIZE, 0) == before


def test_fetch_and_add_wraps(pair):
    a, b = pair
    connect(a, b)
    b.mr.write((ALL_ONES - 1).to_bytes(8, "little"), 8)
    for number, (addend, original) in enumerate([(1, ALL_ONES - 1), (1, ALL_ONES), (5, 0), (ALL_ONES, 5)]):
        atomic(a, FETCH_ADD, [sge(a, 8 * number, 8)], (b, 0), addend)
        wc = completion(a.cq)
        assert (wc.status, wc.opcode) == (0, ibv_wc_opcode.IBV_WC_FETCH_ADD)
        assert word(a, 8 * number) == original
    assert word(b, 0) == 4


def test_an_atomic_is_atomic_against_every_queue_pair():
    """All add to one word: every original value comes once. With pages and keys cold, and several words in between."""
    with End("sim0", 1 << 16, qps=8, depth=32) as a, End("sim1", 4096, qps=8, depth=32) as b:
        connect(a, b)
        each = 20
        for number, (index, qp) in itertools.product(range(each), enumerate(a.qps)):
            at = 8 * (number * 8 + index)
            atomic(a, FETCH_ADD, [sge(a, at, 8)], (b, 64), 1, qp=qp)
            atomic(a, FETCH_ADD, [sge(a, 32768 + at, 8)], (b, 8 * index), 3, qp=qp, flags=0)
            if (number % 8, index) == (7, 7):
                assert all(wc.status == 0 for wc in completion(a.cq, 64))
        assert all(wc.status == 0 for wc in completion(a.cq, 8 * (each % 8)))
        settle()
        assert sorted(word(a, 8 * n) for n in range(8 * each)) == list(range(8 * each))
        assert word(b, 64) == 8 * each
        assert [word(b, 8 * i) for i in range(8)] == [3 * each] * 8


def test_loopback_atomics_and_reads():
    with End("sim0", 8192, qps=2) as a:
        from verbena.sim.pair import join

        join(a.qps[0], a.qps[1], a.gid)
        join(a.qps[1], a.qps[0], a.gid)
        a.mr.write((7).to_bytes(8, "little"), 8)
        atomic(a, FETCH_ADD, [sge(a, 4096, 8)], (a, 0), 3)
        send(a, READ, [sge(a, 4104, 8)], remote=(a, 0))
        assert [wc.status for wc in completion(a.cq, 2)] == [0, 0]
        assert (word(a, 4096), word(a, 4104)) == (7, 10)


def test_a_fenced_request_waits_for_reads(pair):
    """Without the fence the SEND would overtake, and carry what the READ has not yet brought."""
    a, b = pair
    connect(a, b)
    fill(a, 10)
    source = fill(b, 11)
    recv(b, [sge(b, SIZE // 2, 30000)])
    send(a, READ, [sge(a, 0, 30000)], remote=(b, 0))
    send(a, SEND, [sge(a, 0, 30000)], flags=SIGNALED | FENCE)
    assert [wc.status for wc in completion(a.cq, 2)] == [0, 0]
    assert completion(b.cq).byte_len == 30000
    assert b.mr.read(30000, SIZE // 2) == source[:30000]


def test_a_read_sees_the_write_before_it(pair):
    a, b = pair
    connect(a, b)
    content = fill(a, 12)
    fill(b, 13)
    for number in range(8):
        send(a, WRITE, [sge(a, 1000 * number, 1000)], remote=(b, 0), flags=0)
        send(a, READ, [sge(a, 100_000 + 1000 * number, 1000)], remote=(b, 0))
        # The next WRITE may overtake the READ, if it is not fenced.
        send(a, WRITE, [sge(a, 0, 0)], remote=(b, 0), flags=FENCE)
        assert completion(a.cq).status == 0
    for number in range(8):
        assert a.mr.read(1000, 100_000 + 1000 * number) == content[1000 * number : 1000 * number + 1000]


@pytest.mark.every_width
def test_a_read_and_atomics_stay_in_order(pair):
    a, b = pair
    connect(a, b)
    b.mr.write((100).to_bytes(8, "little"), 8)
    for number in range(5):
        send(a, READ, [sge(a, 16 * number, 8)], remote=(b, 0), flags=0)
        atomic(a, FETCH_ADD, [sge(a, 16 * number + 8, 8)], (b, 0), 1)
    assert all(wc.status == 0 for wc in completion(a.cq, 5))
    assert [word(a, 8 * n) for n in range(10)] == [100 + n // 2 for n in range(10)]


def _key(a, b):
    return {"rkey": b.mr.rkey ^ 1}


def _range(a, b):
    return {"remote": (b, SIZE - 8)}


def _rights(a, b):
    return {"rkey": MR(b.pd, 4096, A.IBV_ACCESS_LOCAL_WRITE | A.IBV_ACCESS_REMOTE_WRITE, b.mr.buf).rkey}


def _pd(a, b):
    return {"rkey": MR(PD(b.context), 4096, 15, b.mr.buf).rkey}


@pytest.mark.parametrize("wrong", [_key, _range, _rights, _pd])
@pytest.mark.parametrize("opcode", [READ, FETCH_ADD])
def test_remote_access_refused(pair, opcode, wrong):
    a, b = pair
    connect(a, b)
    mine, theirs = fill(a, 14), fill(b, 15)
    change = wrong(a, b)
    if opcode == READ:
        send(a, READ, [sge(a, 0, 16)], wr_id=5, **{"remote": (b, 0)} | change)
    else:
        where = (b, SIZE) if wrong is _range else (b, 0)
        atomic(a, FETCH_ADD, [sge(a, 0, 8)], where, 1, wr_id=5, rkey=change.get("rkey"))
    send(a, WRITE, [sge(a, 0, 8)], wr_id=6, remote=(b, 0), flags=0)
    first, second = completion(a.cq, 2)
    assert (first.wr_id, first.status) == (5, S.IBV_WC_REM_ACCESS_ERR)
    assert (second.wr_id, second.status) == (6, S.IBV_WC_WR_FLUSH_ERR)
    settle()
    assert a.mr.read(SIZE, 0) == mine
    # The WRITE behind it may have come while the READ waited for its turn.
    assert b.mr.read(SIZE - 8, 8) == theirs[8:]
    assert a.qp.qp_state == b.qp.qp_state == ibv_qp_state.IBV_QPS_ERR
    assert events(b) == [ibv_event_type.IBV_EVENT_QP_ACCESS_ERR]


def test_a_read_of_which_only_the_end_is_refused_returns_nothing(pair):
    a, b = pair
    connect(a, b, mtu=256)
    before = fill(a, 16)
    fill(b, 17)
    sent = b.context.query_counters("read_responses")["read_responses"]
    send(a, READ, [sge(a, 0, 1024)], remote=(b, SIZE - 600))
    assert completion(a.cq).status == S.IBV_WC_REM_ACCESS_ERR
    assert a.mr.read(SIZE, 0) == before
    assert b.context.query_counters("read_responses")["read_responses"] == sent


def test_zero_length_read_needs_no_key(pair):
    a, b = pair
    connect(a, b)
    send(a, READ, [SGE(0, 0, 0)], remote=(b, SIZE + 5), rkey=0)
    assert completion(a.cq).status == 0


@pytest.mark.parametrize("opcode", [READ, FETCH_ADD])
def test_without_the_queue_pairs_flag(opcode):
    with End("sim0", 64) as a, End("sim1", 64) as b:
        connect(a, b, access=2)
        if opcode == READ:
            send(a, READ, [sge(a, 0, 8)], remote=(b, 0))
        else:
            atomic(a, FETCH_ADD, [sge(a, 0, 8)], (b, 0), 1)
        assert completion(a.cq).status == S.IBV_WC_REM_ACCESS_ERR
        assert word(b, 0) == 0


@pytest.mark.parametrize("opcode", [READ, FETCH_ADD])
def test_a_sink_that_may_not_be_written(pair, opcode):
    a, b = pair
    connect(a, b)
    sink = MR(a.pd, 4096, 0)
    send(a, WRITE, [sge(a, 0, 8)], wr_id=1, remote=(b, 0))
    entry = [SGE(sink.buf, 8, sink.lkey)]
    if opcode == READ:
        send(a, READ, entry, wr_id=2, remote=(b, 0))
    else:
        atomic(a, FETCH_ADD, entry, (b, 0), 1, wr_id=2)
    send(a, WRITE, [sge(a, 0, 8)], wr_id=3, remote=(b, 0))
    wcs = completion(a.cq, 3)
    assert [wc.wr_id for wc in wcs] == [1, 2, 3]
    assert [wc.status for wc in wcs[:2]] == [0, S.IBV_WC_LOC_PROT_ERR]
    assert wcs[2].status == S.IBV_WC_WR_FLUSH_ERR
    assert sink.read(8, 0) == bytes(8)
