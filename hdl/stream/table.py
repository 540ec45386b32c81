"""A copy of some fields of a context, for the one block that reads them."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from .ram import Ram
from .transfer import AttributeWrite

__all__ = ["LANE", "Table", "kept_bits"]

ROWS = 512
"""Rows of a block RAM that is as wide as it can be."""

LANE = 9
"""Bits that block RAM writes apart from their neighbours."""

PAGE_BITS = 12
"""Low bits of a ring's address, which are zero: they are not kept."""

RINGS = ("sq_base", "rq_base", "base")


def kept_bits(record, names):
    """Of each 32-bit word of ``record`` the parts of the fields ``names`` in it, ring addresses without their low bits:
    a dictionary of word to list of (name, first bit of the field, first bit of the word, width)."""
    words = {}
    for name in names:
        field = record.fields[name]
        start, end = field.offset + (PAGE_BITS if name in RINGS else 0), field.offset + field.width
        while start < end:
            width = min(end, (start // 32 + 1) * 32) - start
            words.setdefault(start // 32, []).append((name, start - field.offset, start % 32, width))
            start += width
    return words


class Table(wiring.Component):
    """Keeps the fields ``names`` of ``record`` for ``depth`` objects; listens to the command block's broadcast.

    Reading takes 2 cycles, as of :class:`.ram.Ram`. A write is never stalled, and reaches the memory a cycle after the
    broadcast, out of registers: the block RAMs of all tables stand far from each other. Of each 32-bit word only what
    is wanted is kept, in lanes of 9 bits; ring addresses without their low 12 bits, which read as zero.

    Parameters
    ----------
    record : Record
        :data:`verbena.hdl.abi.contexts.QP_CONTEXT` or ``CQ_CONTEXT``.
    names : iterable of str
    depth : int
        Objects.
    late : iterable of str
        Of ``names`` those that are read apart from the others: where block RAM has rows for it they stand in a second
        row of each object.

    Members
    -------
    write : ``AttributeWrite`` with ``write_en``
        Broadcast. Words not kept are ignored.
    writing : 1
        Something is written in this cycle, perhaps: a row that is read meanwhile is undefined.
    write_conflict : 2
        So ``row`` is undefined, perhaps: bit 1, in this cycle; bit 0, in the next one.
    index, row
        Read address and, 2 cycles later, the fields.
    apart : 1
        With ``late``: those fields are read in this cycle, and the others are undefined 2 cycles later; else the other
        way round.
    """

    def __init__(self, record, names, depth, late=()):
        self.record = record
        self.names = tuple(names)
        self.depth = depth
        self.late = frozenset(late)
        if not self.late <= set(self.names):
            raise ValueError(f"late must be of names, not {late!r}")
        self.layout = data.StructLayout({name: record.fields[name].width for name in self.names})
        super().__init__(
            {
                "write": In(AttributeWrite),
                "write_en": In(1),
                "writing": Out(1),
                "write_conflict": Out(2),
                "index": In(range(max(2, depth))),
                "row": Out(self.layout),
            }
            | ({"apart": In(1)} if self.late else {})
        )

    def elaborate(self, platform):
        m = Module()
        words = kept_bits(self.record, self.names)
        lanes = {word: -(-sum(width for *_, width in parts) // LANE) for word, parts in words.items()}
        of_late = {word for word, parts in words.items() if self.late.intersection(name for name, *_ in parts)}
        if not all(self.late.issuperset(name for name, *_ in words[word]) for word in of_late):
            raise ValueError(f"late must have all names of their words, not {self.late!r}")
        split = bool(self.late) and 2 * self.depth <= ROWS
        groups = [[word for word in words if word not in of_late], list(of_late)] if split else [list(words)]
        count = max(sum(lanes[word] for word in group) for group in groups)
        m.submodules.ram = ram = Ram(LANE * count, self.depth * len(groups), granularity=LANE)
        place, data_ = Signal.like(self.write.index), Signal.like(self.write.data)
        m.d.sync += [place.eq(self.write.index), data_.eq(self.write.data), self.writing.eq(self.write_en)]
        m.d.sync += self.write_conflict.eq(Cat(self.writing, self.write_conflict[0]))
        w_apart = Signal()
        if split:
            m.d.sync += w_apart.eq(Cat(self.write.word == word for word in of_late).any())
            m.d.comb += [ram.w_addr.eq(Cat(w_apart, place)), ram.r_addr.eq(Cat(self.apart, self.index))]
        else:
            m.d.comb += [ram.w_addr.eq(place), ram.r_addr.eq(self.index)]
        for name in (name for name in self.names if name in RINGS):
            m.d.comb += self.row[name][:PAGE_BITS].eq(0)
        enables, values = [[] for _ in range(count)], {}
        for group in groups:
            lane = 0
            for word in group:
                at = LANE * lane
                taken = Cat(data_[bit : bit + width] for _name, _first, bit, width in words[word])
                for bit, value in enumerate(taken, start=at):
                    # What no word has in this row is not written, and may have any value.
                    values[bit] = Mux(w_apart, value, values[bit]) if bit in values else value
                enable = Signal(name=f"enable_{word}")
                m.d.sync += enable.eq(self.write_en & (self.write.word == word))
                for each in enables[lane : lane + lanes[word]]:
                    each.append(enable)
                for name, first, _bit, width in words[word]:
                    m.d.comb += self.row[name][first : first + width].eq(ram.r_data[at : at + width])
                    at += width
                lane += lanes[word]
        m.d.comb += ram.w_data.eq(Cat(values.get(bit, Const(0, 1)) for bit in range(LANE * count)))
        m.d.comb += ram.w_en.eq(Cat(Cat(each).any() for each in enables))
        return m
