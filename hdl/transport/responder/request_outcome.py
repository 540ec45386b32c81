"""What follows from a verdict: the answer, the completion, and the QP's new receive state."""

from functools import reduce
from operator import or_

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ...abi.cqe import CqeFlag, Syndrome, WcOpcode, WcStatus
from ...abi.eqe import EventType
from ...stream.transfer import NO_EVENT
from ...wire.packet_header import TransportHeader
from ..common.aeth import AethSyndrome
from ..common.layouts import Job
from ..common.psn import PSN_BITS
from ..receive.layouts import Message, RequestState, SharedWqe
from .request_check import Verdict
from .sequence_error_tracker import SequenceError

__all__ = ["RequestOutcome"]

NAKS = {
    Verdict.SEQUENCE: AethSyndrome.NAK_SEQUENCE,
    Verdict.INVALID: AethSyndrome.NAK_INVALID_REQUEST,
    Verdict.ACCESS: AethSyndrome.NAK_REMOTE_ACCESS,
    Verdict.NOT_READY: AethSyndrome.RNR,
    Verdict.RING: AethSyndrome.NAK_REMOTE_OPERATION,
    Verdict.TOO_LONG: AethSyndrome.NAK_INVALID_REQUEST,
}

# The asynchronous event of a fatal error; an error that a completion reports has none (InfiniBand, responder class C).
EVENTS = {
    Verdict.INVALID: EventType.QP_REQ_ERR,
    Verdict.ACCESS: EventType.QP_ACCESS_ERR,
    Verdict.RING: EventType.QP_FATAL,
    Verdict.TOO_LONG: NO_EVENT,
}

# Completions that do not wait for a message.
COMPLETIONS = {
    Verdict.RING: (WcStatus.LOC_QP_OP_ERR, Syndrome.RING_BUS),
    Verdict.TOO_LONG: (WcStatus.LOC_LEN_ERR, Syndrome.RECV_TOO_SHORT),
    Verdict.FLUSH: (WcStatus.WR_FLUSH_ERR, Syndrome.FLUSHED),
}

SILENT = (
    Verdict.REJECTED,
    Verdict.DEAD,
    Verdict.STALE,
    Verdict.AHEAD,
    Verdict.BUSY,
    Verdict.LOST,
    Verdict.UNSERVED,
)


class RequestOutcome(wiring.Component):
    """Composes the job, and the receive state that holds from then on.

    An executed packet is acknowledged if it asks for it, a duplicate always, with the newest PSN that was executed. But
    no ACK has the PSN of a READ or an atomic, for which it is no answer, and which Linux takes for complete then, with
    no data: if that is the newest, a duplicate is acknowledged with its own PSN. The MSN counts messages of which the
    last packet was executed. A READ or an atomic is not acknowledged, it is answered: its job releases the response.

    UC answers nothing, and lets no message go on of which something was not executed.

    Inputs are sampled while ``update`` is high; outputs belong to the last ones, but for what is said to follow at
    once.

    Members
    -------
    update : 1
    verdict
        The first one, a bit for each :class:`.request_check.Verdict`. Late objections overrule EXECUTE and DUPLICATE:
    misfit, too_long : 1
        Of the placement: lengths of a WRITE, a SEND that did not fit.
    invalid, full, stale, mixed : 1
        Of the response check.
    invalidates : 1
        The opcode is one with invalidate.
    unreliable, datagram : 1
        It is of UC or UD; of UD.
    allowed, responds, write, end, immediate : 1
        What the packet's opcode says. Goes into ``job`` at once, as the next ones do.
    qp, byte_length, credits
        ``credits`` is the code of an ACK.
    transport : TransportHeader
        Of the packet, if there is one.
    receive : RequestState
        Before the packet. Also goes into ``next`` at once.
    after
        First PSN behind the packet.
    sequence_error : SequenceError
        After the packet, if it is ahead.
    posted : 1
        There is a receive WQE ``receive.index``, or, in a shared receive queue, ``id``.
    shared, takes, id : 1, 1, 16
        The QP has a shared receive queue; it takes a WQE there, this one. ``id`` goes into ``job`` and ``next`` at
        once.
    lapse : 1
        With TOKEN: the WQE that the QP has of the shared receive queue is flushed.
    rnr_timer
        What goes into an RNR NAK.
    job : Job
    next : RequestState
        After it.
    busy : 1
        The packet was dropped for want of room.
    consume : 1
        The receive WQE ``receive.index``, or ``id``, is used up.
    take : 1
        The WQE of the shared receive queue is taken.
    """

    update: In(1)
    verdict: In(len(Verdict))
    misfit: In(1)
    too_long: In(1)
    invalid: In(1)
    full: In(1)
    stale: In(1)
    mixed: In(1)
    unreliable: In(1)
    datagram: In(1)
    allowed: In(1)
    responds: In(1)
    write: In(1)
    end: In(1)
    immediate: In(1)
    invalidates: In(1)
    qp: In(12)
    byte_length: In(32)
    credits: In(5)
    transport: In(TransportHeader)
    receive: In(RequestState)
    after: In(PSN_BITS)
    sequence_error: In(SequenceError)
    posted: In(1)
    shared: In(1)
    takes: In(1)
    id: In(16)
    lapse: In(1)
    rnr_timer: In(5)

    job: Out(Job)
    next: Out(RequestState)
    consume: Out(1)
    take: Out(1)
    busy: Out(1)

    def elaborate(self, platform):
        m = Module()
        receive = self.receive
        first = {verdict: self.verdict[verdict.value] for verdict in Verdict}
        in_wqe = Signal()  # the message has a receive WQE
        m.d.comb += in_wqe.eq(~self.responds & (~self.write | self.immediate))

        # The late objections exclude each other, but that `full` counts last. `is_[verdict]`: all things considered.
        is_ = {verdict: Signal(name=f"is_{verdict.name.lower()}") for verdict in Verdict}
        late, refused = Signal(), Signal()
        answers = ~self.unreliable
        old = first[Verdict.DUPLICATE]
        again = Signal()
        m.d.comb += [is_[verdict].eq(first[verdict]) for verdict in Verdict]
        m.d.comb += [
            late.eq(self.misfit | self.invalid),
            refused.eq(late | self.too_long),
            again.eq(~self.stale & self.allowed),
            is_[Verdict.EXECUTE].eq(first[Verdict.EXECUTE] & ~(refused | self.full)),
            is_[Verdict.INVALID].eq(first[Verdict.INVALID] | (first[Verdict.EXECUTE] & late & answers)),
            is_[Verdict.TOO_LONG].eq(first[Verdict.EXECUTE] & self.too_long & answers),
            is_[Verdict.UNSERVED].eq(first[Verdict.UNSERVED] | (first[Verdict.EXECUTE] & refused & self.unreliable)),
            is_[Verdict.BUSY].eq(first[Verdict.EXECUTE] & self.full & ~self.invalid),
            is_[Verdict.DUPLICATE].eq(old & ~self.responds),
            is_[Verdict.REPEAT].eq(old & self.responds & again),
            is_[Verdict.STALE].eq(first[Verdict.STALE] | (old & self.responds & ~again)),
        ]

        def any_of(*verdicts):
            return Cat(is_[verdict] for verdict in verdicts).any()

        def choose(values):
            """The value of the verdict that holds; 0 if that has none."""
            terms = [Mux(is_[verdict], value, 0) for verdict, value in values.items()]
            return reduce(or_, terms)

        execute = is_[Verdict.EXECUTE]
        job = Signal(Job)
        fresh = Signal(RequestState)
        consume, take = Signal(), Signal()
        m.d.comb += [
            job.acknowledge.eq(
                (any_of(Verdict.DUPLICATE, *NAKS) | (execute & self.transport.ack_request & ~self.responds)) & answers
            ),
            job.release.eq(is_[Verdict.REPEAT] | (execute & self.responds)),
            job.silent.eq(any_of(*SILENT)),
            job.token.eq(is_[Verdict.TOKEN]),
            job.syndrome.eq(choose(NAKS) | Mux(is_[Verdict.NOT_READY], self.rnr_timer, 0)),
            job.fatal.eq(any_of(*EVENTS)),
            job.event.eq(choose(EVENTS | {Verdict.LAST: EventType.QP_LAST_WQE_REACHED})),
            job.last.eq(is_[Verdict.LAST]),
            job.complete.eq(
                (execute & self.end & in_wqe) | (any_of(*COMPLETIONS) & self.posted) | (is_[Verdict.TOKEN] & self.lapse)
            ),
            job.status.eq(
                choose(
                    {verdict: status for verdict, (status, _) in COMPLETIONS.items()}
                    | {Verdict.TOKEN: WcStatus.WR_FLUSH_ERR}
                )
            ),
            job.cause.eq(
                choose(
                    {Verdict.DEAD: Syndrome.FLUSHED, Verdict.UNSERVED: Syndrome.FLUSHED}
                    | {verdict: cause for verdict, (_, cause) in COMPLETIONS.items()}
                )
            ),
            consume.eq(job.complete),
            take.eq(self.takes & (execute | consume)),
            job.psn.eq(receive.epsn - is_[Verdict.DUPLICATE]),
            fresh.eq(receive),
            fresh.mixed.eq(Mux(execute, self.mixed, receive.mixed | is_[Verdict.REPEAT])),
            fresh.nak_sent.eq(~execute & (receive.nak_sent | any_of(Verdict.SEQUENCE, Verdict.NOT_READY))),
            fresh.dead.eq(receive.dead | job.fatal),
        ]
        with m.If(is_[Verdict.REPEAT] | (is_[Verdict.DUPLICATE] & receive.asked)):
            m.d.comb += job.psn.eq(self.transport.psn)
        with m.If(any_of(Verdict.LOST, Verdict.UNSERVED)):
            m.d.comb += [fresh.epsn.eq(self.after), fresh.message.eq(Message.NONE)]
        with m.If(execute):
            m.d.comb += [
                fresh.epsn.eq(self.after),
                fresh.asked.eq(self.responds),
                fresh.message.eq(Mux(self.end, Message.NONE, Mux(self.write, Message.WRITE, Message.SEND))),
            ]
        with m.If(is_[Verdict.LAST]):
            m.d.comb += fresh.wqe.eq(SharedWqe.TOLD)
        with m.Elif(consume):
            m.d.comb += fresh.wqe.eq(SharedWqe.NONE)
        with m.Elif(take):
            m.d.comb += fresh.wqe.eq(SharedWqe.HELD)
        with m.If(first[Verdict.EXECUTE] | first[Verdict.NOT_READY]):
            m.d.comb += fresh.sequence_error.eq(0)
        with m.Elif(first[Verdict.SEQUENCE] | first[Verdict.AHEAD]):
            m.d.comb += fresh.sequence_error.eq(self.sequence_error)

        decided = ("acknowledge", "release", "psn", "silent", "complete", "status", "cause", "token", "fatal", "event")
        decided += ("last",)
        kept = Signal(Job)
        after = Signal(RequestState)
        completed = Signal()
        syndrome = Signal(8)
        with_credits = Signal()
        with m.If(self.update):
            m.d.sync += [kept[name].eq(job[name]) for name in decided]
            m.d.sync += [
                completed.eq(execute & self.end),
                self.consume.eq(consume),
                self.take.eq(take),
                self.busy.eq(is_[Verdict.BUSY]),
                syndrome.eq(job.syndrome),
                with_credits.eq(execute | is_[Verdict.DUPLICATE]),
                after.eq(fresh),
            ]
        index = Signal(16)
        m.d.comb += index.eq(Mux(self.takes, self.id, receive.index))
        # What is counted is added behind the registers.
        with m.If(~kept.token):
            m.d.comb += [
                self.next.eq(after),
                self.next.msn.eq(receive.msn + completed),
                self.next.index.eq(Mux(self.shared, index, receive.index + self.consume)),
                self.next.taken.eq(receive.taken + kept.release),
            ]

        m.d.comb += [
            self.job.eq(kept),
            self.job.qp.eq(self.qp),
            self.job.syndrome.eq(syndrome | Mux(with_credits, self.credits, 0)),
            self.job.msn.eq(self.next.msn),
            self.job.receive.eq(in_wqe),
            self.job.opcode.eq(Mux(self.write, WcOpcode.RECV_RDMA_WITH_IMM, WcOpcode.RECV)),
            self.job.flags.eq(
                Mux(self.immediate, CqeFlag.WITH_IMM, 0)
                | Mux(self.datagram, CqeFlag.GRH, 0)
                | Mux(self.invalidates, CqeFlag.WITH_INV, 0)
            ),
            self.job.invalidate.eq(self.invalidates & completed),
            self.job.solicited.eq(self.transport.solicited),
            self.job.wqe_index.eq(index),
            self.job.immediate.eq(self.transport.immediate),
            self.job.byte_length.eq(self.byte_length),
            self.job.remote.eq(self.write),
            self.job.unreliable.eq(self.unreliable),
        ]
        return m
