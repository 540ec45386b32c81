"""A queue pair's attributes on their way between their table and its record."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ..abi.contexts import QP_CONTEXT, QP_CONTEXT_WORDS
from ..stream.words import WORD_BITS, SavedWord

__all__ = ["ATTRIBUTE_WORDS", "ContextWords"]

PAIR = WORD_BITS // 32

ATTRIBUTE_WORDS = -(-max(field.offset + field.width for field in QP_CONTEXT.fields.values()) // WORD_BITS)
"""Words of 64 bits up to the last attribute there is."""

QPN_WORD = QP_CONTEXT.fields["qpn"].word


class ContextWords(wiring.Component):
    """Reads the attributes of a QP out of their table, writes them, or makes a slot that of nobody.

    The word with ``state`` is written last: a QP never runs on half of its attributes.

    *Cycles*: ``save`` 4 for each 64 bits, if they are taken at once; ``load`` 2; ``clear`` 4.

    Members
    -------
    save, load, clear : 1
        Strobes, while not ``busy``.
    busy : 1
        From the cycle after a strobe until what was written has been broadcast.
    saved : stream of ``SavedWord``; loaded : stream of words
    word, data, write, row
        As of :class:`.contexts.Contexts`.
    """

    def __init__(self):
        super().__init__(
            {
                "save": In(1),
                "load": In(1),
                "clear": In(1),
                "busy": Out(1),
                "saved": Out(stream.Signature(SavedWord)),
                "loaded": In(stream.Signature(WORD_BITS)),
                "word": Out(range(QP_CONTEXT_WORDS)),
                "data": Out(32),
                "write": Out(1),
                "row": In(32),
            }
        )

    def elaborate(self, platform):
        m = Module()
        word, low, state = Signal.like(self.word), Signal(32), Signal(32)
        loaded = self.loaded.payload
        m.d.comb += [
            self.word.eq(word),
            self.data.eq(Mux(word[0], loaded.word_select(1, 32), loaded.word_select(0, 32))),
            self.saved.payload.data.eq(Cat(low, self.row)),
            self.saved.payload.last.eq(word == PAIR * ATTRIBUTE_WORDS - 1),
        ]
        with m.FSM() as fsm:
            m.d.comb += self.busy.eq(~fsm.ongoing("IDLE"))
            with m.State("IDLE"):
                m.d.sync += word.eq(0)
                with m.If(self.save):
                    m.next = "LOW"
                with m.Elif(self.load):
                    m.next = "TAKE"
                with m.Elif(self.clear):
                    m.d.sync += [word.eq(QPN_WORD), state.eq(0)]
                    m.next = "CLEAR"

            # Two words, one behind the other; a row comes 2 cycles after its address, and stays.
            with m.State("LOW"):
                m.d.sync += word.eq(word + 1)
                m.next = "HIGH"
            with m.State("HIGH"):
                m.next = "ROW"
            with m.State("ROW"):
                m.d.sync += low.eq(self.row)
                m.next = "GIVE"
            with m.State("GIVE"):
                m.d.comb += self.saved.valid.eq(1)
                with m.If(self.saved.ready):
                    m.d.sync += word.eq(word + 1)
                    m.next = "LOW"
                    with m.If(self.saved.payload.last):
                        m.next = "IDLE"

            # Of the words that come the first, with the state, is kept until the end.
            with m.State("TAKE"):
                with m.If(word == 0):
                    m.d.sync += state.eq(loaded.word_select(0, 32))
                with m.Else():
                    m.d.comb += self.write.eq(self.loaded.valid)
                with m.If(self.loaded.valid):
                    m.d.sync += word.eq(word + 1)
                    m.next = "TAKE_HIGH"
            with m.State("TAKE_HIGH"):
                m.d.comb += [self.write.eq(1), self.loaded.ready.eq(1)]
                m.d.sync += word.eq(word + 1)
                m.next = "TAKE"
                with m.If(word == PAIR * ATTRIBUTE_WORDS - 1):
                    m.d.sync += word.eq(0)
                    m.next = "STATE"
            with m.State("CLEAR"):
                m.d.comb += [self.data.eq(state), self.write.eq(1)]
                m.d.sync += word.eq(0)
                m.next = "STATE"
            with m.State("STATE"):
                m.d.comb += [self.data.eq(state), self.write.eq(1)]
                m.next = "SETTLE"
            with m.State("SETTLE"):  # it is broadcast
                m.next = "SETTLED"
            with m.State("SETTLED"):
                m.next = "IDLE"
        return m
