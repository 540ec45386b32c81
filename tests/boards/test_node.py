"""The whole node at its RGMII pins, against scapy and the driver."""

import random
import struct

import pytest
from ether_frames import ip_text, mac_text
from node_host import NodeHost
from rocegram import rc_frame, with_icrc
from scapy.contrib.roce import AETH, BTH
from scapy.layers.inet import ICMP, IP
from scapy.layers.l2 import ARP
from scapy.packet import Raw
from streams import make_rng
from verbena.boards import port as board_port
from verbena.boards.port import BoardPort
from verbena.boards.sim import HOST_IP, HOST_MAC, NODE_IP, NODE_MAC
from verbena.sw.port import provide
from verbena.sw.verbs.addr import AHAttr, GlobalRoute
from verbena.sw.verbs.cq import CQ
from verbena.sw.verbs.device import Context
from verbena.sw.verbs.libibverbs_enums import ibv_qp_state, ibv_qp_type, ibv_send_flags, ibv_wr_opcode
from verbena.sw.verbs.mr import MR
from verbena.sw.verbs.pd import PD
from verbena.sw.verbs.qp import QP, QPAttr, QPCap, QPInitAttr
from verbena.sw.verbs.wr import SGE, RecvWR, SendWR

pytestmark = pytest.mark.slow  # the node is compiled first

HERE, NODE = (HOST_MAC, HOST_IP), (NODE_MAC, NODE_IP)
OUR_QP = 99
ACK, NAK = 0, 3
"""The upper bits of an AETH's syndrome (InfiniBand 9.7.5.2.1)."""


@pytest.fixture
def host():
    host = NodeHost(make_rng().randrange(1 << 31))
    yield host
    counters = host.node.counters
    assert (counters["from_bad"], counters["from_gap"], counters["from_short"]) == (0, 0, 0)


@pytest.fixture(autouse=True)
def no_pause(monkeypatch):
    monkeypatch.setattr(board_port, "PAUSE", 0)


def test_arp_and_ping(host):
    """From the first moment on: nobody has driven the engine yet."""
    host.send(host.arp(1, "ff:ff:ff:ff:ff:ff", ip_text(NODE_IP)))
    reply = host.next(host.other)
    assert (reply[ARP].op, reply[ARP].hwsrc) == (2, mac_text(NODE_MAC))
    payload = host.rng.randbytes(200)
    host.send(host.ether() / IP(src=ip_text(HOST_IP), dst=ip_text(NODE_IP)) / ICMP(id=3) / Raw(payload))
    reply = host.next(host.other)
    assert (reply[ICMP].type, reply[Raw].load) == (0, payload)


def test_etherbone_is_for_friends(host):
    port = BoardPort("node", host)
    assert (port.mac, port.ip) == NODE
    before = port.node_counters()
    address = port.memory.alloc(1000)
    data = host.rng.randbytes(999)
    port.memory.write(address + 1, data)
    assert port.memory.read(address + 1, 999) == data
    for stranger in (HOST_IP + 1, NODE_IP):
        host.sender = stranger
        with pytest.raises(OSError, match="does not answer"):
            BoardPort("node", host)
    host.sender = HOST_IP
    after = port.node_counters()
    changes = {name: after[name] - before[name] for name in after}
    served = changes["bridge_served"]
    assert (served, changes["bridge_denied"], changes["bridge_refused"]) == (4, 10, 0)
    assert (changes["mac_rx_frames"], changes["mac_tx_frames"]) == (served + 10, served)


def open_node(port):
    """Context, PD, MR, CQ and QP of a node that believes in a QP on the host."""
    provide("node", lambda: port)
    context = Context(name="node")
    pd = PD(context)
    mr = MR(pd, 8192, 7 | 8)
    cq = CQ(context, 16)
    init = QPInitAttr(qp_type=ibv_qp_type.IBV_QPT_RC, scq=cq, rcq=cq, cap=QPCap(8, 8, 1, 1), sq_sig_all=1)
    qp = QP(pd, init)
    attr = QPAttr()
    attr.path_mtu, attr.qp_access_flags, attr.dest_qp_num = 3, 7 | 8, OUR_QP
    attr.sq_psn, attr.rq_psn, attr.timeout, attr.retry_cnt, attr.rnr_retry, attr.min_rnr_timer = 500, 1000, 0, 7, 7, 12
    attr.max_dest_rd_atomic = attr.max_rd_atomic = 4
    gid = f"::ffff:{ip_text(HOST_IP)}"
    attr.ah_attr = AHAttr(is_global=1, gr=GlobalRoute(dgid=gid, hop_limit=64))
    qp.to_rts(attr)
    return context, pd, mr, cq, qp


def told(packet):
    """(opcode, PSN, what follows the BTH, without ICRC) of a packet to us whose ICRC is right."""
    text = bytes(packet)[: 14 + packet[IP].len]
    assert with_icrc(text) == text
    assert packet[BTH].dqpn == OUR_QP
    return packet[BTH].opcode, packet[BTH].psn, text[14 + 20 + 8 + 12 : -4]


def requester(host, qp, mr):
    """What sends a request of the host to ``qp``, and returns its answer's opcode, kind of syndrome and payload; and
    what makes a RETH of a place in ``mr``.
    """

    def exchange(psn, opcode, body):
        host.node.send(with_icrc(rc_frame(HERE, NODE, qp.qp_num, psn, opcode, body)))
        answered, number, text = told(host.next(host.roce))
        assert number == psn
        return answered, AETH(text[:4]).syndrome >> 5, text[4:]

    return exchange, lambda offset, length: struct.pack(">QII", mr.buf + offset, mr.rkey, length)


def poll(cq):
    for _ in range(20):
        count, found = cq.poll(1)
        if count:
            return found[0]
    raise AssertionError("no completion")


def test_memory_over_rdma(host):
    """The driver registers memory; WRITE, READ and an atomic of the host reach it, and the node sends by itself."""
    _, _, mr, cq, qp = held = open_node(BoardPort("node", host))
    assert host.asked == 1
    qp.post_recv(RecvWR(5, 1, [SGE(mr.buf + 4096, 1024, mr.lkey)]))

    exchange, reth = requester(host, qp, mr)
    data = host.rng.randbytes(1000)
    assert exchange(1000, 0x0A, reth(8, 1000) + data) == (0x11, ACK, b"")  # WRITE
    assert exchange(1001, 0x0C, reth(8, 1000)) == (0x10, ACK, data)  # READ
    host.node.send(bytes(60))
    operands = struct.pack(">QIQQ", mr.buf, mr.rkey, 5, 0)
    old = mr.read(8, 0)
    assert exchange(1002, 0x14, operands) == (0x12, ACK, old[::-1])  # fetch and add
    assert mr.read(1008, 0) == struct.pack("<Q", int.from_bytes(old, "little") + 5 & (1 << 64) - 1) + data
    assert exchange(1003, 0x04, b"hello, node!") == (0x11, ACK, b"")  # SEND
    wc = poll(cq)
    assert (wc.wr_id, wc.status, wc.byte_len) == (5, 0, 12)
    assert mr.read(12, 4096) == b"hello, node!"

    wr = SendWR(6, ibv_wr_opcode.IBV_WR_SEND, num_sge=1, sg=[SGE(mr.buf + 8, 1000, mr.lkey)])
    wr.send_flags = ibv_send_flags.IBV_SEND_SIGNALED
    qp.post_send(wr)
    assert told(host.next(host.roce)) == (0x04, 500, data)
    host.node.send(with_icrc(rc_frame(HERE, NODE, qp.qp_num, 500, 0x11, struct.pack(">I", 0x1F000001))))
    wc = poll(cq)
    assert (wc.wr_id, wc.status) == (6, 0)
    assert qp.qp_state == ibv_qp_state.IBV_QPS_RTS
    # A packet that says another length than it has is told so, and harms nothing.
    assert exchange(1004, 0x0A, reth(8, 1000) + data + bytes(4))[:2] == (0x11, NAK)
    for each in reversed(held):
        each.close()


def test_random_frames(host):
    """Noise does not keep the node from answering."""
    rng = random.Random(host.rng.random())
    for _ in range(20):
        host.node.send(bytes(host.ether()) + rng.randbytes(rng.randrange(46, 300)))
    host.send(host.arp(1, "ff:ff:ff:ff:ff:ff", ip_text(NODE_IP)))
    assert host.run(host.other, 1_000_000)[ARP].op == 2
