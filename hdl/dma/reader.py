"""Payload out of memory."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ..abi.tables import AccessStatus
from ..stream.lut_fifo import LutFifo
from ..stream.packet import PacketBeat
from ..stream.realign import Realigner
from ..stream.slice import Slice
from ..stream.transfer import Piece
from .buffer import ReadBuffer
from .port import ReadPort, burst_limit
from .split import Splitter

__all__ = ["PayloadReader"]

BURSTS = 64
"""Rows for the descriptions of bursts whose data may be missing: a piece comes every 4 cycles at most, so these cover
256."""


class PayloadReader(wiring.Component):
    """Reads the pieces of each run and puts them out as one contiguous packet.

    Whole, aligned beats are read, so that bytes beside a piece may be read and are dropped. No burst crosses 4 KiB or
    has more than 256 beats, and none is asked for before there is room for it. A run without a byte gives no packet if
    its status is OK, else one beat of count 0 with ``error``; ``error`` also stands in the last beat of a packet of
    which a beat's RRESP was not OKAY. Pieces of length 0, and discards, read nothing.

    A burst is asked for 1 cycle after its piece has arrived. A packet of one beat comes out 5 cycles after its data has
    come (6 above 64 bits), when nothing is before it. A piece takes 1 cycle and each burst 2; one beat of memory a
    cycle.

    Parameters
    ----------
    data_width : int
        64, 128, 256 or 512 bits.
    buffer : int or None
        Bytes of read data that may be on their way or wait, a power of two, at least two of the largest bursts. None:
        1024 beats, 8 KiB at 64 bits.

    Members
    -------
    piece : stream of ``Piece``
    payload : stream of ``PacketBeat``
    hint : 1
        If nothing of the packet before is inside: the first data of the next one has come, and is at ``payload`` in a
        few cycles.
    over : 1
        Strobe, one a run, in order: nothing of it will be read any more. It comes a cycle after the run's last beat has
        left the buffer.
    port : ``ReadPort``
        To a :class:`.arbiter.ReadArbiter`.
    """

    def __init__(self, data_width, buffer=None):
        beat = PacketBeat(data_width)
        if buffer is None:
            buffer = 128 * data_width
        least = burst_limit(data_width) * data_width // 4
        if not isinstance(buffer, int) or buffer < least or buffer & buffer - 1:
            raise ValueError(f"buffer must be a power of two, at least {least}, not {buffer!r}")
        self.data_width = data_width
        self.buffer = buffer
        super().__init__(
            {
                "piece": In(stream.Signature(Piece)),
                "payload": Out(stream.Signature(beat)),
                "hint": Out(1),
                "over": Out(1),
                "port": Out(ReadPort(data_width)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        piece, port = self.piece, self.port
        size = self.data_width // 8
        lane_bits = ceil_log2(size)
        description = data.StructLayout({"start": lane_bits, "end": lane_bits, "empty": 1, "last": 1, "error": 1})
        row = data.StructLayout({"data": self.data_width, "error": 1, "last": 1})
        m.submodules.splitter = splitter = Splitter(self.data_width)
        m.submodules.descriptions = descriptions = LutFifo(description, BURSTS)
        m.submodules.rows = rows = ReadBuffer(row, self.buffer // size, burst_limit(self.data_width))
        m.submodules.realigner = realigner = Realigner(self.data_width, 1)
        wiring.connect(m, realigner.o, wiring.flipped(self.payload))

        # Each burst is described when it is asked for; a piece without length is described only. Of both buffers, room
        # is known late: the one of data is told a cycle later, because it stands far from here.
        none, handed, room = Signal(), Signal(), Signal()
        note = descriptions.i.payload
        m.d.sync += [
            rows.reserve.eq(handed),
            rows.length.eq(splitter.o.payload.length),
            room.eq(descriptions.level < BURSTS - 2),
        ]
        m.d.comb += [
            rows.w_en.eq(port.valid),
            rows.w_data.data.eq(port.data),
            rows.w_data.error.eq(port.error),
            rows.w_data.last.eq(port.last),
            none.eq((piece.payload.length == 0) | piece.payload.discard),
            splitter.i.valid.eq(piece.valid & ~none),
            splitter.i.payload.address.eq(piece.payload.address),
            splitter.i.payload.length.eq(piece.payload.length),
            port.burst.valid.eq(splitter.o.valid & rows.room & room),
            port.burst.payload.eq(splitter.o.payload),
            splitter.o.ready.eq(port.burst.ready & rows.room & room),
            handed.eq(splitter.o.valid & splitter.o.ready),
            piece.ready.eq(Mux(none, room, splitter.i.ready)),
            descriptions.i.valid.eq(handed | (piece.valid & none & room)),
            note.start.eq(splitter.start),
            note.end.eq(splitter.end),
            note.empty.eq(none),
            note.last.eq(piece.payload.last & (none | splitter.last)),
            note.error.eq(piece.payload.status != AccessStatus.OK),
        ]

        # Description and data meet again. The register parts what takes the data from what counts the descriptions.
        m.submodules.coming = coming = Slice(description)
        m.d.comb += [
            coming.i.payload.eq(descriptions.o.payload),
            coming.i.valid.eq(descriptions.o.valid),
            descriptions.o.ready.eq(coming.i.ready),
        ]
        burst = Signal(description)
        active, first, final = Signal(), Signal(), Signal()
        given, next_ = Signal(), Signal()
        from_lane = Signal(lane_bits)
        fragment = realigner.i.payload
        m.d.comb += [
            realigner.i.valid.eq(active & (burst.empty | rows.o.valid)),
            rows.o.ready.eq(active & ~burst.empty & realigner.i.ready),
            self.hint.eq(rows.o.valid),
            given.eq(realigner.i.valid & realigner.i.ready),
            final.eq(burst.empty | rows.o.payload.last),
            next_.eq(~active | (given & final)),
            coming.o.ready.eq(next_),
            from_lane.eq(Mux(first, burst.start, 0)),
            fragment.data.eq(rows.o.payload.data),
            fragment.offset.eq(from_lane),
            fragment.count.eq(Mux(burst.empty, 0, Mux(final, burst.end, size - 1) + 1 - from_lane)),
            fragment.last.eq(final & burst.last),
            fragment.error.eq(burst.error | (rows.o.payload.error & ~burst.empty)),
        ]
        m.d.sync += self.over.eq(given & final & burst.last)
        with m.If(next_):
            m.d.sync += [active.eq(coming.o.valid), burst.eq(coming.o.payload), first.eq(1)]
        with m.Elif(given):
            m.d.sync += first.eq(0)
        return m
