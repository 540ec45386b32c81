"""A state on its way between its owner and host memory, in words."""

from amaranth.hdl import Cat, Module, Mux, Shape, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

__all__ = ["WORD_BITS", "SavedWord", "StateWords"]

WORD_BITS = 64

SavedWord = data.StructLayout({"data": WORD_BITS, "last": 1, "wake": 1})
"""A word of what a block gives away of a queue pair; ``last``: it has given all. With the last one ``wake``: the block
has something to do for the QP that nobody will remind it of, so the QP must come back by itself."""


class StateWords(wiring.Component):
    """Gives a state away in words of 64 bits, the lowest first, or takes one that was given away so.

    The first word is at ``saved`` in the cycle after ``save``, or taken at ``loaded`` in the cycle after ``load``, or
    later; a word a cycle.

    Parameters
    ----------
    shape : shape-like

    Members
    -------
    state, wake, save : ``shape``, 1, 1
        Strobe, while not ``busy``: gives it away.
    saved : stream of ``SavedWord``
        ``last`` with the state's last word; ``wake`` as it was with ``save``.
    load : 1
        Strobe, while not ``busy``: takes one.
    loaded : stream of 64 bits
    value : ``shape``
        What was taken, when it is not ``busy`` any more, until the next strobe.
    busy : 1
        Words are still to go, or to come; from the cycle after a strobe on.
    """

    def __init__(self, shape):
        self.shape = shape
        self.words = max(1, -(-Shape.cast(shape).width // WORD_BITS))
        super().__init__(
            {
                "state": In(shape),
                "wake": In(1),
                "save": In(1),
                "saved": Out(stream.Signature(SavedWord)),
                "load": In(1),
                "loaded": In(stream.Signature(WORD_BITS)),
                "value": Out(shape),
                "busy": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        bits = self.words * WORD_BITS
        state = Signal(bits)
        # What goes and what comes have registers of their own: one for both takes a LUT more a bit.
        given, taken = (Signal(bits, name=name, reset_less=True) for name in ("given", "taken"))
        left, loading = Signal(range(self.words + 1)), Signal()
        moves = Signal()
        m.d.comb += [
            self.busy.eq(left != 0),
            self.saved.valid.eq(self.busy & ~loading),
            self.saved.payload.data.eq(given[:WORD_BITS]),
            self.saved.payload.last.eq(left == 1),
            self.loaded.ready.eq(self.busy & loading),
            moves.eq((self.saved.valid & self.saved.ready) | (self.loaded.valid & self.loaded.ready)),
            state.eq(Value.cast(self.state)),
            Value.cast(self.value).eq(taken),
        ]
        with m.If(self.save | self.load):
            m.d.sync += [left.eq(self.words), loading.eq(self.load)]
        with m.Elif(moves):
            m.d.sync += left.eq(left - 1)
        with m.If(self.save):
            m.d.sync += self.saved.payload.wake.eq(self.wake)
        with m.If(self.save | moves):  # what follows the last word means nothing
            m.d.sync += given.eq(Cat(Mux(self.save, state[:-WORD_BITS], given[WORD_BITS:]), state[-WORD_BITS:]))
        with m.If(moves):
            m.d.sync += taken.eq(Cat(taken[WORD_BITS:], self.loaded.payload))
        return m
