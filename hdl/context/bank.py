"""Half of the contexts on chip: its first stage reads them, their owner writes them back."""

from amaranth.hdl import Cat, Const, Module, Mux, Shape, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ..stream.ram import Ram
from ..stream.table import LANE, kept_bits
from ..stream.transfer import AttributeWrite

__all__ = ["ContextBank"]


class ContextBank(wiring.Component):
    """Keeps of each slot the attributes ``names``, which the command block writes, and a ``state``, which its owner
    writes.

    A slot stands in ``rows`` rows of block RAM, so a read takes ``rows`` cycles, and so does a write; one read may
    follow the other at once, and so may writes. ``r_valid`` comes ``rows`` + 1 cycles after a read was taken, and a
    cycle later for each cycle in which an attribute is written meanwhile. A write that was taken is in all reads that
    are taken from the next cycle on.

    The user must not write the state of a slot between the cycle in which a read of it is taken and ``r_valid``: who
    reads a slot in order to write it back keeps others from reading it meanwhile, and that is enough.

    Ring addresses are kept without their low 12 bits, which read as zero.

    Parameters
    ----------
    record : Record
        Of the attributes, :data:`verbena.hdl.abi.contexts.QP_CONTEXT`.
    names : iterable of str
        Attributes that are kept.
    state : shape-like
        What the owner keeps.
    slots : int
        A power of two, at least 2.
    rows : int
        1, 2, 4 or 8. Block RAM has 512 rows of 36 bits: what is narrow and deep takes fewer of them.

    Members
    -------
    attribute, attribute_en : ``AttributeWrite``
        The command block's broadcast, never stalled.
    r_slot, r_en, r_ready : slot, 1, 1
        A read is taken if both are set.
    r_valid, attributes, state : 1, fields of ``names``, ``state``
        What was read, in the cycle of ``r_valid`` alone.
    w_slot, w_state, w_en, w_ready : slot, ``state``, 1, 1
        A write is taken if both are set.
    """

    def __init__(self, record, names, state, slots, rows):
        if not isinstance(slots, int) or slots < 2 or slots & slots - 1:
            raise ValueError(f"slots must be a power of two, at least 2, not {slots!r}")
        if rows not in (1, 2, 4, 8):
            raise ValueError(f"rows must be 1, 2, 4 or 8, not {rows!r}")
        self.record = record
        self.names = tuple(names)
        self.slots = slots
        self.rows = rows
        self.layout = data.StructLayout({name: record.fields[name].width for name in self.names})
        super().__init__(
            {
                "attribute": In(AttributeWrite),
                "attribute_en": In(1),
                "r_slot": In(range(slots)),
                "r_en": In(1),
                "r_ready": Out(1),
                "r_valid": Out(1),
                "attributes": Out(self.layout),
                "state": Out(state),
                "w_slot": In(range(slots)),
                "w_state": In(state),
                "w_en": In(1),
                "w_ready": Out(1),
            }
        )

    def _at(self, slot, row):
        """Address of a row of a slot."""
        return Cat(row, slot) if self.rows > 1 else slot

    def _next(self, row):
        return (row + 1)[: len(row)] if self.rows > 1 else Const(0, 1)

    def _is_last(self, row):
        return row == self.rows - 1 if self.rows > 1 else Const(1)

    def _collect(self, m, name, ram, arrives):
        """The rows of a slot, in the cycle in which the last one comes."""
        width = len(ram.r_data)
        if self.rows == 1:
            return ram.r_data
        before = Signal(width * (self.rows - 1), name=f"{name}_before", reset_less=True)
        with m.If(arrives):
            m.d.sync += before.eq(Cat(before, ram.r_data)[width:])
        return Cat(before, ram.r_data)

    def elaborate(self, platform):
        m = Module()
        row_shape = range(max(2, self.rows))
        slot = Signal.like(self.r_slot)

        # -- A state is written out of registers, its first row a cycle after it was taken.
        part = -(-Shape.cast(self.w_state.shape()).width // self.rows)
        m.submodules.states = states = Ram(part, self.slots * self.rows)
        writes, w_slot, w_row = Signal(), Signal.like(self.w_slot), Signal(row_shape)
        waiting = Signal(part * self.rows, reset_less=True)
        w_last = self._is_last(w_row)
        m.d.comb += [
            self.w_ready.eq(~writes | w_last),
            states.w_addr.eq(self._at(w_slot, w_row)),
            states.w_data.eq(waiting[:part]),
            states.w_en.eq(writes),
        ]
        with m.If(writes):
            m.d.sync += [writes.eq(~w_last), w_row.eq(self._next(w_row)), waiting.eq(waiting >> part)]
        with m.If(self.w_en & self.w_ready):
            m.d.sync += [writes.eq(1), w_slot.eq(self.w_slot), w_row.eq(0), waiting.eq(self.w_state)]

        # -- Attributes: each word has lanes of its own in one of the rows.
        words = kept_bits(self.record, self.names)
        lanes = {word: -(-sum(width for *_, width in parts) // LANE) for word, parts in words.items()}
        filled, places = [0] * self.rows, {}
        for word in sorted(words, key=lambda word: -lanes[word]):
            place = min(range(self.rows), key=filled.__getitem__)
            places[word] = (place, filled[place])
            filled[place] += lanes[word]
        row_lanes = max(1, *filled) if self.rows > 1 else max(1, filled[0])
        m.submodules.settings = settings = Ram(LANE * row_lanes, self.slots * self.rows, granularity=LANE)
        writing, written = Signal(), Signal(AttributeWrite)
        m.d.sync += [writing.eq(self.attribute_en), written.eq(self.attribute)]
        into, values, enables = Signal(row_shape), [Const(0, LANE)] * row_lanes, Signal(row_lanes)
        m.d.comb += [
            settings.w_addr.eq(self._at(written.index[: ceil_log2(self.slots)], into)),
            settings.w_en.eq(enables),
        ]
        # A lane holds bits of one word in each row, and so has at most `rows` sources.
        sources = [[] for _ in range(row_lanes)]
        for word, parts in words.items():
            place, lane = places[word]
            bits = Cat(written.data[bit : bit + width] for _name, _first, bit, width in parts)
            mine = Signal(name=f"word_{word}")
            m.d.comb += mine.eq(writing & (written.word == word))
            with m.If(mine):
                m.d.comb += [into.eq(place), enables[lane : lane + lanes[word]].eq(~0)]
            for number in range(lanes[word]):
                sources[lane + number].append((mine, bits[LANE * number : LANE * (number + 1)]))
        for lane, choices in enumerate(sources):
            for mine, bits in choices:
                values[lane] = Mux(mine, Cat(bits, Const(0, LANE - len(bits))), values[lane])
        m.d.comb += settings.w_data.eq(Cat(values))

        # -- Reading: a row a cycle, but not while an attribute is written, and no row that is being written.
        reads, r_row = Signal(), Signal(row_shape)
        meets = Signal()  # the state's first row is written in this cycle
        m.d.comb += [
            meets.eq(writes & (w_row == 0) & (w_slot == self.r_slot)),
            self.r_ready.eq(~reads & ~writing & ~meets),
        ]
        at = Mux(reads, slot, self.r_slot)
        address = self._at(at, r_row)
        step, last = Signal(), Signal()
        m.d.comb += [
            step.eq(Mux(reads, ~writing, self.r_en & self.r_ready)),
            last.eq(step & self._is_last(r_row)),
            states.r_addr.eq(address),
            settings.r_addr.eq(address),
        ]
        with m.If(~reads):
            m.d.sync += slot.eq(self.r_slot)
        with m.If(step):
            m.d.sync += [reads.eq(~last), r_row.eq(self._next(r_row))]
        on_the_way, arrives = Signal(2), Signal(2)  # a row, the last one
        m.d.sync += [on_the_way.eq(Cat(step, last)), arrives.eq(on_the_way)]
        row = self._collect(m, "settings", settings, arrives[0])
        m.d.comb += [
            self.r_valid.eq(arrives[1]),
            self.state.eq(self._collect(m, "states", states, arrives[0])),
        ]
        for word, parts in words.items():
            place, lane = places[word]
            bit = LANE * (place * row_lanes + lane)
            for name, first, _bit, width in parts:
                m.d.comb += self.attributes[name][first : first + width].eq(row[bit : bit + width])
                bit += width
        return m
