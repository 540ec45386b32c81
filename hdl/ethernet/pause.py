"""Pause frames of MAC control (IEEE 802.3, annex 31B)."""

from amaranth.hdl import Array, Cat, Const, Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from .frame_receive import ReceivedByte
from .frame_transmit import ByteOfFrame

__all__ = ["PauseReceive", "PauseTransmit"]

DESTINATION = bytes.fromhex("0180c2000001")
ETHERTYPE_AND_PAUSE = bytes.fromhex("88080001")
HEADER = 14
QUANTUM = 64
"""Byte times: 512 bit times."""


class PauseReceive(wiring.Component):
    """Looks for good pause frames among what is received, to the address that is reserved for them.

    Members
    -------
    i, i_valid : ``ReceivedByte``, 1
    quanta : 16
        What the last one asks for. It stays for 16 cycles at least.
    count_pause_received : 1
        One came; ``quanta`` is new.
    """

    def __init__(self):
        super().__init__({"i": In(ReceivedByte), "i_valid": In(1), "quanta": Out(16), "count_pause_received": Out(1)})

    def elaborate(self, platform):
        m = Module()
        place = Signal(range(HEADER + 5))
        match = Signal(init=1)
        seen = Signal(16)
        wanted = Signal(8)
        fixed = Signal()  # what stands at this place in all pause frames
        known = dict(enumerate(DESTINATION)) | dict(enumerate(ETHERTYPE_AND_PAUSE, HEADER - 2))
        with m.Switch(place):
            for number, value in known.items():
                with m.Case(number):
                    m.d.comb += [fixed.eq(1), wanted.eq(value)]
        with m.If(self.i_valid):
            with m.If(fixed & (self.i.data != wanted)):
                m.d.sync += match.eq(0)
            with m.If((place == HEADER + 2) | (place == HEADER + 3)):
                m.d.sync += seen.eq(Cat(self.i.data, seen))
            with m.If(place != HEADER + 4):
                m.d.sync += place.eq(place + 1)
            with m.If(self.i.last):
                m.d.sync += [place.eq(0), match.eq(1)]
                with m.If(match & (place == HEADER + 4) & ~self.i.error):
                    m.d.sync += self.quanta.eq(seen)
                    m.d.comb += self.count_pause_received.eq(1)
        return m


class PauseTransmit(wiring.Component):
    """Holds frames back as long as the link partner asks for it, and puts pause frames between them to hold it back.

    Members
    -------
    tick : 1
        A byte time has passed.
    mac : 48
        Own address, as a number.
    quanta, quanta_en : 16, 1
        A pause frame came. A frame that is under way is ended, and none is begun as long; 0 ends the pause.
    request : 1
        While it is high the partner is to send nothing: a pause frame says so when it rises, and again before it is
        over. One for the end when it falls.
    i, o : stream of ``ByteOfFrame``
        Frames, each whole.
    count_frames, count_pause_sent : 1
        A frame, or a pause frame, went through.
    """

    def __init__(self, refresh=0x7FFF):
        self.refresh = refresh
        super().__init__(
            {
                "tick": In(1),
                "mac": In(48),
                "quanta": In(16),
                "quanta_en": In(1),
                "request": In(1),
                "i": In(stream.Signature(ByteOfFrame)),
                "o": Out(stream.Signature(ByteOfFrame)),
                "count_frames": Out(1),
                "count_pause_sent": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        # --- The partner's wish.
        quantum = Signal(range(QUANTUM))
        left = Signal(16)
        held = Signal()
        m.d.sync += held.eq(left != 0)
        with m.If(self.tick):
            m.d.sync += quantum.eq(quantum + 1)
        with m.If(self.quanta_en):
            m.d.sync += left.eq(self.quanta)
        with m.Elif(self.tick & (quantum == QUANTUM - 1) & (left != 0)):
            m.d.sync += left.eq(left - 1)

        # --- Our wish.
        told = Signal()  # the partner holds
        fresh = Signal(range(self.refresh + 1))  # quanta until it has to be told again
        due = Signal()
        m.d.sync += due.eq((self.request != told) | (self.request & (fresh == 0)))
        with m.If(self.tick & (quantum == QUANTUM - 1) & (fresh != 0)):
            m.d.sync += fresh.eq(fresh - 1)

        place = Signal(range(HEADER + 4))
        says = Signal()
        fields = [
            *[Const(byte, 8) for byte in DESTINATION],
            *[self.mac.word_select(n, 8) for n in reversed(range(6))],
            *[Const(byte, 8) for byte in ETHERTYPE_AND_PAUSE],
            *[says.replicate(8)] * 2,
        ]
        with m.FSM():
            with m.State("IDLE"):
                m.d.sync += [place.eq(0), says.eq(self.request)]
                with m.If(due):
                    m.next = "PAUSE"
                with m.Elif(self.i.valid & ~held):
                    m.next = "FRAME"
            with m.State("FRAME"):
                wiring.connect(m, wiring.flipped(self.i), wiring.flipped(self.o))
                with m.If(self.i.valid & self.i.ready & self.i.payload.last):
                    m.d.comb += self.count_frames.eq(1)
                    m.next = "IDLE"
            with m.State("PAUSE"):
                m.d.comb += [
                    self.o.valid.eq(1),
                    self.o.payload.data.eq(Array(fields)[place]),
                    self.o.payload.last.eq(place == len(fields) - 1),
                ]
                with m.If(self.o.ready):
                    m.d.sync += place.eq(place + 1)
                    with m.If(self.o.payload.last):
                        m.d.sync += [told.eq(says), fresh.eq(self.refresh), due.eq(0)]
                        m.d.comb += self.count_pause_sent.eq(1)
                        m.next = "SENT"
            with m.State("SENT"):
                m.next = "IDLE"
        return m
