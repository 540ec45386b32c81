"""The steps of a command for a shared receive queue."""

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..abi.contexts import QP_CONTEXT_WORDS
from .decoder import Plan

__all__ = ["SrqCommand"]


class SrqCommand(wiring.Component):
    """CLEAR_SRQ: doorbells are ignored, then the ring is empty, and then it is what the mailbox says, unless it is
    destroyed. WRITE_SRQ: one word is written.

    Members
    -------
    go, done : 1
        Strobes; what is asked stands from ``go`` to ``done``.
    plan, word, destroy
        Of :class:`.decoder.Decoder`.
    write, first, single, zero, moving : 1, 5, 1, 1, 1
        To and from a :class:`.context_mover.ContextMover`: ``moving`` is its ``busy``.
    token, taken : 1
        RESET of the ring; its prefetcher has taken it.
    """

    def __init__(self):
        word = range(QP_CONTEXT_WORDS)
        super().__init__(
            {
                "go": In(1),
                "done": Out(1),
                "plan": In(Plan),
                "word": In(word),
                "destroy": In(1),
                "write": Out(1),
                "first": Out(word),
                "single": Out(1),
                "zero": Out(1),
                "moving": In(1),
                "token": Out(1),
                "taken": In(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        clears = Signal()  # word 0 is cleared
        m.d.comb += self.zero.eq(clears)
        with m.FSM() as fsm:
            m.d.comb += [self.token.eq(fsm.ongoing("RESET")), self.done.eq(fsm.ongoing("DONE"))]
            with m.State("IDLE"):
                m.d.sync += clears.eq(self.plan == Plan.CLEAR_SRQ)
                with m.If(self.go):
                    m.next = "WRITE"
            with m.State("WRITE"):
                m.d.comb += [
                    self.write.eq(1),
                    self.single.eq(clears | (self.plan == Plan.WRITE_SRQ)),
                ]
                with m.If(~clears):
                    m.d.comb += self.first.eq(self.word)
                m.next = "WRITING"
            with m.State("WRITING"), m.If(~self.moving):
                m.next = "DONE"
                with m.If(clears):
                    m.next = "RESET"
            with m.State("RESET"), m.If(self.taken):
                m.d.sync += clears.eq(0)
                m.next = "WRITE"
                with m.If(self.destroy):
                    m.next = "DONE"
            with m.State("DONE"):
                m.next = "IDLE"
        return m
