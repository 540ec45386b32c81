"""A host in software behind the raw packet queue, for Linux one more station on the cable."""

import ipaddress
from functools import partial

from scapy.layers.inet import ICMP, IP, UDP
from scapy.layers.l2 import ARP, Ether
from verbena.sw.verbs.cq import CQ
from verbena.sw.verbs.flow import Flow, FlowAttr
from verbena.sw.verbs.libibverbs_enums import (
    ibv_access_flags,
    ibv_flow_attr_type,
    ibv_qp_type,
    ibv_send_flags,
    ibv_wc_opcode,
    ibv_wc_status,
    ibv_wr_opcode,
)
from verbena.sw.verbs.mr import MR
from verbena.sw.verbs.pd import PD
from verbena.sw.verbs.qp import QP, QPAttr, QPCap, QPInitAttr
from verbena.sw.verbs.wr import SGE, RecvWR, SendWR

from .case import Case

__all__ = ["groups"]

SIZE, PLACES = 2048, 16
PAYLOADS = (0, 1, 56, 1000, 1472)
PORT = 7000


class SoftHost:
    """Answers ARP requests, pings and UDP datagrams to the address that follows the adapter's, in ``pump``."""

    def __init__(self, bench):
        self.bench = bench
        self.ip = str(ipaddress.ip_address(bench.port.ip + 1))
        self.mac = ":".join(f"{bench.port.mac:012x}"[i : i + 2] for i in range(0, 12, 2))
        self.pd = PD(bench.context)
        self.cq = CQ(bench.context, 64)
        init = QPInitAttr(ibv_qp_type.IBV_QPT_RAW_PACKET, scq=self.cq, rcq=self.cq, cap=QPCap(PLACES, PLACES))
        self.qp = QP(self.pd, init, QPAttr())
        self.mr = MR(self.pd, 2 * PLACES * SIZE, ibv_access_flags.IBV_ACCESS_LOCAL_WRITE)
        self.flow = Flow(self.qp, FlowAttr(flow_type=ibv_flow_attr_type.IBV_FLOW_ATTR_ALL_DEFAULT))
        self.sent = 0
        self.foreign = []
        for place in range(PLACES):
            self._post(place)

    def _post(self, place):
        self.qp.post_recv(RecvWR(place, 1, [SGE(self.mr.buf + place * SIZE, SIZE, self.mr.lkey)]))

    def _send(self, packet):
        frame, place = bytes(packet), PLACES + self.sent % PLACES
        self.sent += 1
        self.mr.write(frame, len(frame), place * SIZE)
        sge = SGE(self.mr.buf + place * SIZE, len(frame), self.mr.lkey)
        flags = ibv_send_flags.IBV_SEND_SIGNALED
        self.qp.post_send(SendWR(0, ibv_wr_opcode.IBV_WR_SEND, 1, sg=[sge], send_flags=flags))

    def pump(self):
        type(self.bench).pump(self.bench)
        for wc in self.cq.poll(PLACES)[1]:
            assert wc.status == ibv_wc_status.IBV_WC_SUCCESS, wc
            if wc.opcode == ibv_wc_opcode.IBV_WC_RECV:
                packet = Ether(self.mr.read(wc.byte_len, wc.wr_id * SIZE))
                self._post(wc.wr_id)
                self._answer(packet)

    def _answer(self, packet):
        back = Ether(src=self.mac, dst=packet.src)
        if ARP in packet:
            if packet[ARP].op == 1 and packet[ARP].pdst == self.ip:
                arp = packet[ARP]
                self._send(back / ARP(op=2, hwsrc=self.mac, psrc=self.ip, hwdst=arp.hwsrc, pdst=arp.psrc))
        elif IP in packet and packet[IP].dst == self.ip:
            ip = packet[IP]
            back /= IP(src=self.ip, dst=ip.src)
            if ICMP in ip and ip[ICMP].type == 8:
                self._send(back / ICMP(type=0, id=ip[ICMP].id, seq=ip[ICMP].seq) / bytes(ip[ICMP].payload))
            elif UDP in ip and ip[UDP].dport == PORT:
                self._send(back / UDP(sport=PORT, dport=ip[UDP].sport) / bytes(ip[UDP].payload).upper())
        elif IP in packet:
            self.foreign.append(packet)

    def __enter__(self):
        self.bench.guest.pump = self.pump
        return self

    def __exit__(self, *exc):
        self.bench.guest.pump = self.bench.pump
        for resource in (self.qp, self.mr, self.cq, self.pd):
            resource.close()


def ping(payload, bench):
    """Linux resolves the address, and checks what comes back, byte by byte."""
    with SoftHost(bench) as host:
        bench.guest.run("ip neighbour flush dev eth0")
        out = bench.guest.run(f"ping -c 3 -i 0.2 -W 20 -s {payload} {host.ip} || true")
        assert " 0% packet loss" in out, out
        assert "wrong data" not in out, out
        assert "duplicates" not in out, out
        entry = bench.guest.run(f"ip neighbour show {host.ip}")
        assert host.mac in entry, entry


def datagram(bench):
    """A UDP socket of Linux sends, and hears the answer."""
    program = (
        "import socket; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(20); "
        "s.sendto(b'frames of software ' * 70, ('{ip}', {port})); print(s.recv(2000).decode())"
    )
    with SoftHost(bench) as host:
        out = bench.guest.run(f'python3 -c "{program.format(ip=host.ip, port=PORT)}"')
        assert "FRAMES OF SOFTWARE " * 70 in out, out


def beside(bench):
    """Pings to the adapter's own address go on, are answered once, and are seen."""
    ours = ipaddress.ip_address(bench.port.ip)
    with SoftHost(bench) as host:
        out = bench.guest.run(f"ping -c 2 -i 0.2 -W 20 {ours} || true")
        assert " 0% packet loss" in out, out
        assert "duplicates" not in out, out
        assert sum(ICMP in packet for packet in host.foreign) == 2


def groups(seed):
    return {
        "raw packets": [
            *(Case(f"ping -s {payload}", "card", partial(ping, payload), tool=True) for payload in PAYLOADS),
            Case("a UDP socket", "card", datagram, tool=True),
            Case("ping of the adapter beside", "card", beside, tool=True),
        ]
    }
