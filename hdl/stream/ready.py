"""Who wants to be served next."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

__all__ = ["ReadyQueue"]


class ReadyQueue(wiring.Component):
    """A set of ids that is served in order of arrival: round robin without a scan.

    Adding an id that waits already changes nothing, so the queue never fills and ``i`` is always ready. An id that is
    added in the cycle in which it is taken, or later, is queued again; one that is added while it stands at the output
    may be. An id comes out 1 cycle after it was added to an empty queue, 4 cycles if ``o`` was busy in the cycle in
    which it came. For ``count`` cycles after a reset of a running engine, what is added is forgotten.

    Parameters
    ----------
    count : int
        Ids, 0 to ``count - 1``; at least 2.

    Members
    -------
    i, o : stream of id
        What to add, and who is next.
    empty : 1
        Nobody waits.
    """

    def __init__(self, count):
        if not isinstance(count, int) or count < 2:
            raise ValueError(f"count must be an int of at least 2, not {count!r}")
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
        row = data.StructLayout({"id": bits, "mark": 1})
        m.submodules.fifo = fifo = memory.Memory(shape=row, depth=1 << bits, init=[])
        write = fifo.write_port()
        read = fifo.read_port(domain="comb")
        # An id waits while its bits in these two differ: each has one writer, and LUT RAM is a tenth of as many
        # flip-flops.
        m.submodules.added = added = memory.Memory(shape=1, depth=self.count, init=[])
        m.submodules.served = served = memory.Memory(shape=1, depth=self.count, init=[])
        added_write, added_read = added.write_port(), added.read_port(domain="comb")
        served_write, served_read = served.write_port(), served.read_port(domain="comb")

        head, after = Signal(bits + 1), Signal(bits + 1, init=1)  # the row to be read next, and the one behind it
        tail = Signal(bits + 1)
        unread = Signal()  # `head` is not `tail`
        coming, deciding = Signal(), Signal()  # what is added is looked up, and a cycle later queued or not
        coming_id, deciding_id = Signal(bits), Signal(bits)
        waits = Signal()
        mark = Signal()  # the id's bit in `added` once it is queued
        add = Signal()
        free = Signal()
        moved = Signal()  # the output came out of `fifo` in the last cycle
        moved_mark = Signal()

        # A reset does not reach the memories, so ids that waited are taken out one by one: `coming_id` counts.
        stale, stale_mark = Signal(), Signal()
        running, ran = Signal(), Signal(reset_less=True)  # since the last reset, since the first cycle of all
        leaving = Signal()
        m.d.comb += stale.eq(leaving | (ran & ~running))
        m.d.sync += [
            running.eq(1),
            ran.eq(ran | running),
            leaving.eq(stale & (coming_id != self.count - 1)),
            stale_mark.eq(stale),
        ]

        m.d.comb += [
            self.i.ready.eq(1),
            self.empty.eq(~unread & ~coming & ~deciding & ~self.o.valid),
            free.eq(~self.o.valid | self.o.ready),
            added_read.addr.eq(coming_id),
            served_read.addr.eq(coming_id),
            add.eq(deciding & ~waits),
            write.addr.eq(tail[:bits]),
            write.data.id.eq(deciding_id),
            write.data.mark.eq(mark),
            write.en.eq(add),
            added_write.addr.eq(deciding_id),
            added_write.data.eq(mark),
            added_write.en.eq(add | stale_mark),
            read.addr.eq(head[:bits]),
            served_write.addr.eq(self.o.payload),
            served_write.data.eq(moved_mark),
            served_write.en.eq(moved),
        ]

        # What comes when nothing waits goes to the output at once. The marks say that an id waits for one cycle longer
        # than it does. That loses nothing: an id that is found there cannot be taken before the next cycle but one
        # after it was added.
        quiet = ~unread & ~coming & ~deciding
        m.d.sync += [
            coming.eq(self.i.valid & ~stale & ~(quiet & free)),
            coming_id.eq(Mux(stale, coming_id + 1, self.i.payload)),
            deciding.eq(coming),
            deciding_id.eq(coming_id),
            waits.eq((added_read.data != served_read.data) | (add & (deciding_id == coming_id))),
            mark.eq(served_read.data ^ ~stale),
            moved.eq(unread & free),
        ]
        with m.If(free):
            m.d.sync += [
                self.o.valid.eq(unread | (quiet & self.i.valid & ~stale)),
                self.o.payload.eq(Mux(unread, read.data.id, self.i.payload)),
                moved_mark.eq(read.data.mark),
            ]
        with m.If(unread & free):
            m.d.sync += [head.eq(after), after.eq(after + 1)]
        m.d.sync += unread.eq(add | (unread & ~(free & (after == tail))))
        with m.If(add):
            m.d.sync += tail.eq(tail + 1)
        return m
