"""The raw packet queue: Ethernet frames of software, beside RoCE."""

import errno

import pytest
from ends import (
    READ,
    SEND,
    SEND_IMM,
    SIGNALED,
    WRITE,
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
from ether_frames import mac_text
from rocegram import rc_frame, with_icrc
from scapy.layers.inet import ICMP, IP, TCP, UDP
from scapy.layers.l2 import ARP, Dot1Q, Ether
from streams import make_rng
from verbena.sw.verbs.flow import Flow, FlowAttr
from verbena.sw.verbs.libibverbs_enums import (
    ibv_flow_attr_type,
    ibv_qp_attr_mask,
    ibv_qp_create_send_ops_flags,
    ibv_qp_init_attr_mask,
    ibv_qp_state,
    ibv_qp_type,
    ibv_send_flags,
    ibv_wc_opcode,
    ibv_wc_status,
)
from verbena.sw.verbs.pyverbs_error import PyverbsRDMAError
from verbena.sw.verbs.qp import QPAttr, QPCap, QPEx, QPInitAttrEx
from verbena.sw.verbs.srq import SrqAttr
from verbena.sw.verbs.wr import SGE

RAW = ibv_qp_type.IBV_QPT_RAW_PACKET
ALL, SNIFFER = ibv_flow_attr_type.IBV_FLOW_ATTR_ALL_DEFAULT, ibv_flow_attr_type.IBV_FLOW_ATTR_SNIFFER
W, S = ibv_wc_status, ibv_qp_state
SIZE = 1 << 16
SLOT = 4096
HOST = 0x02_00_00_00_00_95
BROADCAST, GROUP, OTHER = (1 << 48) - 1, 0x0100_5E00_0001, 0x02_00_00_00_00_55
ETHERTYPE = 0x88B5  # for experiments (IEEE 802)


def mac(end):
    return end.context._adapter.port.mac


def frame(to, source, length, rng):
    head = to.to_bytes(6, "big") + source.to_bytes(6, "big") + ETHERTYPE.to_bytes(2, "big")
    return head + rng.randbytes(length - 14)


def counters(end, *names):
    return end.context.query_counters(*names)


def raw_end(name, **options):
    return End(name, SIZE, qp_type=RAW, depth=64, **options)


def flow(end, kind=ALL):
    return Flow(end.qp, FlowAttr(flow_type=kind))


def put(end, content, offset=0, *, wr_id=0, opcode=SEND, flags=SIGNALED):
    end.mr.write(content, len(content), offset)
    send(end, opcode, [sge(end, offset, len(content))], wr_id=wr_id, flags=flags)


def slots(end, count):
    for number in range(count):
        recv(end, [sge(end, SLOT * number, SLOT)], wr_id=number)


def came(end, count):
    """The next ``count`` frames."""
    return [end.mr.read(wc.byte_len, SLOT * wc.wr_id) for wc in completions(end.cq, count)]


@pytest.fixture
def pair():
    with raw_end("sim0", sge=3, inline=80) as a, raw_end("sim1", sge=4) as b:
        for end in (a, b):
            end.qp.to_rts(QPAttr())
        with flow(b):
            yield a, b


@pytest.fixture
def end():
    with raw_end("sim1") as end:
        end.qp.to_rts(QPAttr())
        with flow(end):
            yield end


@pytest.mark.every_width
def test_lengths(pair):
    """What goes out is the frame, of 60 bytes at least, and so much comes in; nothing else is touched."""
    a, b = pair
    rng = make_rng()
    expected = bytearray(fill(b, 1))
    for number, length in enumerate((14, 15, 59, 60, 61, 63, 64, 65, 128, 1000, 1514, 4095, 4096)):
        there = 8192 + 13 * number % 71
        recv(b, [sge(b, there, SLOT)], wr_id=number)
        sent = frame(mac(b), mac(a), length, rng)
        put(a, sent, 17 * number % 64, wr_id=100 + number)
        done, got = completion(a.cq), completion(b.cq)
        assert (done.wr_id, done.status, done.opcode) == (100 + number, W.IBV_WC_SUCCESS, ibv_wc_opcode.IBV_WC_SEND)
        assert (got.wr_id, got.status, got.byte_len) == (number, W.IBV_WC_SUCCESS, max(60, length))
        assert (got.opcode, got.wc_flags, got.src_qp) == (ibv_wc_opcode.IBV_WC_RECV, 0, 0)
        expected[there : there + max(60, length)] = sent.ljust(60, b"\0")
        assert b.mr.read(SIZE, 0) == expected


@pytest.mark.every_width
def test_gathered_inline_and_scattered(pair):
    a, b = pair
    rng = make_rng()
    sent = frame(mac(b), mac(a), 80, rng)
    for cuts in ([14, 80], [1, 79, 80], [80]):
        parts = [sent[start:end] for start, end in zip([0, *cuts], cuts)]
        for number, part in enumerate(parts):
            a.mr.write(part, len(part), 1000 * number)
        entries = [sge(a, 1000 * number, len(part)) for number, part in enumerate(parts)]
        for flags in (SIGNALED, SIGNALED | ibv_send_flags.IBV_SEND_INLINE):
            recv(b, [sge(b, 3, 5), sge(b, 100, 0), sge(b, 200, 9), sge(b, 300, 100)])
            send(a, SEND, entries, flags=flags)
            assert completion(a.cq).status == 0
            assert completion(b.cq).byte_len == 80
            assert b.mr.read(5, 3) + b.mr.read(9, 200) + b.mr.read(66, 300) == sent


@pytest.mark.every_width
def test_beside_connections(pair):
    """Frames in both directions and among them connections, more than an engine has slots: all arrives, whole, and in
    order.
    """
    a, b = pair
    rng = make_rng()
    with flow(a), End("sim0", SIZE, depth=64, qps=6) as c, End("sim1", SIZE, depth=64, qps=6) as d:
        connect(c, d, mtu=1024)
        source, _ = fill(c, 1), fill(d, 2)
        frames = {end: [] for end in (a, b)}
        for end in (a, b):
            slots(end, 8)
        for number in range(6):
            for here, there in ((a, b), (b, a)):
                content = frame(mac(there), mac(here), rng.randrange(14, 2000), rng)
                frames[there].append(content.ljust(60, b"\0"))
                put(here, content, SLOT * (8 + number), wr_id=100 + number)
            send(c, WRITE, [sge(c, 4000 * number, 3999)], remote=(d, 4000 * number), qp=c.qps[number])
        for end in (a, b):
            found = completions(end.cq, 12)
            assert all(wc.status == 0 for wc in found)
            taken = [wc for wc in found if wc.opcode == ibv_wc_opcode.IBV_WC_RECV]
            assert [end.mr.read(wc.byte_len, SLOT * wc.wr_id) for wc in taken] == frames[end]
        assert all(wc.status == 0 for wc in completions(c.cq, 6))
        assert all(
            d.mr.read(3999, 4000 * number) == source[4000 * number : 4000 * number + 3999] for number in range(6)
        )


@pytest.mark.every_width
def test_beside_all_that_a_connection_can_send(pair):
    """The least packets come as fast as they can; frames arrive among them, not behind them, and none is dropped."""
    a, b = pair
    rng = make_rng()
    frames = [frame(mac(b), mac(a), 60, rng) for _ in range(12)]
    with End("sim0", SIZE, depth=256, qps=4) as c, End("sim1", SIZE, depth=8, qps=4) as d:
        connect(c, d)
        slots(b, len(frames))
        for _ in range(250):
            for qp in c.qps:
                send(c, WRITE, [sge(c, 0, 8)], remote=(d, 0), qp=qp, flags=0)
        for qp in c.qps:
            send(c, WRITE, [sge(c, 0, 8)], remote=(d, 0), qp=qp)
        for number, content in enumerate(frames):
            put(a, content, 64 * number, flags=0)
        assert came(b, len(frames)) == frames
        assert c.cq.poll(1) == (0, [])  # the packets go on
        assert all(wc.status == W.IBV_WC_SUCCESS for wc in completions(c.cq, 4))
    assert counters(b, "drop_raw") == {"drop_raw": 0}


@pytest.mark.every_width
def test_what_is_taken_and_what_is_not(end):
    """Frames of all kinds that are not RoCE; what is RoCE, or broken RoCE, never."""
    rng = make_rng()
    own, tap = mac(end), world().tap(HOST)
    ip = IP(src="10.0.0.149", dst="10.0.0.2")
    ends = (HOST, 0x0A000095), (own, 0x0A000002)
    roce = rc_frame(*ends, 77, 0, 0x04, b"to nobody here")
    ether = Ether(dst=mac_text(own), src=mac_text(HOST))
    wanted = [
        frame(own, HOST, 60, rng),
        frame(BROADCAST, HOST, 61, rng),
        frame(GROUP, HOST, 1514, rng),
        frame(own, HOST, 14, rng),
        frame(own, HOST, 4096, rng),
        bytes(ether / ip / UDP(dport=53) / b"who is who"),
        bytes(ether / ip / TCP(dport=80)),
        bytes(ether / Dot1Q(vlan=7) / ip / UDP(dport=53)),
        bytes(ether / IP(version=5, ihl=15, len=2, proto=89, dst="10.0.0.2") / bytes(40)),
        bytes(ether / IP(dst="10.0.0.2", chksum=1, proto=50) / bytes(20)),
        b"\xff" * 6 + roce[6:],
    ]
    bad_icrc, bad_opcode, cut = bytearray(roce), bytearray(roce), roce[:45]
    bad_icrc[-1] ^= 0x55
    bad_opcode[42] = 0xA4
    unwanted = [
        roce,
        bytes(bad_icrc),
        with_icrc(bytes(bad_opcode)),
        cut,
        own.to_bytes(6, "big"),
        frame(own, HOST, 4097, rng),
        frame(own, HOST, 9000, rng),
        b"\x02",
    ]
    names = ("raw_rx_packets", "drop_raw", "drop_qp", "drop_icrc", "drop_malformed")
    before = counters(end, *names)
    slots(end, 12)
    adapter = world().adapters[1]
    for number in range(max(len(wanted), len(unwanted))):
        for kind in (unwanted, wanted):
            if number < len(kind):
                adapter.inject(kind[number])
    adapter.inject(frame(own, HOST, 100, rng), error=True)
    adapter.inject(frame(OTHER, HOST, 100, rng))
    assert came(end, len(wanted)) == wanted
    quiet(end.cq)
    after = counters(end, *names)
    assert {name: after[name] - before[name] for name in names} == {
        "raw_rx_packets": len(wanted),
        "drop_raw": 4,  # too short, too long, too long, damaged
        "drop_qp": 1,
        "drop_icrc": 1,
        "drop_malformed": 2,
    }
    assert tap.receive() is None


@pytest.mark.every_width
def test_the_sniffer_gets_what_is_for_others(end):
    rng = make_rng()
    slots(end, 2)
    for qp_flow in list(end.qp._children):
        qp_flow.close()
    with flow(end, SNIFFER):
        sent = frame(OTHER, HOST, 100, rng)
        world().adapters[1].inject(sent)
        assert came(end, 1) == [sent]
    world().adapters[1].inject(sent)
    quiet(end.cq)


def test_both_see_what_the_adapter_answers(end):
    """ARP and ping to the adapter's own address: software may learn from them, or answer for addresses of its own."""
    slots(end, 2)
    tap = world().tap(HOST)
    asked = Ether(dst="ff:ff:ff:ff:ff:ff", src=mac_text(HOST)) / ARP(
        op=1, hwsrc=mac_text(HOST), psrc="10.0.0.149", pdst="10.0.0.2"
    )
    ping = Ether(dst=mac_text(mac(end)), src=mac_text(HOST)) / IP(src="10.0.0.149", dst="10.0.0.2") / ICMP(seq=1)
    for packet in (asked, ping):
        tap.send(bytes(packet).ljust(60, b"\0"))
        settle()
    assert came(end, 2) == [bytes(packet).ljust(60, b"\0") for packet in (asked, ping)]
    answers = [Ether(tap.receive()) for _ in range(2)]
    assert answers[0][ARP].op == 2
    assert answers[1][ICMP].type == 0
    assert tap.receive() is None


@pytest.mark.every_width
def test_too_long(pair):
    """The request fails, nothing is sent, and the queue goes on once it is told to."""
    a, b = pair
    rng = make_rng()
    slots(b, 4)
    put(a, frame(mac(b), mac(a), 4097, rng), wr_id=1)
    put(a, frame(mac(b), mac(a), 100, rng), 8192, wr_id=2)
    found = completions(a.cq, 2)
    assert [(wc.wr_id, wc.status) for wc in found] == [(1, W.IBV_WC_LOC_LEN_ERR), (2, W.IBV_WC_WR_FLUSH_ERR)]
    quiet(b.cq)
    assert a.qp.qp_state == S.IBV_QPS_SQE
    attr = QPAttr()
    attr.qp_state = S.IBV_QPS_RTS
    a.qp.modify(attr, ibv_qp_attr_mask.IBV_QP_STATE)
    sent = frame(mac(b), mac(a), 200, rng)
    put(a, sent, wr_id=3)
    assert completion(a.cq).status == 0
    assert came(b, 1) == [sent]


@pytest.mark.every_width
def test_payload_that_may_not_be_read(pair):
    a, b = pair
    rng = make_rng()
    slots(b, 1)
    put(a, frame(mac(b), mac(a), 300, rng))
    assert completion(a.cq).status == 0
    assert len(came(b, 1)) == 1
    send(a, SEND, [SGE(a.mr.buf, 300, a.mr.lkey ^ 0xFF00)])
    assert completion(a.cq).status == W.IBV_WC_LOC_PROT_ERR
    quiet(b.cq)


@pytest.mark.every_width
def test_nothing_posted_and_nowhere_to_write(end):
    """Frames without a receive are dropped; one whose memory is refused ends the queue; and connections do not care."""
    rng = make_rng()
    adapter, own = world().adapters[1], mac(end)
    with End("sim0", SIZE) as c, End("sim1", SIZE) as d:
        connect(c, d)
        source, _ = fill(c, 1), fill(d, 2)

        def flood_and_write(frames, offset):
            for content in frames:
                adapter.inject(content)
            send(c, WRITE, [sge(c, offset, 5000)], remote=(d, offset))
            assert completion(c.cq).status == 0
            assert d.mr.read(5000, offset) == source[offset : offset + 5000]

        flood = [frame(own, HOST, rng.randrange(14, 1514), rng) for _ in range(60)]
        flood_and_write(flood, 0)
        assert end.cq.poll(1) == (0, [])
        settle(20_000)
        recv(end, [sge(end, 0, SLOT)])
        adapter.inject(flood[0])
        assert came(end, 1) == flood[:1]
        # A frame that does not fit vanishes, and the receive waits for one that does.
        recv(end, [sge(end, 0, 100)], wr_id=1)
        flood_and_write([frame(own, HOST, 101, rng)], 8192)
        quiet(end.cq)
        sent = frame(own, HOST, 100, rng)
        adapter.inject(sent)
        wc = completion(end.cq)
        assert (wc.wr_id, wc.byte_len) == (1, 100)
        assert end.mr.read(100, 0) == sent
        recv(end, [SGE(end.mr.buf, SLOT, end.mr.lkey ^ 0xFF00)], wr_id=2)
        recv(end, [sge(end, 0, SLOT)], wr_id=3)
        flood_and_write(flood[:3], 16384)
        assert [(wc.wr_id, wc.status) for wc in completions(end.cq, 2)] == [
            (2, W.IBV_WC_LOC_PROT_ERR),
            (3, W.IBV_WC_WR_FLUSH_ERR),
        ]
        assert end.qp.qp_state == S.IBV_QPS_ERR
        flood_and_write(flood, 32768)
    quiet(end.cq, 1)


@pytest.mark.every_width
def test_a_shared_receive_queue():
    """Frames take what is posted to it; without any they are dropped, and later ones come."""
    rng = make_rng()
    shared = SrqAttr(16, 1)
    with raw_end("sim1", srq=shared) as end:
        end.qp.to_rts(QPAttr())
        for number in range(6):
            recv(end, [sge(end, SLOT * number, SLOT)], wr_id=number, qp=end.srq)
        sent = [frame(mac(end), HOST, rng.randrange(14, 3000), rng) for _ in range(8)]
        with flow(end):
            for content in sent:
                world().adapters[1].inject(content)
            assert came(end, 6) == sent[:6]
            quiet(end.cq)
            recv(end, [sge(end, 0, SLOT)], qp=end.srq)
            world().adapters[1].inject(sent[7])
            assert came(end, 1) == sent[7:]


@pytest.mark.every_width
def test_a_life_after_the_other(pair):
    """RESET takes back what was posted; frames that come meanwhile are dropped, and the next life begins empty."""
    a, b = pair
    rng = make_rng()
    for _ in range(3):
        slots(b, 4)
        sent = frame(mac(b), mac(a), rng.randrange(60, 1514), rng)
        put(a, sent)
        assert completion(a.cq).status == 0
        assert came(b, 1) == [sent]
        attr = QPAttr()
        attr.qp_state = S.IBV_QPS_RESET
        for end in (b, a):
            end.qp.modify(attr, ibv_qp_attr_mask.IBV_QP_STATE)
        before = counters(b, "drop_qp")["drop_qp"]
        world().adapters[1].inject(sent)
        quiet(b.cq)
        assert counters(b, "drop_qp")["drop_qp"] == before + 1
        for end in (b, a):
            end.qp.to_rts(QPAttr())


def test_an_extended_queue_pair():
    """What is built call by call; of a type that has only SEND."""
    with raw_end("sim1") as end, raw_end("sim0") as other:
        end.qp.to_rts(QPAttr())
        cap = QPCap(max_send_wr=8, max_inline_data=64)
        mask = ibv_qp_init_attr_mask.IBV_QP_INIT_ATTR_PD | ibv_qp_init_attr_mask.IBV_QP_INIT_ATTR_SEND_OPS_FLAGS
        init = QPInitAttrEx(RAW, scq=other.cq, rcq=other.cq, cap=cap, comp_mask=mask, pd=other.pd, sq_sig_all=1)
        init.send_ops_flags = ibv_qp_create_send_ops_flags.IBV_QP_EX_WITH_RDMA_WRITE
        with pytest.raises(PyverbsRDMAError) as caught:
            QPEx(other.context, init)
        assert caught.value.error_code == errno.EOPNOTSUPP
        init.send_ops_flags = ibv_qp_create_send_ops_flags.IBV_QP_EX_WITH_SEND
        slots(end, 1)
        sent = frame(mac(end), mac(other), 64, make_rng())
        with flow(end), QPEx(other.context, init, QPAttr()) as qp:
            other.mr.write(sent, len(sent))
            qp.wr_start()
            qp.wr_send()
            qp.wr_set_sge(sge(other, 0, 64))
            qp.wr_complete()
            assert completion(other.cq).status == 0
            assert came(end, 1) == [sent]


def test_one_owner():
    """One flow an adapter; it ends with its QP."""
    with raw_end("sim1", qps=2) as end, raw_end("sim0") as other, End("sim1", SIZE) as connected:
        for each in (end, other):
            each.qp.to_rts(QPAttr())
        first = flow(end)
        for qp, attr, code in (
            (end.qps[1], FlowAttr(flow_type=ALL), errno.EBUSY),
            (end.qp, FlowAttr(flow_type=SNIFFER), errno.EBUSY),
            (connected.qp, FlowAttr(flow_type=ALL), errno.EINVAL),
            (end.qp, FlowAttr(flow_type=ALL, port=2), errno.EINVAL),
            (end.qp, FlowAttr(flow_type=ALL, priority=1), errno.EINVAL),
            (end.qp, FlowAttr(flow_type=9), errno.EINVAL),
            (end.qp, FlowAttr(), errno.EOPNOTSUPP),
            (end.qp, FlowAttr(num_of_specs=1, flow_type=ALL), errno.EOPNOTSUPP),
        ):
            with pytest.raises(PyverbsRDMAError) as caught:
                Flow(qp, attr)
            assert caught.value.error_code == code, attr.type
        with flow(other):
            pass
        first.close()
        end.qps[1].to_rts(QPAttr())
        last = Flow(end.qps[1], FlowAttr(flow_type=ALL))
        recv(end, [sge(end, 0, SLOT)], qp=end.qps[1])
        rng = make_rng()
        sent = frame(mac(end), HOST, 77, rng)
        world().adapters[1].inject(sent)
        assert came(end, 1) == [sent]
        end.qps[1].close()
        with pytest.raises(PyverbsRDMAError):
            Flow(end.qps[1], FlowAttr(flow_type=ALL))
        with flow(end):
            pass
        last.close()


def test_what_a_raw_packet_queue_does_not_have(pair):
    a, b = pair
    for opcode in (SEND_IMM, WRITE, READ):
        with pytest.raises(PyverbsRDMAError) as caught:
            send(a, opcode, [sge(a, 0, 64)], remote=(b, 0))
        assert caught.value.error_code == errno.EINVAL
    for length in (0, 13):
        with pytest.raises(PyverbsRDMAError) as caught:
            send(a, SEND, [sge(a, 0, length)])
        assert caught.value.error_code == errno.EINVAL
