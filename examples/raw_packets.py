"""Ethernet frames: the adapter as a network card, for a program that speaks ARP and IP itself.

Run it: `verbena run examples/raw_packets.py`

A QP of type RAW_PACKET sends whole frames, and one of each adapter receives those that are not RoCE, if a flow leads
them to it. Both of that is what a network card does; the rest of a network is software. Here the server is a host of
its own with the address 10.9.0.2, which the adapter knows nothing of: it answers ARP requests and pings. The client
asks who has that address, and pings it.

It prints:

    client: who has 10.9.0.2?
    client: 10.9.0.2 is at 02:56:42:00:00:02
    client: ping with 0 bytes: answered, frame of 60 bytes
    client: ping with 56 bytes: answered, frame of 98 bytes
    client: ping with 1472 bytes: answered, frame of 1514 bytes
    client: who has 10.9.0.3? nobody
    server: answered 1 ARP request and 3 pings
"""

import struct

from connection import LOCAL, PORT, check, open_both
from pyverbs.cq import CQ
from pyverbs.flow import Flow, FlowAttr
from pyverbs.libibverbs_enums import IBV_FLOW_ATTR_ALL_DEFAULT, IBV_QPT_RAW_PACKET, IBV_SEND_SIGNALED, IBV_WC_RECV
from pyverbs.libibverbs_enums import IBV_WR_SEND as SEND
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import SGE, RecvWR, SendWR

SIZE = 2048  # of a place: a frame of 1514 bytes fits
BROADCAST = b"\xff" * 6
ARP, IP = 0x0806, 0x0800
ECHO_REPLY, ECHO_REQUEST = 0, 8


class NetworkCard:
    """A raw packet queue with places for frames; the first place is for what it sends."""

    def __init__(self, context, places=8):
        self.mac = context.query_gid(PORT, 1).gid.replace(":", "")  # the link-local address has the MAC address in it
        self.mac = bytes.fromhex(self.mac[16:22] + self.mac[26:])
        self.mac = bytes([self.mac[0] ^ 2]) + self.mac[1:]
        self.pd = PD(context)
        self.cq = CQ(context, 32)
        init = QPInitAttr(IBV_QPT_RAW_PACKET, scq=self.cq, rcq=self.cq, cap=QPCap(8, 8), sq_sig_all=0)
        self.qp = QP(self.pd, init, QPAttr(port_num=PORT))  # it has no peer, and starts in RTS
        self.flow = Flow(self.qp, FlowAttr(flow_type=IBV_FLOW_ATTR_ALL_DEFAULT))
        self.mr = MR(self.pd, (1 + places) * SIZE, LOCAL)
        self.arrived = []
        for place in range(1, 1 + places):
            self._post(place)

    def _post(self, place):
        self.qp.post_recv(RecvWR(place, 1, [SGE(self.mr.buf + place * SIZE, SIZE, self.mr.lkey)]))

    def send(self, to, ethertype, packet):
        frame = to + self.mac + struct.pack("!H", ethertype) + packet
        self.mr.write(frame, len(frame))
        sge = SGE(self.mr.buf, len(frame), self.mr.lkey)
        self.qp.post_send(SendWR(opcode=SEND, num_sge=1, sg=[sge], send_flags=IBV_SEND_SIGNALED))
        while not self._poll():
            pass

    def _poll(self):
        """Takes completions; whether a frame has been sent."""
        sent = False
        for wc in self.cq.poll(8)[1]:
            check(wc)
            if wc.opcode & IBV_WC_RECV:
                self.arrived.append(self.mr.read(wc.byte_len, wc.wr_id * SIZE))
                self._post(wc.wr_id)
            else:
                sent = True
        return sent

    def receive(self):
        """The next frame, or None."""
        self._poll()
        return self.arrived.pop(0) if self.arrived else None


def checksum(data):
    total = sum(struct.unpack(f"!{len(data) // 2}H", data[: len(data) // 2 * 2])) + (data[-1] << 8) * (len(data) & 1)
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return struct.pack("!H", ~total & 0xFFFF)


def summed(data, place):
    """The data with its checksum at ``place``, where zeros stand."""
    return data[:place] + checksum(data) + data[place + 2 :]


class Host:
    """An IP address on a card: it answers ARP requests and pings, and asks others."""

    def __init__(self, card, ip):
        self.card = card
        self.ip = bytes(map(int, ip.split(".")))
        self.arps = self.pings = 0

    def arp(self, operation, to, mac, ip):
        head = struct.pack("!HHBBH", 1, IP, 6, 4, operation)
        self.card.send(to, ARP, head + self.card.mac + self.ip + mac + ip)

    def echo(self, kind, mac, ip, body):
        icmp = summed(struct.pack("!BBH", kind, 0, 0) + body, 2)
        head = struct.pack("!BBHIBBH", 0x45, 0, 20 + len(icmp), 0, 64, 1, 0) + self.ip + ip
        self.card.send(mac, IP, summed(head, 10) + icmp)

    def work(self):
        """Answers the next frame, if it asks for something; else returns it."""
        frame = self.card.receive()
        if frame is None:
            return None
        ethertype = int.from_bytes(frame[12:14], "big")
        if ethertype == ARP and frame[20:22] == b"\0\1" and frame[38:42] == self.ip:
            self.arps += 1
            self.arp(2, frame[6:12], frame[22:28], frame[28:32])
            return None
        if ethertype == IP and frame[30:34] == self.ip and frame[23] == 1 and frame[34] == ECHO_REQUEST:
            self.pings += 1
            end = 14 + int.from_bytes(frame[16:18], "big")
            self.echo(ECHO_REPLY, frame[6:12], frame[26:30], frame[38:end])
            return None
        return frame


def answer(client, server, patience=200):
    """What the client hears while the server works; None if it is nothing."""
    for _ in range(patience):
        server.work()
        if (frame := client.work()) is not None:
            return frame
    return None


def main():
    near, far = open_both()
    client, server = Host(NetworkCard(near), "10.9.0.1"), Host(NetworkCard(far), "10.9.0.2")
    print("client: who has 10.9.0.2?")
    client.arp(1, BROADCAST, bytes(6), server.ip)
    mac = answer(client, server)[22:28]
    print(f"client: 10.9.0.2 is at {mac.hex(':')}")
    for size in (0, 56, 1472):
        body = struct.pack("!HH", 1, size) + bytes(n % 251 for n in range(size))
        client.echo(ECHO_REQUEST, mac, server.ip, body)
        frame = answer(client, server)
        good = frame[34] == ECHO_REPLY and frame[38 : 38 + len(body)] == body
        print(f"client: ping with {size} bytes: {'answered' if good else 'wrong'}, frame of {len(frame)} bytes")
    client.arp(1, BROADCAST, bytes(6), bytes((10, 9, 0, 3)))
    print(f"client: who has 10.9.0.3? {'nobody' if answer(client, server) is None else 'somebody'}")
    print(f"server: answered {server.arps} ARP request and {server.pings} pings")
    near.close()
    far.close()


if __name__ == "__main__":
    main()
