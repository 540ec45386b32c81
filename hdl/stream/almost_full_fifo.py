"""A FIFO behind a pipeline that cannot stall."""

from amaranth.hdl import Module, Signal
from amaranth.lib import memory, stream, wiring
from amaranth.lib.wiring import In, Out

__all__ = ["AlmostFullFifo"]

DEPTH = 16
"""Items: LUT RAM has that many rows anyway."""


class AlmostFullFifo(wiring.Component):
    """Keeps the output of a pipeline that cannot stall. ``room`` is the almost-full flag, inverted: it falls while
    there is still room for all items under way.

    An item that comes in cycle *n* is at ``o`` in cycle *n + 1*; one item each cycle. ``room``, ``o.valid`` and the
    address behind ``o.payload`` are registers, and no path leads from ``o.ready`` anywhere else.

    Parameters
    ----------
    shape : shape-like
        Shape of an item.
    flight : int
        Cycles in which items may come because of what was begun in one cycle: an item may come in cycles *n + 1* to
        *n + flight* only if ``room`` was set in cycle *n*, or later.

    Members
    -------
    i, i_valid : ``shape``
        Never waits.
    room : 1
        Something may be begun in this cycle.
    o : stream of ``shape``
    """

    def __init__(self, shape, flight):
        if not 1 <= flight <= DEPTH - 4:
            raise ValueError(f"flight must be 1 to {DEPTH - 4}, not {flight!r}")
        self.shape = shape
        self.flight = flight
        super().__init__({"i": In(shape), "i_valid": In(1), "room": Out(1, init=1), "o": Out(stream.Signature(shape))})

    def elaborate(self, platform):
        m = Module()
        m.submodules.rows = rows = memory.Memory(shape=self.shape, depth=DEPTH, init=[])
        write, read = rows.write_port(), rows.read_port(domain="comb")
        head, tail = Signal(range(DEPTH)), Signal(range(DEPTH))
        taken = Signal()
        m.d.comb += [
            write.addr.eq(tail),
            write.data.eq(self.i),
            write.en.eq(self.i_valid),
            read.addr.eq(head),
            self.o.payload.eq(read.data),
            taken.eq(self.o.valid & self.o.ready),
        ]
        # One cycle late, and what comes in that cycle and the one in which it is looked at does not count yet.
        m.d.sync += [
            tail.eq(tail + self.i_valid),
            head.eq(head + taken),
            self.o.valid.eq(self.i_valid | (self.o.valid & ~(self.o.ready & (tail == (head + 1)[: len(head)])))),
            self.room.eq((tail - head)[: len(head)] < DEPTH - self.flight - 2),
        ]
        return m
