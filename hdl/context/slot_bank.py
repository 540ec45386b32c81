"""Slots on chip: places for contexts whose truth is in host memory."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..stream.ram import Ram
from .layout import ATTRIBUTES, SlotLayout, leaves

__all__ = ["SlotBank"]


class SlotBank(wiring.Component):
    """Keeps of each slot attributes, which are only read, and states, each of which its owner writes. The
    :class:`.store.ContextStore` fills a slot, and reads what it writes back.

    Reading and writing of states is as of :class:`.bank.ContextBank`: a slot stands in ``rows`` rows, a read or a write
    takes ``rows`` cycles, one behind the other at once; ``r_valid`` comes ``rows`` + 1 cycles after a read was taken.

    A *fill* writes a row of a line, in the cycle in which it is taken; not while a state is being written. A read that
    is taken in the next cycle sees it. A slot is filled, and read back, only while nobody reads or writes it.

    *Back* reads a whole slot, between two reads of the stage. Its rows come out 3 cycles after it was taken, and for as
    many cycles what the stage has read is ``away``; then it is there again.

    Parameters
    ----------
    layout : SlotLayout
    slots : int
        A power of two, at least 2.

    Members
    -------
    r_slot, r_en, r_ready : slot, 1, 1
        A read is taken if both are set.
    r_valid, attributes, states : 1, fields of the attributes kept, fields of ``states``
        What was read: from the cycle of ``r_valid`` on until the next read is taken, or the slot is written.
    away : 1
        In this cycle something else stands there.
    write : for each state ``slot``, ``data``, ``en``, ``ready``
        A write is taken if ``en`` and ``ready`` are set.
    fill : stream of ``slot``, ``line``, ``row``, ``data``
        ``line`` counts ``layout.lines``.
    back_slot, back_en, back_ready : slot, 1, 1
        It is taken if both are set.
    back_valid, back_row, back_data
        A row of what is written back: the columns of all states, one behind the other.
    """

    def __init__(self, layout, slots):
        if not isinstance(layout, SlotLayout):
            raise TypeError(f"layout must be a SlotLayout, not {layout!r}")
        if not isinstance(slots, int) or slots < 2 or slots & slots - 1:
            raise ValueError(f"slots must be a power of two, at least 2, not {slots!r}")
        self.slot_layout = layout
        self.slots = slots
        self.rows = layout.rows
        attributes = layout.record.fields
        self.layout = data.StructLayout({name: attributes[name].width for name in layout.names})
        writes = {
            name: Out(wiring.Signature({"slot": In(range(slots)), "data": In(state), "en": In(1), "ready": Out(1)}))
            for name, state in layout.states.items()
        }
        row = range(max(2, layout.rows))
        fill = {"slot": range(slots), "line": range(max(2, len(layout.lines))), "row": row, "data": layout.row_bits}
        super().__init__(
            {
                "r_slot": In(range(slots)),
                "r_en": In(1),
                "r_ready": Out(1),
                "r_valid": Out(1),
                "attributes": Out(self.layout),
                "states": Out(data.StructLayout(layout.states)),
                "away": Out(1),
                "write": Out(wiring.Signature(writes)),
                "fill": In(stream.Signature(data.StructLayout(fill))),
                "back_slot": In(range(slots)),
                "back_en": In(1),
                "back_ready": Out(1),
                "back_valid": Out(1),
                "back_row": Out(row),
                "back_data": Out(sum(len(layout.columns[part]) for part in layout.states)),
            }
        )

    def _at(self, slot, row):
        """Address of a row of a slot."""
        return Cat(row, slot) if self.rows > 1 else slot

    def _is_last(self, row):
        return row == self.rows - 1 if self.rows > 1 else Const(1)

    def elaborate(self, platform):
        m = Module()
        layout, fill = self.slot_layout, self.fill.payload
        row_shape = range(max(2, self.rows))
        busy, meets, rams = [], [], {}
        for part in layout.parts:
            width = len(layout.columns[part])
            m.submodules[part] = rams[part] = ram = Ram(width, self.slots * self.rows)
            mine = self.fill.valid & self.fill.ready & (fill.line == layout.lines.index(layout.line_of(part)))
            m.d.comb += [
                ram.w_addr.eq(self._at(fill.slot, fill.row)),
                ram.w_data.eq(layout.take(part, fill.data)),
                ram.w_en.eq(mine),
            ]
            if part == ATTRIBUTES:
                continue
            # It is written out of registers, its first row a cycle after it was taken.
            port = getattr(self.write, part)
            writes, slot, row = (
                Signal(name=f"{part}_writes"),
                Signal(range(self.slots), name=f"{part}_slot"),
                Signal(row_shape, name=f"{part}_row"),
            )
            waiting = Signal(width * self.rows, name=f"{part}_waiting", reset_less=True)
            m.d.comb += port.ready.eq(~writes | self._is_last(row))
            with m.If(writes):
                m.d.comb += [ram.w_addr.eq(self._at(slot, row)), ram.w_data.eq(waiting[:width]), ram.w_en.eq(1)]
                m.d.sync += [writes.eq(~self._is_last(row)), row.eq(row + 1), waiting.eq(waiting >> width)]
            with m.If(port.en & port.ready):
                m.d.sync += [writes.eq(1), slot.eq(port.slot), row.eq(0), waiting.eq(layout.pack(part, port.data))]
            busy.append(writes)
            meets.append(writes & (row == 0) & (slot == self.r_slot))
        m.d.comb += self.fill.ready.eq(~Cat(busy).any())

        # -- Reading: of the stage, and between two such reads what is written back.
        reads, r_row, r_slot = Signal(), Signal(row_shape), Signal(range(self.slots))
        backs, b_row, b_slot = Signal(), Signal(row_shape), Signal(range(self.slots))
        taken, last = Signal(), Signal()
        # Between two reads the last row stays addressed, and so at the output.
        address = Mux(taken, self._at(self.r_slot, Const(0, len(r_row))), self._at(r_slot, r_row))
        m.d.comb += [
            self.r_ready.eq(~reads & ~backs & ~self.back_en & ~Cat(meets).any()),
            self.back_ready.eq(~reads & ~backs),
            taken.eq(self.r_en & self.r_ready),
            last.eq((reads & self._is_last(r_row)) | (taken if self.rows == 1 else 0)),
            *(ram.r_addr.eq(Mux(backs, self._at(b_slot, b_row), address)) for ram in rams.values()),
        ]
        with m.If(taken):
            m.d.sync += [r_slot.eq(self.r_slot), reads.eq(self.rows > 1), r_row.eq(min(1, self.rows - 1))]
        with m.Elif(reads):
            m.d.sync += reads.eq(~last)
            with m.If(~last):
                m.d.sync += r_row.eq(r_row + 1)
        with m.If(backs):
            m.d.sync += [backs.eq(~self._is_last(b_row)), b_row.eq(b_row + 1)]
        with m.If(self.back_en & self.back_ready):
            m.d.sync += [backs.eq(1), b_slot.eq(self.back_slot), b_row.eq(0)]
        arrives, on_the_way = Signal(), Signal(3)  # a row of the stage that is not the last; that, the last, a back row
        back_row1 = Signal.like(b_row)
        m.d.sync += [
            on_the_way.eq(Cat((taken | reads) & ~last, last, backs)),
            Cat(arrives, self.r_valid, self.back_valid).eq(on_the_way),
            back_row1.eq(b_row),
            self.back_row.eq(back_row1),
        ]
        m.d.comb += [
            self.away.eq(self.back_valid),
            self.back_data.eq(Cat(rams[part].r_data for part in layout.states)),
        ]
        for part, ram in rams.items():
            columns = ram.r_data
            if self.rows > 1:
                before = Signal(len(columns) * (self.rows - 1), name=f"{part}_before", reset_less=True)
                with m.If(arrives):
                    m.d.sync += before.eq(Cat(before, columns)[len(columns) :])
                columns = Cat(before, columns)
            found = layout.fields(part, columns)
            if part == ATTRIBUTES:
                m.d.comb += [self.attributes[name].eq(bits) for name, bits in found.items()]
            else:
                m.d.comb += [Value.cast(value).eq(found[name]) for name, value in leaves(self.states[part], part)]
        return m
