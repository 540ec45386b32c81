"""Packets from one clock to another."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ..stream.packet import PacketBeat
from .crossing import GrayCrossing

__all__ = ["PacketCrossing"]


class PacketCrossing(wiring.Component):
    """Stores packets in one clock domain, and gives out those that are whole and good in another, in order.

    As in :class:`..stream.queue.PacketQueue` a packet that finds no room or that ends in ``error`` leaves no trace. A
    beat comes out every third cycle of ``o_domain`` at most, the first one about 7 of them after its packet's last
    went in. A packet comes out without a pause, if ``i_domain`` has at least as many cycles as beats are taken.

    Room is looked at one cycle late, as there. Both domains are to be reset together.

    Parameters
    ----------
    data_width : int
    depth : int
        Rows of block RAM; a power of two, at least 8. Any packet of ``depth - 2`` beats fits.
    i_domain, o_domain : str
    wait : bool
        Packets wait for room, unless they are too large for all of it.

    Members
    -------
    i : stream of ``PacketBeat``
        ``ready`` is always 1 without ``wait``.
    o : stream of ``PacketBeat``
        ``error`` is always 0.
    level : 0 to ``depth - 1``
        Rows of whole packets, as ``i_domain`` knows it.
    count_overflow : 1
        A good packet found no room. In ``i_domain``.
    """

    def __init__(self, data_width, depth, *, i_domain, o_domain, wait=False):
        if not isinstance(depth, int) or depth < 8 or depth & depth - 1:
            raise ValueError(f"depth must be a power of two, at least 8, not {depth!r}")
        self.data_width = data_width
        self.depth = depth
        self.i_domain = i_domain
        self.o_domain = o_domain
        self.wait = wait
        super().__init__(
            {
                "i": In(stream.Signature(PacketBeat(data_width))),
                "o": Out(stream.Signature(PacketBeat(data_width))),
                "level": Out(range(depth)),
                "count_overflow": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        i, o = self.i, self.o
        size, bits = self.data_width // 8, ceil_log2(self.depth)
        # `end` is the count of the last beat; all ones, which is no count, in a beat before, which is full.
        row = data.StructLayout({"data": self.data_width, "end": ceil_log2(size) + 1})
        # Both sides look at their pointers only: a row that is written is never one that is read.
        m.submodules.rows = rows = memory.Memory(shape=row, depth=self.depth, init=[], attrs={"ram_style": "block"})
        write, read = rows.write_port(domain=self.i_domain), rows.read_port(domain=self.o_domain)

        # --- The side that writes.
        here = m.d[self.i_domain]
        tail, commit = Signal(bits), Signal(bits)  # next row to write; behind the last row of the last whole packet
        shown = Signal(bits)  # follows `commit`, one row a cycle: a step of one cannot be seen torn
        m.submodules.freed = freed = GrayCrossing(bits, i_domain=self.o_domain, o_domain=self.i_domain)
        m.submodules.ready = ready = GrayCrossing(bits, i_domain=self.i_domain, o_domain=self.o_domain)
        room, lost = Signal(init=1), Signal()
        fits, keep = Signal(), Signal()
        waits = Signal()
        alone = Signal()  # nothing is there but a part of the packet that comes
        m.d.comb += [
            i.ready.eq(room | lost if self.wait else 1),
            fits.eq(room & ~lost),
            keep.eq(i.valid & i.payload.last & fits & ~i.payload.error),
            self.count_overflow.eq(i.valid & i.ready & i.payload.last & ~fits & ~i.payload.error),
            write.addr.eq(tail),
            write.data.data.eq(i.payload.data),
            write.data.end.eq(Mux(i.payload.last, i.payload.count, ~0)),
            write.en.eq(i.valid & fits),
            ready.i.eq(shown),
        ]
        here += [self.level.eq(commit - freed.o), room.eq((tail - freed.o)[:bits] < self.depth - 2)]
        # What was dropped is free two cycles later: only who waits longer waits in vain.
        here += [alone.eq((freed.o == commit) & ~room), waits.eq(i.valid & ~i.ready)]
        with m.If(i.valid & ~i.ready):
            here += lost.eq(alone & waits)
        with m.Elif(i.valid):
            here += lost.eq(~i.payload.last & ~fits)
            with m.If(i.payload.last & ~keep):
                here += tail.eq(commit)
            with m.Elif(fits):
                here += tail.eq(tail + 1)
            with m.If(keep):
                here += commit.eq(tail + 1)
        with m.If(shown != commit):
            here += shown.eq(shown + 1)

        # --- The side that reads.
        there = m.d[self.o_domain]
        head = Signal(bits)  # next row to read
        out = Signal(row)
        got, passed = Signal(), Signal()  # the memory shows it; its register does
        shown_row = Signal(row)
        first = Signal(init=1)
        m.d.comb += [
            read.addr.eq(head),
            read.en.eq(1),
            freed.i.eq(head),
            o.payload.first.eq(first),
            o.payload.data.eq(out.data),
            o.payload.last.eq(~out.end.all()),
            o.payload.count.eq(Mux(o.payload.last, out.end, size)),
        ]
        there += [
            got.eq((head != ready.o) & ~got & ~passed & (~o.valid | o.ready)),
            passed.eq(got),
            shown_row.eq(read.data),
        ]
        with m.If(o.ready):
            there += o.valid.eq(0)
        with m.If(o.valid & o.ready):
            there += first.eq(o.payload.last)
        with m.If(got):
            there += head.eq(head + 1)
        with m.If(passed):
            there += [out.eq(shown_row), o.valid.eq(1)]
        return m
