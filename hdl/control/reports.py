"""Errors and other reports about QPs, on their way to the command block."""

from amaranth.hdl import Module
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..abi.eqe import EventType
from ..stream.arbiter import StreamArbiter
from ..stream.fifo import Queue
from ..stream.ready import ReadyQueue
from ..stream.slice import Slice
from ..stream.transfer import QpError

__all__ = ["Reports"]


class Reports(wiring.Component):
    """Keeps what is reported while a command runs, so that no pipeline waits. An item comes out 3 to 6 cycles after it
    went in.

    The completer reports a QP once a life, and the responder up to ``tells`` times: there is room for all of that. The
    completion writer reports a QP for each completion that is lost; of these the QP is kept, once, and comes out with
    QP_FATAL.

    Members
    -------
    responder, completer, completions : streams of ``QpError``
    o : stream of ``QpError``
    empty : 1
        Nothing is inside.
    """

    def __init__(self, qps, tells=1):
        self.qps = qps
        self.tells = tells
        port = stream.Signature(QpError)
        super().__init__(
            {"responder": In(port), "completer": In(port), "completions": In(port), "o": Out(port), "empty": Out(1)}
        )

    def elaborate(self, platform):
        m = Module()
        item = data.StructLayout({"qp": range(self.qps), "event": QpError["event"].shape})
        m.submodules.merge = merge = StreamArbiter(item, 3)
        m.submodules.slice = out = Slice(item)
        queues = [Queue(item, self.qps * times) for times in (self.tells, 1)]
        for number, (queue, port) in enumerate(zip(queues, (self.responder, self.completer), strict=True)):
            m.submodules[f"queue_{number}"] = queue
            m.d.comb += [
                queue.i.valid.eq(port.valid),
                queue.i.payload.qp.eq(port.payload.qp),
                queue.i.payload.event.eq(port.payload.event),
                port.ready.eq(queue.i.ready),
            ]
            wiring.connect(m, queue.o, merge.i[number])
        m.submodules.losers = losers = ReadyQueue(self.qps)
        m.d.comb += [
            losers.i.valid.eq(self.completions.valid),
            losers.i.payload.eq(self.completions.payload.qp),
            self.completions.ready.eq(losers.i.ready),
            merge.i[2].valid.eq(losers.o.valid),
            merge.i[2].payload.qp.eq(losers.o.payload),
            merge.i[2].payload.event.eq(EventType.QP_FATAL),
            losers.o.ready.eq(merge.i[2].ready),
            self.empty.eq((queues[0].level == 0) & (queues[1].level == 0) & losers.empty & ~out.o.valid),
        ]
        wiring.connect(m, merge.o, out.i)
        m.d.comb += [
            self.o.valid.eq(out.o.valid),
            self.o.payload.qp.eq(out.o.payload.qp),
            self.o.payload.event.eq(out.o.payload.event),
            out.o.ready.eq(self.o.ready),
        ]
        return m
