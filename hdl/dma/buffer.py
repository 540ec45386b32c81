"""Room for read data, reserved before the read is asked for."""

from amaranth.hdl import Cat, Module, Mux, Shape, Signal, Value
from amaranth.lib import memory, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ..stream.ram import UNDEFINED_COLLISION

__all__ = ["ReadBuffer"]


class ReadBuffer(wiring.Component):
    """Queue of rows whose writer cannot be stalled: it reserves room first.

    Room is freed when a row leaves the memory, which is block RAM, towards ``o``. A row that finds the buffer empty is
    at ``o`` 1 cycle after it was written; behind others it takes 3. One row a cycle.

    Parameters
    ----------
    shape : shape-like
        Shape of a row.
    depth : int
        Rows, a power of two.
    burst : int
        Most rows reserved at once, a power of two, less than ``depth``.

    Members
    -------
    room : 1
        There is room for ``burst`` rows; a register, low in the cycle after each ``reserve``.
    reserve, length
        Takes room for ``length + 1`` rows; only with ``room``.
    w_en, w_data
        Writes a row for which room was reserved.
    o : stream of ``shape``
    """

    def __init__(self, shape, depth, burst):
        if depth < 2 or depth & depth - 1:
            raise ValueError(f"depth must be a power of two, at least 2, not {depth!r}")
        if burst < 1 or burst >= depth or burst & burst - 1:
            raise ValueError(f"burst must be a power of two less than {depth}, not {burst!r}")
        self.shape = shape
        self.depth = depth
        self.burst = burst
        super().__init__(
            {
                "room": Out(1, init=1),
                "reserve": In(1),
                "length": In(range(burst)),
                "w_en": In(1),
                "w_data": In(shape),
                "o": Out(stream.Signature(shape)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        free = Signal(range(self.depth + 1), init=self.depth)
        freed = Signal()
        # free - (length + 1) + freed, with one carry chain
        taken = Cat(~self.length, 1).as_signed()
        m.d.sync += free.eq(free + Mux(self.reserve, taken, 0) + freed)
        m.d.sync += self.room.eq(free[ceil_log2(self.burst) :].any() & ~self.reserve)

        width = Shape.cast(self.shape).width
        # The block RAM's own register and a second one form a pipeline that stands still when `o` does: no row ever has
        # to be put aside, which at this width is cheaper than a queue behind the RAM. With nothing inside, a row goes
        # to the second register at once.
        m.submodules[UNDEFINED_COLLISION] = rows = memory.Memory(shape=width, depth=self.depth, init=[])
        write, read = rows.write_port(), rows.read_port()
        head, tail = Signal(range(self.depth)), Signal(range(self.depth))
        filled = Signal(range(self.depth + 1))
        fetched = Signal()
        none = Signal(init=1)  # no row is in the RAM
        step = Signal()  # the RAM's register may move on
        past, put, get = Signal(), Signal(), Signal()
        move = ~self.o.valid | self.o.ready
        out = Signal(width)
        m.d.comb += [
            write.addr.eq(tail),
            write.data.eq(self.w_data),
            past.eq(self.w_en & none & ~fetched & move),
            put.eq(self.w_en & ~past),
            write.en.eq(self.w_en),
            read.addr.eq(head),
            step.eq(~fetched | move),
            get.eq(step & ~none),
            freed.eq(get | past),
            read.en.eq(step),
            Value.cast(self.o.payload).eq(out),
        ]
        with m.If(put):
            m.d.sync += tail.eq(tail + 1)
        with m.If(get):
            m.d.sync += head.eq(head + 1)
        with m.If(put & ~get):
            m.d.sync += [filled.eq(filled + 1), none.eq(0)]
        with m.Elif(~put & get):
            m.d.sync += [filled.eq(filled - 1), none.eq(filled == 1)]
        with m.If(step):
            m.d.sync += fetched.eq(get)
        with m.If(move):
            m.d.sync += [self.o.valid.eq(fetched | past), out.eq(Mux(fetched, read.data, self.w_data))]
        return m
