"""Events and records of CQs that the device cannot write."""

import contextlib

import pytest
from ends import WRITE, End, completion, completions, connect, send, settle, sge, world
from verbena.sim.pair import join
from verbena.sw import host_memory
from verbena.sw.verbs.cq import CQ
from verbena.sw.verbs.libibverbs_enums import ibv_event_type, ibv_qp_state, ibv_wc_status
from verbena.sw.verbs.qp import QP, QPCap, QPInitAttr

PAGE = 4096


@contextlib.contextmanager
def hidden(address):
    """A page of contiguous host memory is not on the bus meanwhile."""
    at = address // PAGE * PAGE
    old = next(each for each in host_memory.windows() if each.address <= at < each.address + each.size)
    assert old.mask == 0
    before, behind = at - old.address, old.address + old.size - at - PAGE
    parts = [host_memory.Window(old.bus, old.address, before, 0)] if before else []
    parts += [host_memory.Window(old.bus + before + PAGE, at + PAGE, behind, 0)] if behind else []
    world().window(False, old)
    for part in parts:
        world().window(True, part)
    yield
    for part in parts:
        world().window(False, part)
    world().window(True, old)


@pytest.mark.parametrize("lost", [1, 3])
def test_events_behind_lost_ones_are_heard(lost):
    """And the program is told that some are missing."""
    with End("sim0", PAGE, qps=lost + 2) as a, End("sim1", PAGE, qps=lost + 2) as b:
        connect(a, b)

        def refuse(number):  # a WRITE beyond the region: QP_ACCESS_ERR
            send(a, WRITE, [sge(a, 0, 8)], remote=(b, 1 << 20), qp=a.qps[number])
            assert completion(a.cq).status == ibv_wc_status.IBV_WC_REM_ACCESS_ERR
            settle(3000)

        adapter = b.context._adapter
        before = b.context.query_counters("events")["events"]
        with hidden(adapter.event_rings[0].address):
            for number in range(lost):
                refuse(number)
        adapter.process_events()
        assert not b.context._events, "nobody knows yet"
        refuse(lost)
        refuse(lost + 1)
        for _ in range(2 * lost * 15):
            adapter.process_events()
        heard = [b.context.get_async_event() for _ in range(len(b.context._events))]
        kinds = [event.event_type for event in heard]
        assert kinds == [ibv_event_type.IBV_EVENT_DEVICE_FATAL] * lost + [ibv_event_type.IBV_EVENT_QP_ACCESS_ERR] * 2
        assert [event.element for event in heard[lost:]] == b.qps[lost:]
        for event in heard:
            event.ack()
        assert b.context.query_counters("events")["events"] == before + 2


def test_a_cq_whose_record_is_lost_is_dead():
    """What it has written stays, and a completion that it does not take ends the queue pair."""
    with End("sim0", PAGE) as a, End("sim1", PAGE, qps=2) as b:
        adapter = a.context._adapter
        slots = adapter.control.cq_slots
        cqs = [CQ(a.context, 16) for _ in range(slots + 2)]
        first = cqs[0]
        other = next(cq for cq in cqs[1:] if (cq._number - first._number) % slots == 0)  # in the same place on chip
        at = [adapter.cq_table.address + 64 * cq._number for cq in (first, other)]
        assert at[0] // PAGE != at[1] // PAGE
        qps = [QP(a.pd, QPInitAttr(2, scq=cq, rcq=cq, cap=QPCap(64, 64), sq_sig_all=0)) for cq in (first, other)]
        for near, far in zip(qps, b.qps):
            join(near, far, b.gid)
            join(far, near, a.gid)

        def write(which, number):
            send(a, WRITE, [sge(a, 0, 8)], wr_id=number, remote=(b, 0), qp=qps[which])
            settle(3000)

        for number in (0, 1):
            write(0, number)
        write(1, 100)  # the record of the first one is written
        assert [wc.wr_id for wc in completions(first, 2)] == [0, 1]
        for number in (2, 3):
            write(0, number)
        with hidden(at[0]):
            write(1, 101)  # it cannot be written
        event = a.context.get_async_event()
        assert (event.event_type, event.element) == (ibv_event_type.IBV_EVENT_CQ_ERR, first)
        event.ack()
        write(0, 4)
        assert [wc.wr_id for wc in first.poll(16)[1]] == [2, 3]
        event = a.context.get_async_event()
        assert (event.event_type, event.element) == (ibv_event_type.IBV_EVENT_QP_FATAL, qps[0])
        event.ack()
        assert qps[0].qp_state == ibv_qp_state.IBV_QPS_ERR
        write(1, 102)
        assert [wc.wr_id for wc in completions(other, 3)] == [100, 101, 102]
