"""A peer behind a network that loses packets, as a send queue sees it; and the response receiver, which sees it
first."""

from collections import deque

from verbena.hdl.abi.cqe import WcStatus
from verbena.hdl.transport.common.layouts import ResponseJobKind as Kind

__all__ = ["Peer", "ResponseReceiver", "UnreliablePeer"]

PSNS = 1 << 24
READ, ATOMICS, ACK = 0x0C, (0x13, 0x14), 0x11
RNR = 0x20 | 1
"""Not ready; 10 us."""


def behind(psn, other):
    """How far ``psn`` lies behind ``other``; more than half of all PSNs if it lies ahead."""
    return (other - psn) % PSNS


class Peer:
    """A responder of one QP: takes packets in order, answers duplicates, says once what it misses."""

    def __init__(self, rng, psn, mtu, *, loss=0.0, rnr=0.0, remote=0.0):
        self.rng, self.mtu, self.loss, self.rnr, self.remote = rng, mtu, loss, rnr, remote
        self.expected = psn
        self.msn = 0
        self.told = False  # of the gap
        self.dead = False
        self.accepted = []  # (opcode, psn, length) of what counted, in order
        self.answers = deque()  # (psn, syndrome, msn), and of READs and atomics (psn, None, msn)

    def answer(self, psn, syndrome=0x1F):
        if self.rng.random() >= self.loss:
            self.answers.append((psn % PSNS, syndrome, self.msn))

    def arrive(self, header, last):
        if self.rng.random() < self.loss or self.dead:
            return
        opcode, psn = header.opcode, header.psn
        count = max(1, -(-header.dma_length // self.mtu)) if opcode == READ else 1
        one_sided = opcode == READ or opcode in ATOMICS
        if psn != self.expected:
            if behind(psn, self.expected) >= PSNS // 2:
                if not self.told:
                    self.told = True
                    self.answer(self.expected, 0x60)
            elif one_sided:
                for number in range(count):
                    self.answer(psn + number, None)
            else:
                self.answer(self.expected - 1)
            return
        if not one_sided and opcode in (0, 4, 5) and self.rng.random() < self.rnr:
            self.answer(psn, RNR)
            return
        if self.rng.random() < self.remote:
            self.dead = True
            self.answers.append((psn, 0x62, self.msn))  # not lost, or the test takes eight timeouts
            return
        self.told = False
        self.accepted.append((opcode, psn, header.length, header.dma_length if opcode == READ else 0))
        self.expected = (psn + count) % PSNS
        self.msn = (self.msn + last) % PSNS
        if one_sided:
            for number in range(count):
                self.answer(psn + number, None)
        elif header.ack_request and self.rng.random() < 0.8:
            self.answer(psn)


class UnreliablePeer:
    """A responder of UC: it answers nothing. What the network loses makes no difference to who sends."""

    def __init__(self):
        self.accepted = []  # (opcode, psn, length, 0) of all that has come, in order
        self.answers = deque()

    def arrive(self, header, last):
        assert header.ack_request == 0
        self.accepted.append((header.opcode, header.psn, header.length, 0))


class ResponseReceiver:
    """Tells what a response means, for one QP."""

    def __init__(self, qp, mtu):
        self.qp, self.mtu = qp, mtu
        self.targets = deque()  # [next PSN, last PSN, WQE]

    def begin(self, target):
        count = max(1, -(-target.length // self.mtu))
        self.targets.append([target.psn, (target.psn + count - 1) % PSNS, target.wqe_index])

    def job(self, answer):
        psn, syndrome, msn = answer
        job = {"qp": self.qp, "psn": psn, "msn": msn, "syndrome": 0x1F, "status": WcStatus.SUCCESS}
        if syndrome is not None:
            return job | {"kind": Kind.ACK, "syndrome": syndrome}
        if not self.targets or 0 < behind(psn, self.targets[0][0]) < PSNS // 2:
            return job | {"kind": Kind.NOTHING}
        target = self.targets[0]
        if psn != target[0]:
            return job | {"kind": Kind.SKIPPED}
        if psn == target[1]:
            self.targets.popleft()
        target[0] = (psn + 1) % PSNS
        return job | {"kind": Kind.DATA, "wqe_index": target[2]}
