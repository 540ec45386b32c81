"""UC: SEND and WRITE that nobody acknowledges. What arrives is whole or absent, and a lost receive is used again."""

import itertools
import random

import pytest
from ends import (
    FETCH_ADD,
    READ,
    SEND,
    SEND_IMM,
    SIGNALED,
    WRITE,
    WRITE_IMM,
    End,
    completion,
    completions,
    connect,
    fill,
    quiet,
    recv,
    send,
    settle,
    sge,
    world,
)
from raw_peer import MTU, RawPeer, reth
from streams import make_rng
from verbena.hdl.abi.cqe import Syndrome
from verbena.sim.ports import Faults
from verbena.sw.verbs.libibverbs_enums import (
    ibv_event_type,
    ibv_qp_attr_mask,
    ibv_qp_state,
    ibv_qp_type,
    ibv_send_flags,
    ibv_wc_flags,
    ibv_wc_opcode,
    ibv_wc_status,
)
from verbena.sw.verbs.pyverbs_error import PyverbsRDMAError
from verbena.sw.verbs.qp import QPAttr
from verbena.sw.verbs.wr import SGE

UC, RC = ibv_qp_type.IBV_QPT_UC, ibv_qp_type.IBV_QPT_RC
SIZE = 1 << 16
W = ibv_wc_status
LENGTHS = (0, 1, 3, 4, 63, 64, 65, 255, 256, 257, 512, 5000, 40_000)

SEND_FIRST, SEND_MIDDLE, SEND_LAST, SEND_LAST_IMM, SEND_ONLY, SEND_ONLY_IMM = range(0x20, 0x26)
WRITE_FIRST, WRITE_MIDDLE, WRITE_LAST, WRITE_LAST_IMM, WRITE_ONLY, WRITE_ONLY_IMM = range(0x26, 0x2C)


@pytest.fixture
def pair():
    with (
        End("sim0", SIZE, qp_type=UC, sge=6, inline=96, depth=64) as a,
        End("sim1", SIZE, qp_type=UC, sge=4, depth=64) as b,
    ):
        yield a, b


@pytest.fixture
def end():
    with End("sim1", SIZE, qp_type=UC, depth=64) as end:
        yield end


class Counts:
    """What counters of an end have counted since this was made."""

    def __init__(self, end):
        self.end = end
        self.before = end.context.query_counters()

    def __call__(self, name):
        return self.end.context.query_counters(name)[name] - self.before[name]


# -- Between two adapters.


@pytest.mark.every_width
@pytest.mark.parametrize("opcode", [WRITE, WRITE_IMM, SEND, SEND_IMM])
def test_lengths(pair, opcode):
    """A completion says that the message has been sent; it is there a moment later. No frame is an answer."""
    a, b = pair
    connect(a, b, mtu=256, psn=0xFFFFF0)
    source, expected = fill(a, 1), bytearray(fill(b, 2))
    sent_by_a, sent_by_b = Counts(a), Counts(b)
    for number, length in enumerate(LENGTHS):
        here, there = 17 * number % 64, 4096 + 13 * number % 71
        if opcode != WRITE:
            recv(b, [sge(b, there, 50_000)], wr_id=number)
        send(a, opcode, [sge(a, here, length)], wr_id=1000 + number, remote=(b, there), imm=number)
        sent = completion(a.cq)
        assert (sent.wr_id, sent.status) == (1000 + number, W.IBV_WC_SUCCESS)
        if opcode == WRITE:
            settle(3000)
        else:
            got = completion(b.cq)
            assert (got.wr_id, got.status, got.byte_len) == (number, W.IBV_WC_SUCCESS, length)
            assert got.src_qp == a.qp.qp_num
            immediate = opcode in (SEND_IMM, WRITE_IMM)
            assert bool(got.wc_flags & ibv_wc_flags.IBV_WC_WITH_IMM) == immediate
            assert got.imm_data == number or not immediate
            of = ibv_wc_opcode.IBV_WC_RECV_RDMA_WITH_IMM if opcode == WRITE_IMM else ibv_wc_opcode.IBV_WC_RECV
            assert got.opcode == of
        expected[there : there + length] = source[here : here + length]
        assert b.mr.read(SIZE, 0) == expected
    assert sent_by_b("tx_packets") == 0
    assert sent_by_a("rx_acks") == 0
    assert sent_by_a("tx_messages") == len(LENGTHS)


@pytest.mark.every_width
def test_many_at_once_in_both_directions_beside_rc(pair):
    """Queues stay full; completions come in order, signaled or not; inline and scattered."""
    a, b = pair
    connect(a, b)
    seed, rng = 7, random.Random(7)
    with End("sim0", SIZE, depth=64) as c, End("sim1", SIZE, depth=64) as d:
        connect(c, d)
        contents = {end: fill(end, seed + n) for n, end in enumerate((a, b, c, d))}
        for far in (a, b, c, d):
            for number in range(32):
                recv(far, [sge(far, SIZE // 2 + 512 * number, 500)], wr_id=number)
        for number in range(32):
            for near in (a, b, c, d):
                length = rng.randrange(500)
                flags = SIGNALED if number % 3 == 2 or number == 31 else 0
                if near is a and length <= 96:
                    flags |= ibv_send_flags.IBV_SEND_INLINE
                send(near, SEND, [sge(near, 300 * number, length)], wr_id=number, flags=flags)
                contents[near, number] = length
        for near, far in ((a, b), (b, a), (c, d), (d, c)):
            found = completions(near.cq, 11 + 32)
            mine = [wc.wr_id for wc in found if not wc.opcode & ibv_wc_opcode.IBV_WC_RECV]
            assert mine == [*range(2, 32, 3), 31]
            got = [wc for wc in found if wc.opcode & ibv_wc_opcode.IBV_WC_RECV]
            assert [(wc.wr_id, wc.byte_len) for wc in got] == [(n, contents[far, n]) for n in range(32)]
            for number in range(32):
                length = contents[far, number]
                there = near.mr.read(length, SIZE // 2 + 512 * number) if length else b""
                assert there == contents[far][300 * number :][:length]
            assert {wc.status for wc in found} == {W.IBV_WC_SUCCESS}


@pytest.mark.every_width
@pytest.mark.parametrize("count", [120, pytest.param(300, marks=pytest.mark.slow)])
@pytest.mark.parametrize("loss", [0.02, 0.2])
def test_what_arrives_over_a_bad_wire_is_whole(pair, loss, count):
    """Frames are lost, damaged, doubled and delayed. What completes at the receiver is one of the messages sent, whole;
    and at the sender all complete."""
    a, b = pair
    connect(a, b, mtu=256)
    rng = make_rng()
    counts = Counts(a), Counts(b)
    world().set_faults(Faults(lose=loss, corrupt=loss / 2, damage=loss / 2, duplicate=loss, reorder=loss))
    messages = {}
    arrived = 0
    for number in range(16):
        recv(b, [sge(b, 2048 * number, 2048)], wr_id=number)
    for number in range(count):
        length = rng.choice((8, 200, 256, 600, 1500))
        messages[number] = rng.randbytes(length)
        a.mr.write(messages[number], length, 2048 * (number % 16))
        send(a, SEND_IMM, [sge(a, 2048 * (number % 16), length)], wr_id=number, imm=number)
        sent = completion(a.cq)
        assert (sent.wr_id, sent.status) == (number, W.IBV_WC_SUCCESS)
        settle(600)
        for wc in b.cq.poll(16)[1]:
            assert wc.status == W.IBV_WC_SUCCESS
            assert wc.wr_id == arrived % 16  # none is left out
            content = b.mr.read(wc.byte_len, 2048 * wc.wr_id)
            assert content == messages[wc.imm_data], (number, wc.imm_data)
            recv(b, [sge(b, 2048 * wc.wr_id, 2048)], wr_id=wc.wr_id)
            arrived += 1
    world().set_faults(Faults())
    assert 0 < arrived < count
    assert counts[0]("retries") == counts[0]("timeouts") == 0
    assert counts[1]("drop_sequence") > 0


def test_a_drain_and_a_reset(pair):
    """SQD waits for what was begun; RESET forgets it."""
    a, b = pair
    connect(a, b)
    fill(a, 3)
    for number in range(20):
        send(a, WRITE, [sge(a, 0, 3000)], wr_id=number, remote=(b, 0))
    a.qp.modify(QPAttr(qp_state=ibv_qp_state.IBV_QPS_SQD), ibv_qp_attr_mask.IBV_QP_STATE)
    while a.qp.query()[0].sq_draining:
        settle(500)
    done = a.cq.poll(64)[1]
    assert 0 < len(done) < 20
    assert {wc.status for wc in done} == {W.IBV_WC_SUCCESS}
    quiet(a.cq)
    a.qp.modify(QPAttr(qp_state=ibv_qp_state.IBV_QPS_RTS), ibv_qp_attr_mask.IBV_QP_STATE)
    assert [wc.wr_id for wc in completions(a.cq, 20 - len(done))] == list(range(len(done), 20))
    for number in range(20):
        send(a, WRITE, [sge(a, 0, 3000)], wr_id=number, remote=(b, 0))
    settle(200)
    a.qp.modify(QPAttr(qp_state=ibv_qp_state.IBV_QPS_ERR), ibv_qp_attr_mask.IBV_QP_STATE)
    found = completions(a.cq, 20)
    assert [wc.wr_id for wc in found] == list(range(20))
    assert found[-1].status == W.IBV_WC_WR_FLUSH_ERR
    a.qp.modify(QPAttr(qp_state=ibv_qp_state.IBV_QPS_RESET), ibv_qp_attr_mask.IBV_QP_STATE)
    quiet(a.cq)


# -- Errors of the sender.


@pytest.mark.parametrize("packets", [1, 3])
def test_memory_that_may_not_be_read_ends_the_queue(pair, packets):
    """Earlier messages complete; nothing of the bad one is a message at the peer."""
    a, b = pair
    connect(a, b, mtu=256)
    before = fill(b, 4)
    recv(b, [sge(b, 0, 2048)], wr_id=1)
    recv(b, [sge(b, 4096, 2048)], wr_id=2)
    send(a, SEND, [sge(a, 0, 700)], wr_id=1)
    good = [sge(a, 0, 256 * (packets - 1))] if packets > 1 else []
    send(a, SEND, [*good, SGE(a.mr.buf, 100, a.mr.lkey ^ 1)], wr_id=2)
    send(a, SEND, [sge(a, 0, 8)], wr_id=3)
    found = completions(a.cq, 3)
    assert [(wc.wr_id, wc.status) for wc in found] == [
        (1, W.IBV_WC_SUCCESS),
        (2, W.IBV_WC_LOC_PROT_ERR),
        (3, W.IBV_WC_WR_FLUSH_ERR),
    ]
    assert found[1].vendor_err == Syndrome.KEY
    assert a.qp.qp_state == ibv_qp_state.IBV_QPS_SQE
    assert completion(b.cq).wr_id == 1
    quiet(b.cq)
    assert b.qp.qp_state == ibv_qp_state.IBV_QPS_RTS
    assert b.mr.read(SIZE - 8192, 8192) == before[8192:]


@pytest.mark.parametrize("opcode", [READ, FETCH_ADD])
def test_what_uc_has_not_is_refused_at_the_call(pair, opcode):
    a, b = pair
    connect(a, b)
    with pytest.raises(PyverbsRDMAError, match="opcode IBV_WR_") as error:
        send(a, opcode, [sge(a, 0, 8)], remote=(b, 0))
    assert error.value.error_code == 22
    send(a, WRITE, [sge(a, 0, 8)], remote=(b, 0))
    assert completion(a.cq).status == W.IBV_WC_SUCCESS


# -- What a receiver makes of the packets of a peer (IBA 9.8). Each message fills its receive with its own letter.


class Messages(RawPeer):
    """Sends packets of UC, and knows which receives are posted and what they hold."""

    def __init__(self, end, psn=0):
        super().__init__(end, psn)
        self.post(range(8))

    def post(self, numbers):
        for number in numbers:
            recv(self.end, [sge(self.end, 4096 * number, 4096)], wr_id=number)

    def packet(self, opcode, psn, letter, length=MTU, total=None, at=0, **more):
        base = opcode & 0x1F
        body = b""
        if base in (6, 10, 11):
            body += reth(self.end.mr.buf + 32768 + at, self.end.mr.rkey, length if total is None else total)
        if base in (3, 5, 9, 11):
            body += letter.encode() * 4
        self.send(opcode, psn, body + letter.encode() * length, ack=0, **more)

    def received(self):
        """``(wr_id, content)`` of each receive that is complete; whoever was answered fails."""
        assert self.answers(1500) == []
        found = self.end.cq.poll(16)[1]
        assert {wc.status for wc in found} <= {W.IBV_WC_SUCCESS}
        of_write = ibv_wc_opcode.IBV_WC_RECV_RDMA_WITH_IMM
        return [
            (wc.wr_id, "imm" if wc.opcode == of_write else self.end.mr.read(wc.byte_len, 4096 * wc.wr_id).decode())
            for wc in found
        ]


OPEN = {"no message": None, "a SEND": SEND_FIRST, "a WRITE": WRITE_FIRST}
COMES = {
    "SEND_FIRST": SEND_FIRST,
    "SEND_MIDDLE": SEND_MIDDLE,
    "SEND_LAST": SEND_LAST,
    "SEND_ONLY": SEND_ONLY,
    "WRITE_FIRST": WRITE_FIRST,
    "WRITE_MIDDLE": WRITE_MIDDLE,
    "WRITE_LAST_IMM": WRITE_LAST_IMM,
    "WRITE_ONLY_IMM": WRITE_ONLY_IMM,
}


@pytest.mark.parametrize("under_way", OPEN)
def test_the_table_of_the_receiver(end, under_way):
    """A message under way, or none; a packet, with the expected PSN or another one; and then a whole message, which
    always arrives. ``a`` is the message under way, ``b`` what comes, ``c`` the one behind."""
    peer = Messages(end, psn=100)
    psn, kind, used = 100, under_way.split()[-1], 0
    for comes, gap in itertools.product(COMES, (0, 1, 1000, -1, -(1 << 22))):
        if OPEN[under_way] is not None:
            peer.packet(OPEN[under_way], psn, "a", total=3 * MTU)
            psn += 1
        psn += gap
        expected = []
        begins, its_kind = comes.endswith(("FIRST", "ONLY", "ONLY_IMM")), comes.split("_")[0]
        goes_on = not begins and gap == 0 and kind == its_kind
        middle = comes.endswith(("FIRST", "MIDDLE"))
        peer.packet(COMES[comes], psn, "b", total=MTU if "ONLY" in comes else 2 * MTU)
        if middle:  # its message ends
            psn += 1
            peer.packet(SEND_LAST if its_kind == "SEND" else WRITE_LAST_IMM, psn, "b")
        if its_kind == "SEND" and (begins or goes_on):
            expected.append("a" * MTU * goes_on + "b" * MTU * (1 + middle))
        elif begins or (goes_on and middle):  # three packets, as its RETH said; with two it is no message
            expected.append("imm")
        peer.packet(SEND_ONLY, psn + 1, "c")
        expected.append("c" * MTU)
        psn += 2
        received = peer.received()
        assert received == [((used + n) % 8, content) for n, content in enumerate(expected)], (comes, gap)
        used += len(received)
        peer.post(number for number, _ in received)
    assert end.qp.qp_state == ibv_qp_state.IBV_QPS_RTS


@pytest.mark.parametrize("lost", range(4))
def test_a_lost_packet_costs_its_message_alone(end, lost):
    """Also where the last one is lost: the message behind it arrives, and takes the receive (other than Soft-RoCE)."""
    peer, counts = Messages(end, psn=0xFFFFFE), Counts(end)
    packets = [SEND_FIRST, SEND_MIDDLE, SEND_MIDDLE, SEND_LAST]
    for number, opcode in enumerate(packets):
        if number != lost:
            peer.packet(opcode, 0xFFFFFE + number, "a")
    for number, opcode in enumerate(packets):
        peer.packet(opcode, 0xFFFFFE + 4 + number, "b")
    assert peer.received() == [(0, 4 * MTU * "b")]
    assert counts("drop_sequence") == 3 - lost


# -- What cannot be served: the message is dropped, nobody hears of it, and the queue pair lives.


def test_no_receive(end):
    peer, counts = RawPeer(end), Counts(end)
    for number in range(3):
        peer.send(SEND_ONLY, number, b"none", ack=0)
    peer.send(SEND_FIRST, 3, bytes(MTU))
    peer.answers()
    recv(end, [sge(end, 0, 64)], wr_id=5)
    peer.send(SEND_LAST, 4, b"late")  # of a message that has no receive
    peer.send(SEND_ONLY, 5, b"good")
    assert peer.answers() == []
    got = completion(end.cq)
    assert (got.wr_id, got.status, got.byte_len) == (5, W.IBV_WC_SUCCESS, 4)
    assert end.mr.read(4, 0) == b"good"
    assert counts("drop_error") == 4
    assert counts("drop_sequence") == 1


@pytest.mark.parametrize("immediate", [False, True])
@pytest.mark.parametrize("wrong", ["key", "rights", "range", "page", "length"])
@pytest.mark.parametrize("packets", [1, 3])
def test_a_write_that_may_not_be(end, wrong, packets, immediate):
    """Not one byte is written, and the next message is served. A receive that the immediate has taken says so."""
    peer, counts = RawPeer(end), Counts(end)
    content = bytearray(fill(end, 9))
    for number in range(3):
        recv(end, [], wr_id=number)
    address, key, total = end.mr.buf, end.mr.rkey, packets * MTU
    if wrong == "key":
        key ^= 1
    elif wrong == "range":
        address += SIZE - total + 1
    elif wrong == "page":
        address -= 1
    elif wrong == "length":
        total -= 1
    else:
        end.qp.modify(QPAttr(qp_state=ibv_qp_state.IBV_QPS_RTS), ibv_qp_attr_mask.IBV_QP_ACCESS_FLAGS)
    opcodes = [WRITE_ONLY] if packets == 1 else [WRITE_FIRST, WRITE_MIDDLE, WRITE_LAST]
    for number, opcode in enumerate(opcodes):
        last = number == packets - 1
        body = reth(address, key, total) if number == 0 else b""
        if last and immediate:
            opcode, body = opcode + 1, body + b"IMMD"
        peer.send(opcode, number, body + bytes(MTU), ack=0)
    assert peer.answers() == []
    good = {"rights": WRITE_ONLY}.get(wrong)
    if good is not None:
        attr = QPAttr(qp_state=ibv_qp_state.IBV_QPS_RTS)
        attr.qp_access_flags = 14
        end.qp.modify(attr, ibv_qp_attr_mask.IBV_QP_ACCESS_FLAGS)
    peer.send(WRITE_ONLY_IMM, packets, reth(end.mr.buf + 100, end.mr.rkey, 4) + b"GOODgood", ack=0)
    assert peer.answers() == []
    content[100:104] = b"good"
    written = end.mr.read(SIZE, 0)
    if wrong == "length" and packets == 3:  # it shows in the last packet
        content[: 2 * MTU] = written[: 2 * MTU]
        content[100:104] = b"good"
    assert written == content
    found = completions(end.cq, 1 + (immediate and wrong in ("key", "range", "page")))
    assert found[-1].status == W.IBV_WC_SUCCESS
    assert found[-1].wr_id == len(found) - 1
    for wc in found[:-1]:
        assert wc.status == W.IBV_WC_LOC_ACCESS_ERR
    quiet(end.cq)
    assert end.qp.qp_state == ibv_qp_state.IBV_QPS_RTS
    assert [e.event_type for e in end.context._events] == []
    assert counts("drop_error") > 0


def test_a_send_that_does_not_fit_is_dropped(end):
    """And what comes next has the same receive."""
    peer = RawPeer(end)
    recv(end, [sge(end, 0, 300)], wr_id=1)
    peer.send(SEND_FIRST, 0, b"a" * MTU)
    peer.send(SEND_LAST, 1, b"a" * 100)
    peer.send(SEND_FIRST, 2, b"b" * MTU)
    peer.send(SEND_LAST, 3, b"b" * 44)
    assert peer.answers() == []
    got = completion(end.cq)
    assert (got.wr_id, got.status, got.byte_len) == (1, W.IBV_WC_SUCCESS, 300)
    assert end.mr.read(300, 0) == b"b" * 300


def test_a_receive_that_may_not_be_written_ends_the_queue_pair(end):
    """That is an error of this side."""
    peer = RawPeer(end)
    recv(end, [SGE(end.mr.buf, 64, end.mr.lkey ^ 1)], wr_id=1)
    recv(end, [sge(end, 0, 64)], wr_id=2)
    peer.send(SEND_ONLY, 0, b"gone")
    assert peer.answers() == []
    found = completions(end.cq, 2)
    assert [(wc.wr_id, wc.status) for wc in found] == [(1, W.IBV_WC_LOC_PROT_ERR), (2, W.IBV_WC_WR_FLUSH_ERR)]
    assert end.qp.qp_state == ibv_qp_state.IBV_QPS_ERR


@pytest.mark.parametrize("opcode", [0x00, 0x04, 0x0A, 0x0C, 0x11, 0x14])
def test_a_packet_of_rc_is_not_for_a_uc_queue_pair(end, opcode):
    peer, counts = RawPeer(end), Counts(end)
    recv(end, [sge(end, 0, 4096)], wr_id=1)
    headers = {0x0A: reth(end.mr.buf, end.mr.rkey, 4) + b"gone", 0x0C: reth(end.mr.buf, end.mr.rkey, 4)}
    headers |= {0x11: bytes(4), 0x14: bytes(28), 0x00: bytes(MTU), 0x04: b"gone"}
    peer.send(opcode, 0, headers[opcode])
    assert peer.answers() == []
    assert counts("drop_qp") == 1
    peer.send(SEND_ONLY, 0, b"good")
    assert peer.answers() == []
    assert completion(end.cq).wr_id == 1


@pytest.mark.parametrize("opcode", [SEND_ONLY, WRITE_ONLY])
def test_a_packet_of_uc_is_not_for_an_rc_queue_pair(opcode):
    with End("sim1", SIZE) as end:
        peer, counts = RawPeer(end), Counts(end)
        fill(end, 5)
        recv(end, [sge(end, 0, 4096)], wr_id=1)
        before = end.mr.read(4, 0)
        peer.send(opcode, 0, reth(end.mr.buf, end.mr.rkey, 4) + b"gone" if opcode == WRITE_ONLY else b"gone")
        assert peer.answers() == []
        assert counts("drop_qp") == 1
        assert end.mr.read(4, 0) == before


def test_events(pair):
    """A queue pair of UC that is connected and used has none."""
    a, b = pair
    connect(a, b)
    recv(b, [sge(b, 0, 64)])
    send(a, SEND, [sge(a, 0, 8)])
    completion(b.cq)
    for end in pair:
        end.context._adapter.process_events()
        assert [e.event_type for e in end.context._events if e.event_type != ibv_event_type.IBV_EVENT_COMM_EST] == []
