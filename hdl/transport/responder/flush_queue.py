"""Whose receive WQEs have to be flushed."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import memory, stream, wiring
from amaranth.lib.wiring import In, Out

from ...stream.waiting_set import WaitingSet

__all__ = ["FlushQueue"]


class FlushQueue(wiring.Component):
    """Knows which QPs have failed, and offers a failed QP whenever receive WQEs of it arrive, or on demand. Arrivals of
    other QPs cost nothing.

    The strobes are registered: they come at the end of their block's decisions. QPs come out as those of a
    :class:`...stream.waiting_set.WaitingSet`: soon, and in any order. One that was reset meanwhile may still come out.

    Parameters
    ----------
    qps : int
        QPs, a power of two, at least 2.
    swaps : bool
        With ``failed``.

    Members
    -------
    qp
        What the strobes are about.
    fail, reset, add : 1
        Strobes: the QP has failed, and is added; it has not failed any more; it is added again.
    arrived : stream of QP
        Not ready in the cycle after a strobe; else always.
    o : stream of QP
    failed : 1
        Whether QP ``qp`` has failed, as of 2 cycles ago.
    """

    def __init__(self, qps, *, swaps=False):
        self.qps = qps
        self.swaps = swaps
        super().__init__(
            {
                "qp": In(range(qps)),
                "fail": In(1),
                "reset": In(1),
                "add": In(1),
                "arrived": In(stream.Signature(12)),
                "o": Out(stream.Signature(range(qps))),
            }
            | ({"failed": Out(1)} if swaps else {})
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.waiting = waiting = WaitingSet(self.qps)
        m.submodules.failed = failed = memory.Memory(shape=1, depth=self.qps, init=[])
        write = failed.write_port()
        read = failed.read_port(domain="comb")
        qp = Signal.like(self.qp)
        fail, reset = Signal(), Signal()
        busy = Signal()
        comes, coming = Signal(), Signal.like(self.qp)  # what has arrived, if its QP has failed
        m.d.sync += [
            qp.eq(self.qp),
            fail.eq(self.fail),
            reset.eq(self.reset),
            busy.eq(self.fail | self.reset | self.add),
        ]
        m.d.comb += [
            write.addr.eq(qp),
            write.data.eq(fail),
            write.en.eq(fail | reset),
            read.addr.eq(self.arrived.payload),
            self.arrived.ready.eq(~busy),
            waiting.i.valid.eq(Mux(busy, ~reset, comes)),
            waiting.i.payload.eq(Mux(busy, qp, coming)),
        ]
        with m.If(~busy):
            m.d.sync += [comes.eq(self.arrived.valid & read.data), coming.eq(self.arrived.payload)]
        wiring.connect(m, waiting.o, wiring.flipped(self.o))
        if self.swaps:
            mine = failed.read_port(domain="comb")
            m.d.comb += [mine.addr.eq(self.qp), self.failed.eq(mine.data)]
        return m
