"""The own addresses, word by word."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import In, Out

from ..abi.gids import GID_COUNT, GID_ROW, GidType
from ..stream.arbiter import pick
from ..stream.transfer import GID_INDEX_BITS, GidWrite

__all__ = ["OwnGids"]

HALVES = 2
"""Words of 16 bits in one of 32."""

TYPE_HALF = GID_ROW.fields["type"].offset // 16
"""The half with a row's type, and its VLAN."""

NO_TYPE = 15
"""Type of a row that does not count."""


class OwnGids(wiring.Component):
    """Keeps the table of GIDs such that a word of 16 bits of all of them is read at once. The IPv4 address ``ip`` is an
    own one, too, outside of VLANs.

    Members
    -------
    write, write_en : ``GidWrite``, 1
        A word of the table is written; not in two cycles side by side.
    ip : 32
    begin, six, vlan : 1, 1, 12
        Strobe: an address of IPv6, or of IPv4, is looked for in this VLAN; 0 is none.
    look, number, word, unknown : 1, 3, 16, 1
        Strobe: compare this word of the address with all rows; number 0 is the first on the wire, and an IPv4 address
        is the last two. ``unknown``, a cycle later: no address agrees in this word and all that have been looked at
        since ``begin``.
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
        # Row n of this memory has half n of all rows of the table. The upper half of what is written follows the lower.
        m.submodules.table = table = memory.Memory(shape=16 * GID_COUNT, depth=16, init=[])
        write, read = table.write_port(granularity=16), table.read_port(domain="comb")
        given, upper, upper_en = self.write, Signal(GidWrite), Signal()
        m.d.sync += [upper.eq(given), upper_en.eq(self.write_en)]
        kind, vlan, valid = (self._place(name) for name in ("type", "vlan", "valid"))
        lower = Signal(16)
        m.d.comb += lower.eq(given.data)
        with m.If((given.word == TYPE_HALF // HALVES) & ~given.data[valid.start]):
            m.d.comb += lower[kind].eq(NO_TYPE)
        m.d.comb += [
            write.addr.eq(Mux(upper_en, Cat(1, upper.word), Cat(0, given.word))),
            write.data.eq(Mux(upper_en, upper.data[16:], lower).replicate(GID_COUNT)),
            write.en.eq(Mux(upper_en, 1 << upper.index, Mux(self.write_en, 1 << given.index, 0))),
            # The last word on the wire is in the first half of a row.
            read.addr.eq(Mux(self.begin, TYPE_HALF, ~self.number)),
        ]
        rows = [read.data.word_select(n, 16) for n in range(GID_COUNT)]
        words = [*rows, Mux(self.number[0], self.ip[:16], self.ip[16:])]
        candidates, agree, looked = Signal(GID_COUNT + 1), Signal(GID_COUNT + 1), Signal()

        # Nobody asks for the IPv4-mapped GIDs that may be among those of RoCEv1.
        def usable(row):
            v6 = (row[kind] == GidType.ROCE_V2_IPV6) | (row[kind] == GidType.ROCE_V1)
            return (row[vlan] == self.vlan) & Mux(self.six, v6, row[kind] == GidType.ROCE_V2_IPV4)

        m.d.comb += [
            self.source.eq(pick(rows, self.row)),
            self.row_vlan.eq(self.source[vlan]),
            agree.eq(Cat(word == self.word for word in words) & candidates),
            self.unknown.eq(looked & ~candidates.any()),
        ]
        m.d.sync += looked.eq(self.look)
        with m.If(self.begin):
            m.d.sync += candidates.eq(Cat(*(usable(row) for row in rows), ~self.six & (self.vlan == 0)))
        with m.Elif(self.look):
            m.d.sync += candidates.eq(agree)
        return m

    @staticmethod
    def _place(name):
        """Bits of the word of 32 bits with a row's type in which a field stands."""
        field = GID_ROW.fields[name]
        return slice(field.offset % 32, field.offset % 32 + field.width)
