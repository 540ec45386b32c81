"""Counters of events that are seldom, in LUT RAM."""

from amaranth.hdl import Array, Module, Mux, Signal
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

__all__ = ["EventCounters"]


class EventCounters(wiring.Component):
    """32 bits a counter. A scan visits one a cycle; up to 3 strobes of a counter between two visits are counted.

    Parameters
    ----------
    count : int
        Counters.

    Members
    -------
    strobe : ``count``
        A bit each.
    scan, value : 0 to ``count - 1``, 32
        The counter that is visited, and what it holds.
    """

    def __init__(self, count):
        self.count = count
        super().__init__({"strobe": In(count), "scan": Out(range(count)), "value": Out(32)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.rows = rows = memory.Memory(shape=32, depth=1 << ceil_log2(self.count), init=[])
        read, write = rows.read_port(domain="comb"), rows.write_port()
        pending = Array(Signal(2, name=f"pending{n}") for n in range(self.count))
        for number, each in enumerate(pending):
            strobe = self.strobe[number]
            with m.If(self.scan == number):
                m.d.sync += each.eq(strobe)
            with m.Elif(strobe & (each != 3)):
                m.d.sync += each.eq(each + 1)
        m.d.comb += [
            read.addr.eq(self.scan),
            write.addr.eq(self.scan),
            write.en.eq(1),
            write.data.eq(read.data + pending[self.scan]),
            self.value.eq(read.data),
        ]
        m.d.sync += self.scan.eq(Mux(self.scan == self.count - 1, 0, self.scan + 1))
        return m
