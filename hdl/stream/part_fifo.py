"""A FIFO of wide items in block RAM."""

from amaranth.hdl import Cat, Module, Shape, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from .ram import Ram

__all__ = ["PartFifo"]


class PartFifo(wiring.Component):
    """Keeps up to ``depth`` items of ``shape``, in order, each in ``parts`` rows of block RAM: for wide items that come
    and go seldom, and are known to come some cycles before they are needed.

    An item goes in every ``parts + 1`` cycles at most. It is at ``o`` ``parts + 4`` cycles after it was taken at ``i``,
    and ``parts + 3`` cycles after the one before it was taken at ``o``, whichever is later. ``i.ready``, ``o.valid``
    and ``o.payload`` are registers.

    Parameters
    ----------
    shape : shape-like
        Shape of an item.
    depth : int
        A power of two. Who uses this counts: no more may be inside.
    parts : int
        A power of two, at least 2.

    Members
    -------
    i, o : stream of ``shape``
    """

    def __init__(self, shape, depth, parts):
        if not isinstance(depth, int) or depth < 2 or depth & depth - 1:
            raise ValueError(f"depth must be a power of two, at least 2, not {depth!r}")
        if not isinstance(parts, int) or parts < 2 or parts & parts - 1:
            raise ValueError(f"parts must be a power of two, at least 2, not {parts!r}")
        self.shape = shape
        self.depth = depth
        self.parts = parts
        super().__init__({"i": In(stream.Signature(shape)), "o": Out(stream.Signature(shape))})

    def elaborate(self, platform):
        m = Module()
        parts = self.parts
        width = -(-Shape.cast(self.shape).width // parts)
        m.submodules.ram = ram = Ram(width, self.depth * parts)
        bits = ceil_log2(parts)
        tail, head = Signal(range(self.depth * parts)), Signal(range(self.depth * parts))

        # The item that goes in moves down, part by part.
        given = Signal(parts * width, reset_less=True)
        free = Signal(init=1)
        m.d.comb += [
            self.i.ready.eq(free),
            ram.w_addr.eq(tail),
            ram.w_data.eq(given[:width]),
            ram.w_en.eq(~free),
        ]
        with m.If(free):
            m.d.sync += [given.eq(Value.cast(self.i.payload)), free.eq(~self.i.valid)]
        with m.Else():
            m.d.sync += given[:-width].eq(given[width:])
            m.d.sync += [tail.eq(tail + 1), free.eq(tail[:bits] == parts - 1)]

        # And so does the one that comes out.
        out = Signal(parts * width, reset_less=True)
        wants = Signal(init=1)  # not all parts have been asked for
        take = Signal()
        arriving, last = Signal(2), Signal(2)
        m.d.comb += [
            take.eq(wants & (head != tail)),
            ram.r_addr.eq(head),
            Value.cast(self.o.payload).eq(out),
        ]
        m.d.sync += [
            arriving.eq(Cat(take, arriving)),
            last.eq(Cat(head[:bits] == parts - 1, last)),
        ]
        with m.If(take):
            m.d.sync += [head.eq(head + 1), wants.eq(head[:bits] != parts - 1)]
        with m.If(arriving[1]):
            m.d.sync += [out.eq(Cat(out, ram.r_data)[width:]), self.o.valid.eq(last[1])]
        with m.If(self.o.valid & self.o.ready):
            m.d.sync += [self.o.valid.eq(0), wants.eq(1)]
        return m
