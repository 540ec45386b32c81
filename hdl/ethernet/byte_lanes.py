"""Between beats of packets and bytes on the wire."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ..stream.packet import PacketBeat
from .frame_receive import ReceivedByte
from .frame_transmit import ByteOfFrame

__all__ = ["BeatsToBytes", "BytesToBeats"]


class BeatsToBytes(wiring.Component):
    """One byte after the other. A byte each cycle if the next beat is there when the last byte of one is taken.

    Parameters
    ----------
    data_width : int

    Members
    -------
    i : stream of ``PacketBeat(data_width)``
        None that is empty. ``error`` is not looked at.
    o : stream of ``ByteOfFrame``
        Registers.
    """

    def __init__(self, data_width):
        self.data_width = data_width
        super().__init__({"i": In(stream.Signature(PacketBeat(data_width))), "o": Out(stream.Signature(ByteOfFrame))})

    def elaborate(self, platform):
        m = Module()
        bytes_, left, last = Signal(self.data_width), Signal(range(self.data_width // 8 + 1)), Signal()
        only = Signal()  # one is left
        m.d.comb += [
            self.o.payload.data.eq(bytes_[:8]),
            self.i.ready.eq(~self.o.valid | (only & self.o.ready)),
        ]
        with m.If(self.i.ready):
            one = self.i.payload.count == 1
            m.d.sync += [
                bytes_.eq(self.i.payload.data),
                left.eq(self.i.payload.count),
                last.eq(self.i.payload.last),
                self.o.valid.eq(self.i.valid),
                only.eq(one),
                self.o.payload.last.eq(self.i.payload.last & one),
            ]
        with m.Elif(self.o.ready):
            m.d.sync += [
                bytes_.eq(bytes_ >> 8),
                left.eq(left - 1),
                only.eq(left == 2),
                self.o.payload.last.eq(last & (left == 2)),
            ]
        return m


class BytesToBeats(wiring.Component):
    """Gathers the bytes of a frame; a beat is out in the cycle behind its last byte.

    Parameters
    ----------
    data_width : int

    Members
    -------
    i, i_valid : ``ReceivedByte``, 1
    o, o_valid : ``PacketBeat(data_width)``, 1
    """

    def __init__(self, data_width):
        self.data_width = data_width
        super().__init__({"i": In(ReceivedByte), "i_valid": In(1), "o": Out(PacketBeat(data_width)), "o_valid": Out(1)})

    def elaborate(self, platform):
        m = Module()
        size = self.data_width // 8
        place = Signal(range(size))
        begun = Signal()  # a beat of this frame is out, or on its way
        m.d.sync += self.o_valid.eq(0)
        with m.If(self.i_valid):
            full = place == size - 1
            m.d.sync += [
                place.eq(Mux(self.i.last, 0, place + 1)),
                self.o.data.word_select(place, 8).eq(self.i.data),
                self.o.count.eq(place + 1),
                self.o.first.eq(~begun),
                self.o.last.eq(self.i.last),
                self.o.error.eq(self.i.error),
                self.o_valid.eq(self.i.last | full),
            ]
            with m.If(self.i.last):
                m.d.sync += begun.eq(0)
            with m.Elif(full):
                m.d.sync += begun.eq(1)
        return m
