"""A queue pair's record on its way from host memory to the owners."""

from amaranth.hdl import Array, Cat, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ..stream.ram import Ram
from ..stream.words import WORD_BITS
from .record import HEADER_WORDS, RecordHeader, checked, most_words, seed
from .section_reader import SectionReader

__all__ = ["LoadBuffer"]


class LoadBuffer(wiring.Component):
    """Takes a record that a :class:`.save_buffer.SaveBuffer` gave, and gives its sections back, one after the other.

    A record whose checksum is not that of the QP, or whose header has a section longer than ``limits`` or another sum
    than it says, is ``bad``: nothing of it may be given back.

    There is room for a record that is given back and one that comes meanwhile.

    A word is taken each cycle. A word is given back each cycle, the first 5 cycles after ``back``.

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
        How many words the record has; known a cycle after the header is here. At most what ``limits`` allow.
    full, bad : 1
        The record is here; it is not what was given. Both stand until the next one begins.
    back : 1
        Strobe, while ``full``, and when all of the one before has gone: give it back. The next record may begin.
    loaded : array of streams of words
    """

    def __init__(self, limits, qps):
        self.limits = tuple(limits)
        self.qps = qps
        count = len(self.limits)
        self._header = RecordHeader(self.limits)
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
        bits = ceil_log2(sum(self.limits))
        m.submodules.store = store = Ram(WORD_BITS, 2 << bits)
        half = Signal()  # of the store: where the next record is kept
        fields = Signal(self._header)
        counts = Array(fields.counts[f"section_{number}"] for number in range(count))
        total, row = Signal(WORD_BITS), Signal(bits)
        number = Signal(range(most_words(self.limits) + 2))  # of the word that comes, from 1 on
        summed, fits = Signal(len(fields.words) + 1), Signal(init=1)
        active = Signal()
        m.d.comb += [self.i.ready.eq(1), store.w_data.eq(self.i.payload)]

        # -- The header is looked at, a section a cycle, while the words behind it come.
        looked = Signal(range(count + 1), init=count)
        limits = Array(self.limits)
        with m.If(looked != count):
            m.d.sync += [
                looked.eq(looked + 1),
                summed.eq(summed + counts[looked]),
                fits.eq(fits & (counts[looked] <= limits[looked])),
            ]
        most = most_words(self.limits)
        here, judged = Signal(), Signal()  # the header is here; all its sections have been looked at
        last, good, short = Signal(), Signal(), Signal()
        m.d.sync += [
            self.known.eq(here),
            self.words.eq(Mux(fields.words > most, most, fields.words)),
            short.eq(fields.words <= HEADER_WORDS),
            good.eq(fits & (summed == fields.words) & (fields.words <= most)),
            judged.eq(looked == count),
        ]
        m.d.comb += [last.eq(self.known & (number >= self.words)), store.w_addr.eq(Cat(row, half))]
        with m.If(self.i.valid & active):
            m.d.sync += [number.eq(number + 1), total.eq(checked(total, self.i.payload))]
            with m.If(~here):
                m.d.sync += [fields.eq(self.i.payload), here.eq(1), looked.eq(0)]
            with m.Else():
                m.d.comb += store.w_en.eq(~last)
                m.d.sync += row.eq(row + 1)
                with m.If(last):
                    m.d.sync += [active.eq(0), self.bad.eq(total != self.i.payload)]
        with m.If(self.known & ~active & ~self.full & judged):
            m.d.sync += [self.full.eq(1), self.bad.eq(self.bad | ~good)]
        with m.If(self.known & short):  # it would not end
            m.d.sync += [active.eq(0), self.bad.eq(1)]
        with m.If(self.begin):
            m.d.sync += [here.eq(0), self.known.eq(0), self.full.eq(0), self.bad.eq(0), looked.eq(count)]
            m.d.sync += [active.eq(1), total.eq(seed(self.index)), summed.eq(HEADER_WORDS + 1), fits.eq(1)]
            m.d.sync += [number.eq(1), row.eq(0)]

        # -- Back.
        m.submodules.sections = sections = SectionReader(self.limits, apart=False)
        out = sections.o.payload
        m.d.sync += sections.go.eq(self.back)
        with m.If(self.back):
            m.d.sync += [sections.counts.eq(fields.counts), half.eq(~half)]
        m.d.comb += [
            store.r_addr.eq(Cat(sections.r_addr[:bits], ~half)),
            sections.r_data.eq(store.r_data),
            sections.o.ready.eq(Cat(port.ready for port in self.loaded).bit_select(out.section, 1)),
        ]
        for number, port in enumerate(self.loaded):
            m.d.comb += [port.valid.eq(sections.o.valid & (out.section == number)), port.payload.eq(out.word)]
        return m
