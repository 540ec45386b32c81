"""The own IPv6 addresses, word by word."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import In, Out

from ..abi.gids import GID_COUNT, GID_ROW, GidType
from ..stream.arbiter import pick
from ..stream.transfer import GID_INDEX_BITS, GidWrite

__all__ = ["OwnGids"]

TYPE_WORD = GID_ROW.fields["type"].word


class OwnGids(wiring.Component):
    """Keeps the table of GIDs such that a word of 16 bits of all of them is read at once.

    Members
    -------
    write, write_en : ``GidWrite``, 1
        A word of the table is written.
    number : 3
        Word of an address, 0 is the first on the wire.
    row, source : 4, 16
        A row, and this word of it.
    look, word, unknown : 1, 16, 1
        Strobe: compare this word with all rows. ``unknown``: no IPv6 address agrees in this word and all that have been
        looked at since word 0.
    """

    write: In(GidWrite)
    write_en: In(1)
    number: In(3)
    row: In(GID_INDEX_BITS)
    source: Out(16)
    look: In(1)
    word: In(16)
    unknown: Out(1)

    def elaborate(self, platform):
        m = Module()
        # Row n of this memory has 32 bits of all addresses, of which row 0 has the last on the wire.
        m.submodules.table = table = memory.Memory(shape=32 * GID_COUNT, depth=4, init=[])
        write, read = table.write_port(granularity=32), table.read_port(domain="comb")
        usable, candidates, agree = Signal(GID_COUNT), Signal(GID_COUNT), Signal(GID_COUNT)
        m.d.comb += [
            write.addr.eq(self.write.word),
            write.data.eq(self.write.data.replicate(GID_COUNT)),
            write.en.eq(Mux(self.write_en & ~self.write.word[2], 1 << self.write.index, 0)),
            read.addr.eq(~self.number[1:]),
        ]
        kind, valid, tagged = (GID_ROW.fields[name].offset % 32 for name in ("type", "valid", "tagged"))
        # Nobody asks for the IPv4-mapped GIDs that may be among those of RoCEv1.
        is_six = (self.write.data[kind : kind + 4] != GidType.ROCE_V2_IPV4) & self.write.data[valid]
        is_six &= ~self.write.data[tagged]  # nothing is asked, or answered, in a VLAN
        with m.If(self.write_en & (self.write.word == TYPE_WORD)):
            m.d.sync += usable.bit_select(self.write.index, 1).eq(is_six)
        halves = [read.data.word_select(n, 32) for n in range(GID_COUNT)]
        words = [Mux(self.number[0], half[:16], half[16:]) for half in halves]
        m.d.comb += [
            self.source.eq(pick(words, self.row)),
            agree.eq(Cat(word == self.word for word in words) & Mux(self.number == 0, usable, candidates)),
            self.unknown.eq(self.look & ~agree.any()),
        ]
        with m.If(self.look):
            m.d.sync += candidates.eq(agree)
        return m
