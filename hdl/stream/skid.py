"""A register in a stream, for the wires that go forward and for the one that goes back."""

from amaranth.hdl import Module, Mux, Shape, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

__all__ = ["Skid"]


class Skid(wiring.Component):
    """Cuts every path between its two sides: valid, payload and ready are registers.

    An item comes out one cycle after it went in; one item each cycle. Holds up to 2 items.

    Parameters
    ----------
    shape : shape-like
        Shape of an item.

    Members
    -------
    i, o : stream of ``shape``
    """

    def __init__(self, shape):
        self.shape = shape
        super().__init__({"i": In(stream.Signature(shape)), "o": Out(stream.Signature(shape))})

    def elaborate(self, platform):
        m = Module()
        i, o = self.i, self.o
        item, width = Value.cast(i.payload), Shape.cast(self.shape).width
        out = Signal(width, reset_less=True)  # without `valid` it says nothing
        spare = Signal(width, reset_less=True)  # what came in the cycle in which the output turned out to be stuck
        free, stuck = Signal(init=1), Signal()  # always opposites: one for `i.ready`, one for the many bits
        m.d.comb += [i.ready.eq(free), Value.cast(o.payload).eq(out)]
        with m.If(~o.valid | o.ready):
            m.d.sync += [out.eq(Mux(stuck, spare, item)), o.valid.eq(i.valid | stuck), free.eq(1), stuck.eq(0)]
        with m.Elif(i.valid):
            m.d.sync += [free.eq(0), stuck.eq(1)]
        with m.If(~stuck):
            m.d.sync += spare.eq(item)
        return m
