"""Whose a slot is, and how its queue pair is."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..abi.contexts import QP_CONTEXT, QP_CONTEXT_WORDS
from ..stream.record import word_layout

__all__ = ["QPN_WORD", "QpLook"]

QPN_WORD = QP_CONTEXT.fields["qpn"].word


class QpLook(wiring.Component):
    """Reads two words of a QP's context: the one with its number, and word 0, which has its state.

    Members
    -------
    look, looked : 1
        Strobes: they are read; they are there, 5 cycles later.
    word, row
        Of :class:`.contexts.Contexts`. ``word`` is 0 but in the cycle after ``look``.
    qpn, first : 24, word 0
        Registers. They stand until the next look; ``qpn`` since the cycle before ``looked``.
    """

    def __init__(self):
        super().__init__(
            {
                "look": In(1),
                "looked": Out(1),
                "word": Out(range(QP_CONTEXT_WORDS)),
                "row": In(32),
                "qpn": Out(QP_CONTEXT.fields["qpn"].width),
                "first": Out(word_layout(QP_CONTEXT, [0])),
            }
        )

    def elaborate(self, platform):
        m = Module()
        steps = Signal(5)
        m.d.sync += steps.eq(Cat(self.look, steps))
        m.d.comb += [self.word.eq(Mux(steps[0], QPN_WORD, 0)), self.looked.eq(steps[-1])]
        with m.If(steps[2]):
            m.d.sync += self.qpn.eq(self.row)
        with m.If(steps[3]):
            m.d.sync += self.first.eq(self.row)
        return m
