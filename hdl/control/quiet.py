"""When completions that were under way have been written or lost."""

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

__all__ = ["QUIET", "REST", "Quiet"]

QUIET = 32
"""Cycles in which completions move, until those that were under way are written or lost: at most 5 of them, each with 3
cycles behind it in which the next one is handed on, and 12 to spare. A power of two."""

REST = 8
"""Cycles in a row in which none waits for the writer, until none is under way: what is given away is there 4 cycles
later at most, and a loss is reported 2 cycles after it was found. A power of two."""


class Quiet(wiring.Component):
    """Counts :data:`QUIET` cycles in which completions move, or :data:`REST` in a row in which none waits.

    Members
    -------
    begin : 1
        Counts from this cycle on.
    moves : 1
        No completion waits to be written, or one is taken.
    waits : 1
        A completion waits to be written. If nobody tells, one always may.
    over : 1
        So many cycles have passed since ``begin``; from the cycle after it on. After a reset they have not.
    """

    begin: In(1)
    moves: In(1)
    waits: In(1, init=1)
    over: Out(1)

    def elaborate(self, platform):
        m = Module()
        moved = Signal(range(QUIET + 1))
        rested = Signal(range(REST + 1))
        m.d.comb += self.over.eq(moved[-1] | rested[-1])
        with m.If(self.begin | (self.waits & ~self.over)):
            m.d.sync += rested.eq(0)
        with m.Elif(~self.over):
            m.d.sync += rested.eq(rested + 1)
        with m.If(self.begin):
            m.d.sync += moved.eq(0)
        with m.Elif(self.moves & ~self.over):
            m.d.sync += moved.eq(moved + 1)
        return m
