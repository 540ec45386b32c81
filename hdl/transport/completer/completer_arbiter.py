"""What the completer has to deal with, one thing at a time."""

from functools import reduce
from operator import or_

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.wiring import In, Out

from ...abi.commands import QpAction
from ...stream.transfer import Done, QpControl
from ..common.layouts import Departed, Failure, Flush, ResponseJob, ResponseJobKind, TimerFired
from ..common.psn import PSN_BITS

__all__ = ["CompleterArbiter", "CompleterItem", "EventKind"]


class EventKind(enum.Enum):
    """What happens to a send queue."""

    CONTROL = 0
    FAILURE = 1
    FLUSH = 2
    FIRED = 3
    RESPONSE = 4
    TOKEN = 5


CompleterItem = data.StructLayout(
    {
        "kind": EventKind,
        "index": 16,  # FAILURE, FLUSH, RESPONSE: a WQE
        "drain": 1,  # FLUSH
        "generation": 4,  # FIRED
        "status": 8,  # FAILURE, RESPONSE
        "syndrome": 8,  # FAILURE, RESPONSE
        "job": ResponseJobKind,  # RESPONSE, TOKEN
        "psn": PSN_BITS,  # RESPONSE
        "msn": 16,  # RESPONSE
        "refusal": 3,  # RESPONSE: the status of its ``Done``
    }
)
"""What there is to do for a QP."""


class CompleterArbiter(wiring.Component):
    """Chooses one of what waits: a control token first, then failures, flushes, timers, what has departed, and
    responses last, so that what stops a queue comes before what feeds it. What has been offered at ``o`` stays there
    until it is taken.

    Whose turn it is, is chosen a cycle before it is offered. A response is a job with its ``Done``. One that concerns
    no QP, NOTHING, goes by without an event, and so does PASSED. A control token stays where it is until
    ``control_taken``; a QUERY waits while ``replying`` and lets others pass.

    Parameters
    ----------
    qps : int
    keys : bool
        There is ``local``.

    Members
    -------
    control, failed_requester, failed_transmitter, flush, fired, local, departed, job, done
        See :class:`.completer.Completer`.
    o : stream of ``{slot, item}``
    control_taken, replying : 1
    dropped, discarded : 1
        In this cycle another response is counted as dropped; a job NOTHING is taken, which is counted, too.
    """

    def __init__(self, qps, *, keys=False):
        self.qps = qps
        self.keys = keys
        super().__init__(
            {
                "control": In(stream.Signature(QpControl)),
                "failed_requester": In(stream.Signature(Failure)),
                "failed_transmitter": In(stream.Signature(Failure)),
                "flush": In(stream.Signature(Flush)),
                "fired": In(stream.Signature(TimerFired)),
                "departed": In(stream.Signature(Departed)),
                "job": In(stream.Signature(ResponseJob)),
                "done": In(stream.Signature(Done)),
                "o": Out(stream.Signature(data.StructLayout({"slot": range(qps), "item": CompleterItem}))),
                "control_taken": In(1),
                "replying": In(1),
                "dropped": In(1),
                "discarded": Out(1),
            }
            | ({"local": In(stream.Signature(Departed))} if keys else {})
        )

    def elaborate(self, platform):
        m = Module()
        control, waits = Signal(), Signal()
        query = self.control.payload.action == QpAction.QUERY
        response, counted, nothing = Signal(), Signal(), Signal()
        goes_by = Signal()
        m.d.comb += [
            self.control.ready.eq(self.control_taken),
            control.eq(self.control.valid & ~waits & ~(query & self.replying)),
            counted.eq(self.job.payload.kind == ResponseJobKind.NOTHING),
            nothing.eq(counted | (self.job.payload.kind == ResponseJobKind.PASSED)),
            response.eq(self.job.valid & self.done.valid),
        ]
        # A bit each; two for a job, the last one of those that make no event.
        sources = (
            (EventKind.CONTROL, self.control),
            (EventKind.FAILURE, self.failed_requester),
            (EventKind.FAILURE, self.failed_transmitter),
            (EventKind.FLUSH, self.flush),
            (EventKind.FIRED, self.fired),
            *([(EventKind.RESPONSE, self.local)] if self.keys else []),
            (EventKind.RESPONSE, self.departed),
            (Mux(self.job.payload.kind == ResponseJobKind.TOKEN, EventKind.TOKEN, EventKind.RESPONSE), self.job),
        )
        count = len(sources)
        turn, waiting = Signal(count + 1), Signal(count + 1)
        m.d.comb += waiting.eq(
            Cat(control, *(port.valid for _kind, port in sources[1:-1]), response & ~nothing, response & nothing)
        )
        taken = self.o.valid & self.o.ready
        with m.If(taken | goes_by):
            m.d.sync += turn.eq(0)
        with m.Elif(turn == 0):
            m.d.sync += turn.eq(waiting & -waiting)
        m.d.comb += [
            self.o.valid.eq(turn[:count].any()),
            goes_by.eq(turn[count] & ~self.dropped),
            self.discarded.eq(goes_by & counted),
            self.job.ready.eq((taken & turn[count - 1]) | goes_by),
            self.done.ready.eq(self.job.ready),
        ]
        with m.If(self.control_taken):
            m.d.sync += waits.eq(0)
        with m.Elif(taken & turn[0]):
            m.d.sync += waits.eq(1)
        out = self.o.payload
        alone = {"job": "kind", "psn": "psn", "msn": "msn"}  # of a job only
        m.d.comb += [Value.cast(out.item[mine]).eq(self.job.payload[theirs]) for mine, theirs in alone.items()]
        with m.If(turn[count - 2]):
            m.d.comb += [out.item.job.eq(ResponseJobKind.DEPARTED), out.item.psn.eq(self.departed.payload.psn)]
        if self.keys:
            with m.If(turn[count - 3]):
                m.d.comb += [out.item.job.eq(ResponseJobKind.LOCAL), out.item.psn.eq(self.local.payload.psn)]
        m.d.comb += out.item.refusal.eq(self.done.payload.status)
        fields = {"qp": out.slot} | {
            name: Value.cast(out.item[name]) for name in CompleterItem.members if name not in (*alone, "refusal")
        }
        terms = {name: [] for name in fields}
        for bit, (kind, port) in zip(turn, sources):
            if kind is not EventKind.CONTROL and port is not self.job:
                m.d.comb += port.ready.eq(taken & bit)
            members = port.payload.shape().members
            terms["kind"].append(Mux(bit, kind, 0))
            for name in set(fields) - {"kind"}:
                member = "wqe_index" if name == "index" and "wqe_index" in members else name
                if member in members:
                    terms[name].append(Mux(bit, port.payload[member], 0))
        m.d.comb += [fields[name].eq(reduce(or_, values)) for name, values in terms.items()]
        return m
