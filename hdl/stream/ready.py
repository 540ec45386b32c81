"""Who wants to be served next."""

from amaranth.hdl import Module, Mux, ResetSignal, Signal
from amaranth.lib import memory, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

__all__ = ["ReadyQueue"]


class ReadyQueue(wiring.Component):
    """A set of ids that is served in order of arrival: round robin without a scan.

    Adding an id that waits already changes nothing, so the queue never fills and ``i`` is always ready. An id that is
    added in the cycle in which it is taken, or later, is queued again. An id comes out 2 cycles after it was added to
    an empty queue. For ``count`` cycles after a reset of a running engine, what is added is forgotten.

    Parameters
    ----------
    count : int
        Ids, 0 to ``count - 1``; a power of two.

    Members
    -------
    i, o : stream of id
        What to add, and who is next.
    empty : 1
        Nobody waits.
    """

    def __init__(self, count):
        if count < 2 or count & count - 1:
            raise ValueError(f"count must be a power of two, at least 2, not {count!r}")
        self.count = count
        super().__init__(
            {
                "i": In(stream.Signature(range(count))),
                "o": Out(stream.Signature(range(count))),
                "empty": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        bits = ceil_log2(self.count)
        m.submodules.fifo = fifo = memory.Memory(shape=bits, depth=self.count, init=[])
        write = fifo.write_port()
        read = fifo.read_port(domain="comb")
        # An id waits while its bits in these two differ: each has one writer, and LUT RAM is a tenth of as many
        # flip-flops.
        m.submodules.added = added = memory.Memory(shape=1, depth=self.count, init=[])
        m.submodules.served = served = memory.Memory(shape=1, depth=self.count, init=[])
        added_write, added_i = added.write_port(), added.read_port(domain="comb")
        served_write = served.write_port()
        added_head = added.read_port(domain="comb")
        served_i, served_head = served.read_port(domain="comb"), served.read_port(domain="comb")
        # A reset does not reach the memories, so ids that waited must be taken out one by one.
        stale = Signal(reset_less=True)
        place = Signal(bits, reset_less=True)
        head = Signal(bits + 1)
        tail = Signal(bits + 1)
        add = Signal()
        taken = Signal()
        again = Signal()
        m.d.comb += [
            taken.eq((head != tail) & (~self.o.valid | self.o.ready)),
            read.addr.eq(head[:bits]),
            write.addr.eq(tail[:bits]),
            write.data.eq(self.i.payload),
            self.i.ready.eq(1),
            added_i.addr.eq(self.i.payload),
            served_i.addr.eq(self.i.payload),
            again.eq(taken & (read.data == self.i.payload)),
            add.eq(self.i.valid & ~stale & ((added_i.data == served_i.data) | again)),
            write.en.eq(add),
            added_write.addr.eq(self.i.payload),
            added_write.data.eq(~added_i.data),
            added_write.en.eq(add),
            served_head.addr.eq(Mux(stale, place, read.data)),
            added_head.addr.eq(place),
            served_write.addr.eq(served_head.addr),
            served_write.data.eq(Mux(stale, added_head.data, ~served_head.data)),
            served_write.en.eq(taken | stale),
            self.empty.eq((head == tail) & ~self.o.valid),
        ]
        with m.If(ResetSignal(allow_reset_less=True)):
            m.d.sync += [stale.eq(1), place.eq(0)]
        with m.Elif(stale):
            m.d.sync += [place.eq(place + 1), stale.eq(place != self.count - 1)]
        with m.If(self.o.ready):
            m.d.sync += self.o.valid.eq(0)
        with m.If(taken):
            m.d.sync += [head.eq(head + 1), self.o.payload.eq(read.data), self.o.valid.eq(1)]
        with m.If(add):
            m.d.sync += tail.eq(tail + 1)
        return m
