"""Fewer interrupts: a least time between two of them."""

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

__all__ = ["InterruptModeration"]


class InterruptModeration(wiring.Component):
    """Lets ``interrupt`` rise ``interval`` units of time after its last rise at the earliest.

    It follows ``wanted`` a cycle later: it falls at once, and rises at once if the last rise is long enough ago. As it
    is a level, none is lost. A unit that has begun does not count, so there may be one unit more between two rises.

    Members
    -------
    unit : 1
        Strobe: a unit of time is over.
    interval : 16
        0: it may rise at any time.
    wanted : 1
        There is something to tell.
    interrupt : 1
    waits : 1
        ``interrupt`` will rise when its time has come.
    """

    def __init__(self):
        super().__init__({"unit": In(1), "interval": In(16), "wanted": In(1), "interrupt": Out(1), "waits": Out(1)})

    def elaborate(self, platform):
        m = Module()
        closed = Signal()
        left = Signal(16)
        m.d.comb += self.waits.eq(self.wanted & closed & ~self.interrupt)
        with m.If(self.unit):
            m.d.sync += [left.eq(left - 1), closed.eq(closed & (left != 0))]
        with m.If(self.interval == 0):
            m.d.sync += closed.eq(0)
        with m.If(self.wanted & ~closed & ~self.interrupt):
            m.d.sync += [self.interrupt.eq(1), left.eq(self.interval), closed.eq(self.interval != 0)]
        with m.Elif(~self.wanted):
            m.d.sync += self.interrupt.eq(0)
        return m
