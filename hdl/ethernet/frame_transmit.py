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

    A byte each ``tick``: the first of the preamble is there behind the second tick with ``i`` valid.

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
        # A byte is chosen in one tick, and checked in the next, when the FCS knows all before it.
        choice = data.StructLayout({"enable": 1, "data": 8, "covered": 1, "begin": 1, "fcs": 1, "first": 1})
        chosen, byte = Signal(choice), Signal(choice)
        rest = Signal(32)
        check = Mux(byte.first, ~fcs.state, rest)
        m.d.comb += [fcs.data.eq(byte.data), fcs.valid.eq(self.tick & byte.covered), fcs.start.eq(byte.begin)]
        with m.If(self.tick):
            m.d.sync += [
                byte.eq(chosen),
                rest.eq(check >> 8),
                self.enable.eq(byte.enable),
                self.data.eq(Mux(byte.fcs, check[:8], byte.data)),
            ]
            with m.If(left != 0):
                m.d.sync += left.eq(left - 1)

        with m.FSM():
            with m.State("IDLE"):
                with m.If(self.tick & self.i.valid):
                    m.d.comb += [chosen.enable.eq(1), chosen.data.eq(PREAMBLE)]
                    m.d.sync += left.eq(PREAMBLE_BYTES - 2)
                    m.next = "PREAMBLE"
            with m.State("PREAMBLE"):
                m.d.comb += [chosen.enable.eq(1), chosen.data.eq(PREAMBLE)]
                with m.If(self.tick & (left == 0)):
                    m.next = "SFD"
            with m.State("SFD"):
                m.d.comb += [chosen.enable.eq(1), chosen.data.eq(SFD), chosen.begin.eq(1)]
                with m.If(self.tick):
                    m.d.sync += left.eq(LEAST - 1)
                    m.next = "DATA"
            with m.State("DATA"):
                m.d.comb += [
                    chosen.enable.eq(1),
                    chosen.covered.eq(1),
                    chosen.data.eq(self.i.payload.data),
                    self.i.ready.eq(self.tick),
                ]
                with m.If(self.tick & self.i.payload.last):
                    m.next = "PAD"
                    with m.If(left == 0):
                        m.d.sync += left.eq(FCS_BYTES - 1)
                        m.next = "FCS"
            with m.State("PAD"):
                m.d.comb += [chosen.enable.eq(1), chosen.covered.eq(1)]
                with m.If(self.tick & (left == 0)):
                    m.d.sync += left.eq(FCS_BYTES - 1)
                    m.next = "FCS"
            with m.State("FCS"):
                m.d.comb += [chosen.enable.eq(1), chosen.fcs.eq(1), chosen.first.eq(left == FCS_BYTES - 1)]
                with m.If(self.tick & (left == 0)):
                    m.d.sync += left.eq(GAP - 1)
                    m.next = "GAP"
            with m.State("GAP"):
                with m.If(self.tick & (left == 0)):
                    m.next = "IDLE"
        return m
