"""UD: datagrams, each with its own receiver, and 40 bytes in front of what has come."""

import random

import pytest
from ends import SEND, SEND_IMM, SIGNALED, End, completion, completions, connect, fill, quiet, recv, send, settle, sge
from raw_peer import GID as PEER_GID
from raw_peer import IP, MAC
from rocegram import rc_frame
from scapy.contrib.roce import BTH
from scapy.layers.inet import IP as Ip
from scapy.layers.inet import UDP
from scapy.layers.l2 import Ether
from streams import make_rng
from verbena.hdl.abi.cqe import Syndrome
from verbena.sim.devices import world
from verbena.sim.pair import QKEY, start
from verbena.sim.pair import handle as pair_handle
from verbena.sim.ports import Faults
from verbena.sw.verbs.addr import AH, GRH, AHAttr, GlobalRoute
from verbena.sw.verbs.libibverbs_enums import (
    ibv_qp_attr_mask,
    ibv_qp_state,
    ibv_qp_type,
    ibv_send_flags,
    ibv_wc_flags,
    ibv_wc_status,
)
from verbena.sw.verbs.pd import PD, ParentDomain, ParentDomainInitAttr
from verbena.sw.verbs.pyverbs_error import PyverbsRDMAError
from verbena.sw.verbs.qp import QPAttr
from verbena.sw.verbs.wr import SGE, SendWR

UD = ibv_qp_type.IBV_QPT_UD
W = ibv_wc_status
SIZE = 1 << 16
GRH_BYTES = 40
SEND_ONLY, SEND_ONLY_IMM = 0x64, 0x65


@pytest.fixture
def pair():
    with (
        End("sim0", SIZE, qp_type=UD, sge=5, inline=80, depth=64, qps=2) as a,
        End("sim1", SIZE, qp_type=UD, sge=4, depth=64, qps=2) as b,
    ):
        start(a, psn=0xFFFFF8)
        start(b, psn=5)
        yield a, b


@pytest.fixture
def end():
    with End("sim1", SIZE, qp_type=UD, depth=64) as end:
        start(end)
        yield end


def handle(end, other, **route):
    """An address handle of ``end`` that leads to ``other``."""
    return pair_handle(end, getattr(other, "gid", other), **route)


def datagram(end, ah, qpn, sges, *, wr_id=0, opcode=SEND, flags=SIGNALED, imm=0, qkey=QKEY, qp=None):
    wr = SendWR(wr_id, opcode, num_sge=len(sges), sg=sges, send_flags=flags, imm_data=imm)
    wr.set_wr_ud(ah, qpn, qkey)
    (qp or end.qp).post_send(wr)


# -- Between two adapters.


@pytest.mark.every_width
@pytest.mark.parametrize("opcode", [SEND, SEND_IMM])
def test_lengths(pair, opcode):
    a, b = pair
    ah = handle(a, b, traffic_class=0x48)
    source, expected = fill(a, 1), bytearray(fill(b, 2))
    for number, length in enumerate((0, 1, 3, 4, 63, 64, 65, 255, 256, 1000, 4095, 4096)):
        here, there = 17 * number % 64, 8192 + 13 * number % 71
        recv(b, [sge(b, there, GRH_BYTES + 4096)], wr_id=number)
        datagram(a, ah, b.qp.qp_num, [sge(a, here, length)], wr_id=100 + number, opcode=opcode, imm=number)
        sent, got = completion(a.cq), completion(b.cq)
        assert (sent.wr_id, sent.status) == (100 + number, W.IBV_WC_SUCCESS)
        assert (got.wr_id, got.status, got.byte_len) == (number, W.IBV_WC_SUCCESS, GRH_BYTES + length)
        assert got.src_qp == a.qp.qp_num
        immediate = opcode == SEND_IMM
        assert got.wc_flags == ibv_wc_flags.IBV_WC_GRH | ibv_wc_flags.IBV_WC_WITH_IMM * immediate
        assert got.imm_data == number or not immediate
        content = b.mr.read(SIZE, 0)
        header = Ip(content[there + 20 : there + 40])
        assert (header.src, header.dst, header.tos, header.ttl, header.proto) == ("10.0.0.1", "10.0.0.2", 0x48, 64, 17)
        assert header.len == 20 + 8 + 12 + 8 + 4 * immediate + (length + 3) // 4 * 4 + 4
        assert header.chksum == Ip(bytes(header.copy())).chksum
        del header.chksum
        assert bytes(header)[10:12] == content[there + 30 : there + 32], "the checksum"
        expected[there : there + 40] = content[there : there + 40]
        expected[there + 40 : there + 40 + length] = source[here : here + length]
        assert content == expected


@pytest.mark.every_width
def test_receives_of_several_entries(pair):
    """What is left free goes over as many entries as it takes."""
    a, b = pair
    ah = handle(a, b)
    source = fill(a, 3)
    for number, cuts in enumerate(([40], [39], [41], [1, 38], [0, 40], [20, 20], [10, 10, 10], [39, 0])):
        fill(b, 4)
        lengths = [*cuts, 600]
        entries = [sge(b, 1024 * n, length) for n, length in enumerate(lengths)]
        recv(b, entries, wr_id=number)
        datagram(a, ah, b.qp.qp_num, [sge(a, 5, 500)])
        completion(a.cq)
        got = completion(b.cq)
        assert (got.wr_id, got.byte_len) == (number, 540)
        content = b"".join(b.mr.read(length, 1024 * n) for n, length in enumerate(lengths) if length)
        assert content[40:540] == source[5:505], cuts
        assert GRH.unpack(content[:40]).sgid == a.gid.gid


@pytest.mark.every_width
def test_many_queue_pairs_to_many_beside_rc(pair):
    """One queue pair sends to several, and receives from several; connections go on beside them."""
    a, b = pair
    ways = handle(a, b), handle(b, a), handle(a, a)
    with End("sim0", SIZE, depth=64) as c, End("sim1", SIZE, depth=64) as d:
        connect(c, d)
        content = {end: fill(end, number) for number, end in enumerate((a, b, c, d))}
        rng = random.Random(5)
        for qp in (*a.qps, *b.qps):
            end = a if qp in a.qps else b
            for number in range(48):
                recv(end, [sge(end, SIZE // 2 + 600 * number, 600)], wr_id=number, qp=qp)
        wanted = {}
        for number in range(32):
            recv(d, [sge(d, 600 * number, 500)], wr_id=number)
            send(c, SEND, [sge(c, 300 * number, 500)], wr_id=number)
            for here, ah, there in ((a, ways[0], b), (b, ways[1], a), (a, ways[2], a)):
                length, qp, to = rng.randrange(8, 500), rng.choice(here.qps), rng.choice(there.qps)
                inline = ibv_send_flags.IBV_SEND_INLINE if here is a and length <= 80 else 0
                key = len(wanted)
                wanted[key] = (to.qp_num, qp.qp_num, content[here][300 * number :][:length])
                datagram(here, ah, to.qp_num, [sge(here, 300 * number, length)], opcode=SEND_IMM, imm=key, qp=qp,
                         flags=SIGNALED | inline)  # fmt: skip
        assert {wc.status for wc in completions(c.cq, 32) + completions(d.cq, 32)} == {W.IBV_WC_SUCCESS}
        assert d.mr.read(500, 600 * 31) == content[c][300 * 31 :][:500]
        count = dict.fromkeys((a, b), 0)
        for end in (a, b):
            for wc in completions(end.cq, 64 + 64 if end is a else 32 + 32):
                assert wc.status == W.IBV_WC_SUCCESS
                if wc.opcode & 128:
                    to, source, data = wanted.pop(wc.imm_data)
                    assert (wc.qp_num, wc.src_qp, wc.byte_len) == (to, source, GRH_BYTES + len(data))
                    count[end] += 1
        assert wanted == {}
        assert count == {a: 64, b: 32}


def test_an_answer_by_the_header_that_came(pair):
    """An AH of the completion and of what stands in front of the datagram leads back."""
    a, b = pair
    recv(b, [sge(b, 0, 256)])
    recv(a, [sge(a, 0, 256)])
    a.mr.write(b"ping", 4, 1000)
    datagram(a, handle(a, b), b.qp.qp_num, [sge(a, 1000, 4)])
    came = completion(b.cq)
    back = AH(b.pd, wc=came, grh=b.mr.buf, port_num=1)
    b.mr.write(b"pong", 4, 1000)
    datagram(b, back, came.src_qp, [sge(b, 1000, 4)])
    answer = completions(a.cq, 2)[1]
    assert answer.src_qp == b.qp.qp_num
    assert a.mr.read(4, GRH_BYTES) == b"pong"


@pytest.mark.parametrize("count", [100, pytest.param(200, marks=pytest.mark.slow)])
def test_over_a_bad_wire(pair, count):
    """What arrives is whole; what is lost costs no receive."""
    a, b = pair
    rng, ah = make_rng(), handle(a, b)
    world().set_faults(Faults(lose=0.05, corrupt=0.05, damage=0.05, duplicate=0.05, reorder=0.05))
    messages, arrived = {}, 0
    for number in range(16):
        recv(b, [sge(b, 2048 * number, 2048)], wr_id=number)
    for number in range(count):
        messages[number] = rng.randbytes(rng.choice((8, 200, 1500)))
        at = 2048 * (number % 16)
        a.mr.write(messages[number], len(messages[number]), at)
        datagram(a, ah, b.qp.qp_num, [sge(a, at, len(messages[number]))], opcode=SEND_IMM, imm=number)
        assert completion(a.cq).status == W.IBV_WC_SUCCESS
        settle(600)
        for wc in b.cq.poll(16)[1]:
            assert (wc.status, wc.wr_id) == (W.IBV_WC_SUCCESS, arrived % 16)
            assert b.mr.read(wc.byte_len, 2048 * wc.wr_id)[GRH_BYTES:] == messages[wc.imm_data]
            recv(b, [sge(b, 2048 * wc.wr_id, 2048)], wr_id=wc.wr_id)
            arrived += 1
    world().set_faults(Faults())
    assert count / 2 < arrived < count * 3 / 2


# -- Errors of the sender.


def test_a_datagram_longer_than_a_packet(pair):
    a, b = pair
    datagram(a, handle(a, b), b.qp.qp_num, [sge(a, 0, 4097)], wr_id=7)
    failed = completion(a.cq)
    assert (failed.wr_id, failed.status, failed.vendor_err) == (7, W.IBV_WC_LOC_LEN_ERR, Syndrome.LENGTH)
    assert a.qp.qp_state == ibv_qp_state.IBV_QPS_SQE


def test_a_handle_of_a_parent_domain_is_one_of_its_domain(pair):
    a, b = pair
    domain = ParentDomain(a.context, ParentDomainInitAttr(a.pd))
    fill(a, 1)
    recv(b, [sge(b, 0, 1024)])
    ah = AH(domain, attr=AHAttr(is_global=1, port_num=1, gr=GlobalRoute(b.gid, hop_limit=64)))
    datagram(a, ah, b.qp.qp_num, [sge(a, 0, 64)])
    assert completion(a.cq).status == completion(b.cq).status == W.IBV_WC_SUCCESS
    assert b.mr.read(64, GRH_BYTES) == a.mr.read(64, 0)


def test_what_is_refused_at_the_call(pair):
    a, b = pair
    ah = handle(a, b)

    def refused(text, **fields):
        wr = SendWR(1, fields.pop("opcode", SEND), 1, sg=[sge(a, 0, 8)])
        wr.set_wr_ud(fields.pop("ah", ah), b.qp.qp_num, QKEY)
        with pytest.raises(PyverbsRDMAError, match=text) as error:
            a.qp.post_send(wr)
        assert error.value.error_code == 22

    refused("needs an AH", ah=None)
    refused("opcode IBV_WR_RDMA_WRITE", opcode=0)
    refused("opcode IBV_WR_RDMA_READ", opcode=4)
    other = PD(a.context)
    refused("of another PD", ah=AH(other, attr=AHAttr(is_global=1, port_num=1, gr=GlobalRoute(b.gid, hop_limit=64))))
    closed = handle(a, b)
    closed.close()
    refused("closed", ah=closed)


def test_the_own_qkey_of_a_privileged_request(pair):
    """A Q_Key with bit 31 stands for the queue pair's."""
    a, b = pair
    recv(b, [sge(b, 0, 256)], wr_id=1)
    datagram(a, handle(a, b), b.qp.qp_num, [sge(a, 0, 8)], qkey=0x80000000)
    assert completion(b.cq).wr_id == 1


# -- What a receiver drops in silence.


class Sender:
    """Sends a UD queue pair whatever frames a test wants."""

    def __init__(self, end):
        self.end = end
        self.tap = world().tap(MAC)
        end.context._adapter.port.add_neighbour(IP, MAC)

    def send(self, body, *, qkey=QKEY, opcode=SEND_ONLY, source_qpn=0x123456, **more):
        own = world().adapters[1].mac, self.end.context._adapter.port.ip
        deth = qkey.to_bytes(4, "big") + source_qpn.to_bytes(4, "big")
        body = deth + (b"IMMD" if opcode == SEND_ONLY_IMM else b"") + body
        frame = rc_frame((MAC, IP), own, self.end.qp.qp_num, more.pop("psn", 0), opcode, body, ack=0, **more)
        world().adapters[1].inject(frame)


@pytest.mark.parametrize(
    ("why", "fields", "counter"),
    [
        ("another Q_Key", {"qkey": QKEY ^ 1}, "drop_qp"),
        ("another P_Key", {"pkey": 0x8001}, "drop_qp"),
        ("an opcode of RC", {"opcode": 0x04}, "drop_qp"),
        ("an opcode of UC", {"opcode": 0x24}, "drop_qp"),
        ("a message that is longer than the receive", {"body": bytes(217)}, "drop_error"),
    ],
)
def test_what_is_dropped(end, why, fields, counter):
    sender = Sender(end)
    recv(end, [sge(end, 0, 256)], wr_id=1)
    before = end.context.query_counters(counter)[counter]
    fields = dict(fields)
    sender.send(fields.pop("body", b"gone"), **fields)
    settle(2000)
    assert end.context.query_counters(counter)[counter] == before + 1, why
    quiet(end.cq)
    sender.send(b"good", opcode=SEND_ONLY_IMM, psn=0x999999)
    got = completion(end.cq)
    assert (got.wr_id, got.status, got.byte_len, got.src_qp) == (1, W.IBV_WC_SUCCESS, 44, 0x123456)
    assert end.mr.read(4, GRH_BYTES) == b"good"
    assert end.qp.qp_state == ibv_qp_state.IBV_QPS_RTS
    assert sender.tap.receive() is None, "something was answered"


@pytest.mark.parametrize("room", [0, 1, 20, 39])
def test_a_receive_without_room_for_the_header(end, room):
    """Not even an empty datagram fits; nothing is written behind the room."""
    sender = Sender(end)
    before = fill(end, 6)
    recv(end, [sge(end, 0, room)] if room else [], wr_id=1)
    sender.send(b"")
    quiet(end.cq)
    assert end.mr.read(SIZE - room, room) == before[room:]


def test_no_receive(end):
    sender = Sender(end)
    sender.send(b"gone")
    settle(2000)
    recv(end, [sge(end, 0, 256)], wr_id=3)
    quiet(end.cq)
    sender.send(b"good")
    assert completion(end.cq).wr_id == 3


def test_a_receive_that_may_not_be_written_ends_the_queue_pair(end):
    sender = Sender(end)
    recv(end, [SGE(end.mr.buf, 256, end.mr.lkey ^ 1)], wr_id=1)
    sender.send(b"gone")
    assert completion(end.cq).status == W.IBV_WC_LOC_PROT_ERR
    assert end.qp.qp_state == ibv_qp_state.IBV_QPS_ERR


def test_another_qkey_from_now_on(end):
    sender = Sender(end)
    recv(end, [sge(end, 0, 256)], wr_id=1)
    attr = QPAttr(qp_state=ibv_qp_state.IBV_QPS_RTS)
    attr.qkey = 0x22222222
    end.qp.modify(attr, ibv_qp_attr_mask.IBV_QP_QKEY)
    sender.send(b"gone")
    quiet(end.cq)
    sender.send(b"good", qkey=0x22222222)
    assert completion(end.cq).wr_id == 1
    assert end.qp.query()[0].qkey == 0x22222222


def test_the_frame(pair):
    """As scapy reads it."""
    a, _ = pair
    tap = world().tap(MAC)
    a.context._adapter.port.add_neighbour(IP, MAC)
    ah = handle(a, PEER_GID, traffic_class=0x1C, flow_label=0xB01E6)
    a.mr.write(b"abcde", 5)
    datagram(a, ah, 0xABCDEF, [sge(a, 0, 5)], opcode=SEND_IMM, imm=int.from_bytes(b"WXYZ", "little"), qkey=0x7654321)
    completion(a.cq)
    settle(2000)
    frame = Ether(tap.receive())
    assert (frame[Ip].tos, frame[Ip].ttl, frame[UDP].sport) == (0x1C, 64, 0xC1CA)
    bth = frame[BTH]
    assert (bth.opcode, bth.dqpn, bth.psn, bth.ackreq, bth.padcount) == (SEND_ONLY_IMM, 0xABCDEF, 0xFFFFF8, 0, 3)
    assert bytes(bth.payload)[:8] == (0x7654321).to_bytes(4, "big") + a.qp.qp_num.to_bytes(4, "big")
    assert bytes(bth.payload)[8:17] == b"WXYZabcde"
