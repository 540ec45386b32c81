"""Whether a request may be executed, and what is answered if not."""

from functools import reduce
from operator import or_

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import enum, wiring
from amaranth.lib.wiring import In, Out

from ...abi.contexts import QpState
from ...abi.tables import Access
from ...queue.wqe_fetcher import RingStatus
from ..common.layouts import ResponseKind
from ..common.psn import psn_difference
from ..receive.layouts import Message, ReceivedRequest, RequestState, SharedWqe
from .sequence_error_tracker import SequenceError, SequenceErrorTracker

__all__ = ["READS_MAX", "RequestCheck", "Verdict", "is_too_long"]

REQUESTS = 12
"""SEND and WRITE opcodes, 0 to 11: FIRST, MIDDLE, LAST, LAST with immediate, ONLY, ONLY with immediate; of each."""

INVALIDATES = (0x16, 0x17)
"""SENDs with invalidate, LAST and ONLY."""

RESPONSES = {0x0C: ResponseKind.READ, 0x13: ResponseKind.COMPARE_SWAP, 0x14: ResponseKind.FETCH_ADD}
"""Opcodes that ask for data."""

READS_MAX = 16
"""READs and atomics of a QP that may wait for their answer."""


def is_too_long(length):
    """Whether a message of ``length`` bytes, a signal of 32 bits, has more than 2^31."""
    return length[31] & length[:31].any()


class Verdict(enum.Enum, shape=5):
    """What becomes of a packet, or of another turn of the responder."""

    EXECUTE = 0
    REJECTED = 1  # not this QP's; silent
    DEAD = 2  # the QP has failed or is not connected; silent
    DUPLICATE = 3  # old: ACK again
    STALE = 4  # old, and nothing that can be answered; silent
    AHEAD = 5  # behind a gap, or behind a request that was not ready: the NAK is out; silent
    SEQUENCE = 6  # first behind a gap: NAK
    INVALID = 7  # invalid request
    ACCESS = 8  # the QP does not allow it: remote access error
    NOT_READY = 9  # no receive WQE: RNR NAK
    RING = 10  # no receive WQE will be fetched any more: remote operational error
    TOO_LONG = 11  # for the receive WQE: invalid request
    FLUSH = 12  # no packet: a receive WQE of a QP in ERR
    TOKEN = 13  # no packet: a control token
    REPEAT = 14  # old READ or atomic: serve it again
    BUSY = 15  # READ or atomic, for which there is no room among those that wait for their answer; silent
    LOST = 16  # UC: the rest of a message of which a part was lost; silent
    UNSERVED = 17  # UC: what RC would answer with a NAK; silent, and the rest of the message is LOST
    LAST = 18  # no packet: a QP in ERR takes no more of its shared receive queue


class RequestCheck(wiring.Component):
    """The checks of the InfiniBand responder, in their order: PSN, opcode sequence, opcode, receive WQE, length.

    (Kernel ``rxe_resp.c``, states CHECK_PSN to CHECK_LENGTH; whether the lengths of a WRITE's packets add up, and
    whether a SEND fits its receive WQE, :class:`.recv_placement.RecvPlacement` finds out; whether a READ or an atomic
    can be served, :class:`.read_atomic_check.ReadAtomicCheck`; keys are the access check's.)

    Of UC nothing is answered. What begins a message is taken, whatever its PSN, and what goes on with one, only if
    nothing is missing between; all else is LOST (IBA 9.8). What cannot be served is dropped with its message.

    After an RNR NAK, as after the NAK of a gap, packets ahead are silent: the requester comes back by itself. Only if
    it has come back, and the packet expected is missing again (:class:`.sequence_error_tracker.SequenceErrorTracker`),
    there is another NAK.

    Inputs are sampled each cycle; outputs belong to the inputs of the cycle before.

    Parameters
    ----------
    atomics : bool
        Atomics are served; else they are invalid requests.

    Members
    -------
    request : ReceivedRequest
        The packet.
    receive : RequestState
    state, path_mtu, access
        Attributes of the QP.
    takes : 1
        The packet needs a WQE of the QP's shared receive queue.
    status, index : RingStatus, 16
        Of the QP's receive ring, and ``receive.index``; if it ``takes``, of the shared one, and of the next WQE there.
    verdict : Verdict
        EXECUTE to RING.
    wait : 1
        No verdict yet: the receive WQE is on its way. Sample again.
    again : 1
        A READ or an atomic that is asked for again.
    write, begin, end, immediate, responds : 1
        What the opcode says, if it is served. ``responds``: a READ or an atomic, of ``kind``.
    allowed : 1
        The QP's attributes allow the opcode.
    sequence_error : SequenceError
        After the packet, if it is ahead.
    find : 1
        With ``wait``: the message goes on in a WQE of a shared receive queue, and the QP's own ring does not stand
        there.
    posted : 1
        The next receive WQE is posted; of a shared receive queue the QP has one.
    flush : 1
        The QP is in ERR, and has a receive WQE to be flushed, or to say that it takes no more shared ones.
    """

    request: In(ReceivedRequest)
    receive: In(RequestState)
    state: In(4)
    path_mtu: In(4)
    access: In(4)
    takes: In(1)
    status: In(RingStatus)
    index: In(16)

    verdict: Out(Verdict)
    wait: Out(1)
    again: Out(1)
    write: Out(1)
    begin: Out(1)
    end: Out(1)
    immediate: Out(1)
    invalidates: Out(1)
    responds: Out(1)
    kind: Out(ResponseKind)
    allowed: Out(1)
    sequence_error: Out(SequenceError)
    find: Out(1)
    posted: Out(1)
    flush: Out(1)

    def __init__(self, atomics=True, keys=False):
        self.atomics = atomics
        self.keys = keys
        super().__init__()

    def elaborate(self, platform):
        m = Module()
        transport = self.request.transport
        # The opcode. Its transport is that of the QP, as the lookup has seen, and UC has the first opcodes of RC.
        unreliable = self.request.unreliable
        served = Signal()
        write = Signal()
        begin = Signal()
        end = Signal()
        immediate = Signal()
        responds = Signal()
        kind = Signal(ResponseKind)
        allowed = Signal(init=1)
        invalidates = Signal()
        with m.Switch(transport.opcode[:5]):
            for opcode in range(REQUESTS):
                place = opcode % 6
                with m.Case(opcode):
                    m.d.comb += [
                        served.eq(1),
                        write.eq(opcode >= 6),
                        begin.eq(place in (0, 4, 5)),
                        end.eq(place >= 2),
                        immediate.eq(place in (3, 5)),
                    ]
                    if opcode >= 6:
                        m.d.comb += allowed.eq((self.access & Access.REMOTE_WRITE) != 0)
            for opcode in INVALIDATES if self.keys else ():
                with m.Case(opcode):
                    m.d.comb += [served.eq(1), begin.eq(opcode & 1), end.eq(1), invalidates.eq(1)]
            for opcode, asked in RESPONSES.items():
                if asked is not ResponseKind.READ and not self.atomics:
                    continue
                right = Access.REMOTE_READ if asked is ResponseKind.READ else Access.REMOTE_ATOMIC
                with m.Case(opcode):
                    m.d.comb += [
                        served.eq(1),
                        begin.eq(1),
                        end.eq(1),
                        responds.eq(1),
                        kind.eq(asked),
                        allowed.eq((self.access & right) != 0),
                    ]
        m.d.sync += [
            self.write.eq(write),
            self.begin.eq(begin),
            self.end.eq(end),
            self.immediate.eq(immediate),
            self.invalidates.eq(invalidates),
            self.responds.eq(responds),
            self.kind.eq(kind),
            self.allowed.eq(allowed),
        ]

        # One bit for each question ...
        rejected = Signal()
        dead = Signal()
        alone = Signal()  # UC
        lost = Signal()
        behind = Signal()
        expected = Signal()
        nak_sent = Signal()
        known = Signal()
        wrong = Signal()
        unfetched = Signal()
        ring_error = Signal()
        misfit = Signal()
        needs_wqe = Signal()
        in_error = Signal()
        distance = psn_difference(transport.psn, self.receive.epsn)
        ongoing = self.receive.message
        mtu = 1 << (self.path_mtu[:3] + 7)
        m.submodules.tracker = tracker = SequenceErrorTracker()
        m.d.comb += [
            tracker.distance.eq(distance),
            tracker.state.eq(self.receive.sequence_error),
            self.sequence_error.eq(tracker.next),
        ]
        # Of a shared receive queue the QP has a WQE in the middle of a message, and needs to read it again only if the
        # entry that it has come to does not suffice.
        shared = self.request.attributes.srq & ~self.takes
        found = self.receive.wqe == SharedWqe.FOUND
        lacks = begin | (self.request.place.left < transport.length)
        has_shared, told = Signal(), Signal()
        m.d.sync += [
            has_shared.eq(shared),
            told.eq(self.receive.wqe == SharedWqe.TOLD),
            self.find.eq(shared & ~found),
        ]
        follows = transport.psn == self.receive.epsn
        disagrees = Signal()  # with what has come of the message
        receives = reduce(or_, (self.state == each for each in (QpState.RTR, QpState.RTS, QpState.SQD, QpState.SQE)))
        m.d.sync += [
            rejected.eq(~self.request.accept),
            dead.eq(self.receive.dead | ~receives),
            alone.eq(unreliable),
            lost.eq(unreliable & ~begin & (~follows | disagrees)),
            behind.eq(distance[23] & ~unreliable),
            expected.eq(follows | unreliable),
            wrong.eq(disagrees & ~unreliable),
            nak_sent.eq(self.receive.nak_sent),
            known.eq(served),
            self.posted.eq(
                Mux(
                    shared,
                    found | (self.receive.wqe == SharedWqe.HELD),
                    self.status.producer != self.index,
                )
            ),
            unfetched.eq((self.status.fetched == self.index) | (shared & ~found)),
            ring_error.eq(self.status.error & ~(shared & ~found)),
            # Also in the middle of a message: what was fetched may have been forgotten since.
            needs_wqe.eq(Mux(write | responds, immediate & write & ~shared, ~shared | lacks)),
            in_error.eq(self.state == QpState.ERR),
        ]
        with m.If(begin):
            m.d.comb += disagrees.eq(ongoing != Message.NONE)
        with m.Elif(write):
            m.d.comb += disagrees.eq(ongoing != Message.WRITE)
        with m.Else():
            m.d.comb += disagrees.eq(ongoing != Message.SEND)
        with m.If(~end):
            m.d.sync += misfit.eq(transport.length != mtu)
        with m.Elif(responds):
            m.d.sync += misfit.eq(transport.length != 0)
        with m.Else():
            m.d.sync += misfit.eq((transport.length > mtu) | ((transport.length == 0) & ~begin))

        m.d.comb += self.again.eq(~rejected & ~dead & behind & known & self.responds & self.allowed)

        # ... and the first that objects decides.
        with m.If(rejected):
            m.d.comb += self.verdict.eq(Verdict.REJECTED)
        with m.Elif(dead):
            m.d.comb += self.verdict.eq(Verdict.DEAD)
        with m.Elif(lost):
            m.d.comb += self.verdict.eq(Verdict.LOST)
        with m.Elif(behind):
            with m.If(known):
                m.d.comb += self.verdict.eq(Verdict.DUPLICATE)
            with m.Else():
                m.d.comb += self.verdict.eq(Verdict.STALE)
        with m.Elif(~expected):
            with m.If(nak_sent & ~tracker.renewed):
                m.d.comb += self.verdict.eq(Verdict.AHEAD)
            with m.Else():
                m.d.comb += self.verdict.eq(Verdict.SEQUENCE)
        with m.Elif(~known | wrong):
            m.d.comb += self.verdict.eq(Mux(alone, Verdict.UNSERVED, Verdict.INVALID))
        with m.Elif(~self.allowed):
            m.d.comb += self.verdict.eq(Mux(alone, Verdict.UNSERVED, Verdict.ACCESS))
        with m.Elif(needs_wqe & unfetched & ring_error):
            m.d.comb += self.verdict.eq(Verdict.RING)
        with m.Elif(needs_wqe & ~self.posted):
            m.d.comb += self.verdict.eq(Mux(alone, Verdict.UNSERVED, Verdict.NOT_READY))
        with m.Elif(needs_wqe & unfetched):
            m.d.comb += self.wait.eq(1)
        with m.Elif(misfit):
            m.d.comb += self.verdict.eq(Mux(alone, Verdict.UNSERVED, Verdict.INVALID))
        with m.Else():
            m.d.comb += self.verdict.eq(Verdict.EXECUTE)

        # What was never fetched has to be flushed too.
        with m.If(has_shared):
            m.d.comb += self.flush.eq(in_error & ~told)
        with m.Else():
            m.d.comb += self.flush.eq(in_error & self.posted & (~unfetched | ring_error))
        return m
