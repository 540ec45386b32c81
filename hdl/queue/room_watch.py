"""When rings that hold blocks and do not use them must make room for others."""

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

__all__ = ["PAUSE", "RoomWatch"]

PAUSE = 8
"""Cycles from one that made room, or did not, to the next."""


class RoomWatch(wiring.Component):
    """Says when a ring is to make room: somebody waits for a first block, and for ``patience`` cycles none has become
    free; and :data:`PAUSE` cycles after the one before.

    Parameters
    ----------
    patience : int
        Cycles, at least 8.

    Members
    -------
    waits, any : 1
        Somebody waits; a block is free.
    busy, stepped : 1
        A ring stands still; one was just looked at.
    missed : 1
        A turn was missed, and is made up for first.
    evict : 1
        The next ring is to make room. A cycle late.
    """

    def __init__(self, patience):
        self.patience = patience
        super().__init__(
            {"waits": In(1), "any": In(1), "busy": In(1), "stepped": In(1), "missed": In(1), "evict": Out(1)}
        )

    def elaborate(self, platform):
        m = Module()
        idle_for = Signal(range(self.patience + 1))
        long = idle_for == self.patience
        m.d.sync += self.evict.eq(self.waits & long & ~self.busy & ~self.missed & ~self.any & ~self.stepped)
        with m.If(self.any | ~self.waits):
            m.d.sync += idle_for.eq(0)
        with m.Elif(self.busy | self.stepped):
            m.d.sync += idle_for.eq(self.patience - PAUSE)
        with m.Elif(idle_for != self.patience):
            m.d.sync += idle_for.eq(idle_for + 1)
        return m
