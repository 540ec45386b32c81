"""The own addresses, word by word."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import In, Out

from ..abi.gids import GID_COUNT, GID_ROW, GidType
from ..stream.arbiter import pick
from ..stream.transfer import GID_INDEX_BITS, GidWrite

__all__ = ["OwnGids"]

TYPE_WORD = GID_ROW.fields["type"].word


class OwnGids(wiring.Component):
    """Keeps the table of GIDs such that a word of 16 bits of all of them is read at once. The IPv4 address ``ip`` is an
    own one, too, outside of VLANs.

    Members
    -------
    write, write_en : ``GidWrite``, 1
        A word of the table is written.
    ip : 32
    begin, six, vlan : 1, 1, 12
        Strobe: an address of IPv6, or of IPv4, is looked for in this VLAN; 0 is none.
    look, number, word, unknown : 1, 3, 16, 1
        Strobe: compare this word of the address with all rows; number 0 is the first on the wire, and an IPv4 address
        is the last two. ``unknown``: no address agrees in this word and all that have been looked at since ``begin``.
    row, source : 4, 16
        A row, and this word of it; not while ``begin``.
    row_vlan : 12
        Of that row, while ``begin``.
    """

    write: In(GidWrite)
    write_en: In(1)
    ip: In(32)
    begin: In(1)
    six: In(1)
    vlan: In(12)
    look: In(1)
    number: In(3)
    word: In(16)
    unknown: Out(1)
    row: In(GID_INDEX_BITS)
    source: Out(16)
    row_vlan: Out(12)

    def elaborate(self, platform):
        m = Module()
        # Row n of this memory has word n of all rows of the table.
        m.submodules.table = table = memory.Memory(shape=32 * GID_COUNT, depth=8, init=[])
        write, read = table.write_port(granularity=32), table.read_port(domain="comb")
        candidates, agree = Signal(GID_COUNT + 1), Signal(GID_COUNT + 1)
        m.d.comb += [
            write.addr.eq(self.write.word),
            write.data.eq(self.write.data.replicate(GID_COUNT)),
            write.en.eq(Mux(self.write_en, 1 << self.write.index, 0)),
            # The last word on the wire is in the first one of a row.
            read.addr.eq(Mux(self.begin, TYPE_WORD, Cat(~self.number[1:], 0))),
        ]
        rows = [read.data.word_select(n, 32) for n in range(GID_COUNT)]
        words = [Mux(self.number[0], row[:16], row[16:]) for row in (*rows, self.ip)]

        def fields(row, name):
            field = GID_ROW.fields[name]
            return row[field.offset % 32 :][: field.width]

        # Nobody asks for the IPv4-mapped GIDs that may be among those of RoCEv1.
        usable = [
            fields(row, "valid")
            & (fields(row, "vlan") == self.vlan)
            & ((fields(row, "type") != GidType.ROCE_V2_IPV4) == self.six)
            for row in rows
        ]
        usable.append(~self.six & (self.vlan == 0))
        m.d.comb += [
            self.source.eq(pick(words[:GID_COUNT], self.row)),
            self.row_vlan.eq(pick([fields(row, "vlan") for row in rows], self.row)),
            agree.eq(Cat(word == self.word for word in words) & candidates),
            self.unknown.eq(self.look & ~agree.any()),
        ]
        with m.If(self.begin):
            m.d.sync += candidates.eq(Cat(usable))
        with m.Elif(self.look):
            m.d.sync += candidates.eq(agree)
        return m
