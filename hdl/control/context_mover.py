"""Words of contexts on their way from the mailbox, and to it."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ..abi.commands import MAILBOX_WORDS
from ..abi.contexts import QP_CONTEXT_WORDS

__all__ = ["ContextMover"]


class ContextMover(wiring.Component):
    """Writes words of the mailbox to a context, or reads the context of a QP to the mailbox.

    Words are written from ``first`` down to word 0, so that ``state`` comes last.

    *Cycles*: a word each cycle, and 4 more; a word that is read takes 4.

    Members
    -------
    write : 1 a kind of context
        Strobe, while not ``busy``: words are written to a context of this kind.
    first, single : 5, 1
        With ``write``: from this word on, or this one alone.
    read : 1
        Strobe, while not ``busy``: all words are read.
    busy : 1
        From the cycle after a strobe until the last word is being broadcast.
    zero, given, value : 1, 1, 32
        While ``busy``: zeros are written, or ``value``, instead of what the mailbox has. ``given`` is for the word that
        is ``coming``.
    coming : 5
        Which word of the mailbox is at ``mailbox_r_data``.
    shown : 5
        While not ``busy``, ``data`` is this word of the mailbox, 4 cycles later.
    mailbox_addr, mailbox_r_data, mailbox_w_en
        The mailbox; read data 2 cycles later.
    word, data, write_word : 5, 32, 1 a kind
        To :class:`.contexts.Contexts`: registers. ``word`` is 0 while not ``busy``.
    """

    def __init__(self, kinds):
        self.kinds = kinds
        word = range(QP_CONTEXT_WORDS)
        super().__init__(
            {
                "write": In(kinds),
                "first": In(word),
                "single": In(1),
                "read": In(1),
                "busy": Out(1),
                "zero": In(1),
                "given": In(1),
                "value": In(32),
                "coming": Out(word),
                "shown": In(word),
                "mailbox_addr": Out(ceil_log2(MAILBOX_WORDS)),
                "mailbox_r_data": In(32),
                "mailbox_w_en": Out(1),
                "word": Out(word),
                "data": Out(32),
                "write_word": Out(kinds),
            }
        )

    def elaborate(self, platform):
        m = Module()
        word = Signal(range(QP_CONTEXT_WORDS))
        kind, single = Signal(self.kinds), Signal()
        waited = Signal(2)  # for the row of a word that is read
        asked, asks, comes = Signal.like(word), Signal(self.kinds), Signal(self.kinds)  # before `coming`; for whom
        m.d.comb += self.mailbox_addr.eq(word)
        m.d.sync += [
            Cat(asked, self.coming).eq(Cat(word, asked)),
            Cat(asks, comes, self.write_word).eq(Cat(Const(0, self.kinds), asks, comes)),
            self.word.eq(Mux(comes.any(), self.coming, 0)),
            self.data.eq(Mux(self.given, self.value, self.mailbox_r_data)),
            waited.eq(waited + 1),
        ]
        with m.If(self.zero):
            m.d.sync += self.data.eq(0)
        with m.FSM() as fsm:
            m.d.comb += self.busy.eq(~fsm.ongoing("IDLE"))
            with m.State("IDLE"):
                m.d.sync += [word.eq(self.shown), kind.eq(self.write), single.eq(self.single)]
                with m.If(self.write.any()):
                    m.d.sync += word.eq(self.first)
                    m.next = "WRITE"
                with m.Elif(self.read):
                    m.d.sync += [word.eq(0), waited.eq(0)]
                    m.next = "READ"
            with m.State("WRITE"):
                m.d.sync += [asks.eq(kind), word.eq(word - 1)]
                with m.If(single | (word == 0)):
                    m.next = "WRITTEN"
            with m.State("WRITTEN"), m.If(~asks.any() & ~comes.any()):
                m.next = "IDLE"
            with m.State("READ"):
                m.d.sync += self.word.eq(word)
                with m.If(waited.all()):
                    m.d.comb += self.mailbox_w_en.eq(1)
                    m.d.sync += word.eq(word + 1)
                    with m.If(word == QP_CONTEXT_WORDS - 1):
                        m.d.sync += self.word.eq(0)
                        m.next = "IDLE"
        return m
