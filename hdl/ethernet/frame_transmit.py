"""From bytes of packets to frames on the wire."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from .fcs import FCS_BYTES, Fcs

__all__ = ["GAP", "LEAST", "PREAMBLE", "SFD", "ByteOfFrame", "FrameTransmit"]

PREAMBLE, SFD = 0x55, 0xD5
PREAMBLE_BYTES = 7
LEAST = 60
"""Bytes of the smallest frame, without FCS."""

GAP = 12
"""Byte times between two frames."""

ByteOfFrame = data.StructLayout({"data": 8, "last": 1})


class FrameTransmit(wiring.Component):
    """Puts preamble and SFD before each frame, fills it up to 60 bytes with zeros, and adds FCS and gap.

    A byte each ``tick``: the first of the preamble is there in the cycle after the tick in which ``i`` is valid.

    Members
    -------
    tick : 1
        A byte time has passed.
    i : stream of ``ByteOfFrame``
        From destination address to payload. Once a frame has begun there must be a byte each tick; 9 ticks pass before
        the first is taken.
    enable, data : 1, 8
        As of GMII: a byte of the frame is on the wire. Registers.
    """

    def __init__(self):
        super().__init__(
            {
                "tick": In(1),
                "i": In(stream.Signature(ByteOfFrame)),
                "enable": Out(1),
                "data": Out(8),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.fcs = fcs = Fcs()
        left = Signal(range(LEAST))  # bytes until the frame is large enough, or of the part that is sent
        rest = Signal(32)
        enable, byte = Signal(), Signal(8)
        m.d.comb += [fcs.data.eq(byte)]
        with m.If(self.tick):
            m.d.sync += [self.enable.eq(enable), self.data.eq(byte)]
            with m.If(left != 0):
                m.d.sync += left.eq(left - 1)

        with m.FSM():
            with m.State("IDLE"):
                with m.If(self.tick & self.i.valid):
                    m.d.comb += [enable.eq(1), byte.eq(PREAMBLE)]
                    m.d.sync += left.eq(PREAMBLE_BYTES - 2)
                    m.next = "PREAMBLE"
            with m.State("PREAMBLE"):
                m.d.comb += [enable.eq(1), byte.eq(PREAMBLE)]
                with m.If(self.tick & (left == 0)):
                    m.next = "SFD"
            with m.State("SFD"):
                m.d.comb += [enable.eq(1), byte.eq(SFD), fcs.start.eq(1)]
                with m.If(self.tick):
                    m.d.sync += left.eq(LEAST - 1)
                    m.next = "DATA"
            with m.State("DATA"):
                m.d.comb += [enable.eq(1), byte.eq(self.i.payload.data), self.i.ready.eq(self.tick)]
                m.d.comb += fcs.valid.eq(self.tick)
                with m.If(self.tick & self.i.payload.last):
                    m.next = "PAD"
                    with m.If(left == 0):
                        m.d.sync += left.eq(FCS_BYTES - 1)
                        m.next = "FCS"
            with m.State("PAD"):
                m.d.comb += [enable.eq(1), fcs.valid.eq(self.tick)]
                with m.If(self.tick & (left == 0)):
                    m.d.sync += left.eq(FCS_BYTES - 1)
                    m.next = "FCS"
            with m.State("FCS"):
                first = left == FCS_BYTES - 1
                m.d.comb += [enable.eq(1), byte.eq(Mux(first, ~fcs.state[:8], rest[:8]))]
                with m.If(self.tick):
                    m.d.sync += rest.eq(Mux(first, ~fcs.state, rest) >> 8)
                    with m.If(left == 0):
                        m.d.sync += left.eq(GAP - 1)
                        m.next = "GAP"
            with m.State("GAP"):
                with m.If(self.tick & (left == 0)):
                    m.next = "IDLE"
        return m
