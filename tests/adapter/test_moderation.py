"""Several event queues, and moderation of completion events and of interrupts, between two whole engines."""

import pytest
from ends import SEND, completion, completions, connect, recv, send, settle, sge, world
from test_lives import kill
from verbena.hdl.abi.eqe import EQE
from verbena.sim.pair import End, join
from verbena.sw.events import phase_at
from verbena.sw.verbs.comp_channel import CompChannel
from verbena.sw.verbs.cq import CQ, ModerateCq, ModifyCqAttr
from verbena.sw.verbs.device import Context
from verbena.sw.verbs.libibverbs_enums import (
    IBV_EVENT_CQ_ERR,
    IBV_SEND_SIGNALED,
    IBV_SEND_SOLICITED,
    IBV_WC_WR_FLUSH_ERR,
    ibv_qp_attr_mask,
    ibv_qp_state,
    ibv_qp_type,
)
from verbena.sw.verbs.qp import QP, QPAttr, QPCap, QPInitAttr

SIZE = 16
LONG = 4095
"""The longest period, in microseconds."""

SOON = 4000
"""Cycles in which a message is there, and its event if nothing holds it back."""


class Receiver(End):
    """An end on sim1 with queue pairs that receive, each with a CQ of its own: ``got``. CQ i has ``vectors[i]``. With
    ``one_slot`` all of them have the same slot.
    """

    def __init__(self, vectors, *, cqe=64, one_slot=False):
        super().__init__("sim1", 4096, qps=0)
        if one_slot:
            table = self.context._adapter.cq_table
            table._shared[1:] = [1 << 14] * (table.slots - 1)
        self.channel = CompChannel(self.context)
        self.got = [CQ(self.context, cqe, channel=self.channel, comp_vector=vector) for vector in vectors]
        cap = QPCap(max_send_wr=4, max_recv_wr=64)
        self.qps = [QP(self.pd, QPInitAttr(ibv_qp_type.IBV_QPT_RC, scq=self.cq, rcq=cq, cap=cap)) for cq in self.got]

    def moderate(self, count, period, index=0):
        self.got[index].modify(ModifyCqAttr(moderate=ModerateCq(count, period)))

    def post(self, count, index=0):
        for _ in range(count):
            recv(self, [sge(self, 0, SIZE)], qp=self.qps[index])

    def event(self):
        """The CQ of the next event, and the cycles that it took to come."""
        start = world().cycles
        cq = self.channel.get_cq_event()
        cq.ack_events(1)
        return cq, world().cycles - start

    def waiting(self):
        """Events that have come, when the driver has looked for more."""
        self.context._adapter.process_events()
        return len(self.channel._events)


def cycles(end, microseconds):
    return microseconds / 4.096 * end.context._adapter.port.tick


def pair(vectors, **kwargs):
    """Who sends, and who receives."""
    a = End("sim0", 4096, qps=len(vectors), depth=64)
    b = Receiver(vectors, **kwargs)
    for near, far in zip(a.qps, b.qps):
        join(near, far, b.gid)
        join(far, near, a.gid)
    return a, b


def end_driver():
    """The device of sim1 is reset; the next context brings it up."""
    port = world().ports["sim1"]
    if port._driver is not None:
        port._driver.close()
        port._driver = None
    return port


@pytest.fixture
def ends(request):
    """A sender and a receiver with CQs of some vectors."""
    a, b = pair(getattr(request, "param", [2]))
    with a, b:
        yield a, b


def say(a, count=1, index=0, flags=IBV_SEND_SIGNALED):
    for _ in range(count):
        send(a, SEND, [sge(a, 0, SIZE)], qp=a.qps[index], flags=flags)


def test_bursts(ends):
    """An event for each 8 messages; the last ones of a burst have theirs when the period is over."""
    a, b = ends
    period = 500
    b.moderate(8, period)
    b.got[0].req_notify()
    b.post(20)
    say(a, 20)
    events = found = 0
    late = []
    while found < 20:
        cq, took = b.event()
        assert cq is b.got[0]
        events += 1
        late.append(took)
        cq.req_notify()
        while wcs := cq._take(64):
            found += len(wcs)
    completions(a.cq, 20)
    assert events <= 20 // 8 + 1
    assert late[0] < cycles(b, period)
    assert late[-1] <= cycles(b, period) + SOON
    assert b.waiting() == 0


def test_without_moderation_each_has_its_event(ends):
    """A period of 0, or a count of 1: as if there were none."""
    a, b = ends
    for count, period in (None, None), (0, 0), (10, 0), (1, LONG):
        if count is not None:
            b.moderate(count, period)
        for _ in range(3):
            b.got[0].req_notify()
            b.post(1)
            say(a)
            assert b.event()[1] < SOON
            completion(b.got[0])
            completion(a.cq)


@pytest.mark.parametrize("period", [50, 1000])
def test_the_last_completion(ends, period):
    """Its event comes by time alone, not before it, and the device is not idle meanwhile."""
    a, b = ends
    b.moderate(0, period)
    b.got[0].req_notify()
    b.post(1)
    say(a)
    completion(b.got[0])
    left = cycles(b, period)
    assert b.waiting() == 0
    took = b.event()[1]
    assert left - SOON < took <= left + 500


def test_an_arm_in_the_midst(ends):
    """Completions before it do not count; another arm meanwhile has the same event."""
    a, b = ends
    b.moderate(3, LONG)
    b.post(10)
    say(a, 4)
    completions(b.got[0], 4)
    b.got[0].req_notify()
    say(a, 2)
    completions(b.got[0], 2)
    b.got[0].req_notify()
    settle(SOON)
    assert b.waiting() == 0
    say(a)
    assert b.event()[1] < SOON
    say(a, 3)
    completions(b.got[0], 4)
    settle(SOON)
    assert b.waiting() == 0


def test_solicited(ends):
    """Arms for solicited completions: the first of these begins, whatever follows counts."""
    a, b = ends
    b.moderate(3, LONG)
    b.post(10)
    b.got[0].req_notify(solicited_only=True)
    say(a, 4)
    completions(b.got[0], 4)
    say(a, flags=IBV_SEND_SIGNALED | IBV_SEND_SOLICITED)
    say(a)
    completions(b.got[0], 2)
    settle(SOON)
    assert b.waiting() == 0
    say(a)
    assert b.event()[1] < SOON


def test_flushed_requests(ends):
    """Errors fulfil both kinds of arms; their event comes by count or by time, as any."""
    _, b = ends
    b.moderate(4, 300)
    b.got[0].req_notify(solicited_only=True)
    b.post(6)
    b.qps[0].modify(QPAttr(qp_state=ibv_qp_state.IBV_QPS_ERR), ibv_qp_attr_mask.IBV_QP_STATE)
    assert b.event()[1] < SOON
    b.got[0].req_notify(solicited_only=True)
    assert {wc.status for wc in completions(b.got[0], 6)} == {IBV_WC_WR_FLUSH_ERR}
    b.post(1)
    assert b.event()[1] <= cycles(b, 300) + SOON


def test_an_overrun():
    """CQ_ERR comes at once, and the completion event with it."""
    a, b = pair([3], cqe=2)
    with a, b:
        b.moderate(100, LONG)
        b.got[0].req_notify()
        b.post(4)
        say(a, 4)
        start = world().cycles
        event = b.context.get_async_event()
        assert (event.event_type, event.element) == (IBV_EVENT_CQ_ERR, b.got[0])
        event.ack()
        assert b.event()[0] is b.got[0]
        assert world().cycles - start < 2 * SOON


def test_a_queue_without_slot():
    """Who loses its slot has its event at once; who gets it back is moderated as before."""
    a, b = pair([1, 2], one_slot=True)
    with a, b:
        assert (b.got[0]._number - b.got[1]._number) % b.context._adapter.control.cq_slots == 0
        for index in range(2):
            b.moderate(2 + index, LONG, index)
            b.post(20, index)
        for _ in range(3):
            for index in range(2):
                b.got[index].req_notify()
                say(a, 1 + index, index)
                completions(b.got[index], 1 + index)
                settle(SOON)
                assert b.waiting() == 0
                say(a, 1, 1 - index)
                cq, took = b.event()
                assert (cq, took < SOON) == (b.got[index], True)
                completion(b.got[1 - index])


def test_moderation_that_changes(ends):
    """What waits comes at once. A CQ may be resized meanwhile, and keeps its moderation."""
    a, b = ends
    b.post(20)
    for change in (lambda: b.moderate(5, LONG), lambda: b.got[0].resize(200), lambda: b.got[0].resize(64)):
        b.moderate(5, LONG)
        b.got[0].req_notify()
        say(a, 4)
        completions(b.got[0], 4)
        settle(SOON)
        assert b.waiting() == 0
        change()
        assert b.event()[1] < SOON
        b.got[0].req_notify()
        say(a)
        completion(b.got[0])
        settle(SOON)
        assert b.waiting() == 0
        b.moderate(0, 0)
        assert b.event()[1] < SOON


def test_a_new_life():
    """The driver is killed while an event waits: the next one hears nothing of it, and of no moderation."""
    for _ in range(2):
        a, b = pair([3])
        with a:
            b.post(4)
            for _ in range(2):
                b.got[0].req_notify()
                say(a)
                settle(SOON)
                assert world().adapters[1].interrupt == 1 << 3
                assert b.event()[0] is b.got[0]
            b.context.moderate_interrupts(60000, 3)
            b.moderate(5, LONG)
            b.got[0].req_notify()
            say(a)
            completion(b.got[0], 3)
            settle(SOON)
            assert b.waiting() == 0
            kill(b)
            with Context(name="sim1") as context:
                settle(int(cycles(a, LONG)) + SOON)
                assert context.advance() is False
                assert world().adapters[1].interrupt == 0


@pytest.mark.parametrize("ends", [[0, 1, 2, 3, 1]], indirect=True)
def test_each_vector_has_its_interrupt(ends):
    """High until the driver has taken the event; events of other vectors, and asynchronous ones, are elsewhere."""
    a, b = ends
    adapter = world().adapters[1]
    for index, vector in enumerate((0, 1, 2, 3, 1)):
        b.post(1, index)
        b.got[index].req_notify()
        assert adapter.interrupt == 0
        say(a, 1, index)
        settle(SOON)
        assert adapter.interrupt == 1 << vector
        assert b.event()[0] is b.got[index]
        settle(100)
        assert adapter.interrupt == 0


def test_a_full_event_queue_holds_up_no_other():
    """Seven events for a queue of two: those of another queue, and asynchronous ones, come. None is lost."""
    port = end_driver()
    port.log_eq_size = 1
    try:
        a, b = pair([1] * 7 + [3])
    finally:
        del port.log_eq_size
    with a, b:
        for index in range(8):
            b.post(1, index)
            b.got[index].req_notify()
        for index in range(7):
            say(a, 1, index)
        settle(3 * SOON)
        rings = b.context._adapter.event_rings
        memory = b.context._adapter.memory

        def there(number):
            return phase_at(memory, rings[number].address, EQE)

        assert (there(1), there(3)) == (1, 0)
        say(a, 1, 7)
        settle(SOON)
        assert there(3) == 1
        assert world().adapters[1].interrupt == 1 << 1 | 1 << 3
        assert {b.event()[0] for _ in range(8)} == set(b.got)
    end_driver()


def test_moderated_interrupts(ends):
    """The first comes at once, the next when the interval is over, though its event is there; then at once again."""
    a, b = ends
    adapter, interval = world().adapters[1], 2000
    b.context.moderate_interrupts(interval, 2)
    b.post(10)
    rises = []

    def deliver(patience):
        """One more event; the cycle in which its interrupt rose."""
        b.got[0].req_notify()
        say(a)
        end = world().cycles + patience
        while not adapter.interrupt and world().cycles < end:
            settle(10)
        rises.append(world().cycles)
        assert adapter.interrupt == 1 << 2
        assert b.event()[0] is b.got[0]
        settle(100)
        assert adapter.interrupt == 0

    deliver(SOON)
    deliver(2 * cycles(b, interval))
    assert cycles(b, interval) - 20 <= rises[1] - rises[0] <= cycles(b, interval + 2) + 40
    settle(int(cycles(b, interval + 2)))
    deliver(SOON)
    b.context.moderate_interrupts(0, 2)
    deliver(SOON)
    completions(b.got[0], 4)


def test_an_interrupt_that_waits_is_not_idle(ends):
    """A program that waits for it goes on."""
    a, b = ends
    b.context.moderate_interrupts(3000, 2)
    b.post(2)
    for _ in range(2):
        b.got[0].req_notify()
        say(a)
        assert b.event()[1] < SOON


def test_connect_again():
    """The usual ends, with what all vectors have in common."""
    with End("sim0", 4096) as a, End("sim1", 4096) as b:
        assert a.context.num_comp_vectors == 4
        connect(a, b)
        caps = a.context.query_device_ex().cq_mod_caps
        assert (caps.max_cq_count, caps.max_cq_period) == (65535, 4095)
