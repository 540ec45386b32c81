"""What the completer has to deal with, one thing at a time."""

from functools import reduce
from operator import or_

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.wiring import In, Out

from ...abi.commands import QpAction
from ...stream.transfer import Done, QpControl
from ..common.layouts import Failure, Flush, ResponseJob, ResponseJobKind, TimerFired

__all__ = ["CompleterArbiter", "CompleterEvent", "EventKind"]


class EventKind(enum.Enum):
    """What happens to a send queue."""

    CONTROL = 0
    FAILURE = 1
    FLUSH = 2
    FIRED = 3
    RESPONSE = 4


CompleterEvent = data.StructLayout(
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


class CompleterArbiter(wiring.Component):
    """Takes the next event while ``idle``: a control token first, then failures, flushes, timers, and responses last,
    so that what stops a queue comes before what feeds it.

    Whose turn it is, is chosen a cycle before it counts. A response is a job with its ``Done``. Those that need no QP,
    NOTHING and TOKEN, go by without an event. A control
    token stays where it is until ``control_taken``; a QUERY waits while ``replying`` and lets others pass.

    Members
    -------
    control, failed_requester, failed_transmitter, flush, fired, job, done
        See :class:`.completer.Completer`.
    idle : 1
    begin : 1
        An event is taken in this cycle: in that behind the one in which it came, at the earliest.
    next, event : ``CompleterEvent``
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
    next: Out(CompleterEvent)
    event: Out(CompleterEvent)
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
        # A bit each; two for a job, one of those that make an event.
        sources = (
            (EventKind.CONTROL, self.control),
            (EventKind.FAILURE, self.failed_requester),
            (EventKind.FAILURE, self.failed_transmitter),
            (EventKind.FLUSH, self.flush),
            (EventKind.FIRED, self.fired),
            (EventKind.RESPONSE, self.job),
        )
        count = len(sources)
        turn, waiting = Signal(count + 1), Signal(count + 1)
        m.d.comb += waiting.eq(
            Cat(
                control & ~self.control_taken,
                *(port.valid for _kind, port in sources[1:-1]),
                response & ~nothing & ~token,
                response,
            )
        )
        m.d.sync += turn.eq(Mux(self.idle & turn.any(), 0, waiting & -waiting))
        m.d.comb += [
            self.begin.eq(self.idle & turn[:count].any()),
            self.job.ready.eq(self.idle & turn[count - 1 :].any()),
            self.done.ready.eq(self.job.ready),
            self.discarded.eq(self.idle & turn[count] & nothing),
        ]
        m.d.sync += self.token_done.eq(self.idle & turn[count] & token)
        fields = {name: [] for name in CompleterEvent.members}
        for bit, (kind, port) in zip(turn, sources):
            if kind not in (EventKind.CONTROL, EventKind.RESPONSE):
                m.d.comb += port.ready.eq(self.idle & bit)
            members = port.payload.shape().members
            fields["kind"].append(Mux(bit, kind, 0))
            for name in set(fields) - {"kind"}:
                member = "wqe_index" if name == "index" and "wqe_index" in members else name
                if member in members:
                    fields[name].append(Mux(bit, port.payload[member], 0))
        m.d.comb += [Value.cast(chosen[name]).eq(reduce(or_, terms)) for name, terms in fields.items()]
        with m.If(self.begin):
            m.d.sync += event.eq(chosen)
        return m
