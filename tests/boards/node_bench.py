"""Runs inside the simulator: a whole node at GMII, and a host with the driver. :mod:`test_node` starts it."""

import os
import random
import struct
import time
import warnings

import cocotb
import pytest
from cocotb.clock import Clock
from cocotb.queue import Queue
from cocotb.task import bridge, resume
from cocotb.triggers import Timer, with_timeout
from scapy.contrib.roce import AETH, BTH
from scapy.layers.inet import ICMP, IP, UDP
from scapy.layers.l2 import ARP, Ether
from scapy.packet import Raw

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # cocotbext-eth on cocotb 2
    from cocotbext.eth import GmiiFrame, GmiiSink, GmiiSource

from ether_frames import ip_text, mac_text
from rocegram import rc_frame, with_icrc
from verbena.boards import port as board_port
from verbena.boards.etherbone import PORT
from verbena.boards.port import BoardPort
from verbena.sw.port import provide
from verbena.sw.verbs.addr import AHAttr, GlobalRoute
from verbena.sw.verbs.cq import CQ
from verbena.sw.verbs.device import Context
from verbena.sw.verbs.libibverbs_enums import ibv_qp_state, ibv_qp_type, ibv_send_flags, ibv_wr_opcode
from verbena.sw.verbs.mr import MR
from verbena.sw.verbs.pd import PD
from verbena.sw.verbs.qp import QP, QPAttr, QPCap, QPInitAttr
from verbena.sw.verbs.wr import SGE, RecvWR, SendWR

NODE_MAC, NODE_IP = int(os.environ["NODE_MAC"]), int(os.environ["NODE_IP"])
HOST_MAC, HOST_IP = 0x0256420000F1, int(os.environ["NODE_FRIEND"])
SEED = int(os.environ["NODE_SEED"])
FRAME_NS = 40_000
"""Longer than any frame takes to come back."""


class Host:
    """A host at the other end of the cable: it answers ARP, and sorts what comes."""

    def __init__(self, dut):
        self.dut = dut
        self.udp, self.roce, self.other = Queue(), Queue(), Queue()
        self.rng = random.Random(SEED)
        self.asked = 0

    async def start(self):
        dut = self.dut
        resets = ("rst", "ethernet_tx_rst", "ethernet_rx_rst")
        for name in resets:
            getattr(dut, name).value = 1
        dut.uart_rx.value = 1
        dut.mdio_i.value = 1
        for name, period in {"clk": 10_000, "ethernet_tx_clk": 8000, "ethernet_rx_clk": 8002}.items():
            Clock(getattr(dut, name), period, "ps").start()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.source = GmiiSource(dut.gmii__rx_data, dut.gmii__rx_error, dut.gmii__rx_valid, dut.ethernet_rx_clk)
            self.sink = GmiiSink(dut.gmii__tx_data, None, dut.gmii__tx_enable, dut.ethernet_tx_clk)
        for end in (self.source, self.sink):
            end.log.setLevel("WARNING")
        await Timer(200, "ns")
        for name in resets:
            getattr(dut, name).value = 0
        await Timer(10, "us")
        cocotb.start_soon(self._listen())
        return self

    async def send(self, packet):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            await self.source.send(GmiiFrame.from_payload(bytes(packet)))

    async def _listen(self):
        while True:
            frame = await self.sink.recv()
            assert frame.check_fcs()
            packet = Ether(bytes(frame.get_payload()))
            if ARP in packet and packet[ARP].op == 1 and packet[ARP].pdst == ip_text(HOST_IP):
                self.asked += 1
                await self.send(self.arp(2, packet.src, packet[ARP].psrc))
            elif UDP in packet and packet[UDP].dport == PORT:
                self.udp.put_nowait(packet)
            elif UDP in packet and packet[UDP].dport == 4791:
                self.roce.put_nowait(packet)
            else:
                self.other.put_nowait(packet)

    def arp(self, operation, to, address):
        return Ether(dst=to, src=mac_text(HOST_MAC)) / ARP(
            op=operation, hwsrc=mac_text(HOST_MAC), psrc=ip_text(HOST_IP), hwdst=to, pdst=address
        )

    def ether(self):
        return Ether(dst=mac_text(NODE_MAC), src=mac_text(HOST_MAC))

    async def next(self, queue):
        return await with_timeout(queue.get(), FRAME_NS, "ns")


class SimulatedUdp:
    """The transport of a driver that runs in a thread beside the simulation."""

    def __init__(self, host, sender=HOST_IP):
        self.host = host
        self.sender = sender

    @resume
    async def send(self, packet):
        packet = IP(src=ip_text(self.sender), dst=ip_text(NODE_IP)) / UDP(sport=PORT, dport=PORT) / Raw(packet)
        await self.host.send(self.host.ether() / packet)

    @resume
    async def receive(self):
        try:
            packet = await with_timeout(self.host.udp.get(), 4 * FRAME_NS, "ns")
        except cocotb.triggers.SimTimeoutError:
            return None
        return bytes(packet[UDP].payload)


def roce_body(packet):
    """(BTH, what follows it without ICRC) of a frame whose ICRC is right."""
    text = bytes(packet)[: 14 + packet[IP].len]
    assert with_icrc(text) == text
    bth = packet[BTH]
    return bth, text[14 + 20 + 8 + 12 : -4]


@cocotb.test()
async def arp_and_ping(dut):
    """From the first moment on: nobody has driven the engine yet."""
    host = await Host(dut).start()
    await host.send(host.arp(1, "ff:ff:ff:ff:ff:ff", ip_text(NODE_IP)))
    reply = await host.next(host.other)
    assert (reply[ARP].op, reply[ARP].hwsrc) == (2, mac_text(NODE_MAC))
    payload = host.rng.randbytes(200)
    await host.send(host.ether() / IP(src=ip_text(HOST_IP), dst=ip_text(NODE_IP)) / ICMP(id=3) / Raw(payload))
    reply = await host.next(host.other)
    assert (reply[ICMP].type, reply[Raw].load) == (0, payload)


@cocotb.test()
async def etherbone_is_for_friends(dut):
    host = await Host(dut).start()

    def drive():
        port = BoardPort("node", SimulatedUdp(host))
        assert (port.mac, port.ip) == (NODE_MAC, NODE_IP)
        before = port.node_counters()
        address = port.memory.alloc(1000)
        data = random.Random(SEED).randbytes(999)
        port.memory.write(address + 1, data)
        assert port.memory.read(address + 1, 999) == data
        for stranger in (HOST_IP + 1, NODE_IP):
            with pytest.raises(OSError, match="does not answer"):
                BoardPort("node", SimulatedUdp(host, stranger))
        after = port.node_counters()
        changes = {name: after[name] - before[name] for name in after}
        served = changes["bridge_served"]
        assert (served, changes["bridge_denied"], changes["bridge_refused"]) == (4, 10, 0)
        assert (changes["mac_rx_frames"], changes["mac_tx_frames"]) == (served + 10, served)

    await bridge(drive)()


def connected(port):
    """Context, PD, MR, CQ and QP of a node that believes in a QP on the host."""
    provide("node", lambda: port)
    context = Context(name="node")
    pd = PD(context)
    mr = MR(pd, 8192, 7 | 8)
    cq = CQ(context, 16)
    init = QPInitAttr(qp_type=ibv_qp_type.IBV_QPT_RC, scq=cq, rcq=cq, cap=QPCap(8, 8, 1, 1), sq_sig_all=1)
    qp = QP(pd, init)
    attr = QPAttr()
    attr.path_mtu, attr.qp_access_flags, attr.dest_qp_num = 3, 7 | 8, 99
    attr.sq_psn, attr.rq_psn, attr.timeout, attr.retry_cnt, attr.rnr_retry, attr.min_rnr_timer = 500, 1000, 0, 7, 7, 12
    attr.max_dest_rd_atomic = attr.max_rd_atomic = 4
    gid = f"::ffff:{ip_text(HOST_IP)}"
    attr.ah_attr = AHAttr(is_global=1, gr=GlobalRoute(dgid=gid, hop_limit=64))
    qp.to_rts(attr)
    return context, pd, mr, cq, qp


@cocotb.test()
async def memory_over_rdma(dut):
    """The driver registers memory; WRITE, READ and an atomic of the host reach it, and the node sends by itself."""
    host = await Host(dut).start()
    board_port.PAUSE = 0
    source, target = (HOST_MAC, HOST_IP), (NODE_MAC, NODE_IP)
    held = {}

    def drive():
        port = BoardPort("node", SimulatedUdp(host))
        held["all"] = _, _, mr, _, qp = connected(port)
        mr.write(bytes(8192), 8192)
        qp.post_recv(RecvWR(5, 1, [SGE(mr.buf + 4096, 1024, mr.lkey)]))
        return mr.buf, mr.rkey, qp.qp_num

    start = time.monotonic()
    address, key, number = await bridge(drive)()
    print(f"brought up after {cocotb.utils.get_sim_time('us')} us, {time.monotonic() - start:.0f} s")
    assert host.asked == 1

    async def exchange(psn, opcode, body):
        await host.send(with_icrc(rc_frame(source, target, number, psn, opcode, body + bytes(4), pad=-len(body) & 3)))
        return roce_body(await host.next(host.roce))

    def reth(offset, length):
        return struct.pack(">QII", address + offset, key, length)

    data = host.rng.randbytes(1000)
    bth, body = await exchange(1000, 0x0A, reth(8, 1000) + data)  # WRITE
    assert (bth.opcode, bth.dqpn, bth.psn, AETH(body[:4]).syndrome) == (0x11, 99, 1000, body[0])
    bth, body = await exchange(1001, 0x0C, reth(8, 1000))  # READ
    assert (bth.opcode, body[4:]) == (0x10, data)
    await host.send(b"\0" * 60)
    operands = struct.pack(">QIQQ", address, key, 5, 0)
    bth, body = await exchange(1002, 0x14, operands)  # fetch and add
    assert (bth.opcode, body[4:]) == (0x12, bytes(8))
    bth, body = await exchange(1003, 0x04, b"hello, node!")  # SEND

    def look():
        _, _, mr, cq, qp = held["all"]
        assert mr.read(1008, 0) == struct.pack("<Q", 5) + data
        (wc,) = poll(cq)
        assert (wc.wr_id, wc.status, wc.byte_len) == (5, 0, 12)
        assert mr.read(12, 4096) == b"hello, node!"
        wr = SendWR(6, ibv_wr_opcode.IBV_WR_SEND, num_sge=1, sg=[SGE(mr.buf + 8, 1000, mr.lkey)])
        wr.send_flags = ibv_send_flags.IBV_SEND_SIGNALED
        qp.post_send(wr)

    await bridge(look)()
    bth, body = roce_body(await host.next(host.roce))
    assert (bth.opcode, bth.dqpn, bth.psn, body) == (0x04, 99, 500, data)
    aeth = struct.pack(">I", 0x1F000001)
    await host.send(with_icrc(rc_frame(source, target, number, 500, 0x11, aeth + bytes(4))))

    def end():
        context, pd, mr, cq, qp = held["all"]
        (wc,) = poll(cq)
        assert (wc.wr_id, wc.status) == (6, 0)
        assert qp.qp_state == ibv_qp_state.IBV_QPS_RTS
        for each in (qp, cq, mr, pd, context):
            each.close()

    await bridge(end)()


def poll(cq):
    for _ in range(20):
        count, found = cq.poll(1)
        if count:
            return found
    raise AssertionError("no completion")
