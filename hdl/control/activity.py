"""Whether the engine has anything to do."""

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

__all__ = ["Activity"]

QUIET = 64
"""Cycles without a sign of life after which the engine calls itself idle: more than any block works without showing it
on one of the watched signals."""


class Activity(wiring.Component):
    """Idle: no AXI transaction is open, and for 64 cycles nothing has moved.

    Members
    -------
    read_start, read_end, write_start, write_end : 1
        An address was taken, an answer's last beat came.
    busy : 1
        Any other sign of life.
    idle : 1
    """

    def __init__(self):
        super().__init__(
            {
                "read_start": In(1),
                "read_end": In(1),
                "write_start": In(1),
                "write_end": In(1),
                "busy": In(1),
                "idle": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        reads, writes = Signal(10), Signal(10)
        quiet = Signal(range(QUIET + 1))
        moves = Signal()
        m.d.sync += [
            reads.eq(reads + self.read_start - self.read_end),
            writes.eq(writes + self.write_start - self.write_end),
            moves.eq(self.read_start | self.write_start | self.busy),
            self.idle.eq((reads == 0) & (writes == 0) & (quiet == QUIET)),
        ]
        with m.If(moves | (reads != 0) | (writes != 0)):
            m.d.sync += quiet.eq(0)
        with m.Elif(quiet != QUIET):
            m.d.sync += quiet.eq(quiet + 1)
        return m
