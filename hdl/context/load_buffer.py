"""A queue pair's record on its way from host memory to the owners."""

from amaranth.hdl import Array, Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..stream.fifo import Queue
from ..stream.ram import Ram
from ..stream.words import WORD_BITS
from .record import HEADER_WORDS, RecordHeader, checked, most_words, seed

__all__ = ["LoadBuffer"]

AHEAD = 5
"""Words that are read ahead: a place is free again 5 cycles after its read began."""


class LoadBuffer(wiring.Component):
    """Takes a record that a :class:`.save_buffer.SaveBuffer` gave, and gives its sections back, one after the other.

    A record whose checksum is not that of the QP, or whose header has a section longer than ``limits`` or another sum
    than it says, is ``bad``: nothing of it may be given back.

    A word is taken each cycle. A word is given back each cycle.

    Parameters
    ----------
    limits : sequence of int
        Most words of each section, at least 1.
    qps : int
        QPs that there may be.

    Members
    -------
    begin, index : 1, QP index
        Strobe: the record of this QP comes.
    i : stream of 64 bits
        Always taken; what follows the record is dropped.
    words, known : 1
        How many words the record has; known as soon as the header is here. At most what ``limits`` allow.
    full, bad : 1
        The record is here; it is not what was given.
    back : 1
        Strobe, while ``full``: give it back.
    loaded : array of streams of words
    """

    def __init__(self, limits, qps):
        self.limits = tuple(limits)
        self.qps = qps
        count = len(self.limits)
        self._header = RecordHeader(count)
        super().__init__(
            {
                "begin": In(1),
                "index": In(range(qps)),
                "i": In(stream.Signature(WORD_BITS)),
                "words": Out(range(most_words(self.limits) + 1)),
                "known": Out(1),
                "full": Out(1),
                "bad": Out(1),
                "back": In(1),
                "loaded": Out(stream.Signature(WORD_BITS)).array(count),
            }
        )

    def elaborate(self, platform):
        m = Module()
        count = len(self.limits)
        m.submodules.store = store = Ram(WORD_BITS, sum(self.limits))
        header = Signal(HEADER_WORDS * WORD_BITS)
        fields = data.View(self._header, header[: self._header.size])
        total, place = Signal(WORD_BITS), Signal(range(most_words(self.limits) + 1))
        summed, fits = Signal(len(fields.words) + 1), Signal(init=1)
        active = Signal()
        m.d.comb += [self.i.ready.eq(1), store.w_data.eq(self.i.payload)]

        # -- The header is looked at, a section a cycle, while the words behind it come.
        looked = Signal(range(count + 1), init=count)
        limits = Array(self.limits)
        with m.If(looked != count):
            m.d.sync += [
                looked.eq(looked + 1),
                summed.eq(summed + fields.counts[looked]),
                fits.eq(fits & (fields.counts[looked] <= limits[looked])),
            ]
        m.d.comb += self.words.eq(Mux(fields.words > most_words(self.limits), most_words(self.limits), fields.words))
        last, good = Signal(), Signal()
        m.d.comb += [
            last.eq(place == self.words - 1),
            good.eq(fits & (summed == fields.words) & (fields.words <= most_words(self.limits))),
        ]
        with m.If(self.i.valid & active):
            m.d.sync += [place.eq(place + 1), total.eq(checked(total, self.i.payload))]
            with m.If(~self.known):
                m.d.sync += header.eq(Cat(header[WORD_BITS:], self.i.payload))
                with m.If(place == HEADER_WORDS - 1):
                    m.d.sync += [self.known.eq(1), looked.eq(0)]
            with m.Else():
                m.d.comb += [store.w_addr.eq(place - HEADER_WORDS), store.w_en.eq(~last)]
                with m.If(last):
                    m.d.sync += [active.eq(0), self.bad.eq(total != self.i.payload)]
        with m.If(self.known & ~active & ~self.full & (looked == count)):
            m.d.sync += [self.full.eq(1), self.bad.eq(self.bad | ~good)]
        with m.If(self.known & (fields.words <= HEADER_WORDS)):  # it would not end
            m.d.sync += [active.eq(0), self.bad.eq(1)]
        with m.If(self.begin):
            m.d.sync += [active.eq(1), self.known.eq(0), self.full.eq(0), self.bad.eq(0), looked.eq(count)]
            m.d.sync += [place.eq(0), total.eq(seed(self.index)), summed.eq(HEADER_WORDS + 1), fits.eq(1)]

        # -- Back: words are read ahead into a short queue; those of the next section behind the last of this one.
        ahead = data.StructLayout({"word": WORD_BITS, "section": range(count)})
        m.submodules.queue = queue = Queue(ahead, AHEAD)
        section, left, address = Signal(range(count)), Signal.like(fields.counts[0]), Signal.like(store.r_addr)
        reads, comes = Signal(), [Signal(name=f"comes_{age}") for age in range(2)]
        whose = [Signal(range(count), name=f"whose_{age}") for age in range(2)]
        room = Signal(range(AHEAD + 1), init=AHEAD)
        out = queue.o.payload
        m.d.comb += [
            store.r_addr.eq(address),
            queue.i.valid.eq(comes[1]),
            queue.i.payload.word.eq(store.r_data),
            queue.i.payload.section.eq(whose[1]),
            queue.o.ready.eq(Cat(port.ready for port in self.loaded).bit_select(out.section, 1)),
        ]
        m.d.sync += [comes[0].eq(reads), comes[1].eq(comes[0]), whose[0].eq(section), whose[1].eq(whose[0])]
        m.d.sync += room.eq(room - reads + (queue.o.valid & queue.o.ready))
        for number, port in enumerate(self.loaded):
            m.d.comb += [port.valid.eq(queue.o.valid & (out.section == number)), port.payload.eq(out.word)]
        with m.FSM():
            with m.State("IDLE"):
                m.d.sync += [section.eq(0), left.eq(fields.counts[0]), address.eq(0)]
                with m.If(self.back):
                    m.next = "READ"
            with m.State("READ"):
                m.d.comb += reads.eq((left != 0) & (room != 0))
                with m.If(reads):
                    m.d.sync += [left.eq(left - 1), address.eq(address + 1)]
                with m.If((left == 0) | (reads & (left == 1))):
                    m.d.sync += [section.eq(section + 1), left.eq(fields.counts[section + 1])]
                    with m.If(section == count - 1):
                        m.next = "IDLE"
        return m
