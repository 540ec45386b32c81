"""What happened for each message, against what the run knows of itself."""

from collections import Counter
from itertools import pairwise

import pytest
from traced import OPERATIONS, run
from verbena.sim.trace.capture_file import read_capture
from verbena.sim.trace.hops import hops_of
from verbena.sim.trace.messages import REQUESTER, RESPONDER, Messages
from verbena.sim.world import Faults
from verbena.sw.verbs.libibverbs_enums import IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE

pytestmark = pytest.mark.verilator


def messages_of(path):
    capture = read_capture(path)
    hops = hops_of(capture.frames)
    return Messages(capture, hops), hops


def only(message, kind, side):
    return sorted((e for e in message.events if (e.kind, e.side) == (kind, side)), key=lambda e: e.start)


@pytest.fixture(scope="module")
def traced(tmp_path_factory):
    path = tmp_path_factory.mktemp("trace") / "run.pcapng"
    counters, done = run(path)
    return *messages_of(path), counters, done


def test_all_messages_in_their_order(traced):
    messages, _, _, _ = traced
    assert [(m.opcode, m.length, m.index) for m in messages.list] == [
        (opcode, size, index) for index, (opcode, size) in enumerate(OPERATIONS)
    ]
    assert [m.packets for m in messages.list] == [1, 3, 2, 4, 1, 1]
    assert {m.result for m in messages.list} == {"SUCCESS"}
    assert [m.receive for m in messages.list] == [None, 0, None, 1, None, None]


def test_every_packet_and_every_access_belongs_to_a_message(traced):
    messages, hops, counters, _ = traced
    assert messages.unmatched == 0
    for side in (REQUESTER, RESPONDER):
        packets = [e for m in messages.list for e in only(m, "packet", side)]
        assert len(packets) == counters[side]["sent_frames"] == counters[1 - side]["received_frames"]
        assert sum(packet.size for packet in packets) == counters[side]["sent_bytes"]
        assert all(packet.to is not None and packet.to > packet.end for packet in packets)
    assert sum(hop.packet is not None for hop in hops) == len(hops)
    for map_ in messages.maps.values():
        assert all(access.used for access in map_.accesses if access.kind == "data")
        assert not [access for access in map_.accesses if access.kind == "other"]
    expected = Counter(access.kind for map_ in messages.maps.values() for access in map_.accesses)
    found = Counter(e.kind for m in messages.list for e in m.events)
    assert found["mpt"] == expected["mpt"] > 0
    assert found["mtt"] == expected["mtt"] > 0
    assert found["read"] + found["write"] == expected["data"]


def test_a_write_happens_in_its_order(traced):
    """The cycles are those of the run's own bus and frames, and each step begins when the one before has ended."""
    write = traced[0].list[0]
    # It is gathered from two entries, both looked up ahead: the second one's page is read before the first answer.
    page, same_page = only(write, "mtt", REQUESTER)
    assert page.start < same_page.start < page.end
    steps = [
        *only(write, "doorbell", REQUESTER),
        *only(write, "mpt", REQUESTER),
        page,
        *only(write, "read", REQUESTER),
        *only(write, "packet", REQUESTER),
        *only(write, "mpt", RESPONDER),
        *only(write, "mtt", RESPONDER),
        *only(write, "write", RESPONDER),
        *only(write, "packet", RESPONDER),
        *only(write, "cqe", REQUESTER),
    ]
    assert (len(steps), len(write.events)) == (10, 11)
    assert all(after.start > before.end for before, after in pairwise(steps))
    # A burst of memory takes its latency of 128 cycles; frames of 86 and 62 bytes are 11 and 8 beats of 8 bytes.
    assert steps[3].end - steps[3].start >= 128
    assert [step.end - step.start + 1 for step in (steps[4], steps[8])] == [11, 8]


def test_what_each_operation_needs(traced):
    write, send, read, immediate, atomic, empty = traced[0].list
    assert write.events[0].text == "the WQE and its doorbell"
    assert not only(write, "wqe", REQUESTER)
    for message in (send, read, immediate, atomic, empty):
        assert len(only(message, "wqe", REQUESTER)) == len(only(message, "doorbell", REQUESTER)) == 1
    assert [len(only(m, "wqe", RESPONDER)) for m in (send, immediate, read)] == [1, 1, 0]
    assert [len(only(m, "cqe", RESPONDER)) for m in (send, immediate, read)] == [1, 1, 0]
    sizes = {
        side: [sum(e.size for kind in ("read", "write") for e in only(m, kind, side)) for m in traced[0].list]
        for side in (REQUESTER, RESPONDER)
    }
    assert sizes[REQUESTER] == [16, 3000, 2000, 4096, 8, 0]
    assert sizes[RESPONDER] == [16, 3000, 2000, 4096, 16, 0]
    assert [e.text for e in only(read, "packet", RESPONDER)] == [
        "RDMA_READ_RESPONSE_FIRST 2",
        "RDMA_READ_RESPONSE_LAST 3",
    ]


def test_over_a_bad_wire(tmp_path):
    path = tmp_path / "run.pcapng"
    operations = [((IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ)[i % 2], 64 << i % 6) for i in range(100)]

    def spoil(world):
        world.set_faults(Faults(lose=0.03, duplicate=0.02, reorder=0.02, corrupt=0.02))

    counters, _ = run(path, operations, spoil)
    messages, hops = messages_of(path)
    assert messages.unmatched == 0
    packets = [e for m in messages.list for e in m.events if e.kind == "packet"]
    assert sum("the wire's duplicate" not in e.flags for e in packets) == sum(c["sent_frames"] for c in counters)
    assert sum("lost" in e.flags for e in packets) == sum(hop.lost for hop in hops) > 0
    assert any("nak" in e.flags for e in packets)
    assert any("again" in e.flags for e in packets)
    for message in messages.list:
        assert message.result == "SUCCESS"
        end = only(message, "cqe", REQUESTER)[0].end
        side = REQUESTER if message.opcode == IBV_WR_RDMA_READ else RESPONDER
        writes = only(message, "write", side)
        assert sum(e.size for e in writes) == message.length
        assert all(e.end <= end for e in writes)


def test_a_message_that_is_refused(tmp_path):
    path = tmp_path / "run.pcapng"
    run(path, [(IBV_WR_RDMA_WRITE, 64)], rkey=0x12345600)
    messages, _ = messages_of(path)
    assert [m.result for m in messages.list] == ["REM_ACCESS_ERR"]
    (nak,) = only(messages.list[0], "packet", RESPONDER)
    assert nak.flags == ("nak",)
    assert not only(messages.list[0], "write", RESPONDER)


def test_one_side_of_a_run(tmp_path):
    """The other adapter is of another program: what happened here is shown."""
    run(tmp_path / "run.pcapng")
    capture = read_capture(tmp_path / "run.pcapng")
    capture.transactions = [t for t in capture.transactions if t.adapter == 0]
    capture.frames = [frame for frame in capture.frames if frame.port == "adapter0"]
    messages = Messages(capture, hops_of(capture.frames))
    assert messages.unmatched == 0
    assert [(m.opcode, m.length) for m in messages.list] == OPERATIONS
    assert {m.result for m in messages.list} == {"SUCCESS"}
    assert [sum(e.size for k in ("read", "write") for e in only(m, k, REQUESTER)) for m in messages.list] == [
        *(16, 3000, 2000, 4096, 8, 0)
    ]
    assert not [e for m in messages.list for e in m.events if e.side == RESPONDER and e.kind != "packet"]
