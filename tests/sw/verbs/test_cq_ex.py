"""Extended completion queues, and files that tell of completion events."""

import asyncio
import errno
import os
import select
import threading

import pytest
from fake_device import CREATE_CQ
from verbena.sw.verbs import libibverbs_enums as e
from verbena.sw.verbs.cq import (
    CQ,
    CQEX,
    WC,
    CompChannel,
    CqInitAttrEx,
    PollCqAttr,
    cqe_flags_to_str,
    cqe_opcode_to_str,
    cqe_status_to_str,
    create_wc_flags_to_str,
)
from verbena.sw.verbs.device import Context
from verbena.sw.verbs.pd import PD, ParentDomain, ParentDomainContext, ParentDomainInitAttr
from verbena.sw.verbs.pyverbs_error import PyverbsRDMAError

COMPLETION = 128
FIRST = 8


def refused(code, function, *args, **kwargs):
    with pytest.raises(PyverbsRDMAError) as caught:
        function(*args, **kwargs)
    assert caught.value.error_code == code
    return str(caught.value)


def readable(fd, timeout=0):
    return bool(select.select([fd], [], [], timeout)[0])


@pytest.fixture
def cq(context):
    return CQEX(context, CqInitAttrEx(16, wc_flags=e.IBV_WC_STANDARD_FLAGS))


@pytest.fixture
def qp(make_qp, cq):
    qp = make_qp(max_send_wr=64, scq=cq, rcq=cq)
    qp._sq.wr_ids = list(range(100, 164))
    return qp


# Creation


def test_attributes():
    attr = CqInitAttrEx()
    assert vars(attr) == {
        "cqe": 100,
        "cq_context": None,
        "comp_channel": None,
        "comp_vector": 0,
        "wc_flags": 0,
        "comp_mask": 0,
        "flags": 0,
        "parent_domain": None,
    }
    assert PollCqAttr().comp_mask == 0
    assert "100 entries" in str(attr)


def test_creation(device, context):
    channel = CompChannel(context)
    attr = CqInitAttrEx(17, channel, flags=1, comp_mask=e.IBV_CQ_INIT_ATTR_MASK_FLAGS)
    cq = CQEX(context, attr)
    assert device.commands[-1][0] == CREATE_CQ
    assert (cq.cqe, cq.comp_channel, cq.context) == (32, channel, context)
    assert str(cq).startswith("Extended CQ 0")
    assert CQEX(context).cqe == 128


@pytest.mark.parametrize(
    ("kwargs", "code"),
    [
        ({"cqe": 0}, errno.EINVAL),
        ({"comp_vector": 1}, errno.EINVAL),
        ({"comp_mask": 4}, errno.EINVAL),
        ({"comp_mask": 1, "flags": 4}, errno.EINVAL),
        ({"comp_mask": 2}, errno.EINVAL),
        ({"comp_mask": 1, "flags": 2}, errno.EOPNOTSUPP),
        ({"wc_flags": 128}, errno.EOPNOTSUPP),
        ({"wc_flags": 127 | 1 << 10}, errno.EOPNOTSUPP),
    ],
)
def test_creation_refused(device, context, kwargs, code):
    assert refused(code, CQEX, context, CqInitAttrEx(**kwargs)).startswith("Failed to create extended CQ")
    assert device.cqs == {}


def test_flags_that_the_mask_does_not_name(context):
    CQEX(context, CqInitAttrEx(flags=2)).close()


def test_in_a_parent_domain(device, context, pd):
    domain = ParentDomain(context, ParentDomainInitAttr(pd))
    attr = CqInitAttrEx(parent_domain=domain)
    assert attr.comp_mask == e.IBV_CQ_INIT_ATTR_MASK_PD
    cq = CQEX(context, attr)
    pd.close()
    assert cq._closed
    assert device.cqs == {}
    with Context(name=device.name) as other:
        foreign = ParentDomain(other, ParentDomainInitAttr(PD(other)))
        refused(errno.EINVAL, CQEX, context, CqInitAttrEx(parent_domain=foreign))


# Polling


def test_an_empty_queue(device, cq):
    assert cq.start_poll(PollCqAttr()) == errno.ENOENT
    assert len(device.advanced) == 1
    assert (cq.wr_id, cq.status, cq.read_opcode()) == (0, 0, 0)


def test_completions_one_by_one(device, cq, qp):
    qp._rq.wr_ids = [7] * 16
    device.complete(0, FIRST, 1)
    device.complete(0, FIRST, 3, status=5, opcode=129, imm=0x04030201, length=77, flags=2, source=9, syndrome=3)
    assert cq.start_poll(PollCqAttr()) == 0
    assert (cq.wr_id, cq.status, cq.read_opcode(), cq.read_qp_num()) == (101, 0, 0, FIRST)
    assert cq.poll_next() == 0
    assert (cq.wr_id, cq.status, cq.read_opcode(), cq.read_vendor_err()) == (7, 5, 129, 3)
    assert (cq.read_imm_data(), cq.read_byte_len(), cq.read_src_qp(), cq.read_wc_flags()) == (0x04030201, 77, 9, 2)
    assert (cq.read_slid(), cq.read_sl(), cq.read_dlid_path_bits()) == (0, 0, 0)
    assert cq.poll_next() == errno.ENOENT
    assert cq.wr_id == 7  # still the last one
    cq.end_poll()
    assert device.advanced == []
    attr = PollCqAttr()
    attr.comp_mask = 1
    assert cq.start_poll(attr) == errno.EINVAL


def test_who_insists_on_the_next_one_gives_the_device_time(device, cq, qp):
    device.complete(0, FIRST, 1)
    assert cq.start_poll() == 0
    assert cq.poll_next() == errno.ENOENT
    assert device.advanced == []
    device.script.append(lambda: device.complete(0, FIRST, 2))
    assert cq.poll_next() == 0
    assert (cq.wr_id, len(device.advanced)) == (102, 1)
    assert cq.poll_next() == errno.ENOENT
    assert len(device.advanced) == 1


def test_what_no_completion_has(cq):
    for read in (
        cq.read_timestamp,
        cq.read_completion_wallclock_ns,
        cq.read_cvlan,
        cq.read_flow_tag,
        cq.read_tm_info,
    ):
        refused(errno.EOPNOTSUPP, read)


def test_each_thread_has_its_own_completion(device, cq, qp):
    device.complete(0, FIRST, 1)
    device.complete(0, FIRST, 2)
    assert cq.start_poll() == 0
    seen = []
    thread = threading.Thread(target=lambda: seen.append((cq.wr_id, cq.start_poll(), cq.wr_id)))
    thread.start()
    thread.join()
    assert seen == [(0, 0, 102)]
    assert cq.wr_id == 101


def test_a_closed_queue(cq):
    cq.close()
    for call in (cq.start_poll, cq.poll_next, cq.end_poll):
        refused(errno.EINVAL, call)


# Events by file


@pytest.fixture
def channel(context):
    return CompChannel(context)


def test_a_channel_can_be_selected(device, context, channel):
    cq = CQ(context, 4, channel=channel)
    assert not context._adapter.files
    assert not readable(channel.fd)
    assert context._adapter.files
    device.event(COMPLETION, cq._number)
    context.advance()
    assert readable(channel.fd)
    assert channel.get_cq_event(cq) is cq
    assert not readable(channel.fd)
    channel.close()
    refused(errno.EINVAL, lambda: channel.fd)


def test_time_that_another_thread_gives_wakes_who_selects(device, context, channel):
    cq = CQ(context, 4, channel=channel)
    device.script.append(lambda: device.event(COMPLETION, cq._number))
    mover = threading.Timer(0.05, context.advance)
    mover.start()
    assert readable(channel.fd, timeout=10)
    mover.join()
    assert channel.get_cq_event(cq) is cq
    assert device.advanced == [4096]  # who selects has given none


def test_asyncio(device, context, channel):
    cq = CQ(context, 4, channel=channel)
    device.script.append(lambda: device.event(COMPLETION, cq._number))

    async def event():
        loop = asyncio.get_running_loop()
        arrived = loop.create_future()
        loop.add_reader(channel.fd, lambda: arrived.done() or arrived.set_result(channel.get_cq_event(cq)))
        loop.call_later(0.01, context.advance)
        try:
            return await asyncio.wait_for(arrived, 10)
        finally:
            loop.remove_reader(channel.fd)

    assert asyncio.run(event()) is cq


def test_a_file_that_does_not_block_is_not_waited_for(device, context, channel):
    cq = CQ(context, 4, channel=channel)
    os.set_blocking(channel.fd, False)
    assert "Failed to get CQ event. Errno: 11" in refused(errno.EAGAIN, channel.get_cq_event, cq)
    assert len(device.advanced) == 1
    device.script.append(lambda: device.event(COMPLETION, cq._number))
    assert channel.get_cq_event(cq) is cq


def test_a_channel_that_does_not_block_needs_no_file(device, context, channel):
    cq = CQ(context, 4, channel=channel)
    channel.blocking = False
    assert "Failed to get CQ event. Errno: 11" in refused(errno.EAGAIN, channel.get_cq_event, cq)
    assert len(device.advanced) == 1
    device.script.append(lambda: device.event(COMPLETION, cq._number))
    assert channel.get_cq_event(cq) is cq
    assert not context._adapter.files


def test_a_queue_that_goes_takes_its_events(device, context, channel):
    cq = CQ(context, 4, channel=channel)
    device.event(COMPLETION, cq._number)
    context.advance()
    cq.close()
    assert not readable(channel.fd)


# Texts


def test_texts():
    assert cqe_status_to_str(12) == "IBV_WC_RETRY_EXC_ERR"
    assert cqe_opcode_to_str(128) == "IBV_WC_RECV"
    assert cqe_flags_to_str(3) == "IBV_WC_GRH IBV_WC_WITH_IMM "
    assert create_wc_flags_to_str(3) == "IBV_WC_EX_WITH_BYTE_LEN IBV_WC_EX_WITH_IMM"


def test_repr():
    text = repr(WC(wr_id=5, opcode=128, byte_len=9, qp_num=0x11, imm_data=0xAB, wc_flags=2))
    assert text == (
        "WC(wr_id=5, status=IBV_WC_SUCCESS, opcode=IBV_WC_RECV, byte_len=9, wc_flags=IBV_WC_WITH_IMM, imm_data=0xab, "
        "qp_num=0x11, vendor_err=0)"
    )
    failed = repr(WC(wr_id=5, status=12, opcode=1, vendor_err=3))
    assert failed == "WC(wr_id=5, status=IBV_WC_RETRY_EXC_ERR, qp_num=0x0, vendor_err=3)"


def test_allocators_are_taken(pd, context):
    functions = ParentDomainContext(pd, print, repr, "mine")
    assert (functions.pd, functions.p_alloc, functions.p_free, functions.user_data) == (pd, print, repr, "mine")
    attr = ParentDomainInitAttr(pd, functions)
    assert attr.comp_mask == 3
    with ParentDomain(context, attr) as domain:
        assert (domain.handle, domain.context) == (pd.handle, context)
        assert isinstance(domain, PD)
        assert str(domain) == "Parent domain of PD 1"
    assert pd.handle in context._adapter.pds
