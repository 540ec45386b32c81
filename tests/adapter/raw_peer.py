"""A peer that is no adapter: it sends a queue pair whatever frames a test wants, and hears what is answered."""

import struct
from typing import NamedTuple

from ends import settle
from rocegram import rc_frame
from verbena.sim.devices import world
from verbena.sim.pair import path_mtu
from verbena.sw.verbs.addr import AHAttr, GlobalRoute
from verbena.sw.verbs.qp import QPAttr

__all__ = ["ACK", "MTU", "NAK_ACCESS", "NAK_INVALID", "QPN", "Answer", "RawPeer", "atomiceth", "reth"]

MTU = 256
QPN = 78
"""The peer's own queue pair."""
MAC, IP, GID = 0x02_00_00_00_00_98, 0x0A000062, "::ffff:10.0.0.98"
ADAPTER = 1
BTH = 14 + 20 + 8
ACK, NAK_INVALID, NAK_ACCESS = 0, 0x61, 0x62
WITH_AETH = (0x0D, 0x0F, 0x10, 0x11, 0x12)


class Answer(NamedTuple):
    """A frame from the adapter. ``syndrome`` is None without an AETH, and 0 for an ACK, whatever its credits."""

    opcode: int
    psn: int
    syndrome: int
    payload: bytes


def reth(address, key, length):
    return struct.pack(">QII", address, key, length)


def atomiceth(address, key, swap_add, compare=0):
    return struct.pack(">QIQQ", address, key, swap_add, compare)


class RawPeer:
    """The peer of the first queue pair of ``end``, which is on ``sim1``; that expects ``psn`` first."""

    def __init__(self, end, psn=0):
        self.end = end
        self.tap = world().tap(MAC)
        end.context._adapter.port.add_neighbour(IP, MAC)
        self.adapter = world().adapters[ADAPTER]
        attr = QPAttr()
        attr.path_mtu, attr.qp_access_flags, attr.dest_qp_num = path_mtu(MTU), 14, QPN
        attr.max_rd_atomic = attr.max_dest_rd_atomic = 16
        attr.sq_psn, attr.rq_psn = 0x123456, psn & 0xFFFFFF
        attr.timeout, attr.retry_cnt, attr.rnr_retry, attr.min_rnr_timer = 14, 7, 7, 12
        attr.ah_attr = AHAttr(is_global=1, gr=GlobalRoute(dgid=GID, hop_limit=64))
        end.qp.to_rts(attr)

    def frame(self, opcode, psn, body=b"", **more):
        own = self.adapter.mac, self.end.context._adapter.port.ip
        return rc_frame((MAC, IP), own, self.end.qp.qp_num, psn, opcode, body, **more)

    def send(self, opcode, psn, body=b"", **more):
        self.adapter.inject(self.frame(opcode, psn, body, **more))

    def answers(self, cycles=3000):
        """All that the adapter has said to the peer, once ``cycles`` have passed."""
        settle(cycles)
        heard = []
        while frame := self.tap.receive():
            opcode, psn = frame[BTH], int.from_bytes(frame[BTH + 9 : BTH + 12], "big")
            assert int.from_bytes(frame[BTH + 5 : BTH + 8], "big") == QPN
            syndrome, payload = None, frame[BTH + 12 : len(frame) - 4 - (frame[BTH + 1] >> 4 & 3)]
            if opcode in WITH_AETH:
                syndrome, payload = payload[0], payload[4:]
                syndrome = syndrome if syndrome >> 5 else ACK
            heard.append(Answer(opcode, psn, syndrome, bytes(payload)))
        return heard
