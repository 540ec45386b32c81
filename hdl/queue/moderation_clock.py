"""The time in which periods of moderation count."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

__all__ = ["ModerationClock"]


class ModerationClock(wiring.Component):
    """Strobes ``unit`` once in a quarter of a tick, which is 1.024 us.

    A quarter is rounded down to whole cycles, and is one cycle at least. A new ``tick`` counts from the next strobe on.

    Members
    -------
    tick : 32
        Cycles in 4.096 us.
    unit : 1
    """

    def __init__(self):
        super().__init__({"tick": In(32), "unit": Out(1)})

    def elaborate(self, platform):
        m = Module()
        left = Signal(30)
        over = left[1:] == 0
        m.d.sync += [self.unit.eq(over), left.eq(Mux(over, self.tick[2:], left - 1))]
        return m
