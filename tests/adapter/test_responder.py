"""What the responder of a whole adapter makes of requests that no honest requester sends, or sends late."""

import pytest
from ends import End, completion, fill, recv, sge
from raw_peer import ACK, MTU, NAK_ACCESS, NAK_INVALID, RawPeer, atomiceth, reth
from verbena.sw.verbs.libibverbs_enums import ibv_event_type, ibv_qp_state, ibv_wc_status
from verbena.sw.verbs.mr import MR

SIZE = 1 << 16
E = ibv_event_type


@pytest.fixture
def end():
    with End("sim1", SIZE) as end:
        yield end


def events(end):
    end.context._adapter.process_events()
    return [event.event_type for event in end.context._events]


# -- Ranges are checked whole.


@pytest.mark.parametrize("missing", [1, 100, 2 * MTU + 1])
def test_a_write_that_does_not_fit_writes_nothing(end, missing):
    """Whichever of its packets lies beyond the region, the first one is refused."""
    peer = RawPeer(end)
    before = fill(end, 1)
    start = end.mr.buf + SIZE - 4 * MTU + missing
    peer.send(0x06, 0, reth(start, end.mr.rkey, 4 * MTU) + bytes(MTU))
    for psn in (1, 2, 3):
        peer.send(0x07 if psn < 3 else 0x08, psn, bytes(MTU))
    assert [(a.opcode, a.psn, a.syndrome) for a in peer.answers()] == [(0x11, 0, NAK_ACCESS)]
    assert end.mr.read(SIZE, 0) == before
    assert events(end) == [E.IBV_EVENT_QP_ACCESS_ERR]


@pytest.mark.parametrize("length", [SIZE + 1, 1 << 31])
def test_a_read_that_does_not_fit_returns_nothing(end, length):
    peer = RawPeer(end)
    fill(end, 2)
    peer.send(0x0C, 0, reth(end.mr.buf, end.mr.rkey, length))
    assert [(a.opcode, a.psn, a.syndrome) for a in peer.answers()] == [(0x11, 0, NAK_ACCESS)]
    assert events(end) == [E.IBV_EVENT_QP_ACCESS_ERR]


def test_what_just_fits_is_served(end):
    peer = RawPeer(end)
    content = bytearray(fill(end, 3))
    start = SIZE - 3 * MTU
    peer.send(0x06, 0, reth(end.mr.buf + start, end.mr.rkey, 3 * MTU) + bytes(MTU))
    peer.send(0x07, 1, bytes(MTU))
    peer.send(0x08, 2, bytes(MTU))
    content[start:] = bytes(3 * MTU)
    assert [(a.opcode, a.psn, a.syndrome) for a in peer.answers()][-1] == (0x11, 2, ACK)
    peer.send(0x0C, 3, reth(end.mr.buf, end.mr.rkey, SIZE))
    answers = peer.answers(20_000)
    assert b"".join(a.payload for a in answers) == content == end.mr.read(SIZE, 0)


def test_a_region_that_goes_ends_a_write_in_the_middle(end):
    """Later packets are checked, too."""
    peer = RawPeer(end)
    region = MR(end.pd, 4 * MTU, 15)
    start, key = region.buf, region.rkey
    peer.send(0x06, 0, reth(start, key, 3 * MTU) + bytes(MTU))
    assert peer.answers()[0].syndrome == ACK
    region.close()
    peer.send(0x07, 1, bytes(MTU))
    assert [(a.opcode, a.psn, a.syndrome) for a in peer.answers()] == [(0x11, 1, NAK_ACCESS)]


# -- Opcodes that are known and not served.

NOT_SERVED = {0x1C: bytes(20), 0x1D: reth(0, 0, 8)}
"""FLUSH, ATOMIC WRITE: the headers behind the BTH."""

OTHERS = (0x24, 0x2A, 0x64)
"""Of UC and UD."""


@pytest.mark.parametrize("payload", [0, 5, MTU])
@pytest.mark.parametrize("opcode", NOT_SERVED, ids=hex)
def test_an_opcode_that_is_not_served_is_refused(end, opcode, payload):
    peer = RawPeer(end, psn=7)
    recv(end, [sge(end, 0, 1024)])
    before = fill(end, 4)
    body = NOT_SERVED[opcode] + bytes({0x1C: 0, 0x1D: 8}.get(opcode, payload))
    peer.send(opcode, 7, body)
    assert [(a.opcode, a.psn, a.syndrome) for a in peer.answers()] == [(0x11, 7, NAK_INVALID)]
    assert events(end) == [E.IBV_EVENT_QP_REQ_ERR]
    assert completion(end.cq).status == ibv_wc_status.IBV_WC_WR_FLUSH_ERR
    assert end.qp.query()[0].qp_state == ibv_qp_state.IBV_QPS_ERR
    assert end.mr.read(SIZE, 0)[1024:] == before[1024:]


@pytest.mark.parametrize("opcode", [0x15, 0x18, 0x1B, 0x1E, 0x1F, *OTHERS, 0x36, 0x44, 0x81, 0xA4, 0xB7, 0xE0])
def test_an_opcode_of_nobody_or_of_another_transport_is_dropped(end, opcode):
    peer = RawPeer(end)
    counter = "drop_qp" if opcode in OTHERS else "drop_malformed"
    dropped = end.context.query_counters(counter)[counter]
    peer.send(opcode, 0, bytes(24))
    assert peer.answers() == []
    assert end.context.query_counters(counter)[counter] == dropped + 1
    peer.send(0x0A, 0, reth(end.mr.buf, end.mr.rkey, 4) + b"good")
    assert [a.syndrome for a in peer.answers()] == [ACK]
    assert end.mr.read(4, 0) == b"good"


# -- P_Keys and VLAN tags.


def test_a_vlan_tagged_frame_is_dropped_and_counted(end):
    peer = RawPeer(end)
    before = fill(end, 5)
    dropped = end.context.query_counters("drop_qp")["drop_qp"]
    frame = peer.frame(0x0A, 0, reth(end.mr.buf, end.mr.rkey, 4) + b"gone")
    peer.adapter.inject(frame[:12] + bytes.fromhex("81006005") + frame[12:])
    assert peer.answers() == []
    assert end.context.query_counters("drop_qp")["drop_qp"] == dropped + 1
    assert end.mr.read(SIZE, 0) == before
    peer.adapter.inject(frame)
    assert [a.syndrome for a in peer.answers()] == [ACK]


@pytest.mark.parametrize(("pkey", "taken"), [(0xFFFF, True), (0x7FFF, True), (0xFFFE, False), (0x7FFE, False)])
def test_pkeys(end, pkey, taken):
    """The queue pair is a full member: it takes what a full or a limited one sends, of the same partition."""
    peer = RawPeer(end)
    peer.send(0x0A, 0, reth(end.mr.buf, end.mr.rkey, 4) + b"word", pkey=pkey)
    assert len(peer.answers()) == taken
    assert (end.mr.read(4, 0) == b"word") == taken


# -- What is asked for again is matched to what was executed.

READ_REQUEST, WRITE_ONLY, FETCH_ADD, ATOMIC = 0x0C, 0x0A, 0x14, 0x12


def test_a_late_copy_of_a_read_whose_region_is_gone(end):
    """It is complete, so nobody waits for it: no NAK, and the connection lives on."""
    peer = RawPeer(end)
    with MR(end.pd, 4096, 15) as region:
        body = reth(region.buf, region.rkey, 3 * MTU)
        peer.send(READ_REQUEST, 0, body)
        assert [a.psn for a in peer.answers()] == [0, 1, 2]
    for psn, copy in ((0, body), (1, reth(region.buf + MTU, region.rkey, 2 * MTU))):
        peer.send(READ_REQUEST, psn, copy)
        assert peer.answers() == []
    assert events(end) == []
    peer.send(WRITE_ONLY, 3, reth(end.mr.buf, end.mr.rkey, 4) + b"good")
    assert [(a.opcode, a.psn, a.syndrome) for a in peer.answers()] == [(0x11, 3, ACK)]
    assert end.mr.read(4, 0) == b"good"


def test_a_read_that_is_asked_for_again_is_the_one_that_was(end):
    """Whole, and from each of its packets on; what differs in place, key, length or PSN is dropped."""
    peer = RawPeer(end)
    content = fill(end, 5)
    base, key = end.mr.buf + 512, end.mr.rkey
    peer.send(WRITE_ONLY, 0, reth(end.mr.buf, key, 0))
    peer.send(FETCH_ADD, 1, atomiceth(end.mr.buf + SIZE - 8, key, 1))
    peer.send(READ_REQUEST, 2, reth(base, key, 4 * MTU + 10))
    peer.send(FETCH_ADD, 7, atomiceth(end.mr.buf + SIZE - 8, key, 1))
    peer.send(WRITE_ONLY, 8, reth(end.mr.buf, key, 0))
    assert {a.psn for a in peer.answers(6000)} >= {1, 2, 3, 4, 5, 6, 7, 8}
    with MR(end.pd, 4096, 15) as other:
        for psn, address, rkey, length in (
            (2, base + 8, key, 4 * MTU + 10),
            (2, base - 8, key, 4 * MTU + 18),
            (2, base, key, 4 * MTU + 11),
            (2, base, key, 2 * MTU),
            (2, other.buf, other.rkey, 4 * MTU + 10),
            (3, base, key, 3 * MTU + 10),
            (1, base - MTU, key, 5 * MTU + 10),
            (6, base + 3 * MTU, key, 10),
            (1, base, key, 8),
            (7, base, key, 8),
            (0, base, key, 8),
            (8, base, key, 8),
        ):
            peer.send(READ_REQUEST, psn, reth(address, rkey, length))
            assert peer.answers() == [], (psn, address - base, length)
    for first in (0, 1, 3, 4):
        start = first * MTU
        peer.send(READ_REQUEST, 2 + first, reth(base + start, key, 4 * MTU + 10 - start))
        answers = peer.answers(4000)
        assert [a.psn for a in answers] == list(range(2 + first, 7))
        assert b"".join(a.payload for a in answers) == content[512 + start : 512 + 4 * MTU + 10]
    peer.send(FETCH_ADD, 7, atomiceth(end.mr.buf + SIZE - 8, key, 1))
    assert [(a.opcode, a.psn) for a in peer.answers()] == [(ATOMIC, 7)]
    assert events(end) == []


def test_sixteen_reads_may_be_asked_for_again(end):
    """All that a peer may have outstanding, in whatever order they are lost, and more than once."""
    peer = RawPeer(end)
    content = fill(end, 6)
    reads = {psn: (512 * psn, 2 * MTU) for psn in range(0, 40, 2)}
    for psn, (place, length) in reads.items():
        peer.send(READ_REQUEST, psn, reth(end.mr.buf + place, end.mr.rkey, length))
        assert len(peer.answers(1500)) == 2
    for first in (8, 8, 20, 8):
        for psn in range(first, 40, 2):
            place, length = reads[psn]
            peer.send(READ_REQUEST, psn, reth(end.mr.buf + place, end.mr.rkey, length))
            answers = peer.answers(1500)
            assert [a.psn for a in answers] == [psn, psn + 1]
            assert b"".join(a.payload for a in answers) == content[place : place + length]
    peer.send(READ_REQUEST, 6, reth(end.mr.buf + 3072, end.mr.rkey, 2 * MTU))
    assert peer.answers() == []
