"""The engine's own structures: rings and tables, read and written in multiples of 8 bytes."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ..abi.tables import AccessStatus
from ..stream.connections import connect_via, link
from ..stream.fifo import Queue
from ..stream.packet import PacketBeat
from ..stream.realign import Realigner
from ..stream.transfer import Done, ReadRequest
from .port import ReadPort, WritePort, burst_limit
from .scatter import Scatter

__all__ = ["StructureReader", "StructureWriter", "link_by_words"]

GRANULARITY = 8


def link_by_words(m, name, source, sink, largest):
    """Connects the data of a :class:`StructureReader` with a user that takes it in words of 64 bits, and has one read
    of at most ``largest`` bytes at a time: of a wider bus the beats wait in a queue.
    """
    width = len(source.payload.data)
    if width == GRANULARITY * 8:
        link(m, source, sink)
    else:
        connect_via(m, name, Queue(PacketBeat(width), max(1, 8 * largest // width), bypass=True), source, sink)


class StructureReader(wiring.Component):
    """Reads structures; one packet a request, in order, byte 0 first. Nothing is kept: what comes must be taken.

    A burst is asked for in the cycle of its request, unless more than ``beats`` could then be under way: so a client
    that asks for much keeps no other one from the bus for long. At 64 bits data comes out in the cycle in which it
    comes from the arbiter, above that, where it must be shifted, 3 cycles later, and 4 if another beat follows.

    Parameters
    ----------
    data_width : int
        64, 128, 256 or 512 bits.
    reads : int
        Reads that may be under way, a power of two; the user asks for no more.
    largest : int
        Most bytes of a request, a power of two, 8 to 4096, no more than AXI allows.
    beats : int or None
        Most beats under way, a power of two, at least those of ``largest``; None: those of all ``reads``.

    Members
    -------
    request : stream of ``ReadRequest``
        8-byte aligned, a multiple of 8 bytes, within an aligned block of ``largest`` bytes.
    data : stream of ``PacketBeat``
        Its ``ready`` must be 1 whenever a read is under way. ``error`` on the last beat if an RRESP was not OKAY.
    port : ``ReadPort``
        To a :class:`.arbiter.ReadArbiter`.
    """

    def __init__(self, data_width, reads=16, largest=64, beats=None):
        beat = PacketBeat(data_width)
        if not isinstance(reads, int) or reads < 1 or reads & reads - 1:
            raise ValueError(f"reads must be a power of two, not {reads!r}")
        most = burst_limit(data_width) * data_width // 8
        if not isinstance(largest, int) or not GRANULARITY <= largest <= most or largest & largest - 1:
            raise ValueError(f"largest must be a power of two from {GRANULARITY} to {most}, not {largest!r}")
        most = max(1, 8 * largest // data_width)  # beats of a request
        if beats is not None and (not isinstance(beats, int) or beats < most or beats & beats - 1):
            raise ValueError(f"beats must be None or a power of two, at least {most}, not {beats!r}")
        self.data_width = data_width
        self.reads = reads
        self.largest = largest
        self.beats = beats
        self._most = most
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
        beats = Signal(range(self._most))

        go = Signal()
        room, handed = Signal(), Signal()
        if self.beats:
            left = Signal(range(self.beats + 1), init=self.beats)  # that may be asked for
            m.d.sync += left.eq(left - Mux(handed, beats + 1, 0) + port.valid)
            m.d.comb += room.eq(left >= self._most)
        else:
            m.d.comb += room.eq(1)
        address = request.payload.address
        start = address[3 : 3 + lane_bits]
        end = Signal(len(beats) + lane_bits)  # the last 8 bytes, counted in 8 bytes from the start of the first beat
        m.d.comb += [
            go.eq(room),
            handed.eq(request.valid & request.ready),
            end.eq(start + request.payload.length[3:] - 1),
            beats.eq(end[lane_bits:]),
            port.burst.valid.eq(request.valid & go),
            port.burst.payload.address.eq(Cat(Const(0, 3 + lane_bits), address[3 + lane_bits :])),
            port.burst.payload.length.eq(beats),
            request.ready.eq(port.burst.ready & go),
        ]

        first = Signal(init=1)  # of a burst's beats
        with m.If(port.valid):
            m.d.sync += first.eq(port.last)
        if lanes > 1:
            # In LUT RAM, where a note stands ready when its burst is asked for: data may come in the very next cycle.
            note = data.StructLayout({"start": range(lanes), "end": range(lanes)})
            m.submodules.notes = notes = Queue(note, self.reads)
            m.submodules.realigner = realigner = Realigner(self.data_width, GRANULARITY)
            fragment = realigner.i.payload
            from_lane, to_lane = Signal(range(lanes)), Signal(range(lanes))
            m.d.comb += [
                go.eq(room & notes.i.ready),
                notes.i.valid.eq(handed),
                notes.i.payload.start.eq(start),
                notes.i.payload.end.eq(end[:lane_bits]),
                notes.o.ready.eq(port.valid & port.last),
                from_lane.eq(Mux(first, notes.o.payload.start, 0)),
                to_lane.eq(Mux(port.last, notes.o.payload.end, lanes - 1)),
                realigner.i.valid.eq(port.valid),
                fragment.data.eq(port.data),
                fragment.offset.eq(from_lane * GRANULARITY),
                fragment.count.eq((to_lane - from_lane + 1) * GRANULARITY),
                fragment.last.eq(port.last),
                fragment.error.eq(port.error),
            ]
            wiring.connect(m, realigner.o, wiring.flipped(self.data))
            return m

        failed = Signal()
        m.d.comb += [
            self.data.valid.eq(port.valid),
            self.data.payload.data.eq(port.data),
            self.data.payload.count.eq(GRANULARITY),
            self.data.payload.first.eq(first),
            self.data.payload.last.eq(port.last),
            self.data.payload.error.eq(port.last & (port.error | failed)),
        ]
        with m.If(port.valid):
            m.d.sync += failed.eq(~port.last & (port.error | failed))
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
    largest : int
        Most bytes of a request, a power of two, 64 to 4096, no more than AXI allows.

    Members
    -------
    request : stream of ``ReadRequest``
        8-byte aligned, a multiple of 8 bytes up to ``largest``, not across a 4 KiB boundary.
    data : stream of ``PacketBeat``
        One packet a request, of its length. Its beats move only after the request has.
    done : stream of ``Done``
        One a request, in order: OK or BUS, a cycle after the answer. Its ``ready`` must be 1 whenever a write is under
        way.
    port : ``WritePort``
        To a :class:`.arbiter.WriteArbiter`.
    """

    def __init__(self, data_width, writes=16, largest=64):
        if not isinstance(writes, int) or not 2 <= writes <= 64 or writes & writes - 1:
            raise ValueError(f"writes must be a power of two from 2 to 64, not {writes!r}")
        most = burst_limit(data_width) * data_width // 8
        if not isinstance(largest, int) or not 64 <= largest <= most or largest & largest - 1:
            raise ValueError(f"largest must be a power of two from 64 to {most}, not {largest!r}")
        self.data_width = data_width
        self.writes = writes
        self.largest = largest
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
        waiting = Signal(range(self.writes + 1))
        go, taken, done = Signal(), Signal(), self.done.valid

        address = request.payload.address
        start = address[3 : 3 + lane_bits]
        # The last 8 bytes, counted in 8 bytes from the start of the first beat.
        end = Signal(ceil_log2(self.largest // GRANULARITY) + 1 + lane_bits)
        m.d.comb += [
            end.eq(start + request.payload.length[3 : ceil_log2(self.largest) + 1] - 1),
            port.burst.valid.eq(request.valid & go),
            request.ready.eq(port.burst.ready & go),
            taken.eq(request.valid & request.ready),
            port.burst.payload.address.eq(Cat(Const(0, 3 + lane_bits), address[3 + lane_bits :])),
            port.burst.payload.length.eq(end[lane_bits:]),
        ]
        m.d.sync += [
            done.eq(port.answer),
            self.done.payload.status.eq(Mux(port.error, AccessStatus.BUS, AccessStatus.OK)),
        ]
        with m.If(taken ^ done):
            m.d.sync += waiting.eq(waiting + Cat(1, done.replicate(len(waiting) - 1)))

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
