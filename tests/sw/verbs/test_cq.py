"""Completion queues and channels."""

import errno
import gc
import struct

import pytest
from fake_device import CQ_PAGES, CREATE_CQ, DESTROY_CQ, MODIFY_CQ
from verbena.sw.verbs.cq import CQ, WC, CompChannel
from verbena.sw.verbs.device import Context
from verbena.sw.verbs.pyverbs_error import PyverbsRDMAError

COMPLETION, CQ_ERR = 128, 0
CONSUMER, ARM = CQ_PAGES, CQ_PAGES + 4
FIRST = 8


@pytest.fixture
def qp(make_qp):
    """Whose send completions need no request: the ring of wr_ids is filled by hand."""
    qp = make_qp(max_send_wr=64)
    qp._sq.wr_ids = list(range(100, 164))
    return qp


def refused(code, function, *args, **kwargs):
    with pytest.raises(PyverbsRDMAError) as caught:
        function(*args, **kwargs)
    assert caught.value.error_code == code
    return str(caught.value)


@pytest.mark.parametrize(
    ("cqe", "log_size"), [(1, 0), (2, 1), (3, 2), (16, 4), (17, 5), (100.0, 7), (32767, 15), (32768, 15)]
)
def test_creation(device, context, cqe, log_size):
    cq = CQ(context, cqe, cq_context="mine")
    opcode, number, _, words = device.commands[-1]
    assert (opcode, number) == (CREATE_CQ, 0)
    assert words[2] == log_size | 1 << 4
    assert words[0] % 4096 == 0
    assert cq.cqe == 1 << log_size
    assert device.read_bus(words[1] << 32 | words[0], 32) == bytes(32)
    assert list(device.watches.values()) == [(cq._ring, 32 << log_size)]
    assert cq.cq_context == "mine"
    assert cq.comp_channel is None
    cq.close()
    cq.close()
    assert device.watches == {}
    assert [c[0] for c in device.commands].count(DESTROY_CQ) == 1


@pytest.mark.parametrize(
    "kwargs", [{"cqe": 0}, {"cqe": -1}, {"cqe": 0.9}, {"cqe": 32769}, {"cqe": 8, "comp_vector": 1}]
)
def test_creation_refused(context, kwargs):
    text = refused(errno.EINVAL, CQ, context, **kwargs)
    assert text.startswith("Failed to create a CQ: ")
    assert str(int(kwargs.get("comp_vector", kwargs["cqe"]))) in text


def test_creation_that_fails_leaves_nothing(device, context, monkeypatch):
    freed = []
    monkeypatch.setattr(device.memory, "free", freed.append)
    device.refuse[CREATE_CQ] = 4
    refused(errno.EINVAL, CQ, context, 8)
    assert len(freed) == 1
    assert device.watches == {}
    del device.refuse[CREATE_CQ]
    keep = [CQ(context, 8) for _ in range(4)]
    refused(errno.ENOMEM, CQ, context, 8)
    keep[0].close()
    CQ(context, 8)


def test_poll_of_an_empty_queue_lets_time_pass(device, cq):
    assert cq.poll() == (0, [])
    assert len(device.advanced) == 1
    assert 1000 <= device.advanced[0] <= 4096


def test_poll_sees_what_came_meanwhile(device, cq, qp):
    device.script.append(lambda: device.complete(0, FIRST, 5))
    count, (wc,) = cq.poll()
    assert (count, wc.wr_id) == (1, 105)


def test_every_field_of_a_completion(device, cq, qp):
    qp._rq.wr_ids = [7] * 16
    slot = struct.pack(
        "<IIIBBHIIII", 0x04030201, 0x12345, 0x05000008, 129, 2, 3, 0x15ABCDEF, 0, 0, 1 << 31
    )  # status 5, syndrome 21
    words = device.cqs[0]
    device.write_bus(words[1] << 32 | words[0], slot)
    (wc,) = cq.poll()[1]
    assert (wc.wr_id, wc.status, wc.opcode, wc.vendor_err, wc.byte_len) == (7, 5, 129, 0x15, 0x12345)
    assert (wc.qp_num, wc.src_qp, wc.imm_data, wc.wc_flags) == (8, 0xABCDEF, 0x04030201, 2)
    assert (wc.pkey_index, wc.slid, wc.sl, wc.dlid_path_bits) == (0, 0, 0, 0)
    assert "IBV_WC_WR_FLUSH_ERR" in repr(wc)
    assert device.rung(CONSUMER) == [1]


def test_a_completion_without_its_phase_is_not_there(device, cq, qp):
    device.complete(0, FIRST, 1)
    words = device.cqs[0]
    entry = bytearray(device.read_bus(words[1] << 32 | words[0], 32))
    entry[31] = 0
    device.write_bus(words[1] << 32 | words[0], entry)
    assert cq.poll() == (0, [])
    assert device.rung(CONSUMER) == []


@pytest.mark.parametrize("count", [-1, 1 << 17, 1.5, None])
def test_how_many_nobody_can_poll(cq, count):
    assert f"not {count!r}" in refused(errno.EINVAL, cq.poll, count)


def test_several_at_once_and_one_doorbell(device, cq, qp):
    for i in range(5):
        device.complete(0, FIRST, i)
    count, wcs = cq.poll(3)
    assert (count, [wc.wr_id for wc in wcs]) == (3, [100, 101, 102])
    assert [wc.wr_id for wc in cq.poll(10)[1]] == [103, 104]
    assert device.rung(CONSUMER) == [3, 5]
    assert device.advanced == []
    assert cq.poll(0) == (0, [])


@pytest.mark.parametrize("size", [1, 2, 16])
def test_the_ring_wraps_and_so_does_its_index(device, context, make_qp, size):
    cq = CQ(context, size)
    qp = make_qp(scq=cq)
    start = 65536 - 3 * size
    cq._consumer = cq._told = start
    device.produced[cq._number] = start
    log_size = size.bit_length() - 1
    for slot in range(size):  # what the pass before has left
        device.write_bus(
            (device.cqs[cq._number][1] << 32 | device.cqs[cq._number][0]) + 32 * slot + 31,
            bytes([(start >> log_size & 1) << 7]),
        )
    for i in range(6 * size):
        assert cq._take(1) == []
        device.complete(cq._number, qp.qp_num, i)
        assert cq.poll()[0] == 1
    assert cq._consumer == 3 * size
    # A whole ring at once.
    for i in range(size):
        device.complete(cq._number, qp.qp_num, i)
    assert cq.poll(100)[0] == size


def test_completions_of_strangers_are_skipped(device, cq, qp):
    device.complete(0, FIRST + 3, 0)
    device.complete(0, FIRST, 2)
    assert [wc.wr_id for wc in cq.poll(4)[1]] == [102]
    assert device.rung(CONSUMER) == [2]


def test_resize(device, cq, qp):
    for i in range(3):
        device.complete(0, FIRST, i)
    cq.resize(9)
    assert MODIFY_CQ not in [c[0] for c in device.commands]
    assert "to 2 with 3 completions" in refused(errno.EINVAL, cq.resize, 2)
    refused(errno.EINVAL, cq.resize, 0)
    refused(errno.EINVAL, cq.resize, 32769)
    assert cq.cqe == 16
    for cqe, log_size in ((17.0, 5), (32768, 15), (3, 2)):
        cq.resize(cqe)
        assert cq.cqe == 1 << log_size
        opcode, number, _, words = device.commands[-1]
        assert (opcode, number, words[2]) == (MODIFY_CQ, 0, log_size | 1 << 4)
        assert list(device.watches.values()) == [(cq._ring, 32 << log_size)]
        assert device.host(words[1] << 32 | words[0]) == cq._ring
    for i in range(3, 7):
        device.complete(0, FIRST, i)
    assert [wc.wr_id for wc in cq.poll(10)[1]] == list(range(100, 107))


def test_what_completes_while_a_queue_is_resized(device, context, make_qp):
    """Between the last look at the old ring and the command, and right behind it."""
    cq = CQ(context, 4)
    qp = make_qp(scq=cq, max_send_wr=64)
    qp._sq.wr_ids = list(range(64))
    done = 0

    def complete(count):
        nonlocal done
        for _ in range(count):
            device.complete(cq._number, qp.qp_num, done)
            done += 1

    for cqe in (8, 4, 32, 2, 16, 1, 64):
        complete(1)
        device.before_modify[cq._number] = lambda: complete(1)
        cq.resize(max(cqe, 1))
        complete(1)
        rung = len(device.rung(CONSUMER + 4096 * cq._number))
        assert [wc.wr_id for wc in cq.poll(64)[1]] == list(range(done - 3, done))
        # Entries of the old ring are no entries of the new one.
        assert device.rung(CONSUMER + 4096 * cq._number)[rung:] == [1]


@pytest.mark.parametrize("why", ["refused", "no memory"])
def test_a_resize_that_fails_changes_nothing(device, cq, qp, monkeypatch, why):
    freed = []
    monkeypatch.setattr(device.memory, "free", freed.append)
    if why == "refused":
        device.refuse[MODIFY_CQ] = 4
    else:
        monkeypatch.setattr(device.memory, "alloc_contiguous", lambda *_: (_ for _ in ()).throw(MemoryError("none")))
    ring, watches = cq._ring, dict(device.watches)
    refused(errno.EINVAL if why == "refused" else errno.ENOMEM, cq.resize, 64)
    assert len(freed) == (why == "refused")
    assert ring not in freed
    assert (cq._ring, cq.cqe, device.watches) == (ring, 16, watches)
    device.complete(0, FIRST, 1)
    assert cq.poll()[0] == 1


def test_arming(device, cq):
    cq.req_notify()
    cq.req_notify(solicited_only=True)
    assert device.rung(ARM) == [1, 0x11]


def test_an_event_wakes_its_channel(device, context):
    channel = CompChannel(context)
    cq = CQ(context, 8, channel=channel)
    assert cq.comp_channel is channel
    device.script.extend([lambda: None, lambda: None, lambda: device.event(COMPLETION, cq._number)])
    assert channel.get_cq_event(cq) is cq
    assert len(device.advanced) == 3
    assert cq.num_events == 1
    cq.ack_events(1)
    refused(errno.EINVAL, cq.ack_events, 1)
    refused(errno.EINVAL, cq.ack_events, -1)


def test_an_event_that_is_there_costs_no_time(device, context):
    channel = CompChannel(context)
    cq = CQ(context, 8, channel=channel)
    device.event(COMPLETION, cq._number)
    assert channel.get_cq_event() is cq
    assert device.advanced == []


def test_the_event_of_another_queue(device, context):
    channel = CompChannel(context)
    cq, other = CQ(context, 8, channel=channel), CQ(context, 8, channel=channel)
    device.event(COMPLETION, other._number)
    assert "unexpected CQ" in refused(errno.EINVAL, channel.get_cq_event, cq)
    assert other.num_events == 1


def test_nothing_can_come_any_more(device, context):
    channel = CompChannel(context)
    assert "the device is idle" in refused(errno.EDEADLK, channel.get_cq_event, None)
    channel.close()
    assert "CompChannel is closed" in refused(errno.EINVAL, channel.get_cq_event, None)


def test_an_event_without_a_channel_is_dropped(device, context, cq):
    device.event(COMPLETION, cq._number)
    assert cq.poll() == (0, [])
    assert not context._events


def test_a_channel_of_another_context(device, context):
    with Context(name=device.name) as other:
        refused(errno.EINVAL, CQ, context, 8, channel=CompChannel(other))


def test_closing_forgets_events_and_closes_what_hangs_on_it(device, context, make_qp):
    channel = CompChannel(context)
    cq, other = CQ(context, 8, channel=channel), CQ(context, 8, channel=channel)
    qp = make_qp(scq=cq)
    for number in (cq._number, other._number):
        device.event(COMPLETION, number)
    assert channel.get_cq_event(cq) is cq
    device.event(COMPLETION, cq._number)
    cq.close()
    assert qp._closed
    assert device.qps == {}
    assert channel.get_cq_event(other) is other
    channel.close()
    assert other._closed


def test_an_error_holds_the_queue_until_it_is_acknowledged(device, context, cq):
    device.event(CQ_ERR, cq._number)
    event = context.get_async_event()
    assert (event.event_type, event.element) == (0, cq)
    refused(errno.EBUSY, cq.close)
    event.ack()
    cq.close()
    refused(errno.EINVAL, cq.poll)
    refused(errno.EINVAL, cq.req_notify)
    refused(errno.EINVAL, cq.resize, 1)


def test_garbage(device, context):
    channel = CompChannel(context)
    cq = CQ(context, 8, channel=channel)
    device.event(COMPLETION, cq._number)
    context._adapter.process_events()
    del cq
    refused(errno.EDEADLK, channel.get_cq_event)
    assert device.cqs == {}
    knot = [CQ(context, 8, channel=channel)]
    number = knot[0]._number

    def strike():
        """Garbage collection comes when the event is there and nobody has taken it."""
        device.event(COMPLETION, number)
        context._adapter.process_events()
        knot.clear()
        gc.collect()

    knot[0].knot = knot[0]
    device.script.append(strike)
    refused(errno.EDEADLK, channel.get_cq_event)
    channel.close()
    assert device.cqs == {}


def test_a_completion_by_itself():
    wc = WC(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13)
    assert list(vars(wc).values()) == list(range(1, 14))
    assert "status=99" in repr(WC(status=99))
