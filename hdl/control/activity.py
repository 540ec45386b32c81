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
    read_start, read_end, write_start, write_end : 1
        An address was taken, an answer's last beat came.
    busy : 1
        Any other sign of life.
    next_due : 32
        The timers'; all ones: none runs.
    idle : 1
    """

    def __init__(self, scan):
        self.scan = scan
        super().__init__(
            {
                "read_start": In(1),
                "read_end": In(1),
                "write_start": In(1),
                "write_end": In(1),
                "busy": In(1),
                "next_due": In(32),
                "idle": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        reads, writes = Signal(10), Signal(10)
        enough = QUIET + 2 * self.scan
        quiet = Signal(range(enough + 1))
        moves, timing = Signal(), Signal()
        m.d.sync += [
            reads.eq(reads + self.read_start - self.read_end),
            writes.eq(writes + self.write_start - self.write_end),
            timing.eq(~self.next_due.all()),
            moves.eq(self.read_start | self.write_start | self.busy | timing),
            self.idle.eq((reads == 0) & (writes == 0) & (quiet == enough)),
        ]
        with m.If(moves | (reads != 0) | (writes != 0)):
            m.d.sync += quiet.eq(0)
        with m.Elif(quiet != enough):
            m.d.sync += quiet.eq(quiet + 1)
        return m
