"""Payload into memory."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ..abi.tables import AccessStatus
from ..stream.lut_fifo import LutFifo
from ..stream.packet import PacketBeat
from ..stream.slice import Slice
from ..stream.transfer import Done, Piece
from .port import WritePort
from .scatter import Scatter
from .split import Splitter

__all__ = ["PayloadWriter"]

RUNS = 16
"""Runs that may wait for the bus's answers, or as many as bursts if these are more: a run may have none."""


class PayloadWriter(wiring.Component):
    """Writes the payload of each run to its pieces, any alignment and length, and says when the bus has answered.

    Every run whose pieces have any length, discards included, takes exactly one packet, through its last beat: what the
    pieces do not hold is swallowed, and beyond the packet's end nothing is written (bytes of the packet's last beat
    excepted, which are undefined but inside the piece). Pieces of length 0 touch nothing. Behind a discard a run has
    only discards, and does not wait until they are swallowed: a NAK is not to come late. Beats carry a strobe for each
    byte of the piece and for no other; no burst crosses 4 KiB or has more than 256 beats.

    A burst is asked for 2 cycles after its piece has arrived, and its first beat is ready 2 cycles after the burst was
    taken; each piece costs 2 cycles and each burst 2 besides its beats. Large pieces go at one beat a cycle, a small
    packet takes 4 cycles.

    Parameters
    ----------
    data_width : int
        64, 128, 256 or 512 bits.
    bursts : int
        Bursts that may wait for their answer; a power of two.

    Members
    -------
    piece : stream of ``Piece``
    payload : stream of ``PacketBeat``
    done : stream of ``Done``
        One a run, in order, after all answers; the status is that of the run's last piece, or BUS if that is OK and an
        answer is not; the tag is that of its last piece.
    over : 1
        Strobe: a run has been said to be ``done``.
    port : ``WritePort``
        To a :class:`.arbiter.WriteArbiter`.
    count_stall_rx_memory : 1
        Payload waits, and the bus does not take the burst, the beat, or answers too slowly.
    """

    def __init__(self, data_width, *, bursts=16):
        if not isinstance(bursts, int) or bursts < 2 or bursts & bursts - 1:
            raise ValueError(f"bursts must be a power of two, at least 2, not {bursts!r}")
        self.data_width = data_width
        self.bursts = bursts
        super().__init__(
            {
                "piece": In(stream.Signature(Piece)),
                "payload": In(stream.Signature(PacketBeat(data_width))),
                "done": Out(stream.Signature(Done)),
                "over": Out(1),
                "port": Out(WritePort(data_width)),
                "count_stall_rx_memory": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        port = self.port
        count_bits = ceil_log2(self.bursts) + 1
        most = max(RUNS, self.bursts)
        m.submodules.splitter = splitter = Splitter(self.data_width)
        m.submodules.scatter = scatter = Scatter(self.data_width, 1)
        m.submodules.runs = runs = LutFifo(data.StructLayout({"status": 3, "tag": 1, "count": count_bits}), most)
        m.submodules.answers = answers = LutFifo(1, self.bursts)
        wiring.connect(m, wiring.flipped(self.payload), scatter.payload)
        wiring.connect(m, scatter.o, wiring.flipped(port.beat))

        # What a piece is, is known with it: it decides on the scatterer and on the bus in the same cycle.
        offered = self.piece.payload
        m.submodules.coming = coming = Slice(data.StructLayout({"piece": Piece, "zero": 1, "none": 1}))
        zero, none = coming.o.payload.zero, coming.o.payload.none
        piece = coming.o
        m.d.comb += [
            coming.i.valid.eq(self.piece.valid),
            coming.i.payload.piece.eq(offered),
            coming.i.payload.zero.eq(offered.length == 0),
            coming.i.payload.none.eq((offered.length == 0) | offered.discard),
            self.piece.ready.eq(coming.i.ready),
        ]
        asked_for = piece.payload.piece

        # A burst goes to the bus and to the scatterer at once; one of which nothing is written to the latter alone.
        go, handed, ends = Signal(), Signal(), Signal()
        full = Signal()
        room = Signal()  # among the runs, two cycles late, in which one more may end
        some = Signal()  # the run has had length
        m.d.comb += [
            go.eq(scatter.i.ready & room & ~full),
            splitter.i.valid.eq(piece.valid & ~none),
            splitter.i.payload.address.eq(asked_for.address),
            splitter.i.payload.length.eq(asked_for.length),
            port.burst.valid.eq(splitter.o.valid & go),
            port.burst.payload.eq(splitter.o.payload),
            splitter.o.ready.eq(go & port.burst.ready),
            handed.eq(splitter.o.valid & splitter.o.ready),
            piece.ready.eq(Mux(none, go, splitter.i.ready)),
            scatter.i.valid.eq(handed | (piece.valid & none & go)),
            scatter.i.payload.length.eq(splitter.o.payload.length),
            scatter.i.payload.start.eq(splitter.start),
            scatter.i.payload.end.eq(splitter.end),
            scatter.i.payload.empty.eq(none),
            scatter.i.payload.last.eq(asked_for.last & Mux(none, some | ~zero, splitter.last)),
            ends.eq(piece.valid & piece.ready & asked_for.last),
        ]
        m.d.sync += room.eq(runs.level < most - 1)
        with m.If(ends):
            m.d.sync += some.eq(0)
        with m.Elif(scatter.i.valid & ~zero):
            m.d.sync += some.eq(1)

        # Answers come in order. A run is over when as many have been counted as bursts were asked for up to its end.
        asked, counted = Signal(count_bits), Signal(count_bits)
        waiting = Signal(count_bits)
        count, late_count, over = Signal(), Signal(), Signal()
        failed = Signal()
        m.d.sync += [
            runs.i.valid.eq(ends),
            runs.i.payload.status.eq(asked_for.status),
            runs.i.payload.tag.eq(asked_for.tag),
            runs.i.payload.count.eq(asked + handed),
        ]
        m.d.comb += [
            answers.i.valid.eq(port.answer),
            answers.i.payload.eq(port.error),
            over.eq(runs.o.valid & (runs.o.payload.count == counted)),
            self.done.valid.eq(over),
            self.done.payload.status.eq(
                Mux(failed & (runs.o.payload.status == AccessStatus.OK), AccessStatus.BUS, runs.o.payload.status)
            ),
            self.done.payload.tag.eq(runs.o.payload.tag),
            runs.o.ready.eq(over & self.done.ready),
            answers.o.ready.eq(~over),
            count.eq(answers.o.valid & ~over),
            full.eq(waiting[-1]),
        ]
        m.d.sync += asked.eq(asked + handed)
        with m.If(count):
            m.d.sync += counted.eq(counted + 1)
        m.d.sync += [late_count.eq(count), waiting.eq(waiting + handed - late_count)]
        m.d.sync += self.over.eq(over & self.done.ready)
        with m.If(over & self.done.ready):
            m.d.sync += failed.eq(0)
        with m.Elif(count):
            m.d.sync += failed.eq(failed | answers.o.payload)

        refused = port.burst.valid & ~port.burst.ready
        m.d.sync += self.count_stall_rx_memory.eq(
            self.payload.valid & (refused | (port.beat.valid & ~port.beat.ready) | (splitter.o.valid & full))
        )
        return m
