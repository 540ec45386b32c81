"""A register between two blocks that hand over seldom."""

from amaranth.hdl import Module, Shape, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

__all__ = ["Slice"]


class Slice(wiring.Component):
    """Holds one item; no path leads through, in either direction. Half the flip-flops of a :class:`.skid.Skid` and none
    of its multiplexer, for items that come at most every second cycle.

    An item taken at ``i`` in cycle *n* is at ``o`` in cycle *n + 1*; the next is taken in the cycle after ``o`` has
    handed it on.

    Parameters
    ----------
    shape : shape-like
        Shape of an item; ``o.payload`` keeps it.

    Members
    -------
    i, o : stream of ``shape``
    """

    def __init__(self, shape):
        self.shape = shape
        super().__init__({"i": In(stream.Signature(shape)), "o": Out(stream.Signature(shape))})

    def elaborate(self, platform):
        m = Module()
        free = Signal(init=1)  # always the opposite of `o.valid`: the payload's many enables shall not slow that
        item = Signal(Shape.cast(self.shape).width, reset_less=True)  # without `valid` it says nothing
        m.d.comb += [self.i.ready.eq(free), Value.cast(self.o.payload).eq(item)]
        with m.If(~free):
            m.d.sync += [self.o.valid.eq(~self.o.ready), free.eq(self.o.ready)]
        with m.Else():
            m.d.sync += [self.o.valid.eq(self.i.valid), free.eq(~self.i.valid), item.eq(Value.cast(self.i.payload))]
        return m
