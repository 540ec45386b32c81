"""Frames of raw packet queue pairs on their way to the wire."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..stream.packet import PacketBeat
from ..stream.queue import PacketQueue
from ..stream.slice import Slice
from .opcodes import is_raw
from .packet_header import TransmitHeader

__all__ = ["LEAST_FRAME", "RawTransmit"]

LEAST_FRAME = 60
"""Bytes of the shortest frame without FCS (IEEE 802.3, 4A.4.2)."""

FRAMES = 3
"""Frames that may be inside: so many of 4096 bytes fit the store of 16 KiB, and more would only wait for the wire."""

STORE = 16384


class RawTransmit(wiring.Component):
    """Parts raw frames from packets: a packet passes, a frame is stored, padded with zeros to 60 bytes, and put out
    when all of it is there. A frame whose payload ends in ``error`` is not sent.

    *Cycles*: a header comes out 1 cycle after it came, one every second cycle, and stays in a register until it is
    taken; a packet's payload passes in the cycle in which it comes. A frame comes out 6 cycles after its last beat
    came, behind the padding. Its payload waits while there are :data:`FRAMES` others inside.

    Parameters
    ----------
    data_width : int
    header : StructLayout
        A ``TransmitHeader``, perhaps with more, which passes.

    Members
    -------
    header : stream of ``header``
    payload : stream of ``PacketBeat(data_width)``
        A packet for each header whose ``length`` is not 0, after it, and before the next such header.
    o_header, o : streams as these
        The same without the frames.
    frame : stream of ``PacketBeat(data_width)``
        Frames with Ethernet header and without FCS, of at least 60 bytes.
    count_raw_tx_packets : 1
        A frame is whole, and will be sent.
    """

    def __init__(self, data_width, header=TransmitHeader):
        self.data_width = data_width
        self._header = header
        beat = stream.Signature(PacketBeat(data_width))
        super().__init__(
            {
                "header": In(stream.Signature(header)),
                "payload": In(beat),
                "o_header": Out(stream.Signature(header)),
                "o": Out(beat),
                "frame": Out(beat),
                "count_raw_tx_packets": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        size = self.data_width // 8
        m.submodules.store = store = PacketQueue(self.data_width, STORE // size)
        m.submodules.slice = register = Slice(data.StructLayout({"header": self._header, "raw": 1}))
        inside = Signal(range(FRAMES + 1))
        of_raw = Signal()  # the payload
        room, begins, ends, padding = Signal(), Signal(), Signal(), Signal()
        arrives, here = self.header.payload.transport, register.o.payload
        m.d.comb += [
            register.i.valid.eq(self.header.valid),
            register.i.payload.header.eq(self.header.payload),
            register.i.payload.raw.eq(is_raw(arrives.opcode)),
            self.header.ready.eq(register.i.ready),
            self.o_header.payload.eq(here.header),
            self.o_header.valid.eq(register.o.valid & ~here.raw),
            register.o.ready.eq(Mux(here.raw, room, self.o_header.ready)),
        ]
        # An acknowledgement, which has no payload, may go ahead of the rest of a payload.
        with m.If(self.header.valid & self.header.ready & (arrives.length != 0)):
            m.d.sync += of_raw.eq(register.i.payload.raw)

        # -- Payload of frames goes to a register, behind its header.
        came, came_valid = Signal(PacketBeat(self.data_width), reset_less=True), Signal()
        waits = Signal()
        m.d.comb += [
            room.eq(inside != FRAMES),
            begins.eq(register.o.valid & here.raw & room & (here.header.transport.length != 0)),
            waits.eq((register.o.valid & here.raw) | (came_valid & came.last) | padding),
            self.o.payload.eq(self.payload.payload),
            self.o.valid.eq(self.payload.valid & ~of_raw),
            self.payload.ready.eq(Mux(of_raw, ~waits, self.o.ready)),
            ends.eq((store.o.valid & store.o.ready & store.o.payload.last) | store.dropped),
            self.count_raw_tx_packets.eq(store.committed),
        ]
        m.d.sync += [came.eq(self.payload.payload), came_valid.eq(self.payload.valid & of_raw & ~waits)]
        with m.If(begins & ~ends):
            m.d.sync += inside.eq(inside + 1)
        with m.Elif(~begins & ends):
            m.d.sync += inside.eq(inside - 1)

        # -- Padding: the beat in which the shortest frame ends is `final`, with `least` bytes.
        final, least = divmod(LEAST_FRAME - 1, size)
        least += 1
        place = Signal(range(final + 1))  # of the beat; `final` for all behind
        i = store.i.payload
        takes, early, at_end = Signal(), Signal(), Signal()
        failed = Signal()
        within = Signal(size)  # bytes of the payload; those behind are zeros
        m.d.comb += [
            within.eq(Cat((~came.last | (came.count > n)) & ~padding for n in range(size))),
            takes.eq(came_valid | padding),
            at_end.eq(place == final),
            early.eq((came.last | padding) & ~at_end),
            store.i.valid.eq(takes),
            i.data.eq(came.data & Cat(bit.replicate(8) for bit in within)),
            i.first.eq(~padding & came.first),
            i.last.eq((came.last | padding) & at_end),
            i.error.eq(Mux(padding, failed, came.error)),
            i.count.eq(Mux(early, size, Mux(padding, least, came.count))),
        ]
        reached = Signal()  # a beat behind that one may be as short as it likes
        with m.If(at_end & ~reached & i.last & (padding | (came.count < least))):
            m.d.comb += i.count.eq(least)
        with m.If(takes):
            m.d.sync += [
                padding.eq(early),
                place.eq(Mux(i.last, 0, Mux(at_end, final, place + 1))),
                reached.eq(~i.last & at_end),
            ]
            with m.If(~padding):
                m.d.sync += failed.eq(came.error)
        wiring.connect(m, store.o, wiring.flipped(self.frame))
        return m
