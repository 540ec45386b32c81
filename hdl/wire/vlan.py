"""802.1Q tags: taken off frames, and put into them. A tag has 4 bytes, behind the MAC addresses."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..abi.gids import TPID
from ..stream.packet import PacketBeat

__all__ = ["VlanInsert", "VlanStrip", "VlanTag"]

AT, SIZE = 12, 4
"""Bytes of a frame in front of the tag, and of the tag."""

VlanTag = data.StructLayout({"tagged": 1, "vlan": 12, "priority": 3})
"""``priority`` and ``vlan`` do not count without ``tagged``."""


def _cut(data_width):
    """The beat with the tag, and the bytes in front of the tag there."""
    return divmod(AT, data_width // 8)


class VlanStrip(wiring.Component):
    """Takes the tag off each frame that has one. A frame with VLAN 0, which tells a priority alone, has none then (IEEE
    802.1Q, 6.9.1).

    A beat comes out of a register 1 cycle after the next one came, or 2 after the frame's last one. Takes a beat each
    cycle.

    Parameters
    ----------
    data_width : int

    Members
    -------
    i : stream of ``PacketBeat(data_width)``
        Always ready.
    o : stream of ``PacketBeat(data_width)``
        ``ready`` is not looked at.
    tag : ``VlanTag``
        Of the frame, from the cycle behind the beat that had it.
    """

    def __init__(self, data_width):
        self.data_width = data_width
        beat = stream.Signature(PacketBeat(data_width))
        super().__init__({"i": In(beat), "o": Out(beat), "tag": Out(VlanTag)})

    def elaborate(self, platform):
        m = Module()
        size = self.data_width // 8
        number, before = _cut(self.data_width)
        now, o, tag = self.i.payload, Signal(PacketBeat(self.data_width)), Signal(VlanTag)
        held, held_valid, over = Signal(PacketBeat(self.data_width)), Signal(), Signal()
        place = Signal(range(3))  # of the held beat, 2 for all behind
        shifting = Signal()  # the tag was in a beat before
        here, shifts, joined, go = Signal(), Signal(), Signal(), Signal()
        raw = held.data[before * 8 : (before + SIZE) * 8]
        tci = Cat(raw[24:32], raw[16:24])
        m.d.comb += [
            self.i.ready.eq(1),
            go.eq(held_valid & (self.i.valid | held.last)),
            here.eq(
                (place == number)
                & (raw[:16] == int.from_bytes(TPID.to_bytes(2, "big"), "little"))
                & ~(held.last & (held.count < before + SIZE))
            ),
            shifts.eq(here | shifting),
            # The next beat has nothing that does not go with this one.
            joined.eq(shifts & self.i.valid & ~held.last & now.last & (now.count <= SIZE)),
            o.first.eq(held.first),
            o.last.eq(held.last | joined),
            o.error.eq(Mux(held.last, held.error, now.error)),
            o.count.eq(Mux(held.last, held.count - Mux(shifts, SIZE, 0), Mux(joined, now.count + (size - SIZE), size))),
            o.data.eq(held.data),
        ]
        with m.If(here):
            kept = Cat(held.data[: before * 8], held.data[(before + SIZE) * 8 :])
            m.d.comb += o.data.eq(Cat(kept, now.data[: SIZE * 8]))
        with m.Elif(shifting):
            m.d.comb += o.data.eq(Cat(held.data[SIZE * 8 :], now.data[: SIZE * 8]))
        m.d.sync += [self.o.valid.eq(go & ~over), self.o.payload.eq(o), self.tag.eq(tag)]
        with m.If(self.i.valid):
            m.d.sync += [held.eq(now), held_valid.eq(1), over.eq(held_valid & joined)]
            m.d.sync += place.eq(Mux(now.first, 0, Mux(place == 2, 2, place + 1)))
        with m.Elif(go):
            m.d.sync += held_valid.eq(0)
        with m.If(go):
            m.d.sync += shifting.eq(shifts & ~held.last)
            with m.If((place == number) & ~over):
                m.d.sync += [
                    tag.tagged.eq(here & (tci[:12] != 0)),
                    tag.vlan.eq(Mux(here, tci[:12], 0)),
                    tag.priority.eq(tci[13:]),
                ]
        return m


class VlanInsert(wiring.Component):
    """Puts a tag into frames. A beat a cycle; a frame that gets one may have a beat more. Combinational.

    Parameters
    ----------
    data_width : int

    Members
    -------
    i : stream of ``PacketBeat(data_width)``
        Frames of at least 16 bytes. ``error`` is never set.
    tag : ``VlanTag``
        Of the frame; it is looked at with the beat with byte 12.
    o : stream of ``PacketBeat(data_width)``
    """

    def __init__(self, data_width):
        self.data_width = data_width
        beat = stream.Signature(PacketBeat(data_width))
        super().__init__({"i": In(beat), "tag": In(VlanTag), "o": Out(beat)})

    def elaborate(self, platform):
        m = Module()
        size = self.data_width // 8
        number, before = _cut(self.data_width)
        now, o = self.i.payload, self.o.payload
        place, shifting = Signal(range(3)), Signal()
        kept, rest = Signal(SIZE * 8, reset_less=True), Signal(range(SIZE + 1))
        here, shifts, fits, moves = Signal(), Signal(), Signal(), Signal()
        tci = Cat(self.tag.vlan, Const(0, 1), self.tag.priority)
        bits = Cat(Const(int.from_bytes(TPID.to_bytes(2, "big"), "little"), 16), tci[8:], tci[:8])
        m.d.comb += [
            here.eq((place == number) & self.tag.tagged),
            shifts.eq(here | shifting),
            fits.eq(~shifts | (now.count <= size - SIZE)),
            moves.eq(self.o.valid & self.o.ready),
            o.first.eq(now.first & (rest == 0)),
        ]
        with m.If(rest != 0):
            m.d.comb += [self.o.valid.eq(1), o.data.eq(kept), o.count.eq(rest), o.last.eq(1)]
            with m.If(moves):
                m.d.sync += rest.eq(0)
        with m.Else():
            m.d.comb += [
                self.o.valid.eq(self.i.valid),
                self.i.ready.eq(self.o.ready),
                o.data.eq(now.data),
                o.last.eq(now.last & fits),
                o.count.eq(Mux(now.last & fits, now.count + Mux(shifts, SIZE, 0), size)),
            ]
            with m.If(here):
                m.d.comb += o.data.eq(Cat(now.data[: before * 8], bits, now.data[before * 8 :])[: self.data_width])
            with m.Elif(shifting):
                m.d.comb += o.data.eq(Cat(kept, now.data)[: self.data_width])
            with m.If(moves):
                m.d.sync += [
                    kept.eq(now.data[(size - SIZE) * 8 :]),
                    shifting.eq(shifts & ~now.last),
                    place.eq(Mux(now.last, 0, Mux(place == 2, 2, place + 1))),
                ]
                with m.If(now.last & ~fits):
                    m.d.sync += rest.eq(now.count - (size - SIZE))
        return m
