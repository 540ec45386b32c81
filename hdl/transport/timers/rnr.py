"""How long to wait after an RNR NAK."""

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

__all__ = ["RNR_MICROSECONDS", "RNR_TICKS", "RnrTicks"]

RNR_MICROSECONDS = (
    655_360, 10, 20, 30, 40, 60, 80, 120, 160, 240, 320, 480, 640, 960, 1280, 1920,
    2560, 3840, 5120, 7680, 10_240, 15_360, 20_480, 30_720, 40_960, 61_440, 81_920, 122_880, 163_840, 245_760, 327_680,
    491_520,
)  # fmt: skip
"""Least time for each code of the timer field, InfiniBand specification, table *RNR NAK timer field*."""

TICK_NANOSECONDS = 4096

RNR_TICKS = tuple(-(-1000 * microseconds // TICK_NANOSECONDS) for microseconds in RNR_MICROSECONDS)
"""The same in ticks of 4.096 us, rounded up."""


class RnrTicks(wiring.Component):
    """Looks up :data:`RNR_TICKS`, in the same cycle.

    Members
    -------
    code : 5
        As in the RNR NAK.
    ticks
    """

    def __init__(self):
        super().__init__({"code": In(5), "ticks": Out(range(max(RNR_TICKS) + 1))})

    def elaborate(self, platform):
        m = Module()
        with m.Switch(self.code):
            for code, ticks in enumerate(RNR_TICKS):
                with m.Case(code):
                    m.d.comb += self.ticks.eq(ticks)
        return m
