"""The opposite of gathering: a contiguous packet laid into memory, byte by byte where it belongs."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ..stream.packet import PacketBeat
from .port import WriteBeat

__all__ = ["Scatter", "Slice"]


class Slice(data.StructLayout):
    """One burst's share of a packet.

    Members
    -------
    length : 8
        Beats of memory, less one.
    start, end
        First byte within the first beat, last byte within the last beat, in units of the granularity.
    empty : 1
        Nothing at all: only ``last`` counts.
    last : 1
        The packet's last slice.
    """

    def __init__(self, data_width, granularity):
        lanes = data_width // 8 // granularity
        super().__init__({"length": 8, "start": range(lanes), "end": range(lanes), "empty": 1, "last": 1})


class Scatter(wiring.Component):
    """Cuts each packet into slices and shifts each slice to its place within the beats of memory.

    A slice takes 1 cycle and 1 a beat of memory; the first beat comes out 2 cycles after the slice. After the last
    slice the rest of the packet is swallowed. If the slices hold more than the packet, beats that would need what is
    not there come out without strobes (and the beat at the packet's end may hold undefined bytes within the slice).

    Parameters
    ----------
    data_width : int
        64, 128, 256 or 512 bits.
    granularity : int
        1 or 8: starts, ends and the packet's length are multiples of it.

    Members
    -------
    i : stream of ``Slice``
        ``ready`` depends on registers only.
    payload : stream of ``PacketBeat``
    o : stream of ``WriteBeat``
        ``last`` ends a slice.
    """

    def __init__(self, data_width, granularity):
        if granularity not in (1, 8):
            raise ValueError(f"granularity must be 1 or 8, not {granularity!r}")
        self.data_width = data_width
        self.granularity = granularity
        super().__init__(
            {
                "i": In(stream.Signature(Slice(data_width, granularity))),
                "payload": In(stream.Signature(PacketBeat(data_width))),
                "o": Out(stream.Signature(WriteBeat(data_width))),
            }
        )

    def elaborate(self, platform):
        m = Module()
        lanes = self.data_width // 8 // self.granularity
        lane = self.data_width // lanes
        bits = ceil_log2(lanes)
        i, payload, o = self.i, self.payload, self.o

        active, draining = Signal(), Signal()
        ended = Signal()  # the packet's last beat has been taken
        kept = Signal(
            self.data_width
        )  # the beat taken last; its bytes from `place` on are the next ones. If that is 0, none are.
        place = Signal(bits)
        amount = Signal(bits)  # by which the packet's bytes move up, modulo a beat: the same for all of a slice
        length = Signal(8)
        start, end = Signal(bits), Signal(bits)
        first, final = Signal(), Signal()
        last = Signal()
        first_needs, final_needs = Signal(), Signal()

        m.d.comb += i.ready.eq(~active & ~draining)
        with m.If(i.valid & i.ready):
            p = i.payload
            m.d.sync += [
                active.eq(~p.empty),
                first.eq(1),
                final.eq(p.length == 0),
                length.eq(p.length),
                start.eq(p.start),
                end.eq(p.end),
                last.eq(p.last),
                amount.eq(p.start - place),
                # Does the first beat need more bytes than are kept?
                first_needs.eq(
                    (place == 0) | Mux(p.length == 0, (place + (p.end - p.start)[:bits])[bits], place > p.start)
                ),
                final_needs.eq(p.end >= (p.start - place)[:bits]),
            ]
            with m.If(p.empty & p.last):
                m.d.sync += [draining.eq(~ended), ended.eq(0), place.eq(0)]

        need = Signal()
        free = Signal()
        fire = Signal()
        take = Signal()
        over = Signal()
        m.d.comb += [
            need.eq(Mux(first, first_needs, ~final | final_needs)),
            free.eq(~o.valid | o.ready),
            take.eq(active & need & ~ended & free),
            payload.ready.eq(take | draining),
            fire.eq(active & free & (~need | ended | payload.valid)),
            over.eq(ended | (take & payload.payload.last)),
        ]
        from_lane, to_lane = Signal(bits), Signal(bits)
        m.d.comb += [
            from_lane.eq(Mux(first, start, 0)),
            to_lane.eq(Mux(final, end, lanes - 1)),
        ]
        with m.If(o.ready):
            m.d.sync += o.valid.eq(0)
        with m.If(fire):
            m.d.sync += [
                first.eq(0),
                final.eq(length == 1),
                length.eq(length - 1),
                place.eq(to_lane + 1 - amount),
                ended.eq(over),
            ]
            with m.If(take):
                m.d.sync += kept.eq(payload.payload.data)
            with m.If(final):
                m.d.sync += active.eq(0)
                with m.If(last):
                    m.d.sync += [place.eq(0), ended.eq(0), draining.eq(~over)]
            m.d.sync += o.valid.eq(1)
        with m.If(draining & payload.valid & payload.payload.last):
            m.d.sync += draining.eq(0)

        joined = Signal(self.data_width)
        for j in range(lanes):
            here = slice(j * lane, (j + 1) * lane)
            m.d.comb += joined[here].eq(Mux((place != 0) & (place <= j), kept[here], payload.payload.data[here]))
        for bit in range(bits):
            rotated = Signal(self.data_width, name=f"rotated_{bit}")
            m.d.comb += rotated.eq(Mux(amount[bit], joined.rotate_left(lane << bit), joined))
            joined = rotated
        there = ~(need & ended)
        with m.If(~o.valid | o.ready):
            m.d.sync += [
                o.payload.data.eq(joined),
                o.payload.strobe.eq(
                    Cat((there & (from_lane <= j) & (to_lane >= j)).replicate(self.granularity) for j in range(lanes))
                ),
                o.payload.last.eq(final),
            ]
        return m
