"""What the completer has to deal with, one thing at a time."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.wiring import In, Out

from ..abi.commands import QpAction
from ..stream.transfer import Done, QpControl
from .layouts import Failure, Flush, ResponseJob, ResponseJobKind, TimerFired

__all__ = ["EventKind", "SendEvent", "SendEvents"]


class EventKind(enum.Enum):
    """What happens to a send queue."""

    CONTROL = 0
    FAILURE = 1
    FLUSH = 2
    FIRED = 3
    RESPONSE = 4


SendEvent = data.StructLayout(
    {
        "kind": EventKind,
        "qp": 12,
        "index": 16,  # FAILURE, FLUSH, RESPONSE: a WQE
        "status": 8,  # FAILURE, RESPONSE
        "syndrome": 8,  # FAILURE, RESPONSE
        "drain": 1,  # FLUSH
        "generation": 4,  # FIRED
    }
)


class SendEvents(wiring.Component):
    """Takes the next event while ``idle``: a control token first, then failures, flushes, timers, and responses last,
    so that what stops a queue comes before what feeds it.

    A response is a job with its ``Done``. Those that need no QP, NOTHING and TOKEN, go by without an event. A control
    token stays where it is until ``control_taken``; a QUERY waits while ``replying`` and lets others pass.

    Members
    -------
    control, failed_requester, failed_transmitter, flush, fired, job, done
        See :class:`.completer.Completer`.
    idle : 1
    begin : 1
        An event is taken in this cycle: a response at the earliest in that in which it is there, others in the next.
    next, event : ``SendEvent``
        The one that is taken now, or would be; the last one taken, from the cycle after ``begin`` on.
    control_taken, replying : 1
    token_done : 1
        One cycle after a job TOKEN was taken.
    discarded : 1
        A job NOTHING is taken.
    """

    control: In(stream.Signature(QpControl))
    failed_requester: In(stream.Signature(Failure))
    failed_transmitter: In(stream.Signature(Failure))
    flush: In(stream.Signature(Flush))
    fired: In(stream.Signature(TimerFired))
    job: In(stream.Signature(ResponseJob))
    done: In(stream.Signature(Done))
    idle: In(1)
    begin: Out(1)
    next: Out(SendEvent)
    event: Out(SendEvent)
    control_taken: In(1)
    replying: In(1)
    token_done: Out(1)
    discarded: Out(1)

    def elaborate(self, platform):
        m = Module()
        chosen, event = self.next, self.event
        control, response = Signal(), Signal()
        query = self.control.payload.action == QpAction.QUERY
        nothing, token = Signal(), Signal()
        m.d.comb += [
            self.control.ready.eq(self.control_taken),
            control.eq(self.control.valid & ~(query & self.replying)),
            nothing.eq(self.job.payload.kind == ResponseJobKind.NOTHING),
            token.eq(self.job.payload.kind == ResponseJobKind.TOKEN),
            response.eq(self.job.valid & self.done.valid),
        ]
        # Whose turn it is if it is not a response's, a bit each: chosen a cycle before it counts.
        ports = (self.failed_requester, self.failed_transmitter, self.flush, self.fired)
        turn, waiting = Signal(1 + len(ports)), Signal(1 + len(ports))
        others = turn.any()
        m.d.comb += waiting.eq(Cat(control & ~self.control_taken, *(port.valid for port in ports)))
        m.d.sync += turn.eq(Mux(self.begin, 0, waiting & -waiting))
        m.d.comb += [
            self.begin.eq(self.idle & (others | (response & ~nothing & ~token))),
            self.job.ready.eq(self.idle & response & ~others),
            self.done.ready.eq(self.job.ready),
            self.discarded.eq(self.job.ready & nothing),
            chosen.kind.eq(EventKind.RESPONSE),
            chosen.qp.eq(self.job.payload.qp),
            chosen.index.eq(self.job.payload.wqe_index),
            chosen.status.eq(self.job.payload.status),
            chosen.syndrome.eq(self.job.payload.syndrome),
            chosen.drain.eq(self.flush.payload.drain),
            chosen.generation.eq(self.fired.payload.generation),
        ]
        m.d.sync += self.token_done.eq(self.job.ready & token)
        with m.If(turn[0]):
            m.d.comb += [chosen.kind.eq(EventKind.CONTROL), chosen.qp.eq(self.control.payload.qp)]
        for number, (port, kind) in enumerate(
            zip(ports, (EventKind.FAILURE, EventKind.FAILURE, EventKind.FLUSH, EventKind.FIRED)), start=1
        ):
            m.d.comb += port.ready.eq(self.idle & turn[number])
            with m.If(turn[number]):
                m.d.comb += [chosen.kind.eq(kind), chosen.qp.eq(port.payload.qp)]
                if kind is EventKind.FAILURE:
                    m.d.comb += [
                        chosen.index.eq(port.payload.wqe_index),
                        chosen.status.eq(port.payload.status),
                        chosen.syndrome.eq(port.payload.syndrome),
                    ]
                elif kind is EventKind.FLUSH:
                    m.d.comb += chosen.index.eq(port.payload.index)
        with m.If(self.begin):
            m.d.sync += event.eq(chosen)
        return m
