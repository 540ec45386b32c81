"""The driver against the engine: events, resources that come and go, queues to the brim."""

import ctypes
import errno
import gc
import mmap
import threading

import numpy
import pytest
from ends import READ, SEND, SIGNALED, WRITE, End, completion, completions, connect, fill, recv, send, settle, sge
from streams import make_rng
from verbena.sw.verbs import mem_alloc
from verbena.sw.verbs.cq import CQ, CompChannel
from verbena.sw.verbs.device import Context
from verbena.sw.verbs.libibverbs_enums import (
    IBV_EVENT_CQ_ERR,
    IBV_EVENT_QP_ACCESS_ERR,
    IBV_QP_STATE,
    IBV_QPS_RESET,
    IBV_QPT_RC,
    IBV_REREG_MR_CHANGE_ACCESS,
    IBV_REREG_MR_CHANGE_TRANSLATION,
    IBV_SEND_SOLICITED,
    IBV_WC_REM_ACCESS_ERR,
)
from verbena.sw.verbs.mr import MR
from verbena.sw.verbs.pd import PD
from verbena.sw.verbs.pyverbs_error import PyverbsRDMAError
from verbena.sw.verbs.qp import QP, QPAttr, QPCap, QPInitAttr
from verbena.sw.verbs.wr import SGE, RecvWR, SendWR

DEPTH = 32


def add_qp(end, **kwargs):
    """Replaces the queue pair of an end by a new one."""
    kwargs = {"scq": end.cq, "rcq": end.cq, "cap": QPCap(DEPTH, DEPTH), "sq_sig_all": 0} | kwargs
    end.qps = [QP(end.pd, QPInitAttr(IBV_QPT_RC, **kwargs))]


@pytest.fixture
def pair():
    """Two ends whose completions go to channels."""
    with End("sim0", 65536, qps=0) as a, End("sim1", 65536, qps=0) as b:
        for end in (a, b):
            end.channel = CompChannel(end.context)
            end.cq = CQ(end.context, 64, channel=end.channel)
            add_qp(end)
        connect(a, b)
        yield a, b


def refused(code, function, *args):
    with pytest.raises(PyverbsRDMAError) as caught:
        function(*args)
    assert caught.value.error_code == code


def reset(end):
    end.qp.modify(QPAttr(qp_state=IBV_QPS_RESET), IBV_QP_STATE)


def test_completion_events_come_once(pair):
    a, b = pair
    refused(errno.EDEADLK, b.channel.get_cq_event, b.cq)
    for end in pair:
        end.cq.req_notify()
    for number in range(2):
        recv(b, [sge(b, 0, 100)], wr_id=number)
        send(a, SEND, [sge(a, 0, 100)])
    assert b.channel.get_cq_event(b.cq) is b.cq
    assert a.channel.get_cq_event(a.cq) is a.cq
    assert [wc.wr_id for wc in completion(b.cq, 2)] == [0, 1]
    refused(errno.EDEADLK, b.channel.get_cq_event, b.cq)


def test_only_solicited_completions_wake(pair):
    a, b = pair
    b.cq.req_notify(solicited_only=True)
    for number, flags in enumerate((SIGNALED, SIGNALED | IBV_SEND_SOLICITED)):
        recv(b, [sge(b, 0, 100)], wr_id=number)
        send(a, SEND, [sge(a, 0, 100)], flags=flags)
        completion(a.cq)
        if number == 0:
            refused(errno.EDEADLK, b.channel.get_cq_event, b.cq)
    b.channel.get_cq_event(b.cq)
    assert [wc.wr_id for wc in b.cq.poll(4)[1]] == [0, 1]


def test_a_connection_recovers_with_the_attributes_that_it_told(pair):
    a, b = pair
    told = [end.qp.query()[0] for end in pair]
    send(a, WRITE, [sge(a, 0, 8)], remote=(b, 0), rkey=1)
    assert completion(a.cq).status == IBV_WC_REM_ACCESS_ERR
    event = b.context.get_async_event()
    assert (event.event_type, event.element) == (IBV_EVENT_QP_ACCESS_ERR, b.qp)
    refused(errno.EBUSY, b.qp.close)
    event.ack()
    for end, attr in zip(pair, told):
        reset(end)
        end.qp.to_rts(attr)
    content = fill(a, 3)
    send(a, WRITE, [sge(a, 0, 4096)], remote=(b, 0))
    assert completion(a.cq).status == 0
    assert b.mr.read(4096, 0) == content[:4096]
    x, y = (end.qp.query()[0] for end in pair)
    assert (x.sq_psn, x.rq_psn) == (y.rq_psn, y.sq_psn)


@pytest.mark.parametrize("lives", [12, pytest.param(50, marks=pytest.mark.slow)])
@pytest.mark.parametrize("anew", ["reset", "made again"])
def test_no_completion_outlives_its_queue_pair(pair, anew, lives):
    rng = make_rng()
    a, b = pair
    for life in range(lives):
        first, second = rng.sample([a, b], 2)
        for end in (first, second):
            if anew == "reset":
                reset(end)
            else:
                add_qp(end)
        connect(a, b, psn=rng.randrange(1 << 24))
        for _ in range(rng.randrange(1, DEPTH)):
            recv(b, [sge(b, 0, 64)], wr_id=life)
            send(a, SEND, [sge(a, 0, 64)], wr_id=life)
        settle(rng.randrange(1, 1200))
        if rng.random() < 0.7:
            wcs = a.cq.poll(64)[1] + b.cq.poll(64)[1]
            assert {wc.wr_id for wc in wcs} <= {life}


def test_a_posted_receive_follows_its_region(pair):
    a, b = pair
    at = mem_alloc.posix_memalign(4096, 4096)
    recv(b, [SGE(at, 8, b.mr.lkey)])
    b.mr.rereg(IBV_REREG_MR_CHANGE_TRANSLATION, addr=at, length=4096)
    a.mr.write("followed", 8)
    send(a, SEND, [sge(a, 0, 8)])
    assert completion(a.cq).status == completion(b.cq).status == 0
    assert mem_alloc.read(at, 8) == b"followed"
    b.mr.rereg(IBV_REREG_MR_CHANGE_ACCESS, access=1)
    send(a, WRITE, [sge(a, 0, 8)], remote=(b, 0))
    assert completion(a.cq).status == IBV_WC_REM_ACCESS_ERR


def test_a_completion_queue_that_overflows(pair):
    a, b = pair
    add_qp(a, scq=CQ(a.context, 4))
    reset(b)
    connect(a, b)
    for number in range(8):
        send(a, WRITE, [sge(a, 0, 8)], remote=(b, 0), wr_id=number)
    event = a.context.get_async_event()
    assert (event.event_type, event.element) == (IBV_EVENT_CQ_ERR, a.qp._scq)
    assert [wc.wr_id for wc in a.qp._scq.poll(10)[1]] == [0, 1, 2, 3]
    event.ack()


@pytest.mark.parametrize("rounds", [3, pytest.param(8, marks=pytest.mark.slow)])
def test_a_completion_queue_grows_and_shrinks_while_completions_arrive(pair, rounds):
    """Each completion comes once and in order, whenever the ring changes; a CQ beside it is not disturbed."""
    rng = make_rng()
    a, b = pair
    add_qp(a, cap=QPCap(128, 1))
    other = CQ(a.context, 512)
    a.qps.append(QP(a.pd, QPInitAttr(IBV_QPT_RC, scq=other, rcq=other, cap=QPCap(128, 1), sq_sig_all=0)))
    add_qp(b)
    b.qps.append(QP(b.pd, QPInitAttr(IBV_QPT_RC, scq=b.cq, rcq=b.cq, cap=QPCap(DEPTH, DEPTH), sq_sig_all=0)))
    connect(a, b)
    posted, seen, beside = 0, [], []
    a.cq.req_notify()
    for size in [256, 512, 128, 4096, 256] * rounds:
        for _ in range(rng.randrange(1, 40)):
            for qp in a.qps:
                send(a, WRITE, [sge(a, 0, 8)], remote=(b, 0), wr_id=posted, qp=qp)
            posted += 1
        settle(rng.randrange(1, 1500))
        a.cq.resize(size)
        assert a.cq.cqe == size
        settle(rng.randrange(1, 800))
        beside += other.poll(256)[1]
        if posted - len(seen) > 80 or rng.random() < 0.3:
            assert a.channel.get_cq_event(a.cq) is a.cq
            a.cq.ack_events(1)
            seen += completions(a.cq, posted - len(seen))
            beside += completions(other, posted - len(beside))
            refused(errno.EDEADLK, a.channel.get_cq_event, a.cq)
            a.cq.req_notify()
        else:
            seen += a.cq.poll(rng.randrange(40))[1]
    for found, cq in ((seen, a.cq), (beside, other)):
        found += completions(cq, posted - len(found))
        assert [(wc.wr_id, wc.status) for wc in found] == [(number, 0) for number in range(posted)]


@pytest.mark.parametrize("kind", ["bytearray", "numpy", "mmap", "ctypes", "address"])
def test_memory_of_the_process(pair, kind):
    """It needs no call before, takes all operations, and is not touched beside the region."""
    a, b = pair
    size = 20_000
    make = {
        "bytearray": bytearray,
        "numpy": lambda n: numpy.zeros(n, numpy.uint8),
        "mmap": lambda n: mmap.mmap(-1, n),
        "ctypes": ctypes.create_string_buffer,
        "address": ctypes.create_string_buffer,
    }[kind]
    buffers = [make(size), make(size)]
    content = make_rng().randbytes(size)
    views = [memoryview(buffer).cast("B") for buffer in buffers]
    views[0][:] = content
    part = slice(100, 16_100)
    places = [view[part] for view in views]
    if kind == "address":
        places = [ctypes.addressof(buffer) + part.start for buffer in buffers]
    mine, yours = (MR(end.pd, 16_000, 15, place) for end, place in zip(pair, places))
    wr = SendWR(1, WRITE, 1, sg=[SGE(mine.buf, 8000, mine.lkey)])
    wr.set_wr_rdma(yours.rkey, yours.buf)
    a.qp.post_send(wr)
    b.qp.post_recv(RecvWR(2, 1, [SGE(yours.buf + 8000, 4000, yours.lkey)]))
    a.qp.post_send(SendWR(2, SEND, 1, sg=[SGE(mine.buf + 8000, 4000, mine.lkey)]))
    wr = SendWR(3, READ, 1, sg=[SGE(yours.buf + 12_000, 4000, yours.lkey)])
    wr.set_wr_rdma(mine.rkey, mine.buf + 12_000)
    b.qp.post_send(wr)
    assert {wc.status for wc in completions(a.cq, 2) + completions(b.cq, 2)} == {0}
    assert views[0] == content
    assert bytes(views[1]) == bytes(100) + content[part] + bytes(size - 16_100)
    for mr in (mine, yours):
        mr.close()


def test_a_thread_that_posts_wakes_one_that_waits(pair):
    a, b = pair
    b.cq.req_notify()
    recv(b, [sge(b, 0, 8)])
    refused(errno.EDEADLK, b.channel.get_cq_event, b.cq)
    idle = threading.Event()
    advance = b.context._adapter.advance

    def noticed(cycles):
        busy = advance(cycles)
        if not busy:
            idle.set()
        return busy

    b.context._adapter.advance = noticed
    try:
        other = threading.Thread(target=lambda: (idle.wait(60), send(a, SEND, [sge(a, 0, 8)])))
        other.start()
        assert b.channel.get_cq_event(b.cq) is b.cq
        other.join()
    finally:
        del b.context._adapter.advance
    assert b.cq.poll()[1][0].status == 0


def test_the_send_queue_holds_what_it_tells(pair):
    a, b = pair
    room = a.qp.query()[1].max_send_wr
    for number in range(room):
        send(a, WRITE, [sge(a, 0, 8)], remote=(b, 0), wr_id=number)
    with pytest.raises(PyverbsRDMAError) as caught:
        send(a, WRITE, [sge(a, 0, 8)], remote=(b, 0))
    assert caught.value.error_code == errno.ENOMEM
    assert [wc.wr_id for wc in completion(a.cq, room)] == list(range(room))


@pytest.mark.parametrize("count", [8, pytest.param(20, marks=pytest.mark.slow)])
def test_what_is_forgotten_goes_whatever_the_order(count):
    context = Context(name="sim0")
    adapter = context._adapter
    before = len(adapter.qps), len(adapter.cqs), len(adapter.regions.by_index), set(adapter.pds)
    thresholds = gc.get_threshold()
    gc.set_threshold(20)  # garbage collection strikes everywhere, in the midst of commands too
    try:
        for number in range(count):
            a, b = End("sim0", 4096), End("sim1", 4096)
            connect(a, b)
            send(a, WRITE, [sge(a, 0, 64)], remote=(b, 0))
            if number % 2:
                a.knot = a.qp.knot = a
            if number % 3:
                assert completion(a.cq).status == 0
        del a, b
        gc.collect()
        PD(context).close()
    finally:
        gc.set_threshold(*thresholds)
    assert (len(adapter.qps), len(adapter.cqs), len(adapter.regions.by_index), adapter.pds) == before
    context.close()
