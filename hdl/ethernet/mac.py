"""The Ethernet MAC: packets of the engine on the one side, bytes of a PHY on the other."""

from amaranth.hdl import Cat, DomainRenamer, Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.cdc import FFSynchronizer
from amaranth.lib.fifo import AsyncFIFO
from amaranth.lib.wiring import In, Out

from ..stream.packet import PacketBeat
from ..stream.skid import Skid
from .byte_lanes import BeatsToBytes, BytesToBeats
from .crossing import EventCrossing
from .frame_receive import FrameReceive
from .frame_transmit import ByteOfFrame, FrameTransmit
from .nibbles import BytesToNibbles, NibblesToBytes
from .packet_crossing import PacketCrossing
from .pause import PauseReceive, PauseTransmit

__all__ = ["COUNTERS", "RX", "TX", "Gmii", "Mac"]

TX, RX = "ethernet_tx", "ethernet_rx"
"""Clock domains: the gigabit clock, 125 MHz, and what comes with the received data, 125 or 25 MHz."""

COUNTERS = {
    "tx_frames": "frames sent",
    "tx_pause": "pause frames sent, which are not among them",
    "tx_overflow": "frames too large to be sent",
    "rx_frames": "good frames received, pause frames included",
    "rx_short": "frames shorter than 64 bytes",
    "rx_long": "frames longer than the largest",
    "rx_error": "frames with errors that the PHY has seen",
    "rx_fcs": "frames with a wrong FCS",
    "rx_false_carrier": "false carriers",
    "rx_pause": "pause frames received",
    "rx_overflow": "good frames for which there was no room",
}
"""What a MAC counts, each with a strobe of that name."""

SMALL = 16


class Gmii(wiring.Signature):
    """What a MAC and a PHY, or an adapter to its pins, tell each other. At 100 Mb/s a byte holds a nibble, twice.

    Members
    -------
    tx_enable, tx_data, tx_clock : 1, 8, 2
        In :data:`TX`; the levels of the clock in the two halves of a cycle, which changes where the data does.
    rx_valid, rx_error, rx_data : 1, 1, 8
        In :data:`RX`.
    """

    def __init__(self):
        super().__init__(
            {
                "tx_enable": Out(1),
                "tx_data": Out(8),
                "tx_clock": Out(2),
                "rx_valid": In(1),
                "rx_error": In(1),
                "rx_data": In(8),
            }
        )


class Mac(wiring.Component):
    """Full duplex MAC of 1 Gb/s and 100 Mb/s.

    A frame is sent when it is there as a whole; whoever sends may pause in the midst of it. Frames are filled up to 60
    bytes. Received frames come out whole and good only (:class:`.packet_crossing.PacketCrossing`); or, without a
    ``receive_depth``, as they arrive, the last beat of a bad one with ``error``: for a reader that takes each beat at
    once and stores frames itself, and that saves the block RAM.

    ``sync`` needs 1 cycle for each beat on the wire: 16 MHz at 64 bits and 1 Gb/s. All domains are to be reset
    together.

    Parameters
    ----------
    data_width : int
    transmit_depth, receive_depth : int, int or None
        Beats of frames to send, and received; powers of two. The largest frame must fit in with two less.
    largest : int
        Bytes of the largest frame that is received, FCS included.

    Members
    -------
    tx, rx : streams of ``PacketBeat(data_width)``
        Frames without FCS. A frame that does not fit in an empty buffer is dropped, others wait.
    gmii : ``Gmii``
    mac : 48
        Own address, for pause frames.
    slow : 1
        100 Mb/s. To be changed while no frame is under way.
    pause : 1
        Ask the link partner to send nothing. Also asked for while 5/8 of the receive buffer are full.
    count_<name> : 1
        Strobes of :data:`COUNTERS`.
    """

    def __init__(self, data_width, *, transmit_depth=1024, receive_depth=1024, largest=4200):
        self.data_width = data_width
        self.transmit_depth = transmit_depth
        self.receive_depth = receive_depth
        self.largest = largest
        beat = stream.Signature(PacketBeat(data_width))
        super().__init__(
            {
                "tx": In(beat),
                "rx": Out(beat),
                "gmii": Out(Gmii()),
                "mac": In(48),
                "slow": In(1),
                "pause": In(1),
                **{f"count_{name}": Out(1) for name in COUNTERS},
            }
        )

    def elaborate(self, platform):
        m = Module()
        self._transmit(m)
        self._receive(m)
        return m

    def _count(self, m, side, strobes, domain):
        """Strobes of ``domain``, by name, become ``count_<side>_<name>`` of ``sync``."""
        crossing = EventCrossing(len(strobes), i_domain=domain, o_domain="sync")
        m.submodules[f"{side}_events"] = crossing
        counts = [getattr(self, f"count_{side}_{name}") for name in strobes]
        m.d.comb += [crossing.i.eq(Cat(strobes.values())), Cat(counts).eq(crossing.o)]

    def _level(self, m, name, signal, domain):
        """A signal that changes seldom, in another domain."""
        there = Signal.like(signal, name=name)
        m.submodules[f"{name}_crossing"] = FFSynchronizer(signal, there, o_domain=domain)
        return there

    def _transmit(self, m):
        width, tx = self.data_width, DomainRenamer(TX)
        m.submodules.tx_queue = queue = PacketCrossing(
            width, self.transmit_depth, i_domain="sync", o_domain=TX, wait=True
        )
        m.submodules.bytes = bytes_ = tx(BeatsToBytes(width))
        m.submodules.pause_transmit = pause = tx(PauseTransmit())
        m.submodules.transmit = transmit = tx(FrameTransmit())
        m.submodules.nibbles = nibbles = tx(BytesToNibbles())
        self._pause = pause
        wiring.connect(m, wiring.flipped(self.tx), queue.i)
        wiring.connect(m, queue.o, bytes_.i)
        wiring.connect(m, bytes_.o, pause.i)
        m.submodules.skid = skid = tx(Skid(ByteOfFrame))
        wiring.connect(m, pause.o, skid.i)
        wiring.connect(m, skid.o, transmit.i)
        m.d.comb += [
            nibbles.slow.eq(self._level(m, "tx_slow", self.slow, TX)),
            nibbles.i_enable.eq(transmit.enable),
            nibbles.i_data.eq(transmit.data),
            transmit.tick.eq(nibbles.tick),
            pause.tick.eq(nibbles.tick),
            pause.mac.eq(self.mac),
            self.gmii.tx_enable.eq(nibbles.enable),
            self.gmii.tx_data.eq(nibbles.data),
            self.gmii.tx_clock.eq(nibbles.clock),
            self.count_tx_overflow.eq(queue.count_overflow),
        ]
        self._count(m, "tx", {"frames": pause.count_frames, "pause": pause.count_pause_sent}, TX)

    def _receive(self, m):
        width, rx = self.data_width, DomainRenamer(RX)
        m.submodules.bytes_from = joined = rx(NibblesToBytes())
        m.submodules.receive = receive = rx(FrameReceive(self.largest))
        m.submodules.beats = beats = rx(BytesToBeats(width))
        m.submodules.pause_receive = pause = rx(PauseReceive())
        m.d.comb += [
            joined.slow.eq(self._level(m, "rx_slow", self.slow, RX)),
            joined.i_valid.eq(self.gmii.rx_valid),
            joined.i_error.eq(self.gmii.rx_error),
            joined.i_data.eq(self.gmii.rx_data),
            *(getattr(receive, name).eq(getattr(joined, name)) for name in ("tick", "valid", "error", "data")),
            beats.i.eq(receive.o),
            beats.i_valid.eq(receive.o_valid),
            pause.i.eq(receive.o),
            pause.i_valid.eq(receive.o_valid),
        ]
        # What it asks for does not change for as long as a frame takes.
        m.submodules.asked = asked = EventCrossing(i_domain=RX, o_domain=TX)
        m.d.comb += [
            asked.i.eq(pause.count_pause_received),
            self._pause.quanta.eq(pause.quanta),
            self._pause.quanta_en.eq(asked.o),
        ]
        crowded = Signal()
        if self.receive_depth is None:
            m.submodules.rx_queue = queue = AsyncFIFO(
                width=len(beats.o.as_value()), depth=SMALL, w_domain=RX, r_domain="sync"
            )
            m.d.comb += [
                queue.w_data.eq(beats.o),
                queue.w_en.eq(beats.o_valid),
                self.rx.payload.as_value().eq(queue.r_data),
                self.rx.valid.eq(queue.r_rdy),
                queue.r_en.eq(self.rx.ready),
            ]
            overflow = beats.o_valid & ~queue.w_rdy
        else:
            m.submodules.rx_queue = queue = PacketCrossing(width, self.receive_depth, i_domain=RX, o_domain="sync")
            m.d.comb += [queue.i.payload.eq(beats.o), queue.i.valid.eq(beats.o_valid)]
            m.d[RX] += crowded.eq(queue.level[-1] & queue.level[-3:-1].any())
            wiring.connect(m, queue.o, wiring.flipped(self.rx))
            overflow = queue.count_overflow
        m.d.comb += self._pause.request.eq(
            self._level(m, "asked_pause", self.pause, TX) | self._level(m, "crowded_pause", crowded, TX)
        )
        strobes = {"overflow": overflow, "pause": pause.count_pause_received}
        for name in ("frames", "short", "long", "error", "fcs", "false_carrier"):
            strobes[name] = getattr(receive, f"count_{name}")
        self._count(m, "rx", strobes, RX)
