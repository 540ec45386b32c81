"""A record's words from host memory."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..abi.qpc import QP_DOORBELLS, QPC_DRIVER
from ..stream.packet import PacketBeat
from ..stream.record import word_layout
from ..stream.transfer import ReadRequest
from ..stream.words import WORD_BITS

__all__ = ["READ_BYTES", "RecordRead"]

READ_BYTES = 512
"""Bytes of a read: those of a queue pair that does nothing."""

DRIVER_WORDS = QPC_DRIVER * 8 // WORD_BITS


class RecordRead(wiring.Component):
    """Reads records, one after the other: the driver's part, and with ``whole`` the engine's, of which it goes on to
    read as long as that says that there is more.

    While a record comes, or waits until it is taken, the read of the next one is under way: from when it is known that
    no more need be read of the one before.

    A word comes each cycle, from 128 bits on with one cycle between beats.

    Parameters
    ----------
    data_width : int
        64, 128, 256 or 512 bits.
    words : int
        Most words of the engine's part.

    Members
    -------
    ask : stream of ``{address, whole}``
        Records that are wanted, and their bus addresses.
    asked : 1
        A record has been asked for that does not come yet.
    room : 1
        The next record may come.
    begins : 1
        Strobe: it does.
    whole : 1
        Of the record that comes, or came.
    known, words : 1, number
        How many words the engine's part has; stands when its header has come.
    o : stream of 64 bits
        The engine's part, and what follows it. It must be taken.
    here, take : 1, 1
        A record has come; strobe, while ``here``: it is not needed any more.
    doorbells, failed
        While ``here``: ``sq_producer`` and ``rq_producer``; a read of it was answered with an error.
    request : stream of ``ReadRequest``; data : stream of ``PacketBeat``
        As of :class:`verbena.hdl.dma.engine.StructureRead`.
    """

    def __init__(self, data_width, words):
        self.data_width = data_width
        self.most = words
        super().__init__(
            {
                "ask": In(stream.Signature(data.StructLayout({"address": 64, "whole": 1}))),
                "asked": Out(1),
                "room": In(1),
                "begins": Out(1),
                "whole": Out(1),
                "known": In(1),
                "words": In(range(words + 1)),
                "o": Out(stream.Signature(WORD_BITS)),
                "here": Out(1),
                "take": In(1),
                "doorbells": Out(word_layout(QP_DOORBELLS, [0])),
                "failed": Out(1),
                "request": Out(stream.Signature(ReadRequest)),
                "data": In(stream.Signature(PacketBeat(data_width))),
            }
        )

    def elaborate(self, platform):
        m = Module()
        lanes = self.data_width // WORD_BITS
        read_words = READ_BYTES * 8 // WORD_BITS
        most = read_words * -(-(self.most + DRIVER_WORDS) // read_words)
        address = Signal(64)  # of what else is to be read of the record that comes
        following, asks = Signal(self.ask.payload.shape()), Signal()  # the next record, and that its read is to begin
        under_way = Signal()  # it has begun
        number = Signal(range(most + 1))  # of the next word of the record
        word, comes = Signal(WORD_BITS), Signal()
        takes, more, may_ask = Signal(), Signal(), Signal()
        fits, settled = Signal(), Signal()  # one read is enough; and that is known
        m.d.sync += fits.eq(self.known & (self.words + DRIVER_WORDS <= read_words))
        m.d.comb += [
            self.ask.ready.eq(~asks & ~under_way & may_ask),
            self.asked.eq(asks | under_way),
            self.request.valid.eq(asks | more),
            self.request.payload.address.eq(Mux(asks, following.address, address)),
            self.request.payload.length.eq(Mux(asks & ~following.whole, QPC_DRIVER, READ_BYTES)),
            self.o.valid.eq(comes & (number >= DRIVER_WORDS)),
            self.o.payload.eq(word),
        ]
        with m.If(comes):
            m.d.sync += number.eq(number + 1)
            with m.If(number == 0):
                m.d.sync += self.doorbells.as_value().eq(word[: self.doorbells.as_value().shape().width])
            with m.If(number == DRIVER_WORDS + 8):  # the header was looked at
                m.d.sync += settled.eq(fits)
        beat, last = self.data.payload, Signal()  # the last word of a read comes
        if lanes == 1:
            m.d.comb += [
                self.data.ready.eq(takes),
                comes.eq(self.data.valid & takes),
                word.eq(beat.data),
                last.eq(comes & beat.last),
            ]
        else:
            bits, left, ends = Signal(self.data_width), Signal(range(lanes + 1)), Signal()
            m.d.comb += [
                self.data.ready.eq(takes & (left == 0)),
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

        with m.If(self.ask.valid & self.ask.ready):
            m.d.sync += [following.eq(self.ask.payload), asks.eq(1)]
        with m.If(asks & self.request.ready):
            m.d.sync += [asks.eq(0), under_way.eq(1)]
        with m.FSM() as fsm:
            m.d.comb += [
                takes.eq(fsm.ongoing("TAKE")),
                more.eq(fsm.ongoing("ASK_MORE")),
                self.here.eq(fsm.ongoing("HERE")),
                may_ask.eq(fsm.ongoing("WAIT") | fsm.ongoing("HERE") | settled),
            ]
            with m.State("WAIT"):
                with m.If(under_way & self.room):
                    m.d.comb += self.begins.eq(1)
                    m.d.sync += [
                        under_way.eq(0),
                        self.whole.eq(following.whole),
                        address.eq(following.address + READ_BYTES),
                        self.failed.eq(0),
                        settled.eq(~following.whole),
                        number.eq(0),
                    ]
                    m.next = "TAKE"
            with m.State("TAKE"):
                with m.If(last):
                    m.next = "MORE"
            with m.State("MORE"):
                m.next = "HERE"
                with m.If(self.whole & self.known & (self.words + DRIVER_WORDS > number) & ~self.failed):
                    m.next = "ASK_MORE"
            with m.State("ASK_MORE"):
                with m.If(self.request.ready):
                    m.d.sync += address.eq(address + READ_BYTES)
                    m.next = "TAKE"
            with m.State("HERE"):
                with m.If(self.take):
                    m.next = "WAIT"
        return m
