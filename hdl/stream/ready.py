"""Who wants to be served next."""

from amaranth.hdl import Module, Signal
from amaranth.lib import memory, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

__all__ = ["ReadyQueue"]


class ReadyQueue(wiring.Component):
    """A set of ids that is served in order of arrival: round robin without a scan.

    Adding an id that waits already changes nothing, so the queue never fills and ``i`` is always ready. An id that is
    added in the cycle in which it is taken,
    or later, is queued again. An id comes out 2 cycles after it was added to an empty queue.

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
        waiting = Signal(self.count)
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
            again.eq(taken & (read.data == self.i.payload)),
            add.eq(self.i.valid & (~waiting.bit_select(self.i.payload, 1) | again)),
            write.en.eq(add),
            self.empty.eq((head == tail) & ~self.o.valid),
        ]
        with m.If(self.o.ready):
            m.d.sync += self.o.valid.eq(0)
        with m.If(taken):
            m.d.sync += [
                head.eq(head + 1),
                self.o.payload.eq(read.data),
                self.o.valid.eq(1),
                waiting.bit_select(read.data, 1).eq(0),
            ]
        with m.If(add):
            m.d.sync += [tail.eq(tail + 1), waiting.bit_select(self.i.payload, 1).eq(1)]
        return m
