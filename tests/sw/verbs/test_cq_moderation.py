"""Moderation of completion events and interrupts, and completion vectors."""

import errno

import pytest
from fake_device import CREATE_CQ, EQ_CONSUMER, EVENT_QUEUES, MODERATE_CQ, MODIFY_CQ, FakeDevice, provided
from verbena.sw.verbs.cq import CQ, CQEX, CompChannel, CqInitAttrEx, ModerateCq, ModifyCqAttr
from verbena.sw.verbs.cq_moderation import interval_of, period_of
from verbena.sw.verbs.device import Context
from verbena.sw.verbs.pyverbs_error import PyverbsRDMAError

COMPLETION, PORT_ERR = 128, 10
QUEUE = 32
"""Bytes of a row of the table of event queues."""


@pytest.fixture
def able():
    """A device that can, with four event queues."""
    with provided(FakeDevice(log_event_queues=2, moderates=True)) as fake:
        yield fake


@pytest.fixture
def able_context(able):
    with Context(name=able.name) as context:
        yield context


def refused(code, function, *args, **kwargs):
    with pytest.raises(PyverbsRDMAError) as caught:
        function(*args, **kwargs)
    assert caught.value.error_code == code
    return str(caught.value)


def test_rings_of_their_own(able, able_context):
    assert able_context.num_comp_vectors == 4
    rings = [able.registers[0x40], *(able.registers[EVENT_QUEUES + QUEUE * n] for n in range(1, 4))]
    assert len(set(rings)) == 4
    assert all(ring % 4096 == 0 for ring in rings)
    assert EVENT_QUEUES not in able.registers
    assert [able.registers[EVENT_QUEUES + QUEUE * n + 8] for n in range(1, 4)] == [12] * 3
    order = [offset for offset, _ in able.writes]
    assert order.index(0x0C) > max(order.index(EVENT_QUEUES + QUEUE * n + 8) for n in range(1, 4))


def test_vectors(able, able_context):
    """Each vector's events come from its own queue, and only that queue is told that they are taken."""
    channel = CompChannel(able_context)
    cqs = [CQ(able_context, 8, None, channel, vector) for vector in (0, 1, 3)]
    cqs.append(CQEX(able_context, CqInitAttrEx(8, channel, comp_vector=2)))
    words = [words for opcode, _, _, words in able.commands if opcode == CREATE_CQ]
    assert [word[3] >> 28 for word in words] == [0, 1, 3, 2]
    for cq, vector in zip(cqs, (0, 1, 3, 2)):
        cq.req_notify()
        able.writes.clear()
        able.event(COMPLETION, cq._number, vector)
        assert channel.get_cq_event(cq) is cq
        cq.ack_events(1)
        told = EVENT_QUEUES + QUEUE * vector + 12 if vector else EQ_CONSUMER
        assert able.writes == [(told, 1)]
    able.event(PORT_ERR, 0)
    assert able_context.get_async_event().event_type == PORT_ERR
    assert "there is no comp_vector 4" in refused(errno.EINVAL, CQ, able_context, 8, comp_vector=4)
    refused(errno.EINVAL, CQ, able_context, 8, comp_vector=-1)
    refused(errno.EINVAL, CQEX, able_context, CqInitAttrEx(8, comp_vector=4))


def test_modify(able, able_context):
    cq = CQ(able_context, 8, comp_vector=2)
    base_low, base_high, size, _ = able.cqs[0]
    for count, period, held in [(16, 20, 19), (0, 4095, 3999), (65535, 0, 0), (1, 1, 1), (2, 2, 1), (0, 0, 0)]:
        cq.modify(ModifyCqAttr(moderate=ModerateCq(count, period)))
        assert able.commands[-1][:2] == (MODERATE_CQ, 0)
        assert able.cqs[0] == [base_low, base_high, size, count | held << 16 | 2 << 28]
    cq.modify(ModifyCqAttr(moderate=ModerateCq(5, 9)))
    cq.resize(100)
    assert able.commands[-1][:2] == (MODIFY_CQ, 0)
    assert able.cqs[0][2:] == [7 | 1 << 4, 5 | 8 << 16 | 2 << 28]
    cq.modify(ModifyCqAttr())
    assert able.cqs[0][2:] == [7 | 1 << 4, 2 << 28]


@pytest.mark.parametrize(
    ("count", "period"), [(65536, 1), (-1, 1), (1, 4096), (1, -1), ("1", 1), (1, None), (1.5, 2), (1, 1 << 40)]
)
def test_what_is_out_of_range(able, able_context, count, period):
    cq = CQ(able_context, 8)
    commands = len(able.commands)
    text = refused(errno.EINVAL, cq.modify, ModifyCqAttr(moderate=ModerateCq(count, period)))
    assert text.startswith("Failed to modify CQ: cq_count must be 0 to 65535, ")
    assert len(able.commands) == commands


def test_other_attributes(able_context):
    cq = CQ(able_context, 8)
    refused(errno.EINVAL, cq.modify, ModifyCqAttr(attr_mask=0))
    refused(errno.EOPNOTSUPP, cq.modify, ModifyCqAttr(attr_mask=2))
    refused(errno.EOPNOTSUPP, cq.modify, ModifyCqAttr(attr_mask=3))


def test_a_command_that_fails_changes_nothing(able, able_context):
    cq = CQ(able_context, 8)
    cq.modify(ModifyCqAttr(moderate=ModerateCq(5, 9)))
    able.refuse[MODERATE_CQ] = 4
    refused(errno.EINVAL, cq.modify, ModifyCqAttr(moderate=ModerateCq(6, 9)))
    cq.resize(100)
    assert able.cqs[0][3] == 5 | 8 << 16


def test_a_device_that_cannot(context, cq):
    assert context.num_comp_vectors == 1
    refused(errno.EOPNOTSUPP, cq.modify, ModifyCqAttr())
    refused(errno.EOPNOTSUPP, context.moderate_interrupts, 5)
    assert vars(context.query_device_ex().cq_mod_caps) == {"max_cq_count": 0, "max_cq_period": 0}


def test_capabilities(able_context):
    assert vars(able_context.query_device_ex().cq_mod_caps) == {"max_cq_count": 65535, "max_cq_period": 4095}


def test_interrupts(able, able_context):
    able_context.moderate_interrupts(100, 3)
    able_context.moderate_interrupts(65535)
    assert able.registers[EVENT_QUEUES + QUEUE * 3 + 16] == 98
    assert able.registers[EVENT_QUEUES + 16] == 64000
    able_context.moderate_interrupts(0, comp_vector=0)
    assert able.registers[EVENT_QUEUES + 16] == 0
    for wrong in [(65536,), (-1,), (1.5,), (1, 4), (1, -1)]:
        refused(errno.EINVAL, able_context.moderate_interrupts, *wrong)


@pytest.mark.parametrize("microseconds", [0, 1, 2, 3, 41, 1000, 4095])
def test_units(microseconds):
    """A period is over in time, if it is not shorter than a unit; an interval is not over too soon."""
    assert period_of(microseconds) == max(bool(microseconds), int(microseconds / 1.024))
    assert 0 <= 1.024 * interval_of(microseconds) - microseconds < 1.024
