"""What a queue pair's owners give away, on its way to host memory."""

from amaranth.hdl import Array, Cat, Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ..stream.ram import Ram
from ..stream.words import WORD_BITS, SavedWord
from .record import HEADER_WORDS, RecordHeader, checked, most_words, seed
from .section_reader import SectionReader

__all__ = ["SaveBuffer"]


class SaveBuffer(wiring.Component):
    """Collects the sections of one QP, which come side by side, and gives them as a record.

    A word of one section is taken each cycle. Behind its last word the first other one follows at once that had a word
    in the cycle before, or a cycle after it had none. A word of the record comes each cycle, but for 2 behind the
    header and 2 before the checksum.

    Parameters
    ----------
    limits : sequence of int
        Most words of each section, at least 1.
    qps : int
        QPs that there may be.

    Members
    -------
    saved : array of streams of ``SavedWord``
        Of each section.
    begin : 1
        Strobe, while not ``busy``: forget what is here.
    given, full, wake : a bit each section, 1, 1
        It is here, from the second cycle behind its last word on; all are, as of a cycle ago; the QP must come back by
        itself.
    go, index : 1, QP index
        Strobe, while ``full``: give the record of this QP.
    words
        Of the record, while ``full``.
    o : stream of 64 bits
    busy : 1
        Words of the record are still to go; from the cycle after ``go`` on.
    """

    def __init__(self, limits, qps):
        self.limits = tuple(limits)
        self.qps = qps
        count = len(self.limits)
        self._header = RecordHeader(self.limits)
        super().__init__(
            {
                "saved": In(stream.Signature(SavedWord)).array(count),
                "begin": In(1),
                "given": Out(count),
                "full": Out(1),
                "wake": Out(1),
                "go": In(1),
                "index": In(range(qps)),
                "words": Out(range(most_words(self.limits) + 1)),
                "o": Out(stream.Signature(WORD_BITS)),
                "busy": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        count = len(self.limits)
        starts = Array(sum(self.limits[:number]) for number in range(count))
        m.submodules.store = store = Ram(WORD_BITS, sum(self.limits))
        counts = Array(Signal(range(limit + 1), name=f"count_{number}") for number, limit in enumerate(self.limits))
        m.d.sync += self.full.eq(self.given.all() & ~self.begin)

        # Whose words come is a register, so that no owner waits for what another one says. Who follows had a word in
        # the cycle before, and so has it still.
        chosen = Signal(range(count))
        offers, waiting, rest = Signal(count), Signal(count), Signal(count)
        comes, word = Signal(), Signal.like(self.saved[0].payload)
        m.d.comb += [
            offers.eq(Cat(port.valid for port in self.saved)),
            comes.eq(offers.bit_select(chosen, 1)),
            word.eq(Array(port.payload for port in self.saved)[chosen]),
            rest.eq(waiting & ~(1 << chosen)),
            *(port.ready.eq(chosen == number) for number, port in enumerate(self.saved)),
        ]
        m.d.sync += waiting.eq(offers & ~(1 << chosen))
        with m.If(~comes | word.last):
            for number in reversed(range(count)):
                with m.If(rest[number]):
                    m.d.sync += chosen.eq(number)

        # What has come is counted and stored a cycle later: the way from the owners ends here.
        came, whose = Signal(), Signal.like(chosen)
        last, wake = Signal(), Signal()
        m.d.sync += [
            came.eq(comes),
            whose.eq(chosen),
            store.w_data.eq(word.data),
            last.eq(word.last),
            wake.eq(word.wake),
        ]
        m.d.comb += [store.w_addr.eq(starts[whose] + counts[whose]), store.w_en.eq(came)]
        with m.If(came):
            m.d.sync += [
                counts[whose].eq(counts[whose] + 1),
                self.given.bit_select(whose, 1).eq(last),
                self.words.eq(self.words + 1),
                self.wake.eq(self.wake | (last & wake)),
            ]
        with m.If(self.begin):
            m.d.sync += [self.given.eq(0), self.words.eq(HEADER_WORDS + 1), self.wake.eq(0)]
            m.d.sync += [value.eq(0) for value in counts]

        header = Signal(self._header)
        m.d.comb += header.words.eq(self.words)
        m.d.comb += [header.counts[f"section_{number}"].eq(value) for number, value in enumerate(counts)]
        m.submodules.sections = sections = SectionReader(self.limits, apart=True)
        m.d.comb += [
            sections.go.eq(self.go),
            sections.counts.eq(header.counts),
            store.r_addr.eq(sections.r_addr),
            sections.r_data.eq(store.r_data),
        ]
        total = Signal(WORD_BITS)
        with m.If(self.o.valid & self.o.ready):
            m.d.sync += total.eq(checked(total, self.o.payload))
        with m.FSM() as fsm:
            m.d.comb += self.busy.eq(~fsm.ongoing("IDLE"))
            with m.State("IDLE"):
                m.d.sync += total.eq(seed(self.index))
                with m.If(self.go):
                    m.next = "HEADER"
            with m.State("HEADER"):
                m.d.comb += [self.o.valid.eq(1), self.o.payload.eq(header)]
                with m.If(self.o.ready):
                    m.next = "SECTIONS"
            with m.State("SECTIONS"):
                m.d.comb += [
                    self.o.valid.eq(sections.o.valid),
                    self.o.payload.eq(sections.o.payload.word),
                    sections.o.ready.eq(self.o.ready),
                ]
                with m.If(~sections.busy):
                    m.next = "CHECKSUM"
            with m.State("CHECKSUM"):
                m.d.comb += [self.o.valid.eq(1), self.o.payload.eq(total)]
                with m.If(self.o.ready):
                    m.next = "IDLE"
        return m
