"""A record's words from host memory."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ..abi.qpc import QP_DOORBELLS, QPC_DRIVER
from ..stream.packet import PacketBeat
from ..stream.record import word_layout
from ..stream.transfer import ReadRequest
from ..stream.words import WORD_BITS

__all__ = ["READ_BYTES", "RecordRead"]

READ_BYTES = 512
"""Most bytes of a read."""

FIRST_BYTES = 384
"""Bytes of the first read: a queue pair that does nothing has 352, and a message under way 8 more. What is read in vain
keeps payload off the bus."""

DRIVER_WORDS = QPC_DRIVER * 8 // WORD_BITS


class RecordRead(wiring.Component):
    """Reads a record: the driver's part, and with ``whole`` the engine's, of which it goes on to read as long as that
    says that there is more.

    A word comes each cycle, from 128 bits on with one cycle between beats.

    Parameters
    ----------
    data_width : int
        64, 128, 256 or 512 bits.
    words : int
        Most words of the engine's part.

    Members
    -------
    go, address, whole : 1, 64, 1
        Strobe, while not ``busy``. The record's bus address, which its size divides.
    known, words : 1, number
        How many words the engine's part has; stands when its header has come.
    o : stream of 64 bits
        The engine's part, and what follows it. It must be taken.
    doorbells
        ``sq_producer`` and ``rq_producer``, when it is not ``busy`` any more.
    busy : 1
        From the cycle after ``go`` on.
    failed : 1
        A read since ``go`` was answered with an error.
    request : stream of ``ReadRequest``; data : stream of ``PacketBeat``
        As of :class:`verbena.hdl.dma.engine.StructureRead`.
    """

    def __init__(self, data_width, words):
        self.data_width = data_width
        self.most = words
        super().__init__(
            {
                "go": In(1),
                "address": In(64),
                "whole": In(1),
                "known": In(1),
                "words": In(range(words + 1)),
                "o": Out(stream.Signature(WORD_BITS)),
                "doorbells": Out(word_layout(QP_DOORBELLS, [0])),
                "busy": Out(1),
                "failed": Out(1),
                "request": Out(stream.Signature(ReadRequest)),
                "data": In(stream.Signature(PacketBeat(data_width))),
            }
        )

    def elaborate(self, platform):
        m = Module()
        lanes = self.data_width // WORD_BITS
        most = READ_BYTES * 8 // WORD_BITS * -(-(self.most + DRIVER_WORDS) // (READ_BYTES * 8 // WORD_BITS))
        address, whole = Signal(64), Signal()
        offset = Signal(range(max(2 * READ_BYTES, QPC_DRIVER + self.most * WORD_BITS // 8)))
        number = Signal(range(most + 1))  # of the next word of the record
        end = Signal.like(number)  # that behind its last one, a cycle after `words`: the header's read ends later
        m.d.sync += end.eq(self.words + DRIVER_WORDS)
        word, comes = Signal(WORD_BITS), Signal()
        length = Signal(range(READ_BYTES + 1))  # up to the next block of READ_BYTES
        with m.If(offset == 0):
            m.d.comb += length.eq(FIRST_BYTES)
        with m.Elif(offset == FIRST_BYTES):
            m.d.comb += length.eq(READ_BYTES - FIRST_BYTES)
        with m.Else():
            m.d.comb += length.eq(READ_BYTES)
        m.d.comb += [
            self.request.payload.address.eq(Cat(offset, address[len(offset) :])),
            self.request.payload.length.eq(Mux(whole, length, QPC_DRIVER)),
            self.o.valid.eq(comes & (number >= DRIVER_WORDS)),
            self.o.payload.eq(word),
        ]
        with m.If(comes):
            m.d.sync += number.eq(number + 1)
            with m.If(number == 0):
                m.d.sync += self.doorbells.as_value().eq(word[: self.doorbells.as_value().shape().width])
        beat, last = self.data.payload, Signal()  # the last word of a read comes
        if lanes == 1:
            m.d.comb += [
                self.data.ready.eq(1),
                comes.eq(self.data.valid),
                word.eq(beat.data),
                last.eq(self.data.valid & beat.last),
            ]
        else:
            bits, left, ends = Signal(self.data_width), Signal(range(lanes + 1)), Signal()
            m.d.comb += [
                self.data.ready.eq(left == 0),
                comes.eq(left != 0),
                word.eq(bits[:WORD_BITS]),
                last.eq((left == 1) & ends),
            ]
            with m.If(self.data.valid & self.data.ready):
                m.d.sync += [bits.eq(beat.data), left.eq(beat.count[3:]), ends.eq(beat.last)]
            with m.Elif(left != 0):
                m.d.sync += [bits.eq(Cat(bits[WORD_BITS:], Const(0, WORD_BITS))), left.eq(left - 1)]
        with m.If(self.data.valid & self.data.ready & beat.last & beat.error):
            m.d.sync += self.failed.eq(1)

        with m.FSM() as fsm:
            m.d.comb += self.busy.eq(~fsm.ongoing("IDLE"))
            with m.State("IDLE"):
                m.d.sync += [address.eq(self.address), offset.eq(0), whole.eq(self.whole), number.eq(0)]
                with m.If(self.go):
                    m.d.sync += self.failed.eq(0)
                    m.next = "ASK"
            with m.State("ASK"):
                m.d.comb += self.request.valid.eq(1)
                with m.If(self.request.ready):
                    m.d.sync += offset.eq(offset + length)
                    m.next = "TAKE"
            with m.State("TAKE"):
                with m.If(last):
                    m.next = "MORE"
            with m.State("MORE"):
                m.next = "IDLE"
                with m.If(whole & self.known & (end > number) & ~self.failed):
                    m.next = "ASK"
        return m
