"""Who waits for something that is rare."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import memory, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

__all__ = ["WaitingSet"]

LANES = 4
"""Ids in a row: LUT RAM is that wide."""


class WaitingSet(wiring.Component):
    """A set of ids, which is scanned row by row, round robin: a sixth of the LUTs of a :class:`.ready.ReadyQueue`, and
    slower.

    ``i`` is always ready. An id that waits in its row is not added to it again; but it may come once more, at once, or
    because its row is at the output. Before an id that waits at most ``2 * count + 3`` others come. It comes out 1
    cycle after it was added, if nothing is at the output and a row was looked at since another came so; else 2, and a
    cycle later for each row, each id before it and each that is added meanwhile. For as many cycles as there are rows
    after a reset of a running engine, what is added is forgotten.

    Parameters
    ----------
    count : int
        Ids, 0 to ``count - 1``; a power of two, at least 2.

    Members
    -------
    i, o : stream of id
        What to add, and who is next.
    empty : 1
        Nobody waits. Set 2 cycles after the last one was taken.
    """

    def __init__(self, count):
        if not isinstance(count, int) or count < 2 or count & count - 1:
            raise ValueError(f"count must be a power of two, at least 2, not {count!r}")
        self.count = count
        ids = stream.Signature(range(count))
        super().__init__({"i": In(ids), "o": Out(ids), "empty": Out(1)})

    def elaborate(self, platform):
        m = Module()
        lanes = min(LANES, self.count)
        depth = max(2, self.count // lanes)
        m.submodules.rows = rows = memory.Memory(shape=lanes, depth=depth, init=[])
        write, read = rows.write_port(), rows.read_port(domain="comb")
        place, here = Signal(range(depth)), Signal(range(depth))  # the row looked at next; that at the output
        left = Signal(lanes)  # what is left of that
        first = left & -left
        empty, passes, looks = Signal(), Signal(), Signal()
        # Bits that are set, at the output and in the rows, as of the cycle before; one more, or one less.
        waiting, more, less = Signal(range(self.count + lanes + 1)), Signal(), Signal()
        passed = Signal()  # what is added has passed the rows since the last look

        # A reset does not reach the memory.
        running, ran = Signal(), Signal(reset_less=True)  # since the last reset, since the first cycle of all
        clears, clearing = Signal(), Signal()
        m.d.comb += clears.eq(clearing | (ran & ~running))
        m.d.sync += [running.eq(1), ran.eq(ran | running), clearing.eq(clears & (place != depth - 1))]

        adds = self.i.valid & ~clears
        number, lane = ceil_log2(lanes), self.i.payload[: ceil_log2(lanes)]
        m.d.comb += [
            self.i.ready.eq(1),
            empty.eq(~left.any()),
            passes.eq(adds & empty & ~passed),
            looks.eq(~adds & empty),
            write.addr.eq(Mux(adds, self.i.payload[number:], place)),
            read.addr.eq(write.addr),
            write.data.eq(Mux(adds, read.data | (1 << lane), 0)),
            write.en.eq((adds & ~passes) | looks),
            self.empty.eq((waiting == 0) & ~more),
            self.o.valid.eq(~empty),
            self.o.payload.eq(Cat(Cat(first[1::2].any(), first[2:].any())[:number], here)),
        ]
        m.d.sync += [
            more.eq(adds & (passes | ~read.data.bit_select(lane, 1))),
            less.eq(self.o.valid & self.o.ready),
            waiting.eq(waiting + more - less),
        ]
        with m.If(empty):
            m.d.sync += here.eq(write.addr)
        with m.If(passes):
            m.d.sync += [left.eq(1 << lane), passed.eq(1)]
        with m.Elif(looks):
            m.d.sync += [left.eq(Mux(clears, 0, read.data)), place.eq(place + 1), passed.eq(0)]
        with m.Elif(self.o.ready):
            m.d.sync += left.eq(left & ~first)
        return m
