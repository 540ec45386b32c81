"""Bytes gathered from anywhere, made one contiguous packet."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from .almost_full_fifo import AlmostFullFifo
from .packet import PacketBeat

__all__ = ["FragmentBeat", "Realigner"]


class FragmentBeat(data.StructLayout):
    """Some consecutive bytes of a packet, anywhere in a bus word.

    Parameters
    ----------
    data_width : int
        64, 128, 256 or 512 bits.

    Members
    -------
    data : ``data_width``
        Bytes outside ``offset`` to ``offset + count - 1`` are ignored.
    offset : 0 to ``data_width // 8 - 1``
        First byte that belongs to the packet; ignored if ``count`` is 0.
    count : 0 to ``data_width // 8``
        Bytes that belong to the packet; ``offset + count`` is at most ``data_width // 8``.
    last : 1
        The packet ends with this fragment.
    error : 1
        The packet is damaged. May stand in any fragment; the packet's last beat shows it.
    """

    def __init__(self, data_width):
        if data_width not in (64, 128, 256, 512):
            raise ValueError(f"data_width must be 64, 128, 256 or 512, not {data_width!r}")
        self.data_width = data_width
        bits = ceil_log2(data_width // 8)
        super().__init__({"data": data_width, "offset": bits, "count": bits + 1, "last": 1, "error": 1})


class Realigner(wiring.Component):
    """Gathers fragments into packets: the bytes of all fragments up to ``last``, in order, without gaps.

    Takes one fragment each cycle, whatever its size, and never puts out more beats than there were fragments.
    Every beat but the last is full. A packet without a byte comes out as one beat of count 0 if it is in error, and
    not at all otherwise; no other beat has count 0. A full beat waits until the next byte, or ``last``, has come.

    A packet of one fragment comes out 2 cycles after it, and one more for each stage of the rotation (none if
    ``granularity`` is the whole word; one at 64 bits; two above, or one with few lanes). The pipeline does not stand
    still: up to 15 beats wait behind it. ``i.ready`` and ``o.valid`` are registers.

    Parameters
    ----------
    data_width : int
        64, 128, 256 or 512 bits.
    granularity : int
        1, 4 or 8: every ``offset`` is a multiple of it, and so is every ``count``, but for the last fragment of
        a packet that holds a byte.

    Members
    -------
    i : stream of ``FragmentBeat``
    o : stream of ``PacketBeat``
    """

    def __init__(self, data_width, granularity):
        if granularity not in (1, 4, 8):
            raise ValueError(f"granularity must be 1, 4 or 8, not {granularity!r}")
        self.data_width = data_width
        self.granularity = granularity
        super().__init__(
            {
                "i": In(stream.Signature(FragmentBeat(data_width))),
                "o": Out(stream.Signature(PacketBeat(data_width))),
            }
        )

    def elaborate(self, platform):
        m = Module()
        size = self.data_width // 8
        lanes = size // self.granularity
        lane = self.data_width // lanes
        shift = ceil_log2(self.granularity)
        amount_bits = ceil_log2(lanes)
        i, o = self.i, self.o

        # Where the fragment goes: everything about it but its data is decided here.
        fill = Signal(range(size + 1))  # bytes that stand before it in the beat; a full beat counts as such
        total = Signal(range(2 * size + 1))
        over = Signal()
        damaged = Signal()
        m.d.comb += [total.eq(fill + i.payload.count), over.eq(total > size)]
        control = data.StructLayout(
            {
                "valid": 1,
                "over": 1,
                "end": 1,
                "error": 1,
                "fill": fill.shape(),
                "count": fill.shape(),
                "amount": amount_bits,
            }
        )
        placed = Signal(control)
        placed_data = Signal(self.data_width, reset_less=True)
        after = Signal.like(fill)
        taken = i.valid & i.ready
        m.d.comb += after.eq(total - (over << ceil_log2(size)))
        m.d.sync += [
            placed.valid.eq(taken),
            placed.over.eq(over),
            placed.error.eq(damaged | i.payload.error),
            placed.end.eq(i.payload.last & ((total != 0) | damaged | i.payload.error)),
            placed.fill.eq(fill),
            placed.count.eq(after),
            placed_data.eq(i.payload.data),
        ]
        if amount_bits:
            m.d.sync += placed.amount.eq(fill[shift:] - i.payload.offset[shift:])
        with m.If(taken):
            with m.If(i.payload.last):
                m.d.sync += [fill.eq(0), damaged.eq(0)]
            with m.Else():
                m.d.sync += [fill.eq(after), damaged.eq(damaged | i.payload.error)]

        # The rotation, up to 8 to 1 a stage; beside its last stage, which lanes keep what came before.
        moved, moved_data, done = placed, placed_data, 0
        before = Signal(lanes)
        stages = -(-amount_bits // 3)
        for stage in range(stages):
            bits = -(-(amount_bits - done) // (stages - stage))
            next_moved = Signal(control, name=f"moved_{stage}")
            next_data = Signal(self.data_width, name=f"moved_data_{stage}", reset_less=True)
            rotated = moved_data  # step by step: a switch over all amounts takes twice the LUTs
            for bit in range(done, done + bits):
                rotated = Mux(moved.amount[bit], rotated.rotate_left(lane << bit), rotated)
            m.d.sync += [
                next_moved.eq(moved),
                next_data.eq(rotated),
                before.eq(Cat(moved.fill > j * self.granularity for j in range(lanes))),
            ]
            moved, moved_data, done = next_moved, next_data, done + bits
        if stages == 0:
            m.d.comb += before.eq(moved.fill != 0)

        # `held` keeps the beat that is being filled. A beat that ends a packet leaves at once, unless one before it has
        # to; then it leaves next, while the next packet begins.
        held = Signal(self.data_width, reset_less=True)
        ended = Signal()
        held_count = Signal.like(moved.count, reset_less=True)
        held_error = Signal(reset_less=True)
        first = Signal(init=1)
        direct = Signal()
        m.submodules.fifo = fifo = AlmostFullFifo(PacketBeat(self.data_width), stages + 2)
        wiring.connect(m, fifo.o, wiring.flipped(o))
        beat = fifo.i
        m.d.comb += [
            i.ready.eq(fifo.room),
            direct.eq(moved.valid & moved.end & ~moved.over & ~ended),
            fifo.i_valid.eq(ended | direct | (moved.valid & moved.over)),
            beat.count.eq(Mux(ended, held_count, Mux(direct, moved.count, size))),
            beat.first.eq(first),
            beat.last.eq(ended | direct),
            beat.error.eq(Mux(ended, held_error, direct & moved.error)),
        ]
        for j in range(lanes):
            here = slice(j * lane, (j + 1) * lane)
            m.d.comb += beat.data[here].eq(Mux(ended | before[j], held[here], moved_data[here]))
        m.d.sync += ended.eq(moved.valid & moved.end & ~direct)
        with m.If(fifo.i_valid):
            m.d.sync += first.eq(beat.last)
        with m.If(moved.valid):
            m.d.sync += [held_count.eq(moved.count), held_error.eq(moved.error)]
            for j in range(lanes):
                here = slice(j * lane, (j + 1) * lane)
                m.d.sync += held[here].eq(Mux(before[j] & ~moved.over, held[here], moved_data[here]))
        return m
