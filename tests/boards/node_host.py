"""A host at the other end of a simulated node's cable, made of scapy."""

import random

from ether_frames import ip_text, mac_text
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import ARP, Ether
from scapy.packet import Raw
from verbena.boards.etherbone import PORT
from verbena.boards.sim import HOST_IP, HOST_MAC, NODE_IP, NODE_MAC, NodeModel

__all__ = ["NodeHost"]

ROCE = 4791
FRAME_NS = 40_000
"""Longer than any frame takes to come back."""


class NodeHost:
    """It answers ARP, and sorts what comes: ``udp``, ``roce`` and ``other`` are lists of scapy's packets. To a driver
    it is the transport, too.
    """

    def __init__(self, seed, sender=HOST_IP, **model):
        self.node = NodeModel(seed=seed, **model)
        self.rng = random.Random(seed)
        self.sender = sender
        self.udp, self.roce, self.other = [], [], []
        self.asked = 0

    def run(self, queue, limit_ns=FRAME_NS):
        """Lets time pass until a packet is in ``queue``; returns it, or None."""
        end = self.node.time + limit_ns * 1_000_000
        while not queue and self.node.time < end:
            self.node.advance_to(end, stop=True)
            while (frame := self.node.receive()) is not None:
                self._sort(Ether(frame))
        return queue.pop(0) if queue else None

    def next(self, queue):
        packet = self.run(queue)
        assert packet is not None, "nothing came"
        return packet

    def _sort(self, packet):
        if ARP in packet and packet[ARP].op == 1 and packet[ARP].pdst == ip_text(HOST_IP):
            self.asked += 1
            self.node.send(bytes(self.arp(2, packet.src, packet[ARP].psrc)))
        elif UDP in packet and packet[UDP].dport == PORT:
            self.udp.append(packet)
        elif UDP in packet and packet[UDP].dport == ROCE:
            self.roce.append(packet)
        else:
            self.other.append(packet)

    def arp(self, operation, to, address):
        return Ether(dst=to, src=mac_text(HOST_MAC)) / ARP(
            op=operation, hwsrc=mac_text(HOST_MAC), psrc=ip_text(HOST_IP), hwdst=to, pdst=address
        )

    def ether(self):
        return Ether(dst=mac_text(NODE_MAC), src=mac_text(HOST_MAC))

    def send(self, packet):
        """A frame; bytes are an Etherbone packet of ``sender``."""
        if isinstance(packet, bytes):
            addresses = IP(src=ip_text(self.sender), dst=ip_text(NODE_IP))
            packet = self.ether() / addresses / UDP(sport=PORT, dport=PORT) / Raw(packet)
        self.node.send(bytes(packet))

    def receive(self):
        """The payload of the next answer, or None."""
        packet = self.run(self.udp, 4 * FRAME_NS)
        return None if packet is None else bytes(packet[UDP].payload)
