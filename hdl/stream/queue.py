"""A buffer that lets only whole, good packets through."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from .fifo import Prefetch
from .packet import PacketBeat
from .ram import Ram

__all__ = ["PacketQueue"]


class PacketQueue(wiring.Component):
    """Stores packets and forwards those that are whole, good and committed, in order.

    Takes a beat each cycle, always: a packet that finds no room, that ends in ``error``, or that is refused at its end
    leaves no trace. Puts out a beat each cycle; the first one 5 cycles after the last went in. At its last beat
    each packet is either ``committed`` or ``dropped``, in that very cycle, so that a neighbour can keep what it knows
    about the packet in a queue of its own, and can ``refuse`` it when that one is full.

    Any packet of ``depth - 2`` beats fits an empty queue. Room is looked at one cycle late: what a dropped packet had
    taken is free again in the second cycle after its last beat.

    Parameters
    ----------
    data_width : int
        64, 128, 256 or 512 bits.
    depth : int
        Rows of block RAM; a power of two, at least 8.

    Members
    -------
    i : stream of ``PacketBeat``
        ``ready`` is always 1.
    o : stream of ``PacketBeat``
        ``error`` is always 0.
    refuse : 1
        Drop the packet that ends in this cycle, as if it found no room.
    committed, dropped : 1
        The packet that ends in this cycle will come out; will not.
    count_drop_overflow, count_drop_error : 1
        It is dropped because it found no room or was refused; because of ``error``, which counts first.
    empty : 1
        Nothing inside, not even a part of a packet.
    """

    def __init__(self, data_width, depth):
        if not isinstance(depth, int) or depth < 8 or depth & depth - 1:
            raise ValueError(f"depth must be a power of two, at least 8, not {depth!r}")
        self.data_width = data_width
        self.depth = depth
        super().__init__(
            {
                "i": In(stream.Signature(PacketBeat(data_width))),
                "o": Out(stream.Signature(PacketBeat(data_width))),
                "refuse": In(1),
                "committed": Out(1),
                "dropped": Out(1),
                "count_drop_overflow": Out(1),
                "count_drop_error": Out(1),
                "empty": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        i, o = self.i, self.o
        size = self.data_width // 8
        bits = ceil_log2(self.depth)

        # `end` is the count of the last beat; all ones, which is no count, in a beat before, which is full.
        row = data.StructLayout({"data": self.data_width, "end": ceil_log2(size) + 1})
        m.submodules.ram = ram = Ram(row, self.depth)
        m.submodules.prefetch = prefetch = Prefetch(row)

        head = Signal(bits)  # next row to read
        commit = Signal(bits)  # behind the last row of the last whole packet
        tail = Signal(bits)  # next row to write

        # One cycle late, in which one more beat may have come: so one row more stays free. The row before `head` is
        # never written: equal pointers mean that nothing is there.
        room = Signal(init=1)
        fill = Signal(bits)
        m.d.comb += fill.eq(tail - head)
        m.d.sync += room.eq(fill < self.depth - 2)

        lost = Signal()  # a beat of this packet found no room
        fits = Signal()
        end = Signal()
        m.d.comb += [
            i.ready.eq(1),
            fits.eq(room & ~lost),
            end.eq(i.valid & i.payload.last),
            self.count_drop_error.eq(end & i.payload.error),
            self.count_drop_overflow.eq(end & ~i.payload.error & (~fits | self.refuse)),
            self.committed.eq(end & ~i.payload.error & fits & ~self.refuse),
            self.dropped.eq(end & ~self.committed),
            ram.w_addr.eq(tail),
            ram.w_data.data.eq(i.payload.data),
            ram.w_data.end.eq(Mux(i.payload.last, i.payload.count, ~0)),
            ram.w_en.eq(i.valid & fits),
        ]
        with m.If(self.dropped):
            m.d.sync += tail.eq(commit)
        with m.Elif(i.valid & fits):
            m.d.sync += tail.eq(tail + 1)
        with m.If(self.committed):
            m.d.sync += commit.eq(tail + 1)
        with m.If(i.valid):
            m.d.sync += lost.eq(~i.payload.last & ~fits)

        first = Signal(init=1)
        m.d.comb += [
            ram.r_addr.eq(head),
            prefetch.unread.eq(head != commit),
            prefetch.row.eq(ram.r_data),
            o.valid.eq(prefetch.o.valid),
            prefetch.o.ready.eq(o.ready),
            o.payload.data.eq(prefetch.o.payload.data),
            o.payload.last.eq(~prefetch.o.payload.end.all()),
            o.payload.count.eq(Mux(o.payload.last, prefetch.o.payload.end, size)),
            o.payload.first.eq(first),
            self.empty.eq((head == tail) & prefetch.empty),
        ]
        with m.If(prefetch.take):
            m.d.sync += head.eq(head + 1)
        with m.If(o.valid & o.ready):
            m.d.sync += first.eq(o.payload.last)
        return m
