"""A FIFO that is little more than LUT RAM."""

from amaranth.hdl import Module, Shape, Signal, Value
from amaranth.lib import memory, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

__all__ = ["LutFifo"]


class LutFifo(wiring.Component):
    """Keeps up to ``depth`` items of ``shape``, in order; one item in and one item out each cycle.

    An item taken at ``i`` in cycle *n* is at ``o`` in cycle *n + 1*. What stands at ``o`` comes straight from LUT RAM,
    and ``i.ready`` and ``o.valid`` from a comparison of two registers: less than a :class:`.fifo.Queue` for those who
    have time for that.

    Parameters
    ----------
    shape : shape-like
        Shape of an item.
    depth : int
        A power of two, at least 2.

    Members
    -------
    i, o : stream of ``shape``
    level : 0 to ``depth``
        Items inside.
    """

    def __init__(self, shape, depth):
        if not isinstance(depth, int) or depth < 2 or depth & depth - 1:
            raise ValueError(f"depth must be a power of two, at least 2, not {depth!r}")
        self.shape = shape
        self.depth = depth
        super().__init__(
            {"i": In(stream.Signature(shape)), "o": Out(stream.Signature(shape)), "level": Out(range(depth + 1))}
        )

    def elaborate(self, platform):
        m = Module()
        width, bits = Shape.cast(self.shape).width, ceil_log2(self.depth)
        m.submodules.rows = rows = memory.Memory(shape=width, depth=self.depth, init=[])
        write, read = rows.write_port(), rows.read_port(domain="comb")
        head, tail = Signal(bits + 1), Signal(bits + 1)  # one bit more tells full from empty
        same = Signal()
        m.d.comb += [
            same.eq(head[:bits] == tail[:bits]),
            self.i.ready.eq(~same | (head[bits] == tail[bits])),
            self.o.valid.eq(~same | (head[bits] != tail[bits])),
            self.level.eq(tail - head),
            write.addr.eq(tail),
            write.data.eq(Value.cast(self.i.payload)),
            write.en.eq(self.i.valid & self.i.ready),
            read.addr.eq(head),
            Value.cast(self.o.payload).eq(read.data),
        ]
        with m.If(self.i.valid & self.i.ready):
            m.d.sync += tail.eq(tail + 1)
        with m.If(self.o.valid & self.o.ready):
            m.d.sync += head.eq(head + 1)
        return m
