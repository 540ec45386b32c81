"""Queues of items of any shape, and the reading ahead that block RAM needs."""

from amaranth.hdl import Cat, Module, Mux, Shape, Signal, Value
from amaranth.lib import memory, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from .ram import Ram

__all__ = ["LUT_DEPTH", "Prefetch", "Queue"]

LUT_DEPTH = 64
"""Most items kept in LUT RAM; more go to block RAM."""

PREFETCH = 8
"""Rows on their way from block RAM to the output: 5 keep it busy, and 8 fit the same LUT RAM."""


class Queue(wiring.Component):
    """Keeps up to ``depth`` items of ``shape``, in order; one item in and one item out each cycle.

    ``i.ready`` and ``o`` are registers. Up to 64 items stand in LUT RAM, and an item comes out
    2 cycles after it went in (taken at ``i`` in cycle *n*, ``o.valid`` in cycle *n + 2*); more stand in block RAM, and
    it takes 5 cycles. A queue with a depth below 3 does not reach one item a cycle. With ``bypass`` an item that finds
    the queue empty comes out 1 cycle after it went in. With ``sparse`` an item comes out every second cycle at most,
    no path leads from ``o.ready`` to the many enables of the output, and what has left it counts a cycle longer.

    Parameters
    ----------
    shape : shape-like
        Shape of an item; ``o.payload`` keeps it.
    depth : int
        Items it holds, those on their way to the output included; with ``bypass`` at most 64.
    bypass : bool
        Costs a multiplexer of the width of an item.
    sparse : bool
        For items that are taken seldom; ``depth`` at most 64.

    Members
    -------
    i, o : stream of ``shape``
    level : 0 to ``depth``
        Items inside.
    """

    def __init__(self, shape, depth, *, bypass=False, sparse=False):
        if not isinstance(depth, int) or depth < 1:
            raise ValueError(f"depth must be a positive int, not {depth!r}")
        if bypass and depth > LUT_DEPTH:
            raise ValueError(f"depth must be at most {LUT_DEPTH} with bypass, not {depth!r}")
        if sparse and depth > LUT_DEPTH:
            raise ValueError(f"depth must be at most {LUT_DEPTH} if sparse, not {depth!r}")
        self.shape = shape
        self.depth = depth
        self.bypass = bypass
        self.sparse = sparse
        super().__init__(
            {
                "i": In(stream.Signature(shape)),
                "o": Out(stream.Signature(shape)),
                "level": Out(range(depth + 1)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        put, get = Signal(), Signal()
        free = Signal(init=1)  # there is room for one more
        m.d.comb += [
            put.eq(self.i.valid & self.i.ready),
            self.i.ready.eq(free),
        ]
        leaves = self.o.valid & self.o.ready
        if self.sparse:
            m.d.sync += get.eq(leaves)
        else:
            m.d.comb += get.eq(leaves)
        with m.If(put & ~get):
            m.d.sync += [self.level.eq(self.level + 1), free.eq(self.level != self.depth - 1)]
        with m.Elif(~put & get):
            m.d.sync += [self.level.eq(self.level - 1), free.eq(1)]

        # `level` counts an item until it has left the output, and the first to arrive moves towards it at once: so the
        # rows never all stand unread, and head meets tail only if none is.
        bits = max(1, ceil_log2(self.depth))
        head, tail = Signal(bits), Signal(bits)
        take = Signal()
        past = Signal()  # the item goes past the rows
        with m.If(put & ~past):
            m.d.sync += tail.eq(tail + 1)
        with m.If(take):
            m.d.sync += head.eq(head + 1)
        unread = head != tail

        width = Shape.cast(self.shape).width
        if self.depth <= LUT_DEPTH:
            m.submodules.entries = rows = memory.Memory(shape=width, depth=1 << bits, init=[])
            write, read = rows.write_port(), rows.read_port(domain="comb")
            open_ = ~self.o.valid | self.o.ready
            if self.sparse:
                open_ = Signal(init=1)  # always the opposite of `o.valid`, which the many enables shall not slow
            out = Signal(width, reset_less=True)  # without `valid` it says nothing
            m.d.comb += [
                write.addr.eq(tail),
                write.data.eq(self.i.payload),
                write.en.eq(put),
                read.addr.eq(head),
                take.eq(unread & open_),
                Value.cast(self.o.payload).eq(out),
            ]
            item = read.data
            if self.bypass:
                m.d.comb += past.eq(put & ~unread & open_)
                item = Mux(unread, read.data, Value.cast(self.i.payload))
            with m.If(open_):
                m.d.sync += [out.eq(item), self.o.valid.eq(take | past)]
            if self.sparse:
                with m.Elif(self.o.ready):
                    m.d.sync += self.o.valid.eq(0)
                m.d.sync += open_.eq(Mux(open_, ~(take | past), self.o.ready))
        else:
            m.submodules.ram = ram = Ram(width, 1 << bits)
            m.submodules.prefetch = prefetch = Prefetch(width)
            m.d.comb += [
                ram.w_addr.eq(tail),
                ram.w_data.eq(self.i.payload),
                ram.w_en.eq(put),
                ram.r_addr.eq(head),  # never the row being written: that one is unread only from the next cycle on
                prefetch.unread.eq(unread),
                prefetch.row.eq(ram.r_data),
                take.eq(prefetch.take),
                self.o.valid.eq(prefetch.o.valid),
                Value.cast(self.o.payload).eq(prefetch.o.payload),
                prefetch.o.ready.eq(self.o.ready),
            ]
        return m


class Prefetch(wiring.Component):
    """Makes a stream of consecutive rows of a :class:`.ram.Ram`: reads ahead as far as it has places for what comes.

    One row each cycle; a row comes out 4 cycles after its address was taken.

    Parameters
    ----------
    shape : shape-like
        Shape of a row.

    Members
    -------
    unread : 1
        The row at the address that the user applies may be read.
    take : 1
        It is read now: the user applies the next address in the next cycle. Only while ``unread``.
    row : ``shape``
        The Ram's ``r_data``.
    o : stream of ``shape``
    empty : 1
        No row is on its way.
    """

    def __init__(self, shape):
        self.shape = shape
        super().__init__(
            {"unread": In(1), "take": Out(1), "row": In(shape), "o": Out(stream.Signature(shape)), "empty": Out(1)}
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.front = front = Queue(self.shape, PREFETCH)
        free = Signal(range(PREFETCH + 1), init=PREFETCH)  # places in `front` that no read has claimed
        arriving = Signal(2)
        get = Signal()
        m.d.comb += [
            self.take.eq(self.unread & (free != 0)),
            front.i.valid.eq(arriving[1]),
            Value.cast(front.i.payload).eq(Value.cast(self.row)),
            get.eq(self.o.valid & self.o.ready),
            self.empty.eq(free == PREFETCH),
        ]
        wiring.connect(m, front.o, wiring.flipped(self.o))
        m.d.sync += arriving.eq(Cat(self.take, arriving[0]))
        with m.If(self.take & ~get):
            m.d.sync += free.eq(free - 1)
        with m.Elif(~self.take & get):
            m.d.sync += free.eq(free + 1)
        return m
