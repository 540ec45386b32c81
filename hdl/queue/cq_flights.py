"""What was written to host memory for CQs, and is not answered yet."""

from amaranth.hdl import Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..abi.cqc import CQN_BITS
from ..stream.fifo import Queue
from ..stream.transfer import Done

__all__ = ["CqFlight", "CqFlights"]

CqFlight = data.StructLayout({"number": CQN_BITS, "urgent": 1, "saves": 1})
"""A write for a CQ: a CQE, solicited or of an error if ``urgent``; or, with ``saves``, the CQ's record."""


class CqFlights(wiring.Component):
    """Remembers each write until its answer comes, in the order of the writes.

    *Latency*: ``o`` is in the cycle of ``done``.

    Parameters
    ----------
    writes : int
        Most writes in flight.

    Members
    -------
    i : stream of ``CqFlight``
        A write goes out.
    done : stream of ``Done``
        Its answer. Taken at once, but in the two cycles behind its own write.
    o, o_en, failed : ``CqFlight``, 1, 1
        What has been answered, and whether it is not in memory.
    any : 1
        Something is in flight.
    mark, visible : 1
        Strobe; and from the cycle after it: what went out before the strobe has been answered.
    """

    def __init__(self, writes):
        self.writes = writes
        super().__init__(
            {
                "i": In(stream.Signature(CqFlight)),
                "done": In(stream.Signature(Done)),
                "o": Out(CqFlight),
                "o_en": Out(1),
                "failed": Out(1),
                "any": Out(1),
                "mark": In(1),
                "visible": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.queue = queue = Queue(CqFlight, self.writes)
        wiring.connect(m, wiring.flipped(self.i), queue.i)
        m.d.comb += [
            self.done.ready.eq(queue.o.valid),
            queue.o.ready.eq(self.done.valid),
            self.o.eq(queue.o.payload),
            self.o_en.eq(self.done.valid & queue.o.valid),
            self.failed.eq(self.done.payload.status != 0),
            self.any.eq(queue.level != 0),
        ]
        # Those that are not answered are counted, and from a mark on those before it.
        flying, left = Signal(range(self.writes + 1)), Signal(range(self.writes + 1))
        goes = self.i.valid & self.i.ready
        m.d.comb += self.visible.eq(left == 0)
        m.d.sync += flying.eq(flying + goes - self.o_en)
        with m.If(self.mark):
            m.d.sync += left.eq(flying + goes - self.o_en)
        with m.Elif(self.o_en & ~self.visible):
            m.d.sync += left.eq(left - 1)
        return m
