"""What follows from a report of a pipeline: the queue pair fails, and the host is told."""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ..abi.commands import QpAction
from ..abi.contexts import QP_CONTEXT, QpState, QpType
from ..abi.eqe import EventType
from ..stream.record import word_layout
from ..stream.transfer import NO_EVENT, SEND_FAILED, Event, QpError

__all__ = ["ReportHandler"]


class ReportHandler(wiring.Component):
    """Moves the QP of a report to ERR, unless it is there or gone already, sends the token ERROR, and makes an event of
    the report. If it is the send queue of a UC or UD QP that has failed, that goes to SQE (IBA 10.3.1) with the token
    SEND_ERROR: its receive queue goes on.

    SQ_DRAINED is no error: it is told if the QP is in SQD, and changes nothing. QP_LAST_WQE_REACHED is told of a QP in
    ERR alone, when completions have moved for long enough.

    Parameters
    ----------
    srqs, unreliable : bool
        There are shared receive queues; QPs that are not RC.

    Members
    -------
    may : 1
        A report may be begun with: contexts and tokens are free until it is not ``busy``.
    report : stream of ``QpError``
        Taken when all is done.
    busy : 1
        From the cycle after it was begun with.
    look, looked, qpn, first : 1, 1, 24, word 0
        Of a :class:`.qp_look.QpLook`, for the QP of ``report``.
    write, value, moving : 1, 32, 1
        Strobe: ``value`` becomes word 0 of the QP; ``moving`` is ``busy`` of a :class:`.context_mover.ContextMover`.
    token, action, taken : 1, ``QpAction``, 1
        The token; it has been said.
    settle, settled : 1
        Of a :class:`.quiet.Quiet`: ``settled`` is its ``over``.
    event : stream of ``Event``
    """

    def __init__(self, *, srqs=False, unreliable=True):
        self.srqs = srqs
        self.unreliable = unreliable
        super().__init__(
            {
                "may": In(1),
                "report": In(stream.Signature(QpError)),
                "busy": Out(1),
                "look": Out(1),
                "looked": In(1),
                "qpn": In(QP_CONTEXT.fields["qpn"].width),
                "first": In(word_layout(QP_CONTEXT, [0])),
                "write": Out(1),
                "value": Out(32),
                "moving": In(1),
                "token": Out(1),
                "action": Out(QpAction),
                "taken": In(1),
                "settle": Out(1),
                "settled": In(1),
                "event": Out(stream.Signature(Event)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        report, state = self.report.payload, self.first.state
        told, sends = Signal(), Signal()  # the report is an event; it is about the send queue
        sending_fails = Signal()  # of the send queue alone
        to = Signal(4)  # the new state
        m.d.sync += [told.eq((report.event != NO_EVENT) & (report.event != SEND_FAILED))]
        m.d.comb += [
            self.action.eq(QpAction.ERROR),
            to.eq(QpState.ERR),
            self.value.eq(Cat(to, self.first.as_value()[len(to) :])),
            self.event.payload.type.eq(report.event),
            self.event.payload.number.eq(self.qpn),
        ]
        lives = (state == QpState.RTR) | (state == QpState.RTS) | (state == QpState.SQD)
        if self.unreliable:
            lives |= state == QpState.SQE
            m.d.sync += sends.eq(report.event == SEND_FAILED)
            m.d.comb += sending_fails.eq(sends & (self.first.type != QpType.RC))
            with m.If(sending_fails):
                m.d.comb += [self.action.eq(QpAction.SEND_ERROR), to.eq(QpState.SQE)]
        with m.FSM() as fsm:
            m.d.comb += [
                self.busy.eq(~fsm.ongoing("IDLE")),
                self.look.eq(fsm.ongoing("LOOK")),
                self.write.eq(fsm.ongoing("WRITE")),
                self.token.eq(fsm.ongoing("TOKEN")),
                self.report.ready.eq(fsm.ongoing("DONE")),
            ]
            with m.State("IDLE"), m.If(self.may & self.report.valid):
                m.next = "LOOK"
            with m.State("LOOK"):
                m.next = "LOOKED"
            with m.State("LOOKED"), m.If(self.looked):
                m.next = "DONE"
                with m.If(report.event == EventType.SQ_DRAINED):
                    with m.If(state == QpState.SQD):
                        m.next = "EVENT"
                if self.srqs:
                    with m.Elif(report.event == EventType.QP_LAST_WQE_REACHED):
                        with m.If(state == QpState.ERR):
                            m.d.comb += self.settle.eq(1)
                            m.next = "SETTLE"
                with m.Elif(lives):
                    m.next = "WRITE"
            with m.State("WRITE"):
                m.next = "WRITING"
            with m.State("WRITING"), m.If(~self.moving):
                m.next = "TOKEN"
            with m.State("TOKEN"), m.If(self.taken):
                m.next = "EVENT"
            if self.srqs:
                with m.State("SETTLE"), m.If(self.settled):
                    m.next = "EVENT"
            with m.State("EVENT"):
                m.d.comb += self.event.valid.eq(told)
                with m.If(self.event.ready | ~told):
                    m.next = "DONE"
            with m.State("DONE"):
                m.next = "IDLE"
        return m
