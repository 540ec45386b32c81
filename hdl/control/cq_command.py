"""The steps of a command for a completion queue."""

from amaranth.hdl import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ..abi.commands import CommandStatus
from ..abi.contexts import CQ_CONTEXT_WORDS
from ..abi.cqc import CQN_BITS
from ..stream.transfer import CqControl

__all__ = ["CqCommand"]


class CqCommand(wiring.Component):
    """Holds completions, writes the CQ's attributes, and lets completions go on. If the first fails, as the CQ's record
    cannot be read, nothing is written.

    Members
    -------
    go, done : 1
        Strobes; what is asked stands from ``go`` to ``done``.
    number, keep, stay
        Of :class:`.decoder.Decoder`.
    status : ``CommandStatus``
        With ``done``: OK or BUS_ERROR.
    control : stream of ``CqControl``; bad : 1
        Their answer is far from here: it is acted on a cycle later.
    write, first, moving : 1, 5, 1
        To and from a :class:`.context_mover.ContextMover`: ``moving`` is its ``busy``.
    """

    def __init__(self):
        super().__init__(
            {
                "go": In(1),
                "done": Out(1),
                "number": In(CQN_BITS),
                "keep": In(1),
                "stay": In(1),
                "status": Out(CommandStatus),
                "control": Out(stream.Signature(CqControl)),
                "bad": In(1),
                "write": Out(1),
                "first": Out(range(CQ_CONTEXT_WORDS)),
                "moving": In(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        controlled, bad = Signal(), Signal()
        holding = Signal()  # completions wait: the attributes may be changed
        m.d.sync += [controlled.eq(self.control.valid & self.control.ready), bad.eq(self.bad)]
        m.d.comb += [
            self.control.payload.cq.eq(self.number),
            self.control.payload.hold.eq(~holding),
            self.control.payload.keep.eq(self.keep),
            self.control.payload.stay.eq(self.stay),
            self.first.eq(CQ_CONTEXT_WORDS - 1),
        ]
        with m.FSM() as fsm:
            m.d.comb += [self.write.eq(fsm.ongoing("WRITE")), self.done.eq(fsm.ongoing("DONE"))]
            with m.State("IDLE"):
                m.d.sync += [holding.eq(0), self.status.eq(CommandStatus.OK)]
                with m.If(self.go):
                    m.next = "CONTROL"
            with m.State("CONTROL"):
                m.d.comb += self.control.valid.eq(~controlled)
                with m.If(controlled):
                    m.d.sync += holding.eq(1)
                    m.next = "WRITE"
                    with m.If(bad):
                        m.d.sync += self.status.eq(CommandStatus.BUS_ERROR)
                    with m.If(bad | holding):
                        m.next = "DONE"
            with m.State("WRITE"):
                m.next = "WRITING"
            with m.State("WRITING"), m.If(~self.moving):
                m.next = "WRITTEN"
            with m.State("WRITTEN"):  # the broadcast has reached the completions
                m.next = "CONTROL"
            with m.State("DONE"):
                m.next = "IDLE"
        return m
