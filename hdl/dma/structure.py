"""The engine's own structures: rings and tables, read and written in multiples of 8 bytes."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..abi.tables import AccessStatus
from ..stream.fifo import Queue
from ..stream.packet import PacketBeat
from ..stream.realign import Realigner
from ..stream.transfer import Done, ReadRequest
from .buffer import ReadBuffer
from .port import ReadPort, WritePort, burst_limit
from .scatter import Scatter

__all__ = ["StructureReader", "StructureWriter"]

GRANULARITY = 8
UNREAD = 32
"""Bursts whose data may be missing above 64 bits."""


class StructureReader(wiring.Component):
    """Reads structures; one packet a request, in order, byte 0 first.

    No read is asked for before there is room for it. Several are in flight: as many as fit ``depth`` with one burst of
    ``burst`` to spare, above 64 bits no more than 32. A burst is asked for in the cycle of its request. At 64 bits data
    comes out 1 cycle after it came from the bus, above that, where it must be shifted, 3 or 4 cycles after it.

    Parameters
    ----------
    data_width : int
        64, 128, 256 or 512 bits.
    depth : int
        Beats that may be on their way or wait, a power of two. Up to 32 take LUT RAM, more take block RAM.
    burst : int or None
        Most beats of a burst, a power of two; None: a quarter of ``depth``, and no more than AXI allows.

    Members
    -------
    request : stream of ``ReadRequest``
        8-byte aligned, a multiple of 8 bytes, within an aligned block of ``burst`` beats.
    data : stream of ``PacketBeat``
        ``error`` on the last beat if an RRESP was not OKAY.
    port : ``ReadPort``
        To a :class:`.arbiter.ReadArbiter`.
    """

    def __init__(self, data_width, depth=32, burst=None):
        beat = PacketBeat(data_width)
        if not isinstance(depth, int) or depth < 4 or depth & depth - 1:
            raise ValueError(f"depth must be a power of two, at least 4, not {depth!r}")
        most = min(depth // 2, burst_limit(data_width))
        if burst is None:
            burst = min(depth // 4, most)
        if burst < 1 or burst > most or burst & burst - 1:
            raise ValueError(f"burst must be a power of two up to {most}, not {burst!r}")
        self.data_width = data_width
        self.depth = depth
        self.burst = burst
        super().__init__(
            {
                "request": In(stream.Signature(ReadRequest)),
                "data": Out(stream.Signature(beat)),
                "port": Out(ReadPort(data_width)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        port, request = self.port, self.request
        lanes = self.data_width // 8 // GRANULARITY
        lane_bits = (lanes - 1).bit_length()
        beats = Signal(range(self.burst))
        row = data.StructLayout(
            {"data": self.data_width, "start": range(lanes), "end": range(lanes), "last": 1, "error": 1}
        )
        m.submodules.rows = rows = ReadBuffer(row, self.depth, self.burst)

        go, handed = Signal(), Signal()
        address = request.payload.address
        start = address[3 : 3 + lane_bits]
        end = Signal(len(beats) + lane_bits)  # the last 8 bytes, counted in 8 bytes from the start of the first beat
        m.d.comb += [
            go.eq(rows.room),
            end.eq(start + request.payload.length[3:] - 1),
            beats.eq(end[lane_bits:]),
            port.burst.valid.eq(request.valid & go),
            port.burst.payload.address.eq(Cat(Const(0, 3 + lane_bits), address[3 + lane_bits :])),
            port.burst.payload.length.eq(beats),
            request.ready.eq(port.burst.ready & go),
            handed.eq(request.valid & request.ready),
            rows.reserve.eq(handed),
            rows.length.eq(beats),
            rows.w_en.eq(port.valid),
            rows.w_data.data.eq(port.data),
            rows.w_data.last.eq(port.last),
            rows.w_data.error.eq(port.error),
        ]

        out = rows.o.payload
        if lanes > 1:
            # In LUT RAM, where a note stands ready when its burst is asked for: data may come in the very next cycle.
            note = data.StructLayout({"start": range(lanes), "end": range(lanes)})
            m.submodules.notes = notes = Queue(note, min(self.depth, UNREAD))
            m.submodules.realigner = realigner = Realigner(self.data_width, GRANULARITY)
            first = Signal(init=1)  # of a burst's beats
            with m.If(port.valid):
                m.d.sync += first.eq(port.last)
            m.d.comb += [
                go.eq(rows.room & notes.i.ready),
                notes.i.valid.eq(handed),
                notes.i.payload.start.eq(start),
                notes.i.payload.end.eq(end[:lane_bits]),
                notes.o.ready.eq(port.valid & port.last),
                rows.w_data.start.eq(Mux(first, notes.o.payload.start, 0)),
                rows.w_data.end.eq(Mux(port.last, notes.o.payload.end, lanes - 1)),
            ]
            fragment = realigner.i.payload
            m.d.comb += [
                realigner.i.valid.eq(rows.o.valid),
                rows.o.ready.eq(realigner.i.ready),
                fragment.data.eq(out.data),
                fragment.offset.eq(out.start * GRANULARITY),
                fragment.count.eq((out.end - out.start + 1) * GRANULARITY),
                fragment.last.eq(out.last),
                fragment.error.eq(out.error),
            ]
            wiring.connect(m, realigner.o, wiring.flipped(self.data))
            return m

        starts = Signal(init=1)
        failed = Signal()
        m.d.comb += [
            self.data.valid.eq(rows.o.valid),
            rows.o.ready.eq(self.data.ready),
            self.data.payload.data.eq(out.data),
            self.data.payload.count.eq(GRANULARITY),
            self.data.payload.first.eq(starts),
            self.data.payload.last.eq(out.last),
            self.data.payload.error.eq(out.last & (out.error | failed)),
        ]
        with m.If(self.data.valid & self.data.ready):
            m.d.sync += [starts.eq(out.last), failed.eq(~out.last & (out.error | failed))]
        return m


class StructureWriter(wiring.Component):
    """Writes structures, and says when the bus has answered.

    Burst and beats go to the bus in the cycle in which they come at 64 bits; above that beats are shifted to their
    place, which takes 2 cycles.

    Parameters
    ----------
    data_width : int
        64, 128, 256 or 512 bits.
    writes : int
        That may wait for their answer, a power of two from 2 to 64.

    Members
    -------
    request : stream of ``ReadRequest``
        8-byte aligned, a multiple of 8 bytes, 8 to 64, not across a 4 KiB boundary.
    data : stream of ``PacketBeat``
        One packet a request, of its length. Its beats move only after the request has.
    done : stream of ``Done``
        One a request, in order: OK or BUS.
    port : ``WritePort``
        To a :class:`.arbiter.WriteArbiter`.
    """

    def __init__(self, data_width, writes=16):
        if not isinstance(writes, int) or not 2 <= writes <= 64 or writes & writes - 1:
            raise ValueError(f"writes must be a power of two from 2 to 64, not {writes!r}")
        self.data_width = data_width
        self.writes = writes
        super().__init__(
            {
                "request": In(stream.Signature(ReadRequest)),
                "data": In(stream.Signature(PacketBeat(data_width))),
                "done": Out(stream.Signature(Done)),
                "port": Out(WritePort(data_width)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        port, request = self.port, self.request
        lanes = self.data_width // 8 // GRANULARITY
        lane_bits = (lanes - 1).bit_length()
        m.submodules.answers = answers = Queue(1, self.writes, bypass=True)
        waiting = Signal(range(self.writes + 1))
        go, taken, done = Signal(), Signal(), Signal()

        address = request.payload.address
        start = address[3 : 3 + lane_bits]
        end = Signal(4 + lane_bits)  # the last 8 bytes, counted in 8 bytes from the start of the first beat
        m.d.comb += [
            end.eq(start + request.payload.length[3:7] - 1),
            port.burst.valid.eq(request.valid & go),
            request.ready.eq(port.burst.ready & go),
            taken.eq(request.valid & request.ready),
            port.burst.payload.address.eq(Cat(Const(0, 3 + lane_bits), address[3 + lane_bits :])),
            port.burst.payload.length.eq(end[lane_bits:]),
            answers.i.valid.eq(port.answer),
            answers.i.payload.eq(port.error),
            self.done.valid.eq(answers.o.valid),
            self.done.payload.status.eq(Mux(answers.o.payload, AccessStatus.BUS, AccessStatus.OK)),
            answers.o.ready.eq(self.done.ready),
            done.eq(self.done.valid & self.done.ready),
        ]
        m.d.sync += waiting.eq(waiting + taken - done)

        if lanes > 1:
            m.submodules.scatter = scatter = Scatter(self.data_width, GRANULARITY)
            wiring.connect(m, wiring.flipped(self.data), scatter.payload)
            wiring.connect(m, scatter.o, wiring.flipped(port.beat))
            m.d.comb += [
                go.eq(~waiting[-1] & scatter.i.ready),
                scatter.i.valid.eq(taken),
                scatter.i.payload.length.eq(end[lane_bits:]),
                scatter.i.payload.start.eq(start),
                scatter.i.payload.end.eq(end[:lane_bits]),
                scatter.i.payload.last.eq(1),
            ]
            return m

        m.d.comb += [
            go.eq(~waiting[-1]),
            port.beat.valid.eq(self.data.valid),
            self.data.ready.eq(port.beat.ready),
            port.beat.payload.data.eq(self.data.payload.data),
            port.beat.payload.strobe.eq(~0),
            port.beat.payload.last.eq(self.data.payload.last),
        ]
        return m
