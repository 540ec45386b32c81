"""A requester whose packets, and whose responses, get lost: what a responder is tested with."""

from types import SimpleNamespace

from receive_world import (
    COMPARE_SWAP,
    FETCH_ADD,
    READ_REQUEST,
    SEND_FIRST,
    SEND_LAST,
    SEND_MIDDLE,
    SEND_ONLY,
    WRITE_FIRST,
    WRITE_LAST,
    WRITE_LAST_IMM,
    WRITE_MIDDLE,
    WRITE_ONLY,
    WRITE_ONLY_IMM,
)

__all__ = ["MTU", "NUMBERS", "READS", "RESPONDING", "Peer"]

MTU = 256
READS = 3
"""READs and atomics that a QP may have outstanding."""
NUMBERS = 1 << 24
RESPONDING = (READ_REQUEST, COMPARE_SWAP, FETCH_ADD)


class Peer:
    """The requester of one QP: go back N."""

    def __init__(self, rng, qp, first, messages):
        self.qp = qp
        self.first = first  # PSN
        self.writes = []  # (key, address, length) of each packet
        self.packets = []  # number: of the first PSN, counted from 0
        number = 0
        for index in range(messages):
            for opcode, length, more in self._message(rng):
                count = max(1, -(-more["dma_length"] // MTU)) if opcode == READ_REQUEST else 1
                responds = opcode in RESPONDING
                fields = {
                    "opcode": opcode,
                    "psn": (first + number) % NUMBERS,
                    "length": length,
                    "ack_request": 0,
                } | more
                packet = SimpleNamespace(number=number, count=count, responds=responds, fields=fields, answered=False)
                packet.end = opcode not in (SEND_FIRST, SEND_MIDDLE, WRITE_FIRST, WRITE_MIDDLE)
                packet.fields["ack_request"] = int(packet.end or rng.random() < 0.2)
                packet.index = index
                self.packets.append(packet)
                number += count
        self.total = number
        self.unacked = 0
        self.next = 0  # packet
        self.idle = 0
        self.begun = 0

    def _message(self, rng):
        kind = rng.choice(["send", "write", "read", "atomic"])
        address, rkey = rng.getrandbits(48) * 8, rng.getrandbits(31)
        if kind == "read":
            return [(READ_REQUEST, 0, {"address": address, "rkey": rkey, "dma_length": rng.choice([0, 5, 600, 1500])})]
        if kind == "atomic":
            return [(rng.choice([COMPARE_SWAP, FETCH_ADD]), 0, {"address": address, "rkey": rkey, "dma_length": 0})]
        count = rng.choice([1, 1, 2, 4])
        tail = rng.randint(1, MTU)
        reth = {}
        if kind == "write":
            reth = {"address": address, "rkey": rkey, "dma_length": (count - 1) * MTU + tail}
            self.writes += [(rkey, address + place * MTU, MTU) for place in range(count - 1)]
            self.writes.append((rkey, address + (count - 1) * MTU, tail))
        if kind == "send":
            ends, first, middle, last = SEND_ONLY, SEND_FIRST, SEND_MIDDLE, SEND_LAST
        else:
            immediate = rng.randrange(2)
            ends, first, middle = (WRITE_ONLY, WRITE_ONLY_IMM)[immediate], WRITE_FIRST, WRITE_MIDDLE
            last = (WRITE_LAST, WRITE_LAST_IMM)[immediate]
        if count == 1:
            return [(ends, tail, reth)]
        return [(first, MTU, reth), *[(middle, MTU, {})] * (count - 2), (last, tail, {})]

    def number(self, psn):
        """Counted from 0."""
        return (psn - self.first + (1 << 22)) % NUMBERS - (1 << 22)

    def acknowledge(self, number):
        """All before this one are acknowledged, but not beyond a READ that is not answered: then it begins anew."""
        for packet in self.packets:
            if self.unacked < packet.number + packet.count <= number and packet.responds and not packet.answered:
                self._advance(packet.number)
                self.back()
                return
        self._advance(number)

    def _advance(self, number):
        if number > self.unacked:
            self.unacked = number
            self.idle = 0

    def respond(self, number):
        """The responses of this packet have come."""
        (packet,) = [packet for packet in self.packets if packet.number == number]
        if all(p.answered for p in self.packets if p.responds and p.number < number):
            packet.answered = True
            self.acknowledge(number + packet.count)

    def back(self):
        self.idle = 0
        self.next = next(
            (i for i, p in enumerate(self.packets) if p.number + p.count > self.unacked), len(self.packets)
        )

    def take(self):
        """The next packet to send, or None."""
        self.idle += 1
        if self.idle > 60:
            self.back()
        if self.next == len(self.packets):
            return None
        packet = self.packets[self.next]
        outstanding = sum(p.responds and not p.answered for p in self.packets[: max(self.begun, self.next)])
        if packet.responds and self.next >= self.begun and outstanding >= READS:
            return None
        self.next += 1
        self.begun = max(self.begun, self.next)
        return packet
