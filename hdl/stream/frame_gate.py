"""Gates at the wire, which open and close between frames."""

from amaranth.hdl import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from .packet import PacketBeat

__all__ = ["ReceiveGate", "TransmitGate"]


class TransmitGate(wiring.Component):
    """Lets frames go to the wire. No register: a beat passes in its cycle.

    Parameters
    ----------
    data_width : int
        64, 128, 256 or 512 bits.

    Members
    -------
    i, o : streams of ``PacketBeat``
    stop : 1
        No further frame begins.
    cut : 1
        Nothing is taken from ``i``, which may be reset once ``closed``. A frame that has begun is ended by a beat with
        ``error``. Only with ``stop``.
    closed : 1
        With ``cut``: no frame is open. A register.
    """

    def __init__(self, data_width):
        beat = stream.Signature(PacketBeat(data_width))
        super().__init__({"i": In(beat), "o": Out(beat), "stop": In(1), "cut": In(1), "closed": Out(1)})

    def elaborate(self, platform):
        m = Module()
        i, o = self.i, self.o
        begun = Signal()  # a beat was offered, and its frame's last one has not been taken
        held = Signal()  # a beat was offered and not taken: it has to stay
        ends = Signal()  # the frame's end is made here
        passes = Signal()
        m.d.comb += [
            passes.eq((begun | ~self.stop) & (held | ~self.cut) & ~ends),
            o.payload.eq(i.payload),
            o.valid.eq((i.valid & passes) | ends),
            i.ready.eq(o.ready & passes),
        ]
        with m.If(ends):
            m.d.comb += [
                o.payload.data[:8].eq(0),
                o.payload.count.eq(1),
                o.payload.first.eq(0),
                o.payload.last.eq(1),
                o.payload.error.eq(1),
            ]
        m.d.sync += held.eq(o.valid & ~o.ready & ~ends)
        with m.If(o.valid):
            m.d.sync += begun.eq(~(o.ready & o.payload.last))
        with m.If(ends):
            m.d.sync += ends.eq(~o.ready)
        with m.Elif(self.cut & begun & ~held):
            m.d.sync += ends.eq(1)
        m.d.sync += self.closed.eq(self.cut & ~begun & ~ends & ~o.valid)
        return m


class ReceiveGate(wiring.Component):
    """Lets frames come in whole, or not at all. No register: a beat passes in its cycle.

    Parameters
    ----------
    data_width : int
        64, 128, 256 or 512 bits.

    Members
    -------
    i, o : streams of ``PacketBeat``
        ``o`` is always taken, and so is ``i``.
    stop : 1
        No further frame begins: those that do are dropped.
    cut : 1
        The rest of a frame that has begun is dropped, too. Only with ``stop``.
    """

    def __init__(self, data_width):
        beat = stream.Signature(PacketBeat(data_width))
        super().__init__({"i": In(beat), "o": Out(beat), "stop": In(1), "cut": In(1)})

    def elaborate(self, platform):
        m = Module()
        inside = Signal()  # of a frame that passes
        passes = Signal()
        with m.If(self.i.payload.first):
            m.d.comb += passes.eq(~self.stop)
        with m.Else():
            m.d.comb += passes.eq(inside)
        m.d.comb += [
            self.o.payload.eq(self.i.payload),
            self.o.valid.eq(self.i.valid & passes),
            self.i.ready.eq(1),
        ]
        with m.If(self.cut):
            m.d.sync += inside.eq(0)
        with m.Elif(self.i.valid):
            m.d.sync += inside.eq(passes)
        return m
