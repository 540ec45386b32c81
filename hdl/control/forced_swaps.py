"""Queue pairs that are taken out of their slot and put back without need, for tests."""

from amaranth.hdl import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

__all__ = ["ForcedSwaps"]


class ForcedSwaps(wiring.Component):
    """Names the next queue pair when ``cycles`` have passed since the last one.

    Who takes a name and finds that there is no such QP sets ``skip`` in that cycle, and gets the next one at once.

    Parameters
    ----------
    qps, cycles : int

    Members
    -------
    o : stream of QP index
    skip : 1
    """

    def __init__(self, qps, cycles):
        self.qps = qps
        self.cycles = cycles
        super().__init__({"o": Out(stream.Signature(range(qps))), "skip": In(1)})

    def elaborate(self, platform):
        m = Module()
        left = Signal(range(self.cycles + 1), init=self.cycles)
        around = Signal(ceil_log2(self.qps))  # how many were skipped in a row
        m.d.comb += self.o.valid.eq(left == 0)
        with m.If(left != 0):
            m.d.sync += left.eq(left - 1)
        with m.Elif(self.o.ready):
            m.d.sync += [self.o.payload.eq(self.o.payload + 1), around.eq(0), left.eq(self.cycles)]
            with m.If(self.skip & ~around.all()):
                m.d.sync += [around.eq(around + 1), left.eq(0)]
        return m
