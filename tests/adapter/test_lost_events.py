"""Events that the device cannot write."""

import contextlib

import pytest
from ends import WRITE, End, completion, connect, send, settle, sge, world
from verbena.sw import host_memory
from verbena.sw.verbs.libibverbs_enums import ibv_event_type, ibv_wc_status

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
def test_those_behind_them_are_heard(lost):
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
