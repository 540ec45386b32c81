"""Extended verbs against the engine: regions with an address of their own, requests that threads build, event loops."""

import asyncio
import errno
import sys
import threading
import time

import pytest
from ends import READ, SEND, WRITE, End, completions, connect, recv, send, sge
from streams import make_rng
from verbena.sw.verbs import libibverbs_enums as e
from verbena.sw.verbs.cq import CQ, CompChannel
from verbena.sw.verbs.mr import Buf, BufMR, MREx
from verbena.sw.verbs.pyverbs_error import PyverbsRDMAError
from verbena.sw.verbs.qp import QP, QPCap, QPEx, QPInitAttr, QPInitAttrEx
from verbena.sw.verbs.wr import SGE, SendWR

DEPTH = 16


@pytest.fixture
def pair():
    """Two ends with an extended QP each."""
    with End("sim0", 65536, qps=0) as a, End("sim1", 65536, qps=0) as b:
        for end in (a, b):
            attr = QPInitAttrEx(
                e.IBV_QPT_RC,
                scq=end.cq,
                rcq=end.cq,
                cap=QPCap(DEPTH, DEPTH, max_inline_data=32),
                comp_mask=e.IBV_QP_INIT_ATTR_PD | e.IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
                pd=end.pd,
                send_ops_flags=127,
            )
            end.qps = [QPEx(end.context, attr)]
        connect(a, b)
        yield a, b


@pytest.mark.parametrize("iova", [0x7654_3210_F000 + 100, 100, (1 << 64) - 5 * 4096 + 100])
def test_a_region_is_what_its_iova_says(pair, iova):
    a, _ = pair
    length = 4 * 4096
    buffers = [Buf(end.pd, 6 * 4096) for end in pair]
    content = make_rng().randbytes(length)
    whole = [BufMR(end.pd, buffer, buffer.size, 15) for end, buffer in zip(pair, buffers)]
    mine, yours = (MREx(end.pd, length, 15, buffer.addr + 4196, iova=iova) for end, buffer in zip(pair, buffers))
    whole[0].write(content, length, 4196)
    for opcode, offset in ((WRITE, 0), (READ, 0)):
        wr = SendWR(opcode, opcode, 1, sg=[SGE(iova + offset, length, mine.lkey)])
        wr.set_wr_rdma(yours.rkey, iova + offset)
        a.qp.post_send(wr)
        assert completions(a.cq, 1)[0].status == 0
        assert whole[1].read(length, 4196) == whole[0].read(length, 4196) == content
    wr = SendWR(0, WRITE, 1, sg=[SGE(iova, 8, mine.lkey)])
    wr.set_wr_rdma(yours.rkey, yours.buf)  # its address is not what it is called by
    a.qp.post_send(wr)
    assert completions(a.cq, 1)[0].status == e.IBV_WC_REM_ACCESS_ERR
    for buffer in buffers:
        buffer.close()


@pytest.fixture
def restless():
    """Threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("restless")
def test_threads_post_to_one_queue_pair(pair):
    """Batches and lists of three threads: each comes whole and in order, and every byte arrives."""
    a, b = pair
    rounds, batch = 40, 3
    a.mr.write(bytes(range(256)) * 16, 4096)
    failed = []

    def post(attempt):
        while True:
            try:
                return attempt()
            except PyverbsRDMAError as error:
                if error.error_code != errno.ENOMEM:
                    raise
                time.sleep(0.001)

    def place(thread, number):
        return 8 * (thread * rounds * batch + number)

    def by_calls(thread):
        for first in range(0, rounds * batch, batch):

            def attempt(first=first):
                a.qp.wr_start()
                a.qp.wr_flags = e.IBV_SEND_SIGNALED
                for number in range(first, first + batch):
                    a.qp.wr_id = thread << 16 | number
                    a.qp.wr_rdma_write(b.mr.rkey, b.mr.buf + 16384 + place(thread, number))
                    a.qp.wr_set_sge(SGE(a.mr.buf + place(thread, number), 8, a.mr.lkey))
                a.qp.wr_complete()

            post(attempt)

    def one_by_one(thread):
        for number in range(rounds * batch):
            wr = SendWR(thread << 16 | number, WRITE, 1, sg=[SGE(a.mr.buf + place(thread, number), 8, a.mr.lkey)])
            wr.set_wr_rdma(b.mr.rkey, b.mr.buf + 16384 + place(thread, number))
            post(lambda wr=wr: a.qp.post_send(wr))

    def guarded(work, thread):
        try:
            work(thread)
        except Exception as error:
            failed.append(error)

    threads = [
        threading.Thread(target=guarded, args=(work, i)) for i, work in enumerate((by_calls, by_calls, one_by_one))
    ]
    for thread in threads:
        thread.start()
    wcs = completions(a.cq, 3 * rounds * batch)
    for thread in threads:
        thread.join()
    assert failed == []
    assert {wc.status for wc in wcs} == {0}
    ids = [wc.wr_id for wc in wcs]
    for thread in range(3):
        assert [number & 0xFFFF for number in ids if number >> 16 == thread] == list(range(rounds * batch))
    for thread in range(2):
        starts = [i for i, number in enumerate(ids) if number >> 16 == thread and (number & 0xFFFF) % batch == 0]
        assert all(ids[i : i + batch] == list(range(ids[i], ids[i] + batch)) for i in starts)
    assert b.mr.read(3 * rounds * batch * 8, 16384) == a.mr.read(3 * rounds * batch * 8, 0)


def test_two_ends_in_one_event_loop():
    """Each answers by its reader, and a task gives the devices time, as docs/verbs.md says."""
    rounds = 8
    with End("sim0", 4096, qps=0) as a, End("sim1", 4096, qps=0) as b:
        for end in (a, b):
            end.channel = CompChannel(end.context)
            end.cq = CQ(end.context, 64, channel=end.channel)
            end.qps = [QP(end.pd, QPInitAttr(e.IBV_QPT_RC, scq=end.cq, rcq=end.cq, cap=QPCap(DEPTH, DEPTH)))]
            end.received = 0
        connect(a, b)

        def on_event(end, over):
            end.channel.get_cq_event(end.cq)
            end.cq.ack_events(1)
            end.cq.req_notify()
            for wc in end.cq.poll(16)[1]:
                assert wc.status == 0
                if wc.opcode == e.IBV_WC_RECV:
                    end.received += 1
                    recv(end, [sge(end, 0, 8)])
                    if end.received < rounds or end is b:
                        send(end, SEND, [sge(end, 0, 8)])
                    if a.received == rounds and not over.done():
                        over.set_result(None)

        async def main():
            loop = asyncio.get_running_loop()
            over = loop.create_future()
            for end in (a, b):
                end.cq.req_notify()
                recv(end, [sge(end, 0, 8)])
                loop.add_reader(end.channel.fd, on_event, end, over)
            send(a, SEND, [sge(a, 0, 8)])

            async def give_time():
                while True:
                    a.context.advance()
                    await asyncio.sleep(0)

            task = loop.create_task(give_time())
            await asyncio.wait_for(over, 60)
            task.cancel()
            for end in (a, b):
                loop.remove_reader(end.channel.fd)

        asyncio.run(main())
        assert (a.received, b.received) == (rounds, rounds)
