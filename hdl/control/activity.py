"""Whether the engine has anything to do."""

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

__all__ = ["Activity"]

QUIET = 64
"""More cycles than any block works without showing it on one of the watched signals."""


class Activity(wiring.Component):
    """Idle: no AXI transaction is open, no timer runs, and nothing has moved for 64 cycles, nor for two scans of the
    timers, in which one that was started shows.

    Parameters
    ----------
    scan : int
        Cycles that the timers take for all QPs.

    Members
    -------
    begun, ended : 2
        Of reads (bit 0) and writes: an address was taken, an answer's last beat came.
    forget : 1
        What is open is none of the present life.
    busy : 1
        Any other sign of life.
    next_due : 32
        The timers'; all ones: none runs.
    idle : 1
    open : 1
        A transaction is.
    """

    def __init__(self, scan):
        self.scan = scan
        super().__init__(
            {
                "begun": In(2),
                "ended": In(2),
                "forget": In(1),
                "busy": In(1),
                "next_due": In(32),
                "idle": Out(1),
                "open": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        reads, writes = Signal(10), Signal(10)
        enough = QUIET + 2 * self.scan
        quiet = Signal(range(enough + 1))
        moves, timing = Signal(), Signal()
        m.d.comb += self.open.eq((reads != 0) | (writes != 0))
        m.d.sync += [
            reads.eq(reads + self.begun[0] - self.ended[0]),
            writes.eq(writes + self.begun[1] - self.ended[1]),
            timing.eq(~self.next_due.all()),
            moves.eq(self.begun.any() | self.busy | timing),
            self.idle.eq(~self.open & (quiet == enough)),
        ]
        with m.If(self.forget):
            m.d.sync += [reads.eq(0), writes.eq(0)]
        with m.If(moves | self.open):
            m.d.sync += quiet.eq(0)
        with m.Elif(quiet != enough):
            m.d.sync += quiet.eq(quiet + 1)
        return m
