"""What follows from a verdict: the answer, the completion, and the QP's new receive state."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..abi.cqe import CqeFlag, Syndrome, WcOpcode, WcStatus
from ..abi.eqe import EventType
from ..roce.packet_header import TransportHeader
from .aeth import AethSyndrome
from .layouts import Job
from .psn import psn_next
from .request_check import Message, ReceiveState, Verdict

__all__ = ["NO_EVENT", "Answer"]

NO_EVENT = 255
"""``event`` of an error that a completion reports."""

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


class Answer(wiring.Component):
    """Combinational: composes the job, and the receive state that holds from then on.

    An executed packet is acknowledged if it asks for it, a duplicate always, with the newest PSN that was acknowledged.
    The MSN counts messages of which the last packet was executed.

    Members
    -------
    verdict : Verdict
    qp
    transport : TransportHeader
        Of the packet, if there is one.
    write, end, immediate : 1
        What its opcode says.
    receive : ReceiveState
        Before the packet.
    posted : 1
        There is a receive WQE ``receive.index``.
    rnr_timer, byte_length
        What goes into an RNR NAK and into a completion.
    job : Job
    next : ReceiveState
        After it.
    consume : 1
        The receive WQE ``receive.index`` is used up.
    """

    verdict: In(Verdict)
    qp: In(12)
    transport: In(TransportHeader)
    write: In(1)
    end: In(1)
    immediate: In(1)
    receive: In(ReceiveState)
    posted: In(1)
    rnr_timer: In(5)
    byte_length: In(32)

    job: Out(Job)
    next: Out(ReceiveState)
    consume: Out(1)

    def elaborate(self, platform):
        m = Module()
        job = self.job
        execute = Signal()
        in_wqe = Signal()  # the message has a receive WQE
        m.d.comb += [
            execute.eq(self.verdict == Verdict.EXECUTE),
            in_wqe.eq(~self.write | self.immediate),
            job.qp.eq(self.qp),
            job.psn.eq(self.receive.epsn),
            job.msn.eq(self.next.msn),
            job.receive.eq(in_wqe),
            job.opcode.eq(WcOpcode.RECV),
            job.flags.eq(Mux(self.immediate, CqeFlag.WITH_IMM, 0)),
            job.solicited.eq(self.transport.solicited),
            job.wqe_index.eq(self.receive.index),
            job.immediate.eq(self.transport.immediate),
            job.byte_length.eq(self.byte_length),
            job.remote.eq(self.write),
            job.event.eq(NO_EVENT),
            self.next.eq(self.receive),
        ]
        with m.Switch(self.verdict):
            with m.Case(Verdict.EXECUTE):
                m.d.comb += [
                    job.acknowledge.eq(self.transport.ack_request),
                    job.syndrome.eq(AethSyndrome.ACK),
                    job.complete.eq(self.end & in_wqe),
                    self.next.epsn.eq(psn_next(self.receive.epsn)),
                    self.next.msn.eq(self.receive.msn + self.end),
                    self.next.message.eq(Mux(self.write, Message.WRITE, Message.SEND)),
                    self.next.nak_sent.eq(0),
                    self.consume.eq(self.end & in_wqe),
                ]
                with m.If(self.end):
                    m.d.comb += self.next.message.eq(Message.NONE)
                with m.If(self.write):
                    m.d.comb += job.opcode.eq(WcOpcode.RECV_RDMA_WITH_IMM)
            with m.Case(Verdict.DUPLICATE):
                m.d.comb += [
                    job.acknowledge.eq(1),
                    job.syndrome.eq(AethSyndrome.ACK),
                    job.psn.eq(psn_next(self.receive.epsn, -1)),
                ]
            with m.Case(Verdict.REJECTED, Verdict.STALE, Verdict.AHEAD):
                m.d.comb += job.silent.eq(1)
            with m.Case(Verdict.DEAD):
                m.d.comb += [job.silent.eq(1), job.cause.eq(Syndrome.FLUSHED)]
            with m.Case(Verdict.TOKEN):
                m.d.comb += [job.token.eq(1), self.next.eq(0)]
            with m.Default():
                pass
        for verdict, syndrome in NAKS.items():
            with m.If(self.verdict == verdict):
                m.d.comb += [job.acknowledge.eq(1), job.syndrome.eq(syndrome)]
                if verdict is Verdict.NOT_READY:
                    m.d.comb += job.syndrome.eq(AethSyndrome.RNR | self.rnr_timer)
                if verdict in EVENTS:
                    m.d.comb += [job.fatal.eq(1), job.event.eq(EVENTS[verdict]), self.next.dead.eq(1)]
                else:
                    m.d.comb += self.next.nak_sent.eq(1)
        for verdict, (status, cause) in COMPLETIONS.items():
            with m.If((self.verdict == verdict) & self.posted):
                m.d.comb += [job.complete.eq(1), job.status.eq(status), job.cause.eq(cause), self.consume.eq(1)]
        with m.If(self.consume):
            m.d.comb += self.next.index.eq(self.receive.index + 1)
        return m
