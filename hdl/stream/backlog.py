"""A queue that is nearly always empty, and deep when it is not."""

from amaranth.hdl import Array, Cat, Module, Mux, Shape, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from .ram import Ram

__all__ = ["Backlog"]


class Backlog(wiring.Component):
    """Keeps up to ``depth`` items of ``shape`` in block RAM, in order, and two beside it.

    An item that finds nothing inside comes out 1 cycle after it went in. Others wait in block RAM, each in ``parts``
    rows: so an item goes in every ``parts + 1`` cycles at most, or every cycle if it takes one row, and one that waited
    comes out ``parts + 3`` cycles after the one before it was taken. ``i.ready`` depends on registers only, ``o`` is a
    register.

    Parameters
    ----------
    shape : shape-like
        Shape of an item; ``o.payload`` keeps it.
    depth : int
        A power of two, at least 2.
    parts : int
        A power of two.

    Members
    -------
    i, o : stream of ``shape``
    empty : 1
        Nothing inside.
    """

    def __init__(self, shape, depth, parts=1):
        if not isinstance(depth, int) or depth < 2 or depth & depth - 1:
            raise ValueError(f"depth must be a power of two, at least 2, not {depth!r}")
        if not isinstance(parts, int) or parts < 1 or parts & parts - 1:
            raise ValueError(f"parts must be a power of two, not {parts!r}")
        self.shape = shape
        self.depth = depth
        self.parts = parts
        super().__init__({"i": In(stream.Signature(shape)), "o": Out(stream.Signature(shape)), "empty": Out(1)})

    def elaborate(self, platform):
        m = Module()
        parts = self.parts
        width = Shape.cast(self.shape).width
        part_width = -(-width // parts)
        slices = [slice(n * part_width, min(width, (n + 1) * part_width)) for n in range(parts)]
        m.submodules.ram = ram = Ram(part_width, self.depth * parts)
        bits = ceil_log2(self.depth * parts)
        step_bits = ceil_log2(parts)  # may be 0: what a step is compared with, it equals then
        item = Value.cast(self.i.payload)
        out = Signal(width, reset_less=True)  # without `valid` it says nothing
        m.d.comb += Value.cast(self.o.payload).eq(out)

        # An item that cannot go straight to the output is held until it is stored.
        held, held_valid = Signal(width, reset_less=True), Signal()
        head, tail = Signal(bits), Signal(bits)
        level = Signal(range(self.depth + 1))  # items that are stored
        some, full = Signal(), Signal()  # level != 0, level == depth
        store, stored = Signal(), Signal()
        load, loaded = Signal(), Signal()
        straight = Signal()
        m.d.comb += [
            straight.eq(~held_valid & ~some & ~self.o.valid),
            store.eq(held_valid & ~full),
            stored.eq(store & (tail[:step_bits] == parts - 1)),
            self.i.ready.eq(~held_valid | (~full if parts == 1 else 0)),
            ram.w_addr.eq(tail),
            ram.w_en.eq(store),
            self.empty.eq(straight),
        ]
        rows = Array(held[part] for part in slices)
        m.d.comb += ram.w_data.eq(rows[tail[:step_bits]] if parts > 1 else held)
        with m.If(stored):
            m.d.sync += held_valid.eq(0)
        with m.If(self.i.ready):
            m.d.sync += [held_valid.eq(self.i.valid & ~straight), held.eq(item)]
        with m.If(store):
            m.d.sync += tail.eq(tail + 1)

        # A load: addresses one behind the other, and what they name two cycles later.
        asking = Signal()
        arriving = Signal(2)
        place, place1, place2 = Signal(step_bits), Signal(step_bits), Signal(step_bits)
        m.d.comb += [
            load.eq(asking | (some & ~self.o.valid & ~arriving.any())),
            place.eq(head[:step_bits]),
            ram.r_addr.eq(head),
            loaded.eq(arriving[1] & (place2 == parts - 1)),
        ]
        m.d.sync += [
            arriving.eq(Cat(load, arriving)),
            asking.eq(load & (place != parts - 1)),
            Cat(place1, place2).eq(Cat(place, place1)),
        ]
        with m.If(load):
            m.d.sync += head.eq(head + 1)
        for n, part in enumerate(slices):
            with m.If(~self.o.valid & ((~some & ~held_valid) | (arriving[1] & (place2 == n)))):
                m.d.sync += out[part].eq(Mux(some, ram.r_data[: part.stop - part.start], item[part]))
        with m.If(self.o.valid):
            m.d.sync += self.o.valid.eq(~self.o.ready)
        with m.Else():
            m.d.sync += self.o.valid.eq(loaded | (straight & self.i.valid))

        with m.If(stored & ~loaded):
            m.d.sync += [level.eq(level + 1), some.eq(1), full.eq(level == self.depth - 1)]
        with m.Elif(loaded & ~stored):
            m.d.sync += [level.eq(level - 1), some.eq(level != 1), full.eq(0)]
        return m
