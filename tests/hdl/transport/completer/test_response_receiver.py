"""The response receiver: responses that come, are lost, come twice, too early or wrong, for READs over any entries."""

from itertools import groupby

import pytest
from amaranth.back import rtlil
from response_world import (
    ACK,
    ACKNOWLEDGE,
    ATOMIC,
    DATA,
    FAILED,
    FIRST,
    LAST,
    MIDDLE,
    NOTHING,
    ONLY,
    QPS,
    SKIPPED,
    Script,
    World,
    check,
    message,
    response,
    sends,
)
from streams import make_rng
from verbena.hdl.abi.cqe import Syndrome, WcStatus
from verbena.hdl.transport.completer.response_receiver import ResponseReceiver


@pytest.mark.parametrize("steps", [120, pytest.param(260, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("data_width", "stall"), [(64, 0.0), (64, 0.4), (128, 0.3), (512, 0.3)])
def test_random_life(data_width, stall, steps):
    rng = make_rng()
    values = [
        sends(rng, qp, rng.choice([6, 7]), path_mtu=rng.choice([1, 1, 2, 3]), log_sq_size=rng.choice([0, 3, 4, 5, 15]))
        for qp in range(QPS)
    ]
    world = World(rng, values, data_width=data_width, stall=stall)
    scripts = [Script(world, qp, rng) for qp in range(QPS)]
    for _ in range(steps):
        rng.choice(scripts).step()
    got = world.run()
    check(got, [script.model for script in scripts], values)
    assert {job.kind for _, job in got} >= {ACK, DATA, SKIPPED, NOTHING}


def drive(messages, answers, *, values=None, told=True):
    """One QP, 1, whose ``messages`` are told before ``answers``: (runs and jobs), the cycles of each answer, reads."""
    rng = make_rng(1)
    values = values or [sends(rng, qp, log_sq_size=4) for qp in range(QPS)]
    world = World(rng, values)
    before = []
    for each in messages:
        payload = {"qp": 1, "target": each.target}
        before = [world.add("reads", payload, (), lambda each=each: world.store(1, each))]
    events = [world.add("response", answer, before) for answer in answers]
    got = world.run()
    cycles = dict(world.cycles)
    return got, [cycles[event] for event in events], world.reads


def test_cycles():
    messages = [message(5, 600), message(8, 8)]
    answers = [
        response(1, ACKNOWLEDGE, 3, 0),  # may wait until the messages are told
        response(1, ACKNOWLEDGE, 4, 0),
        response(1, ACKNOWLEDGE, 4, 0, accept=0),
        response(1, FIRST, 5, 256),
        response(1, MIDDLE, 6, 256),
        response(1, LAST, 7, 88),
        response(1, ONLY, 8, 8),
        response(1, ONLY, 8, 8),
    ]
    _, cycles, reads = drive(messages, answers)
    assert cycles[1:] == [4, 4, 9, 8, 8, 11, 11]  # 2 more behind the end of a READ of the same QP
    assert reads == []


def test_entries_are_read_once_a_message():
    """128 bytes, of which the first 32 tell how many entries there are."""
    got, cycles, reads = drive(
        [message(5, 512, [10, 20, 0, 226, 100, 156]), message(7, 16, [8, 8], 4)],
        [response(1, FIRST, 5, 256), response(1, LAST, 6, 256), response(1, ONLY, 7, 16)],
    )
    assert [job.kind for _, job in got] == [DATA] * 3
    assert [[access.length for access in run] for run, _ in got] == [[10, 20, 226], [100, 156], [8, 8]]
    assert [length for _, length in reads] == [128]  # and none for two entries
    assert cycles[1:] == [7 + 2 * 6, 11 + 4]  # nothing is left of the entry before


@pytest.mark.parametrize(
    ("told", "opcode", "length", "kind", "syndrome"),
    [
        ({"length": 8}, ONLY, 8, DATA, 0x1F),
        ({"length": 8}, FIRST, 8, FAILED, Syndrome.OPCODE),
        ({"length": 8}, MIDDLE, 8, FAILED, Syndrome.OPCODE),
        ({"length": 8}, LAST, 8, FAILED, Syndrome.OPCODE),
        ({"length": 0}, ONLY, 0, DATA, 0x1F),
        ({"length": 8}, ATOMIC, 8, FAILED, Syndrome.OPCODE),
        ({"length": 8, "atomic": True}, ATOMIC, 8, DATA, 0x1F),
        ({"length": 8, "atomic": True}, ONLY, 8, FAILED, Syndrome.OPCODE),
        ({"length": 8, "atomic": True}, ATOMIC, 0, FAILED, Syndrome.LENGTH),
        ({"length": 8}, ONLY, 7, FAILED, Syndrome.LENGTH),
        ({"length": 0}, ONLY, 1, FAILED, Syndrome.LENGTH),
        ({"length": 300}, FIRST, 300, FAILED, Syndrome.LENGTH),
        ({"length": 300}, FIRST, 44, FAILED, Syndrome.LENGTH),
        ({"length": 300}, ONLY, 256, FAILED, Syndrome.OPCODE),
        ({"length": 300}, MIDDLE, 256, FAILED, Syndrome.OPCODE),
        ({"length": 256}, ONLY, 256, DATA, 0x1F),
        ({"length": (1 << 31)}, FIRST, 256, DATA, 0x1F),
        ({"length": 16, "entries": [8, 7]}, ONLY, 16, FAILED, Syndrome.LENGTH),
        ({"length": 16, "entries": [8, 4, 4], "readable": False}, ONLY, 16, FAILED, Syndrome.RING_BUS),
        ({"length": 16, "entries": [8, 8], "readable": False}, ONLY, 16, DATA, 0x1F),
        ({"length": 16, "entries": [16, 8], "readable": False}, ONLY, 16, DATA, 0x1F),
    ],
)
def test_verdicts(told, opcode, length, kind, syndrome):
    got, *_ = drive([message(**told)], [response(1, opcode, 5, length)])
    ((_, job),) = got
    assert (job.kind, job.syndrome, job.wqe_index) == (kind, syndrome, 3)


@pytest.mark.parametrize(
    ("opcodes", "kinds"),
    [
        ((FIRST, MIDDLE, LAST), (DATA, DATA, DATA)),
        ((ONLY, ONLY, ONLY), (FAILED,)),
        ((FIRST, LAST, LAST), (DATA, FAILED)),
        ((FIRST, ONLY, LAST), (DATA, FAILED)),
        ((FIRST, MIDDLE, MIDDLE), (DATA, DATA, FAILED)),
        ((FIRST, MIDDLE, FIRST), (DATA, DATA, FAILED)),
        ((MIDDLE, MIDDLE, LAST), (FAILED,)),
        ((FIRST, FIRST, LAST), (DATA, FAILED)),
        ((FIRST, MIDDLE, ONLY), (DATA, DATA, FAILED)),
    ],
)
def test_opcodes_of_a_read_in_three_packets(opcodes, kinds):
    assert kinds_of(opcodes[: len(kinds)]) == kinds


@pytest.mark.parametrize(
    ("resumed", "opcodes", "kinds"),
    [
        (1, (FIRST, FIRST, LAST), (DATA, DATA, DATA)),
        (1, (FIRST, MIDDLE, LAST), (DATA, DATA, DATA)),  # they were on their way
        (1, (FIRST, FIRST, FIRST), (DATA, DATA, FAILED)),
        (1, (FIRST, MIDDLE, ONLY), (DATA, DATA, FAILED)),
        (1, (FIRST, ONLY), (DATA, FAILED)),
        (2, (FIRST, FIRST), (DATA, FAILED)),
        (2, (FIRST, MIDDLE, ONLY), (DATA, DATA, DATA)),
        (2, (FIRST, MIDDLE, LAST), (DATA, DATA, DATA)),
        (1, (MIDDLE,), (FAILED,)),
    ],
)
def test_opcodes_of_a_read_that_is_asked_for_again(resumed, opcodes, kinds):
    assert kinds_of(opcodes, resumed) == kinds


def kinds_of(opcodes, resumed=None):
    """Of the responses to a READ in three packets, which is asked for again from one of them on."""
    rng = make_rng(1)
    world = World(rng, [sends(rng, qp, log_sq_size=4) for qp in range(QPS)])
    target = message(5, 600).target
    told = [world.add("reads", {"qp": 1, "target": target})]
    if resumed is not None:
        told.append(world.add("reads", {"qp": 1, "again": 1, "target": {"psn": 5 + resumed}}))
    for number, opcode in enumerate(opcodes):
        world.add("response", response(1, opcode, 5 + number, 88 if number == 2 else 256), told[-1:])
    return tuple(job.kind for _, job in world.run())


@pytest.mark.parametrize("syndrome", [0x00, 0x1F, 0x20, 0x3F, 0x40, 0x60, 0x62, 0x63, 0x7F, 0x80, 0x9F])
@pytest.mark.parametrize(("told", "opcode", "length"), [({"length": 8}, ONLY, 8), ({"atomic": True}, ATOMIC, 8)])
def test_an_answer_whose_aeth_is_no_ack(told, opcode, length, syndrome):
    got, *_ = drive([message(**told)], [response(1, opcode, 5, length, syndrome=syndrome)])
    ((run, job),) = got
    if syndrome < 0x20:
        assert (job.kind, job.syndrome) == (DATA, syndrome)
    else:
        assert (job.kind, job.status, job.syndrome) == (FAILED, WcStatus.BAD_RESP_ERR, Syndrome.REMOTE_NAK)
        assert [access.discard for access in run] == [1]


@pytest.mark.parametrize("bad", [FIRST, LAST])
def test_a_nak_in_the_first_or_last_response(bad):
    opcodes = (FIRST, MIDDLE, LAST)
    answers = [
        response(1, opcode, 5 + n, 88 if n == 2 else 256, syndrome=0x62 if opcode in (bad, MIDDLE) else 0x1F)
        for n, opcode in enumerate(opcodes[: opcodes.index(bad) + 1])
    ]
    got, *_ = drive([message(5, 600)], answers)
    assert [job.kind for _, job in got] == [DATA] * (len(answers) - 1) + [FAILED]


def test_sixteen_are_not_none():
    """A full ring is told from an empty one, and 40 go through it."""
    messages = [message(psn) for psn in range(16)]
    got, *_ = drive(messages, [response(1, ONLY, psn, 8) for psn in range(17)])
    assert [job.kind for _, job in got] == [DATA] * 16 + [NOTHING]


def test_kinds_in_a_row():
    """The random test's judge, once by hand."""
    answers = [(ONLY, 6), (ONLY, 5), (ONLY, 5), (ONLY, 7), (ONLY, 6), (ONLY, 6), (ONLY, 7)]
    got, *_ = drive([message(5), message(6)], [response(1, opcode, psn, 8) for opcode, psn in answers])
    assert [kind for kind, _ in groupby(job.kind for _, job in got)] == [SKIPPED, DATA, NOTHING, SKIPPED, DATA, NOTHING]


def test_arguments():
    with pytest.raises(ValueError, match="qps must be a power of two from 2 to 4096, not 12"):
        ResponseReceiver(12)


@pytest.mark.slow
def test_converts():
    for width in (64, 512):
        rtlil.convert(ResponseReceiver(64, width))
