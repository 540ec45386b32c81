"""Errors and other reports about QPs, on their way to the command block."""

from amaranth.hdl import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ..stream.arbiter import StreamArbiter
from ..stream.fifo import Queue
from ..stream.slice import Slice
from ..stream.transfer import QpError

__all__ = ["Reports"]


class Reports(wiring.Component):
    """Keeps what responder and completer report while a command runs, ``qps`` items each, so that no pipeline waits: a
    QP has one error a life. An item comes out 4 to 5 cycles after it went in.

    Members
    -------
    responder, completer : streams of ``QpError``
    o : stream of ``QpError``
    empty : 1
        Nothing is inside.
    """

    def __init__(self, qps):
        self.qps = qps
        port = stream.Signature(QpError)
        super().__init__({"responder": In(port), "completer": In(port), "o": Out(port), "empty": Out(1)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.merge = merge = StreamArbiter(QpError, 2)
        m.submodules.slice = out = Slice(QpError)
        queues = [Queue(QpError, self.qps) for _ in range(2)]
        for number, (queue, port) in enumerate(zip(queues, (self.responder, self.completer), strict=True)):
            m.submodules[f"queue_{number}"] = queue
            wiring.connect(m, wiring.flipped(port), queue.i)
            wiring.connect(m, queue.o, merge.i[number])
        m.d.comb += self.empty.eq((queues[0].level == 0) & (queues[1].level == 0) & ~out.o.valid)
        wiring.connect(m, merge.o, out.i)
        wiring.connect(m, out.o, wiring.flipped(self.o))
        return m
