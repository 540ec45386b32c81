"""When completions that were under way have been written or lost."""

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

__all__ = ["QUIET", "REST", "Quiet"]

QUIET = 32
"""Cycles in which completions move, until those that were under way have been taken: at most 5 of them, each with 3
cycles behind it in which the next one is handed on, and 12 to spare. A power of two."""

REST = 8
"""Cycles in a row in which none waits for the writer or for its answer, until none is under way: what is given away is
there 4 cycles later at most. As many after the answer, at most, a loss has been reported. A power of two."""


class Quiet(wiring.Component):
    """Waits until nothing of what has been completed is under way: it is in memory, or its loss has been reported.

    That is so after :data:`REST` cycles in a row in which none waits. While others complete all the time it is so when
    completions have moved for :data:`QUIET` cycles, all that was taken until then (``mark``) has been answered
    (``visible``), and :data:`REST` more cycles have passed.

    Members
    -------
    begin : 1
        Counts from this cycle on.
    moves : 1
        No completion waits to be written, or one is taken.
    waits : 1
        A completion waits to be written, or has not been answered. If nobody tells, one always may.
    mark, visible : 1
        Strobe; and from the cycle after it on: what was taken before has been answered.
    over : 1
        Nothing is under way of what was there at ``begin``; from the cycle after it on. After a reset it may be.
    """

    begin: In(1)
    moves: In(1)
    waits: In(1, init=1)
    mark: Out(1)
    visible: In(1)
    over: Out(1)

    def elaborate(self, platform):
        m = Module()
        moved = Signal(range(QUIET + 1))
        rested, seen = Signal(range(REST + 1)), Signal(range(REST + 1))
        marked = Signal()
        m.d.comb += [self.over.eq(rested[-1] | seen[-1]), self.mark.eq(moved[-1] & ~marked)]
        with m.If(self.begin | (self.waits & ~self.over)):
            m.d.sync += rested.eq(0)
        with m.Elif(~self.over):
            m.d.sync += rested.eq(rested + 1)
        with m.If(self.begin):
            m.d.sync += [moved.eq(0), marked.eq(0), seen.eq(0)]
        with m.Else():
            m.d.sync += marked.eq(moved[-1])
            with m.If(self.moves & ~moved[-1]):
                m.d.sync += moved.eq(moved + 1)
            with m.If(marked & self.visible & ~self.over):
                m.d.sync += seen.eq(seen + 1)
        return m
