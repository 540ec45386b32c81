"""How far a ring is, on its way between its owner and host memory."""

from amaranth.hdl import Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..abi.commands import QpAction
from ..stream.words import WORD_BITS, SavedWord, StateWords

__all__ = ["RingState", "RingSwap"]

RingState = data.StructLayout({"producer": 16, "consumed": 16, "misrung": 1, "failed": 1})
"""How far a ring is, and whether it is in error: all that must be known to fetch its WQEs again."""


class RingSwap(wiring.Component):
    """Keeps the word of a ring that gives its state away, or gets it back, while a :class:`.ring_halt.RingHalt` has the
    ring stand still: SAVE and LOAD are done as RESET is, but not before the word of the one before has gone, or that
    of this one has come.

    Members
    -------
    token, action, done : 1, ``QpAction``, 1
        The token of the ring; it is taken.
    setting, reset : 1
        Of the halt.
    state, here : ``RingState``, 1
        It is that of the ring that stands still: while ``setting``.
    seen : 1
        It is there, or was: the ring may be set from the next cycle on.
    later : 1
        SAVE or LOAD is not to be done yet.
    then, loads : ``RingState``, 1
        What the ring is to be after the reset; it gets that.
    saved : stream of ``SavedWord``; loaded : stream of words
        One word a ring.
    """

    def __init__(self):
        super().__init__(
            {
                "token": In(1),
                "action": In(QpAction),
                "done": In(1),
                "setting": In(1),
                "reset": In(1),
                "state": In(RingState),
                "here": In(1),
                "seen": Out(1),
                "later": Out(1),
                "then": Out(RingState),
                "loads": Out(1),
                "saved": Out(stream.Signature(SavedWord)),
                "loaded": In(stream.Signature(WORD_BITS)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.words = words = StateWords(RingState)
        asked = Signal()
        kept = Signal()  # rows may be written from now on, though not all at once
        m.d.comb += self.seen.eq(kept | self.here)
        m.d.sync += kept.eq(self.setting & self.seen)
        with m.If(~kept):
            m.d.sync += words.state.eq(self.state)
        m.d.comb += [
            self.loads.eq(self.action == QpAction.LOAD),
            words.load.eq(self.token & self.loads & ~asked & ~words.busy),
            words.save.eq(self.reset & (self.action == QpAction.SAVE)),
            self.later.eq(words.busy | (self.loads & ~asked)),
        ]
        wiring.connect(m, words.saved, wiring.flipped(self.saved))
        wiring.connect(m, wiring.flipped(self.loaded), words.loaded)
        with m.If(self.loads & asked):
            m.d.comb += self.then.eq(words.value)
        with m.If(words.load):
            m.d.sync += asked.eq(1)
        with m.Elif(self.done):
            m.d.sync += asked.eq(0)
        return m
