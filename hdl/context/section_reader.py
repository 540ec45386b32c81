"""The sections of a record, read out of block RAM."""

from amaranth.hdl import Array, Cat, Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..stream.lut_fifo import LutFifo
from ..stream.words import WORD_BITS
from .record import counts_layout

__all__ = ["SectionReader"]

AHEAD = 5
"""Words that are read ahead: a place is free again 5 cycles after its read began."""

PLACES = 8
"""For them: a power of two."""


class SectionReader(wiring.Component):
    """Reads one section after the other out of a :class:`verbena.hdl.stream.ram.Ram`.

    A word comes each cycle, the first 4 cycles after ``go``; a section without words takes one.

    Parameters
    ----------
    limits : sequence of int
        Most words of each section.
    apart : bool
        Each section begins behind the place of the longest ones before it, else behind the one before it.

    Members
    -------
    go : 1
        Strobe, while not ``busy``.
    counts
        Words of each section, see :func:`.record.counts_layout`; they stand while ``busy``.
    busy : 1
        From the cycle after ``go`` until the last word has been taken.
    r_addr, r_data
        Of the RAM.
    o : stream of ``word``, ``section``
    """

    def __init__(self, limits, *, apart):
        self.limits = tuple(limits)
        self.apart = apart
        count = len(self.limits)
        super().__init__(
            {
                "go": In(1),
                "counts": In(counts_layout(self.limits)),
                "busy": Out(1),
                "r_addr": Out(range(sum(self.limits))),
                "r_data": In(WORD_BITS),
                "o": Out(stream.Signature(data.StructLayout({"word": WORD_BITS, "section": range(count)}))),
            }
        )

    def elaborate(self, platform):
        m = Module()
        count = len(self.limits)
        starts = Array(sum(self.limits[:number]) for number in range(count))
        m.submodules.queue = queue = LutFifo(self.o.payload.shape(), PLACES)
        counts = Array(self.counts[f"section_{number}"] for number in range(count))
        section, left = Signal(range(count)), Signal(range(max(self.limits) + 1))
        reads, comes = Signal(), [Signal(name=f"comes_{age}") for age in range(2)]
        whose = [Signal(range(count), name=f"whose_{age}") for age in range(2)]
        room, taken = Signal(range(AHEAD + 1), init=AHEAD), Signal()
        m.d.comb += [
            queue.i.valid.eq(comes[1]),
            queue.i.payload.word.eq(self.r_data),
            queue.i.payload.section.eq(whose[1]),
        ]
        wiring.connect(m, queue.o, wiring.flipped(self.o))
        m.d.sync += [Cat(comes).eq(Cat(reads, comes[0])), whose[0].eq(section), whose[1].eq(whose[0])]
        m.d.sync += [taken.eq(self.o.valid & self.o.ready), room.eq(room - reads + taken)]
        with m.FSM() as fsm:
            m.d.comb += self.busy.eq(~fsm.ongoing("IDLE") | (room != AHEAD))
            with m.State("IDLE"):
                m.d.sync += [section.eq(0), left.eq(counts[0]), self.r_addr.eq(0)]
                with m.If(self.go):
                    m.next = "READ"
            with m.State("READ"):
                m.d.comb += reads.eq((left != 0) & (room != 0))
                with m.If(reads):
                    m.d.sync += [left.eq(left - 1), self.r_addr.eq(self.r_addr + 1)]
                with m.If((left == 0) | (reads & (left == 1))):
                    with m.If(section == count - 1):
                        m.next = "IDLE"
                    with m.Else():
                        m.d.sync += [section.eq(section + 1), left.eq(counts[section + 1])]
                        if self.apart:
                            m.d.sync += self.r_addr.eq(starts[section + 1])
        return m
