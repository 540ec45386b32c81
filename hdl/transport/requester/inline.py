"""Inline data on its way from a WQE to the wire."""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out

from ...abi.wqe import SGE_OFFSET, WQE_DEFAULT
from ...stream.packet import PacketBeat

__all__ = ["InlineQueue", "InlineWord"]

IN_FLIGHT = 4
"""Words that may still come when ``room`` falls: three reads under way and one row of slack."""

InlineWord = data.StructLayout({"data": 64, "count": 3, "last": 1})
"""Up to 8 bytes of inline data. ``count``: valid bytes, 0 for 8; only the last word has less."""


class InlineQueue(wiring.Component):
    """Collects words of 64 bits into beats of ``data_width``.

    Holds all words of a WQE, since nobody takes them before the packet's header. With ``data_width`` 64 a word comes
    out 2 cycles after ``put``, and so does a wider beat, after its last word. One word a cycle; one beat every
    ``data_width // 64`` + 1 cycles if wider than 64 bits.

    Parameters
    ----------
    data_width : int
        64, 128, 256 or 512 bits.
    wqe_bytes : int
        Bytes of the largest WQE.

    Members
    -------
    word, put : ``InlineWord``
        Never waits: who puts looks at ``room`` when it starts the read that brings the word, at most 3 cycles before.
    room : 1
        There is place for a word whose read starts now.
    o : stream of ``PacketBeat(data_width)``
    """

    def __init__(self, data_width, wqe_bytes=WQE_DEFAULT):
        self.data_width = data_width
        self.depth = wqe_bytes // 8
        assert (wqe_bytes - SGE_OFFSET) // 8 + IN_FLIGHT <= self.depth
        super().__init__(
            {
                "word": In(InlineWord),
                "put": In(1),
                "room": Out(1),
                "o": Out(stream.Signature(PacketBeat(data_width))),
            }
        )

    def elaborate(self, platform):
        m = Module()
        lanes = self.data_width // 64
        m.submodules.rows = rows = memory.Memory(shape=InlineWord.size, depth=self.depth, init=[])
        write, read = rows.write_port(), rows.read_port(domain="comb")
        head, tail = (Signal(range(2 * self.depth)) for _ in range(2))
        word = InlineWord(read.data)
        empty, take = Signal(), Signal()
        m.d.comb += [
            write.addr.eq(tail),
            write.data.eq(self.word),
            write.en.eq(self.put),
            read.addr.eq(head),
            empty.eq(head == tail),
        ]
        m.d.sync += [
            tail.eq(tail + self.put),
            head.eq(head + take),
            self.room.eq((tail - head)[: len(head)] <= self.depth - IN_FLIGHT - 1),
        ]
        bytes_here = Cat(word.count, word.count == 0)
        beat = self.o.payload
        first = Signal(init=1)  # the next beat is the first of its packet
        with m.If(self.o.valid & self.o.ready):
            m.d.sync += first.eq(beat.last)
        m.d.comb += beat.first.eq(first)
        if lanes == 1:
            full, out = Signal(), Signal(InlineWord, reset_less=True)
            free = ~full | self.o.ready
            m.d.comb += [
                self.o.valid.eq(full),
                beat.data.eq(out.data),
                beat.count.eq(Cat(out.count, out.count == 0)),
                beat.last.eq(out.last),
                take.eq(~empty & free),
            ]
            with m.If(free):
                m.d.sync += [full.eq(~empty), out.eq(word)]
            return m
        lane = Signal(range(lanes))
        gathered = Signal(self.data_width)
        count = Signal.like(beat.count)
        last, full = Signal(), Signal()
        m.d.comb += [
            beat.data.eq(gathered),
            beat.count.eq(count),
            beat.last.eq(last),
            self.o.valid.eq(full),
            take.eq(~empty & ~full),
        ]
        with m.If(take):
            m.d.sync += [
                gathered.word_select(lane, 64).eq(word.data),
                lane.eq(lane + 1),
                count.eq((lane << 3) + bytes_here),
                last.eq(word.last),
            ]
            with m.If(word.last | (lane == lanes - 1)):
                m.d.sync += [full.eq(1), lane.eq(0)]
        with m.Elif(full & self.o.ready):
            m.d.sync += full.eq(0)
        return m
