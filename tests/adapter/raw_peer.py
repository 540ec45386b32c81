"""A peer that is no adapter: it sends a queue pair whatever frames a test wants, and hears what is answered."""

import struct
from typing import NamedTuple

from ends import settle
from rocegram import rc_frame
from verbena.sim.devices import world
from verbena.sim.pair import path_mtu
from verbena.sw.verbs.addr import AHAttr, GlobalRoute
from verbena.sw.verbs.qp import QPAttr

__all__ = [
    "ACK",
    "MTU",
    "NAK_ACCESS",
    "NAK_INVALID",
    "QPN",
    "Answer",
    "RawPeer",
    "atomiceth",
    "believe",
    "heard",
    "reth",
]

MTU = 256
QPN = 78
"""The peer's own queue pair."""
MAC, IP, GID = 0x02_00_00_00_00_98, 0x0A000062, "::ffff:10.0.0.98"
ADAPTER = 1
BTH = 14 + 20 + 8
ACK, NAK_INVALID, NAK_ACCESS = 0, 0x61, 0x62
WITH_AETH = (0x0D, 0x0F, 0x10, 0x11, 0x12)


class Answer(NamedTuple):
    """A frame from the adapter. ``syndrome`` is None where ``aeth`` is empty, and 0 for an ACK with any credits."""

    opcode: int
    psn: int
    syndrome: int
    payload: bytes
    qpn: int
    aeth: bytes


def reth(address, key, length):
    return struct.pack(">QII", address, key, length)


def atomiceth(address, key, swap_add, compare=0):
    return struct.pack(">QIQQ", address, key, swap_add, compare)


def believe(qp, qpn, psn):
    """Connects ``qp`` with ``qpn`` of the peer that is none, and has it expect ``psn`` first."""
    attr = QPAttr()
    attr.path_mtu, attr.qp_access_flags, attr.dest_qp_num = path_mtu(MTU), 14, qpn
    attr.max_rd_atomic = attr.max_dest_rd_atomic = 16
    attr.sq_psn, attr.rq_psn = 0x123456, psn & 0xFFFFFF
    attr.timeout, attr.retry_cnt, attr.rnr_retry, attr.min_rnr_timer = 14, 7, 7, 12
    attr.ah_attr = AHAttr(is_global=1, gr=GlobalRoute(dgid=GID, hop_limit=64))
    qp.to_rts(attr)


def heard(tap):
    """All that came to ``tap`` by now."""
    answers = []
    while frame := tap.receive():
        opcode, psn = frame[BTH], int.from_bytes(frame[BTH + 9 : BTH + 12], "big")
        qpn, body = int.from_bytes(frame[BTH + 5 : BTH + 8], "big"), frame[BTH + 12 :]
        payload = body[: len(body) - 4 - (frame[BTH + 1] >> 4 & 3)]
        syndrome, aeth = None, b""
        if opcode in WITH_AETH:
            aeth, payload = payload[:4], payload[4:]
            syndrome = aeth[0] if aeth[0] >> 5 else ACK
        answers.append(Answer(opcode, psn, syndrome, bytes(payload), qpn, bytes(aeth)))
    return answers


class RawPeer:
    """The peer of the first queue pair of ``end``, which is on ``sim1``; that expects ``psn`` first."""

    def __init__(self, end, psn=0):
        self.end = end
        self.tap = world().tap(MAC)
        end.context._adapter.port.add_neighbour(IP, MAC)
        self.adapter = world().adapters[ADAPTER]
        believe(end.qp, QPN, psn)

    def frame(self, opcode, psn, body=b"", **more):
        own = self.adapter.mac, self.end.context._adapter.port.ip
        return rc_frame((MAC, IP), own, self.end.qp.qp_num, psn, opcode, body, **more)

    def send(self, opcode, psn, body=b"", **more):
        self.adapter.inject(self.frame(opcode, psn, body, **more))

    def answers(self, cycles=3000):
        """All that the adapter has said to the peer, once ``cycles`` have passed."""
        settle(cycles)
        answers = heard(self.tap)
        assert all(answer.qpn == QPN for answer in answers)
        return answers
