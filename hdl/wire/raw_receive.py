"""Received frames that are not RoCE, for a raw packet queue pair."""

from amaranth.hdl import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ..stream.fifo import Queue
from ..stream.packet import PacketBeat
from ..stream.queue import PacketQueue
from ..stream.transfer import LENGTH_BITS, RawFilter
from .headers import HEADERS, MAX_PAYLOAD
from .layout import wire_field
from .opcodes import RAW_SEND
from .packet_header import ReceiveHeader

__all__ = ["RawReceive"]

ETHERNET = HEADERS["ethernet"]

JUDGED = 16
"""Beats, and verdicts, that may wait: the depacketizer judges a frame in less time."""

STORE = 16384

FRAMES = 64
"""Frames that may wait: LUT RAM has so many rows in one piece, and the store has 256 bytes for each."""


class RawReceive(wiring.Component):
    """Keeps the frames that the depacketizer finds not to be RoCE, as packets of one message each for ``filter.qpn``.

    Listens to the frames, and holds up none. A frame is taken if it is to the own MAC address or to a group (bit 0 of
    the first byte), or to anybody if ``filter.promiscuous``; if it has 14 to 4096 bytes and is not damaged; and if
    there is room. So a frame is either RoCE, well formed or not, or raw, but never both.

    *Cycles*: a beat each. A frame's header comes out 5 cycles after its verdict, if none waits; its payload about then.

    Parameters
    ----------
    data_width : int

    Members
    -------
    mac : 48
        Own address.
    filter : ``RawFilter``
    i, i_valid : ``PacketBeat(data_width)``
        Frames with Ethernet header and without FCS.
    judged, foreign : 1
        A frame has been judged, not later than ``JUDGED - 4`` cycles after its last beat: it is not RoCE. One for each
        frame, in their order.
    header : stream of ``ReceiveHeader``
        With opcode ``RAW_SEND``.
    payload : stream of ``PacketBeat(data_width)``
        A packet for each header, which comes before or after it: the whole frame.
    count_raw_rx_packets, count_drop_raw : 1
        A frame is stored; one that is not RoCE, and for this station, is not: too short or too long, damaged, or no
        room.
    """

    def __init__(self, data_width):
        self.data_width = data_width
        beat = PacketBeat(data_width)
        super().__init__(
            {
                "mac": In(48),
                "filter": In(RawFilter),
                "i": In(beat),
                "i_valid": In(1),
                "judged": In(1),
                "foreign": In(1),
                "header": Out(stream.Signature(ReceiveHeader)),
                "payload": Out(stream.Signature(beat)),
                "count_raw_rx_packets": Out(1),
                "count_drop_raw": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        beat = PacketBeat(self.data_width)
        m.submodules.beats = beats = Queue(beat, JUDGED)
        m.submodules.verdicts = verdicts = Queue(1, JUDGED)
        m.submodules.store = store = PacketQueue(self.data_width, STORE * 8 // self.data_width)
        m.submodules.lengths = lengths = Queue(LENGTH_BITS, FRAMES)
        now, moves = beats.o.payload, Signal()
        m.d.comb += [
            beats.i.payload.eq(self.i),
            beats.i.valid.eq(self.i_valid),
            verdicts.i.payload.eq(self.foreign),
            verdicts.i.valid.eq(self.judged),
            # The last beat of a frame waits for the verdict.
            moves.eq(beats.o.valid & (~now.last | verdicts.o.valid)),
            beats.o.ready.eq(~now.last | verdicts.o.valid),
            verdicts.o.ready.eq(beats.o.valid & now.last),
        ]

        # -- A register: the beat, and with it what is known of its frame. Whom that is for stands in the first beat. A
        # length beyond the largest stays beyond.
        held, valid = Signal(beat, reset_less=True), Signal()
        length, local, foreign = Signal(LENGTH_BITS), Signal(), Signal()
        too_long = length[-1] & length[:-1].any()
        assert MAX_PAYLOAD == 1 << LENGTH_BITS - 1
        m.d.sync += valid.eq(moves)
        with m.If(moves):
            m.d.sync += [held.eq(now), foreign.eq(verdicts.o.payload)]
            with m.If(now.first):
                destination = wire_field(now.data, ETHERNET["destination"])
                m.d.sync += [
                    local.eq(now.data[0] | self.filter.promiscuous | (destination == self.mac)),
                    length.eq(now.count),
                ]
            with m.Elif(~too_long):
                m.d.sync += length.eq(length + now.count)

        wanted, good = Signal(), Signal()
        m.d.comb += [
            wanted.eq(foreign & local & (self.filter.qpn != 0)),
            good.eq(wanted & (length >= ETHERNET.size) & ~too_long & ~held.error),
            # Of a frame that is too long no more is stored: it shall not take others' room.
            store.i.valid.eq(valid & (held.last | ~too_long)),
            store.i.payload.eq(held),
            store.i.payload.error.eq(~good),
            store.refuse.eq(~lengths.i.ready),
            lengths.i.payload.eq(length),
            lengths.i.valid.eq(store.committed),
            self.count_raw_rx_packets.eq(store.committed),
            self.count_drop_raw.eq(store.dropped & wanted),
        ]

        transport = self.header.payload.transport
        m.d.comb += [
            self.header.valid.eq(lengths.o.valid),
            lengths.o.ready.eq(self.header.ready),
            transport.opcode.eq(RAW_SEND),
            transport.pkey.eq(0xFFFF),
            transport.dest_qpn.eq(self.filter.qpn),
            transport.length.eq(lengths.o.payload),
            self.header.payload.gid_found.eq(1),
        ]
        wiring.connect(m, store.o, wiring.flipped(self.payload))
        return m
