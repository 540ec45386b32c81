"""Pairs of queue pairs of UC or UD: what arrives is whole, or it is absent; and all that is sent completes."""

import random
from collections import deque

from verbena.sw.verbs.cq import CQ
from verbena.sw.verbs.datagram import GRH_BYTES
from verbena.sw.verbs.libibverbs_enums import (
    ibv_access_flags,
    ibv_qp_attr_mask,
    ibv_qp_state,
    ibv_qp_type,
    ibv_send_flags,
    ibv_wc_flags,
    ibv_wc_opcode,
    ibv_wc_status,
    ibv_wr_opcode,
)
from verbena.sw.verbs.mr import MR
from verbena.sw.verbs.qp import QP, QPAttr, QPCap, QPInitAttr
from verbena.sw.verbs.wr import SGE, RecvWR, SendWR

from ..pair import QKEY, handle, join
from .model import Difference

__all__ = ["Unreliable"]

MTUS = (256, 1024, 4096)
DEPTH = 16
SLOT = 8192
"""Bytes of the longest message."""
GUARD = 64
"""Bytes between the places of two WRITEs, which nobody writes."""
KEPT = 1024
"""Newest messages that may still be on the wire, or in the engine."""
PACKET = 4096
"""Bytes of the longest datagram."""
NUMBER = 8
"""Bytes at the beginning of a message without immediate that tell its number."""
REFUSED = 0.05
"""Of the WRITEs."""
RESETS = 0.002
"""A step."""

A, F, R, W = ibv_access_flags, ibv_send_flags, ibv_wr_opcode, ibv_wc_status
SENDS, WRITES = (R.IBV_WR_SEND, R.IBV_WR_SEND_WITH_IMM), (R.IBV_WR_RDMA_WRITE, R.IBV_WR_RDMA_WRITE_WITH_IMM)
WITH_IMM = (R.IBV_WR_SEND_WITH_IMM, R.IBV_WR_RDMA_WRITE_WITH_IMM)


class _Direction:
    """Messages from ``here`` to ``there``; numbers of messages and of receives go on from life to life."""

    def __init__(self, rng, here, there, datagrams):
        self.random = rng
        self.datagrams = datagrams
        self.header = GRH_BYTES if datagrams else 0
        self.way = handle(here, there.gid) if datagrams else None
        self.pool = MR(here.pd, DEPTH * SLOT, A.IBV_ACCESS_LOCAL_WRITE)
        self.buffers = MR(there.pd, DEPTH * SLOT, A.IBV_ACCESS_LOCAL_WRITE)
        self.places = MR(there.pd, DEPTH * (SLOT + GUARD), A.IBV_ACCESS_LOCAL_WRITE | A.IBV_ACCESS_REMOTE_WRITE)
        self.messages = {}  # number: (opcode, content); of a refused one the content is None
        self.next = self.arrived = self.refused = self.receives = 0
        self.open = deque()

    def begin(self, qp, peer):
        self.qp, self.peer = qp, peer
        self.open.clear()
        self.unsignaled = 0
        self.expected = self.receives

    def post_receives(self):
        while self.receives - self.expected < DEPTH:
            at = self.buffers.buf + self.receives % DEPTH * SLOT
            self.peer.post_recv(RecvWR(self.receives, 1, [SGE(at, SLOT, self.buffers.lkey)]))
            self.receives += 1

    def post(self):
        if len(self.open) == DEPTH:
            return
        rng, number = self.random, self.next
        longest = PACKET if self.datagrams else SLOT
        length = rng.choice((rng.randrange(64), rng.randrange(1024), rng.randrange(longest + 1)))
        served = SENDS if self.datagrams else SENDS + WRITES
        opcode = rng.choice([each for each in served if length >= NUMBER or each in WITH_IMM])
        content = rng.randbytes(length)
        if opcode not in WITH_IMM:
            content = number.to_bytes(NUMBER, "little") + content[NUMBER:]
        at = number % DEPTH * SLOT
        self.pool.write(content, length, at)
        wr = SendWR(
            number, opcode, 1, sg=[SGE(self.pool.buf + at, length, self.pool.lkey)], imm_data=number & 0xFFFFFFFF
        )
        refused = opcode in WRITES and length > 0 and rng.random() < REFUSED
        place = self.places.buf + number % DEPTH * (SLOT + GUARD)
        wr.set_wr_rdma(self.places.rkey ^ refused, place)
        self._address(wr)
        signaled = self.unsignaled == 5 or rng.random() < 0.6
        self.unsignaled = 0 if signaled else self.unsignaled + 1
        wr.send_flags = F.IBV_SEND_SIGNALED * signaled | F.IBV_SEND_SOLICITED * (rng.random() < 0.2)
        self.qp.post_send(wr)
        self.messages[number] = (opcode, None if refused else content)
        self.messages.pop(number - KEPT, None)
        self.open.append(number)
        self.next += 1

    def _address(self, wr):
        if self.datagrams:
            wr.set_wr_ud(self.way, self.peer.qp_num, QKEY)

    def end(self):
        """Something signaled stands behind all. Returns whether all is complete."""
        if self.open and self.unsignaled and len(self.open) < DEPTH:
            opcode = R.IBV_WR_SEND_WITH_IMM if self.datagrams else R.IBV_WR_RDMA_WRITE
            wr = SendWR(self.next, opcode, 1, imm_data=self.next, sg=[SGE(0, 0, 0)], send_flags=F.IBV_SEND_SIGNALED)
            self._address(wr)
            self.qp.post_send(wr)
            self.messages[self.next] = (opcode, b"" if self.datagrams else None)
            self.open.append(self.next)
            self.next, self.unsignaled = self.next + 1, 0
        return not self.open

    def sent(self, wc):
        if wc.status != W.IBV_WC_SUCCESS or wc.wr_id not in self.open:
            raise Difference(f"UC: {wc} at the sender, of {list(self.open)}")
        while self.open.popleft() != wc.wr_id:
            pass

    def received(self, wc):
        """A receive is complete: the oldest, and with a message that was sent, every byte."""
        if wc.wr_id != self.expected:
            raise Difference(f"UC: {wc} at the receiver, where receive {self.expected} was next")
        self.expected += 1
        written = wc.opcode == ibv_wc_opcode.IBV_WC_RECV_RDMA_WITH_IMM
        if wc.status == W.IBV_WC_LOC_ACCESS_ERR:  # what opcode and immediate say does not count
            self.refused += 1
            return
        number = wc.imm_data
        if not wc.wc_flags & ibv_wc_flags.IBV_WC_WITH_IMM:
            at = wc.wr_id % DEPTH * SLOT + self.header
            number = int.from_bytes(self.buffers.read(NUMBER, at), "little")
        opcode, content = self.messages.get(number, (None, None))
        if wc.status != W.IBV_WC_SUCCESS or content is None or (opcode in WRITES) != written:
            raise Difference(f"UC: {wc} at the receiver; message {number} was {opcode}")
        if wc.byte_len != self.header * (not written) + len(content):
            raise Difference(f"UC: message {number} arrived with {wc.byte_len} of {len(content)} bytes")
        if written and self.next > number + DEPTH:
            return  # its place may have a later one
        mr, at = (
            (self.places, number % DEPTH * (SLOT + GUARD))
            if written
            else (self.buffers, wc.wr_id % DEPTH * SLOT + self.header)
        )
        if content and mr.read(len(content), at) != content:
            raise Difference(f"UC: message {number} of {len(content)} bytes arrived with others")
        self.arrived += 1

    def check(self):
        """Between the places nothing was written."""
        for place in range(DEPTH):
            if any(self.places.read(GUARD, place * (SLOT + GUARD) + SLOT)):
                raise Difference(f"UC: something was written behind place {place}")


class Unreliable:
    """Two queue pairs of UC or UD, a direction each way, and their lives; receives come late now and then, some WRITEs
    have a wrong key.

    Parameters
    ----------
    seed : int
    hosts : pair of .host.Host
    qp_type : ibv_qp_type
    """

    def __init__(self, seed, hosts, qp_type=ibv_qp_type.IBV_QPT_UC):
        self.random = random.Random(seed)
        self.hosts = hosts
        self.mtu = self.random.choice(MTUS)
        self.resets = 0
        self.datagrams = qp_type == ibv_qp_type.IBV_QPT_UD
        self.cqs, self.qps = [], []
        for host in hosts:
            cq = CQ(host.context, 8 * DEPTH)
            cap = QPCap(DEPTH, DEPTH, 1, 1, 0)
            init = QPInitAttr(qp_type, scq=cq, rcq=cq, cap=cap, sq_sig_all=0)
            self.cqs.append(cq)
            self.qps.append(QP(host.pd, init))
        self.directions = [_Direction(self.random, hosts[i], hosts[1 - i], self.datagrams) for i in (0, 1)]
        self._begin()

    def _begin(self):
        psns = [self.random.getrandbits(24) for _ in (0, 1)]
        for i, qp in enumerate(self.qps):
            there, gid = self.qps[1 - i], self.hosts[1 - i].gid
            join(qp, there, gid, mtu=self.mtu, sq_psn=psns[i], rq_psn=psns[1 - i], access=2, qkey=QKEY)
        for i, direction in enumerate(self.directions):
            direction.begin(self.qps[i], self.qps[1 - i])

    def step(self, posting=True):
        """Posts here and there, and checks what has come. Returns how much that was."""
        rng = self.random
        if posting and rng.random() < RESETS:
            for qp in self.qps:
                qp.modify(QPAttr(qp_state=ibv_qp_state.IBV_QPS_RESET), ibv_qp_attr_mask.IBV_QP_STATE)
            self.resets += 1
            self._begin()
        for direction in self.directions:
            if posting and rng.random() < 0.5:
                for _ in range(rng.randrange(1, 9)):
                    direction.post()
            if rng.random() < 0.7:
                direction.post_receives()
        moved = 0
        for i, cq in enumerate(self.cqs):
            for wc in cq.poll(64)[1]:
                # What failed tells only by its wr_id and its queue pair what it was; sends do not fail here.
                failed = wc.status != W.IBV_WC_SUCCESS
                if failed or wc.opcode & ibv_wc_opcode.IBV_WC_RECV:
                    self.directions[1 - i].received(wc)
                else:
                    self.directions[i].sent(wc)
                moved += 1
        return moved

    def end(self):
        """Whether all that was sent is complete."""
        return sum(not direction.end() for direction in self.directions) == 0  # asks each

    def check(self):
        for direction in self.directions:
            direction.check()

    @property
    def counts(self):
        """What was sent, what arrived, what was refused, resets."""
        sent, arrived, refused = (
            sum(getattr(direction, name) for direction in self.directions) for name in ("next", "arrived", "refused")
        )
        return {"sent": sent, "arrived": arrived, "refused with a receive": refused, "resets": self.resets}
