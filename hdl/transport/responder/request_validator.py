"""All checks of a request, and the job, response entry and receive state that follow from them."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ...queue.wqe_fetcher import RingStatus
from ...wire.packet_header import Deth
from ..common.aeth import NO_CREDITS, encode_credits
from ..common.layouts import READ_EXTENT, Job, ResponseEntry, ResponseKind
from ..receive.layouts import ReceivedRequest, RequestState
from .read_atomic_check import ReadAtomicCheck
from .request_check import RequestCheck, Verdict
from .request_outcome import RequestOutcome

__all__ = ["RequestValidator"]


class RequestValidator(wiring.Component):
    """The checks of a request and the answer to it, as a pipeline beside :class:`.recv_placement.RecvPlacement`: a
    first verdict, which the placement needs, then the late objections, and at last the job with the QP's new state.

    Everything that is looked at must stay from the cycle before ``decide`` on, until the request is done with. Then
    ``place`` for as long as the placement works, at least 2 cycles.

    Parameters
    ----------
    atomics : bool
        See :class:`.request_check.RequestCheck`.

    Members
    -------
    request : ReceivedRequest
        The packet, if it is one, and its QP's context.
    status : RingStatus
        Of the QP's receive ring.
    index, takes, id : 16, 1, 16
        As of :class:`.request_check.RequestCheck` and :class:`.request_outcome.RequestOutcome`; ``id`` behind
        ``place``.
    lapse : 1
        With ``token``: a WQE of a shared receive queue is flushed.
    served
        Entries of the QP that are answered, modulo 256.
    room : 1
        A QP that has unanswered entries may have another one.
    decide : 1
        Strobe: take the verdict.
    flush, token : 1
        With ``decide``, or ``token`` alone: it is no packet, it is a receive WQE to be flushed, or a token.
    wait : 1
        In the cycle of ``decide``: there is no verdict yet, because the receive WQE is on its way; or, with ``find``,
        because the QP's own ring must be set to it.
    again : 1
        In the cycle of ``decide``: it is a READ or an atomic that is asked for again.
    crowded : 1
        In the cycle of ``decide``: it is a READ or an atomic that could be served if there were room.
    flushable : 1
        In the cycle of ``decide``: the QP is in ERR, and has a receive WQE to be flushed.
    execute : 1
        From the cycle after ``decide`` on: the payload is wanted.
    write, begin, end : 1
        What the opcode says.
    place : 1
        The placement works.
    misfit, too_long, byte_length
        The placement's, valid in the last cycle of ``place``.
    job : Job
        Behind ``place``.
    next : RequestState
        The same, the new state.
    consume, take : 1
        The same: the receive WQE ``index`` of the QP's state, or ``id``, is used up; that of a shared receive queue is
        taken.
    left : 16
        The same: receive WQEs that are left.
    entry
        The same, if the job is a release: what is to be answered.
    count_drop_sequence, count_drop_duplicate, count_drop_busy : 1
        The verdict is one that counts so.
    """

    request: In(ReceivedRequest)
    status: In(RingStatus)
    index: In(16)
    takes: In(1)
    id: In(16)
    lapse: In(1)
    served: In(5)
    room: In(1)
    decide: In(1)
    flush: In(1)
    token: In(1)
    wait: Out(1)
    find: Out(1)
    again: Out(1)
    crowded: Out(1)
    flushable: Out(1)
    execute: Out(1)
    write: Out(1)
    begin: Out(1)
    end: Out(1)
    place: In(1)
    misfit: In(1)
    too_long: In(1)
    byte_length: In(32)
    job: Out(Job)
    next: Out(RequestState)
    consume: Out(1)
    take: Out(1)
    left: Out(16)
    entry: Out(ResponseEntry)
    count_drop_sequence: Out(1)
    count_drop_duplicate: Out(1)
    count_drop_busy: Out(1)

    def __init__(self, atomics=True, keys=False):
        self.atomics = atomics
        self.keys = keys
        super().__init__()

    def elaborate(self, platform):
        m = Module()
        m.submodules.check = check = RequestCheck(self.atomics, self.keys)
        m.submodules.read_atomic = read_atomic = ReadAtomicCheck()
        m.submodules.outcome = outcome = RequestOutcome()
        transport, attributes = self.request.transport, self.request.attributes
        state = self.request.state

        # One bit a verdict: what decodes it must be quick.
        verdict = Signal(len(Verdict))
        posted = Signal()
        with m.If(self.token):
            m.d.sync += verdict.eq(1 << Verdict.TOKEN.value)
        with m.Elif(self.decide):
            # What was never fetched of a shared receive queue stays there.
            m.d.sync += posted.eq(check.posted & ~(self.takes & (check.verdict == Verdict.RING)))
            with m.If(self.flush):
                last = attributes.srq & ~check.posted
                m.d.sync += verdict.eq(Mux(last, 1 << Verdict.LAST.value, 1 << Verdict.FLUSH.value))
            with m.Else():
                m.d.sync += verdict.eq(1 << check.verdict.as_value())
        with m.If(self.decide | self.token):
            m.d.sync += self.execute.eq(
                (check.verdict == Verdict.EXECUTE) & ~check.responds & self.decide & ~self.flush
            )

        unreliable = Signal()  # from a register, as much hangs on it, and it is there long before the placement works
        m.d.sync += unreliable.eq(self.request.unreliable)

        def is_(which):
            return verdict[which.value]

        m.d.comb += [
            check.request.eq(self.request),
            check.receive.eq(state),
            check.state.eq(attributes.state),
            check.path_mtu.eq(attributes.path_mtu),
            check.access.eq(attributes.access),
            check.index.eq(self.index),
            check.takes.eq(self.takes),
            check.status.eq(self.status),
            self.wait.eq(check.wait),
            self.find.eq(check.find),
            self.again.eq(check.again),
            self.crowded.eq(read_atomic.crowded & (check.again | (check.verdict == Verdict.EXECUTE))),
            self.flushable.eq(check.flush),
            self.write.eq(check.write),
            self.begin.eq(check.begin),
            self.end.eq(check.end),
            read_atomic.transport.eq(transport),
            read_atomic.kind.eq(check.kind),
            read_atomic.responds.eq(check.responds),
            read_atomic.path_mtu.eq(attributes.path_mtu),
            read_atomic.max_dest_rd_atomic.eq(attributes.max_dest_rd_atomic),
            read_atomic.receive.eq(state),
            read_atomic.served.eq(self.served),
            read_atomic.room.eq(self.room),
            self.count_drop_sequence.eq(is_(Verdict.SEQUENCE) | is_(Verdict.AHEAD) | is_(Verdict.LOST)),
            self.count_drop_duplicate.eq(is_(Verdict.DUPLICATE) | is_(Verdict.STALE)),
        ]

        # Receive WQEs left after this packet, and a cycle later their code; if it is refused nobody wants to know.
        left = self.left
        credits = Signal(5)
        uses = Signal()
        m.d.comb += uses.eq(self.takes | (self.execute & check.end & (~check.write | check.immediate)))
        with m.If(self.place):
            m.d.sync += [
                left.eq((Cat(1, self.status.producer) + Cat(~uses, ~self.index))[1:]),
                credits.eq(Mux(attributes.srq, NO_CREDITS, encode_credits(left))),
            ]

        m.d.comb += [
            self.count_drop_busy.eq(outcome.busy),
            outcome.update.eq(self.place),
            outcome.verdict.eq(verdict),
            outcome.misfit.eq(self.misfit),
            outcome.too_long.eq(self.too_long),
            outcome.invalid.eq(read_atomic.invalid),
            outcome.full.eq(read_atomic.full),
            outcome.stale.eq(read_atomic.stale),
            outcome.mixed.eq(read_atomic.mixed),
            outcome.unreliable.eq(unreliable),
            outcome.datagram.eq(self.request.datagram),
            outcome.allowed.eq(check.allowed),
            outcome.responds.eq(check.responds),
            outcome.write.eq(check.write),
            outcome.end.eq(check.end),
            outcome.immediate.eq(check.immediate),
            outcome.invalidates.eq(check.invalidates),
            outcome.qp.eq(self.request.qp),
            outcome.byte_length.eq(self.byte_length),
            outcome.credits.eq(credits),
            outcome.transport.eq(transport),
            outcome.receive.eq(state),
            outcome.after.eq(read_atomic.after),
            outcome.sequence_error.eq(check.sequence_error),
            outcome.posted.eq(posted),
            outcome.shared.eq(attributes.srq),
            outcome.takes.eq(self.takes),
            outcome.id.eq(self.id),
            outcome.lapse.eq(self.lapse),
            outcome.rnr_timer.eq(attributes.min_rnr_timer),
            self.job.eq(outcome.job),
            self.job.cq.eq(attributes.rq_cqn),
            self.job.qpn.eq(attributes.qpn),
            self.job.pd.eq(attributes.pd if self.keys else 0),
            self.job.source_qpn.eq(
                Mux(self.request.datagram, data.View(Deth, transport.address).source_qpn, attributes.dest_qpn)
            ),
            self.job.source.eq(self.request.source),
            self.next.eq(outcome.next),
            self.consume.eq(outcome.consume),
            self.take.eq(outcome.take),
        ]
        m.d.comb += [
            self.entry.kind.eq(check.kind),
            self.entry.path_mtu.eq(attributes.path_mtu),
            self.entry.pd.eq(attributes.pd),
            self.entry.psn.eq(transport.psn),
            self.entry.msn.eq(outcome.next.msn),
            self.entry.credits.eq(credits),
            self.entry.address.eq(transport.address),
            self.entry.rkey.eq(transport.rkey),
            self.entry.swap.eq(self.request.swap),
            self.entry.compare.eq(self.request.compare),
        ]
        with m.If(check.kind == ResponseKind.READ):
            extent = data.View(READ_EXTENT, self.entry.swap)
            m.d.comb += [extent.length.eq(transport.dma_length), extent.after.eq(read_atomic.after)]
        with m.If(is_(Verdict.DUPLICATE)):
            again = Mux(check.kind == ResponseKind.READ, ResponseKind.REPEAT, ResponseKind.REPLAY)
            m.d.comb += self.entry.kind.eq(again)
        return m
