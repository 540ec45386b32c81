"""A record's words to host memory."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ..abi.qpc import QPC_DRIVER
from ..abi.tables import AccessStatus
from ..stream.packet import PacketBeat
from ..stream.transfer import Done, ReadRequest
from ..stream.words import WORD_BITS

__all__ = ["WRITE_BYTES", "RecordWrite"]

WRITE_BYTES = 512
"""Bytes of a write, at most: a record of a queue pair that does nothing is one. Each write may wait for a burst of
payload."""

LINE = WRITE_BYTES * 8 // WORD_BITS


class RecordWrite(wiring.Component):
    """Writes the engine's part of a record, in writes of 512 bytes, and waits until all are answered.

    A word is taken each cycle, but for one before each write, and from 128 bits on one more a beat.

    Parameters
    ----------
    data_width : int
        64, 128, 256 or 512 bits.
    words : int
        Most words of a record.

    Members
    -------
    go, address, count : 1, 64, number
        Strobe, while not ``busy``: so many words go to the record at this bus address, which the record's size divides.
    i : stream of 64 bits
    busy : 1
        From the cycle after ``go`` on.
    failed : 1
        A write since ``go`` was answered with an error.
    request : stream of ``ReadRequest``; data : stream of ``PacketBeat``; done : stream of ``Done``
        As of :class:`verbena.hdl.dma.engine.StructureWrite`.
    """

    def __init__(self, data_width, words):
        self.data_width = data_width
        self.words = words
        super().__init__(
            {
                "go": In(1),
                "address": In(64),
                "count": In(range(words + 1)),
                "i": In(stream.Signature(WORD_BITS)),
                "busy": Out(1),
                "failed": Out(1),
                "request": Out(stream.Signature(ReadRequest)),
                "data": Out(stream.Signature(PacketBeat(data_width))),
                "done": In(stream.Signature(Done)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        lanes = self.data_width // WORD_BITS
        left, line = Signal(range(self.words + 1)), Signal(range(LINE + 1))
        address, offset = Signal(64), Signal(range(QPC_DRIVER + self.words * WORD_BITS // 8))
        waiting = Signal(range(-(-self.words // LINE) + 1))
        asked = self.request.valid & self.request.ready
        m.d.comb += [
            self.request.payload.address.eq(Cat(offset, address[len(offset) :])),
            self.request.payload.length.eq(Cat(Const(0, 3), Mux(left > LINE, LINE, left))),
            self.done.ready.eq(1),
        ]
        m.d.sync += waiting.eq(waiting + asked - self.done.valid)
        with m.If(self.done.valid & (self.done.payload.status != AccessStatus.OK)):
            m.d.sync += self.failed.eq(1)

        beat, moves = self.data.payload, Signal()  # a word is taken
        first = Signal()
        m.d.comb += moves.eq(self.i.valid & self.i.ready)
        with m.FSM() as fsm:
            m.d.comb += self.busy.eq(~fsm.ongoing("IDLE"))
            with m.State("IDLE"):
                m.d.sync += [left.eq(self.count), address.eq(self.address), offset.eq(QPC_DRIVER)]
                with m.If(self.go):
                    m.d.sync += self.failed.eq(0)
                    m.next = "ASK"
            with m.State("ASK"):
                m.d.comb += self.request.valid.eq(left != 0)
                m.d.sync += [line.eq(Mux(left > LINE, LINE, left)), first.eq(1)]
                with m.If(asked):
                    m.d.sync += offset.eq(offset + LINE * WORD_BITS // 8)
                    m.d.sync += left.eq(Mux(left > LINE, left - LINE, 0))
                    m.next = "MOVE"
                with m.If((left == 0) & (waiting == 0)):
                    m.next = "IDLE"
            with m.State("MOVE"):
                if lanes == 1:
                    m.d.comb += [
                        self.i.ready.eq(self.data.ready),
                        self.data.valid.eq(self.i.valid),
                        beat.data.eq(self.i.payload),
                        beat.count.eq(WORD_BITS // 8),
                        beat.first.eq(first),
                        beat.last.eq(line == 1),
                    ]
                    over = (line == 1) & moves
                    with m.If(moves):
                        m.d.sync += first.eq(0)
                else:
                    # Words fill a beat from its lowest bits on.
                    held, full = Signal(range(lanes + 1)), Signal()
                    bits = Signal(self.data_width)
                    m.d.comb += [
                        full.eq((held == lanes) | ((line == 0) & (held != 0))),
                        self.i.ready.eq(~full & (line != 0)),
                        self.data.valid.eq(full),
                        beat.data.eq(bits),
                        beat.count.eq(Cat(Const(0, 3), held)),
                        beat.first.eq(first),
                        beat.last.eq(line == 0),
                    ]
                    with m.If(moves):
                        m.d.sync += [bits.word_select(held[: (lanes - 1).bit_length()], WORD_BITS).eq(self.i.payload)]
                        m.d.sync += held.eq(held + 1)
                    with m.If(self.data.valid & self.data.ready):
                        m.d.sync += [held.eq(0), first.eq(0)]
                    over = self.data.valid & self.data.ready & beat.last
                with m.If(moves):
                    m.d.sync += line.eq(line - 1)
                with m.If(over):
                    m.next = "ASK"
        return m
