"""From what a PHY receives to bytes of packets."""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from .fcs import FCS_BYTES, RESIDUE, Fcs
from .frame_transmit import LEAST, PREAMBLE, SFD

__all__ = ["FALSE_CARRIER", "FrameReceive", "ReceivedByte"]

FALSE_CARRIER = 0x0E
"""What a PHY says with ``error`` but without ``valid`` (IEEE 802.3, table 35-2)."""

ReceivedByte = data.StructLayout({"data": 8, "last": 1, "error": 1})


class FrameReceive(wiring.Component):
    """Takes preamble and FCS off each frame, and tells whether it is good.

    Bytes come out as they come in, 5 bytes later; the last one 3 cycles after the frame's end. A frame begins behind an
    SFD, whatever number of preamble bytes are left before it; what begins otherwise is passed over. The next frame may
    begin a tick after the end of the one before.

    A bad frame's last byte has ``error``. Each is counted once, for the first of these that is true: it is too short,
    it is too long, the PHY has seen an error in it, its FCS is wrong. Of one that has at most 4 bytes nothing comes
    out.

    Parameters
    ----------
    largest : int
        Bytes of the largest good frame, FCS included.

    Members
    -------
    tick : 1
        ``valid``, ``error`` and ``data`` are those of another byte time.
    valid, error, data : 1, 1, 8
        RX_DV, RX_ER and RXD of GMII.
    o, o_valid : ``ReceivedByte``, 1
        There is no ``ready``: each byte must be taken.
    count_frames, count_short, count_long, count_error, count_fcs, count_false_carrier : 1
        A good frame; a bad one of each kind; a false carrier.
    """

    def __init__(self, largest=4200):
        if not isinstance(largest, int) or not LEAST + FCS_BYTES <= largest < 1 << 14:
            raise ValueError(f"largest must be {LEAST + FCS_BYTES} to {(1 << 14) - 1}, not {largest!r}")
        self.largest = largest
        counts = ("frames", "short", "long", "error", "fcs", "false_carrier")
        super().__init__(
            {
                "tick": In(1),
                "valid": In(1),
                "error": In(1),
                "data": In(8),
                "o": Out(ReceivedByte),
                "o_valid": Out(1),
                **{f"count_{name}": Out(1) for name in counts},
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.fcs = fcs = Fcs()
        held = Signal(8 * (FCS_BYTES + 1))  # the newest bytes; the oldest of them is the next to go out
        filled = Signal(range(FCS_BYTES + 2))
        missing, room = Signal(range(LEAST + FCS_BYTES + 1)), Signal(range(self.largest + 1))
        long, symbols = Signal(), Signal()  # too many bytes; the PHY has seen errors
        ended = Signal()
        whole = filled == FCS_BYTES + 1
        m.d.comb += fcs.data.eq(self.data)
        m.d.sync += [ended.eq(0), self.o_valid.eq(0), self.o.data.eq(held[:8])]

        false, was_false = Signal(), Signal()
        m.d.comb += [
            false.eq(~self.valid & self.error & (self.data == FALSE_CARRIER)),
            self.count_false_carrier.eq(self.tick & false & ~was_false),
        ]
        with m.If(self.tick):
            m.d.sync += was_false.eq(false)

        with m.FSM():
            with m.State("IDLE"):
                m.d.comb += fcs.start.eq(1)
                m.d.sync += [filled.eq(0), missing.eq(LEAST + FCS_BYTES), room.eq(self.largest)]
                m.d.sync += [long.eq(0), symbols.eq(0)]
                with m.If(self.tick & self.valid):
                    with m.If(self.error):
                        m.next = "PASS"
                    with m.Elif(self.data == SFD):
                        m.next = "FRAME"
                    with m.Elif(self.data != PREAMBLE):
                        m.next = "PASS"
            with m.State("FRAME"):
                m.d.comb += fcs.valid.eq(self.tick & self.valid)
                with m.If(self.tick & self.valid):
                    m.d.sync += [
                        held.eq(Cat(held[8:], self.data)),
                        symbols.eq(symbols | self.error),
                        self.o_valid.eq(whole),
                        self.o.last.eq(0),
                    ]
                    with m.If(~whole):
                        m.d.sync += filled.eq(filled + 1)
                    with m.If(missing != 0):
                        m.d.sync += missing.eq(missing - 1)
                    with m.If(room != 0):
                        m.d.sync += room.eq(room - 1)
                    with m.Else():
                        m.d.sync += long.eq(1)
                with m.If(self.tick & ~self.valid):
                    m.d.sync += ended.eq(1)
                    m.next = "IDLE"
            with m.State("PASS"):
                with m.If(self.tick & ~self.valid):
                    m.next = "IDLE"

        # In the cycle behind a frame's end all is as it was.
        judged, whole_frame, bad = Signal(), Signal(), Signal(4)
        m.d.sync += [
            judged.eq(ended),
            whole_frame.eq(whole),
            bad.eq(Cat(missing != 0, long, symbols, fcs.state != RESIDUE)),
        ]
        with m.If(judged):
            m.d.sync += [self.o_valid.eq(whole_frame), self.o.last.eq(1), self.o.error.eq(bad.any())]
            m.d.comb += self.count_frames.eq(~bad.any())
            before = 0  # whether an earlier one is counted already
            for number, name in enumerate(("short", "long", "error", "fcs")):
                m.d.comb += getattr(self, f"count_{name}").eq(bad[number] & ~before)
                before |= bad[number]
        return m
