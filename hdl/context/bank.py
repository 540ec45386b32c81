"""Half of the contexts on chip: its first stage reads them, their owner writes them back."""

from amaranth.hdl import Cat, Const, Module, Mux, Shape, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ..stream.ram import Ram
from ..stream.table import LANE, kept_bits
from ..stream.transfer import AttributeWrite

__all__ = ["ContextBank"]


class ContextBank(wiring.Component):
    """Keeps of each slot the attributes ``names``, which the command block writes, and ``states``, each of which its
    owner writes.

    A slot stands in ``rows`` rows of block RAM, so a read takes ``rows`` cycles, and so does a write; one read may
    follow the other at once, and so may writes of each state. ``r_valid`` comes ``rows`` + 1 cycles after a read was
    taken, and a cycle later for each cycle in which an attribute is written meanwhile. A write that was taken is in all
    reads that are taken from the next cycle on; in that one none is taken.

    A state that is written between the cycle in which a read of its slot is taken and ``r_valid`` comes out undefined.
    Who reads a slot in order to write it back keeps others from reading it meanwhile, and that is enough; who reads
    what others write reads again.

    Ring addresses are kept without their low 12 bits, which read as zero.

    Parameters
    ----------
    record : Record
        Of the attributes, :data:`verbena.hdl.abi.contexts.QP_CONTEXT`.
    names : iterable of str
        Attributes that are kept.
    states : dict of str to shape-like
        What each owner keeps. If there are none, nor are the members ``states`` and ``write``.
    slots : int
        A power of two, at least 2.
    rows : int
        1, 2, 4 or 8. Block RAM has 512 rows of 36 bits: what is narrow and deep takes fewer of them.

    Members
    -------
    attribute, attribute_en : ``AttributeWrite``
        The command block's broadcast, never stalled.
    r_slot, r_en, r_ready : slot, 1, 1
        A read is taken if the last two are set.
    r_look : 1
        While no read is under way ``r_slot`` is addressed, whether its read is taken or not. It must be set with
        ``r_en``, and may be set earlier: so ``r_en`` may come late.
    r_valid, attributes, states : 1, fields of ``names``, fields of ``states``
        What was read: in the cycle of ``r_valid``, and then until ``r_look``, or until the slot is written. If
        ``r_look`` was set in the cycle before ``r_valid``, in that cycle alone.
    write : for each state ``slot``, ``data``, ``en``, ``ready``
        A write is taken if ``en`` and ``ready`` are set.
    """

    def __init__(self, record, names, states, slots, rows):
        if not isinstance(slots, int) or slots < 2 or slots & slots - 1:
            raise ValueError(f"slots must be a power of two, at least 2, not {slots!r}")
        if rows not in (1, 2, 4, 8):
            raise ValueError(f"rows must be 1, 2, 4 or 8, not {rows!r}")
        self.record = record
        self.names = tuple(names)
        self.slots = slots
        self.rows = rows
        self.layout = data.StructLayout({name: record.fields[name].width for name in self.names})
        writes = {
            name: Out(wiring.Signature({"slot": In(range(slots)), "data": In(state), "en": In(1), "ready": Out(1)}))
            for name, state in states.items()
        }
        super().__init__(
            {
                "attribute": In(AttributeWrite),
                "attribute_en": In(1),
                "r_slot": In(range(slots)),
                "r_en": In(1),
                "r_look": In(1),
                "r_ready": Out(1),
                "r_valid": Out(1),
                "attributes": Out(self.layout),
            }
            | ({"states": Out(data.StructLayout(states)), "write": Out(wiring.Signature(writes))} if states else {})
        )
        self.owners = tuple(states)

    def _at(self, slot, row):
        """Address of a row of a slot."""
        return Cat(row, slot) if self.rows > 1 else slot

    def _next(self, row):
        return (row + 1)[: len(row)] if self.rows > 1 else Const(0, 1)

    def _is_last(self, row):
        return row == self.rows - 1 if self.rows > 1 else Const(1)

    def _collect(self, m, name, ram, arrives):
        """The rows of a slot, from the cycle on in which the last one comes; ``arrives``: one that is not the last."""
        width = len(ram.r_data)
        if self.rows == 1:
            return ram.r_data
        before = Signal(width * (self.rows - 1), name=f"{name}_before", reset_less=True)
        with m.If(arrives):
            m.d.sync += before.eq(Cat(before, ram.r_data)[width:])
        return Cat(before, ram.r_data)

    def _state(self, m, name):
        """A state's block RAM, and whether it writes the first row of a slot in this cycle.

        It is written out of registers, its first row a cycle after it was taken.
        """
        port = getattr(self.write, name)
        bits = Shape.cast(port.data.shape()).width
        part = -(-bits // self.rows)
        m.submodules[f"{name}_state"] = ram = Ram(part, self.slots * self.rows)
        writes = Signal(name=f"{name}_writes")
        slot = Signal(range(self.slots), name=f"{name}_slot")
        row = Signal(range(max(2, self.rows)), name=f"{name}_row")
        waiting = Signal(part * self.rows, name=f"{name}_waiting", reset_less=True)
        last, takes, begins = self._is_last(row), Signal(name=f"{name}_takes"), Signal(name=f"{name}_begins")
        ready = Signal(init=1, name=f"{name}_ready")
        m.d.comb += [
            port.ready.eq(ready),
            takes.eq(port.en & ready),
            ram.w_addr.eq(self._at(slot, row)),
            ram.w_data.eq(waiting[:part]),
            ram.w_en.eq(writes),
        ]
        m.d.sync += begins.eq(takes)
        with m.If(writes):
            m.d.sync += [writes.eq(~last), row.eq(self._next(row)), waiting[:-part].eq(waiting[part:])]
            m.d.sync += ready.eq(last | self._is_last(self._next(row)))
        # Whether it is taken comes late, and is not needed for what would be written.
        with m.If(ready):
            m.d.sync += [slot.eq(port.slot), row.eq(0), waiting.eq(port.data)]
        with m.If(takes):
            m.d.sync += [writes.eq(1), ready.eq(self.rows == 1)]
        return ram, begins

    def elaborate(self, platform):
        m = Module()
        row_shape = range(max(2, self.rows))
        slot = Signal.like(self.r_slot)
        owned = {name: self._state(m, name) for name in self.owners}

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
        into, values, enables = Signal(row_shape), [Const(0, 1)] * (LANE * row_lanes), Signal(row_lanes)
        m.d.comb += [
            settings.w_addr.eq(self._at(written.index[: ceil_log2(self.slots)], into)),
            settings.w_en.eq(enables),
        ]
        # A bit of a lane has at most `rows` sources, and what none of them says is not written, or nobody reads it.
        sources = [[] for _ in range(LANE * row_lanes)]
        for word, parts in words.items():
            place, lane = places[word]
            bits = Cat(written.data[bit : bit + width] for _name, _first, bit, width in parts)
            mine = Signal(name=f"word_{word}")
            m.d.comb += mine.eq(writing & (written.word == word))
            with m.If(mine):
                m.d.comb += [into.eq(place), enables[lane : lane + lanes[word]].eq(~0)]
            for number, bit in enumerate(bits):
                sources[LANE * lane + number].append((mine, bit))
        for number, choices in enumerate(sources):
            for mine, bit in choices:
                values[number] = Mux(mine, bit, values[number]) if mine is not choices[0][0] else bit
        m.d.comb += settings.w_data.eq(Cat(values))

        # -- Reading: a row a cycle, but not while an attribute is written, and no row that is being written.
        reads, r_row = Signal(), Signal(row_shape)
        meets = Signal()  # a state's first row is written in this cycle, of whatever slot: to compare would take long
        m.d.comb += [
            self.r_ready.eq(~reads & ~writing & ~meets),
        ]
        if owned:
            m.d.comb += meets.eq(Cat(begins for _, begins in owned.values()).any())
        step, last, taken = Signal(), Signal(), Signal()
        looks = self.r_look & ~reads
        address = Mux(looks, self._at(self.r_slot, Const(0, len(r_row))), self._at(slot, r_row))
        m.d.comb += [
            taken.eq(self.r_en & self.r_ready),
            step.eq(Mux(reads, ~writing, taken)),
            last.eq(step & (self._is_last(r_row) & ~taken if self.rows > 1 else 1)),
            settings.r_addr.eq(address),
            *(ram.r_addr.eq(address) for ram, *_ in owned.values()),
        ]
        # Between two reads the last row stays addressed, and so at the output, until somebody looks.
        with m.If(taken):
            m.d.sync += [slot.eq(self.r_slot), reads.eq(self.rows > 1), r_row.eq(min(1, self.rows - 1))]
        with m.Elif(step):
            m.d.sync += reads.eq(~last)
            with m.If(~last):
                m.d.sync += r_row.eq(r_row + 1)
        arrives, on_the_way = Signal(), Signal(2)  # a row that is not the last; that one, the last one
        m.d.sync += [on_the_way.eq(Cat(step & ~last, last)), Cat(arrives, self.r_valid).eq(on_the_way)]
        row = self._collect(m, "settings", settings, arrives)
        for name, (ram, *_) in owned.items():
            m.d.comb += Value.cast(self.states[name]).eq(self._collect(m, name, ram, arrives))
        for word, parts in words.items():
            place, lane = places[word]
            bit = LANE * (place * row_lanes + lane)
            for name, first, _bit, width in parts:
                m.d.comb += self.attributes[name][first : first + width].eq(row[bit : bit + width])
                bit += width
        return m
