"""DEVICE_RESET: the engine is as new, and bus and wire see nothing of it."""

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

__all__ = ["PATIENCE", "DeviceReset"]

PATIENCE = 1 << 15
"""Cycles that the wire, and then the bus, have for what was begun."""


class DeviceReset(wiring.Component):
    """Takes the engine through a reset, and stops it while it is not enabled.

    1. Bus and wire take nothing new, and a frame that is half sent is ended.
    2. All that is not at the borders is held in reset, until the bus has answered everything.
    3. The command block makes the tables empty.

    The first two end after :data:`PATIENCE` cycles each, whatever bus and wire do. What the bus has not answered by
    then is an orphan, and ``life`` changes: IDs on the bus say which life a burst is of, so an orphan that is answered
    later goes to nobody. There are two lives. An orphan is taken for an answer of the present only if it is answered
    after another reset that left orphans: at least 32,768 cycles after it was asked for.

    Bound: ``2 * PATIENCE + 32`` cycles, and those that the command block takes.

    Members
    -------
    request : 1
        Strobe; a reset that goes on already is not begun again.
    enable : 1
    closed : 1
        No frame is half sent; looked at with ``cut_wire``.
    open : 1
        Something was asked of the bus, or is offered to it, and is not answered.
    swept : 1
        The tables are empty; looked at 3 cycles after ``cut`` at the earliest.
    busy : 1
    stop : 1
        Bus and wire take nothing new: during a reset, and without ``enable``.
    cut_wire, cut : 1
        Frames are cut off; the engine is in reset from the next cycle on.
    life : 1
        Changes while ``cut``.
    forget : 1
        Strobe: what is open belongs to the other life.
    """

    request: In(1)
    enable: In(1)
    closed: In(1)
    open: In(1)
    swept: In(1)
    busy: Out(1)
    stop: Out(1, init=1)
    cut_wire: Out(1)
    cut: Out(1)
    life: Out(1)
    forget: Out(1)

    def elaborate(self, platform):
        m = Module()
        waited = Signal(range(PATIENCE + 1))
        over = waited[-1]
        settled = Signal()  # what was taken last shows in `open`, and the reset has reached everything
        m.d.sync += [waited.eq(waited + 1), self.stop.eq(~self.enable | self.busy), settled.eq(settled | waited[3])]
        with m.FSM():
            with m.State("IDLE"):
                m.d.sync += waited.eq(0)
                with m.If(self.request):
                    m.d.sync += [self.busy.eq(1), self.stop.eq(1), self.cut_wire.eq(1)]
                    m.next = "CLOSE"
            with m.State("CLOSE"):
                with m.If(self.closed | over):
                    m.d.sync += [self.cut.eq(1), waited.eq(0), settled.eq(0)]
                    m.next = "ANSWER"
            with m.State("ANSWER"):
                with m.If((settled & ~self.open) | over):
                    m.d.comb += self.forget.eq(self.open)
                    m.d.sync += [self.life.eq(self.life ^ self.open), waited.eq(0), settled.eq(0)]
                    m.next = "RELEASE"
            with m.State("RELEASE"):
                m.d.sync += [self.cut.eq(0), self.cut_wire.eq(0)]
                with m.If(settled & self.swept):
                    m.d.sync += self.busy.eq(0)
                    m.next = "IDLE"
        return m
