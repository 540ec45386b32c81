"""From one clock to another."""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import memory, wiring
from amaranth.lib.cdc import FFSynchronizer
from amaranth.lib.wiring import In, Out

__all__ = ["EventCrossing", "GrayCrossing"]


def _gray(value):
    return value ^ value[1:]


def _binary(gray):
    return Cat(gray[n:].xor() for n in range(len(gray)))


class GrayCrossing(wiring.Component):
    """Shows a count, which changes by one at a time, in another clock domain: late, but never a value it did not have.

    Parameters
    ----------
    width : int
        Bits of the count; it wraps.
    i_domain, o_domain : str

    Members
    -------
    i : ``width``
        The count.
    o : ``width``
        One cycle of ``i_domain`` and three of ``o_domain`` later.
    """

    def __init__(self, width, *, i_domain, o_domain):
        self.width = width
        self.i_domain = i_domain
        self.o_domain = o_domain
        super().__init__({"i": In(width), "o": Out(width)})

    def elaborate(self, platform):
        m = Module()
        sent, got = Signal(self.width), Signal(self.width)
        m.d[self.i_domain] += sent.eq(_gray(self.i))
        m.submodules.synchronizer = FFSynchronizer(sent, got, o_domain=self.o_domain)
        m.d[self.o_domain] += self.o.eq(_binary(got))
        return m


class EventCrossing(wiring.Component):
    """Strobes in one clock domain become as many in another, and those of one cycle stay together. None is lost as long
    as those of fewer than 16 cycles are on their way, which is about four cycles of the slower clock.

    Parameters
    ----------
    width : int
        Strobes.
    i_domain, o_domain : str

    Members
    -------
    i, o : ``width``
    """

    def __init__(self, width=1, *, i_domain, o_domain):
        self.width = width
        self.i_domain = i_domain
        self.o_domain = o_domain
        super().__init__({"i": In(width), "o": Out(width)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.crossing = crossing = GrayCrossing(4, i_domain=self.i_domain, o_domain=self.o_domain)
        told, some = Signal(4), self.i.any()
        which = 1
        if self.width > 1:
            m.submodules.rows = rows = memory.Memory(shape=self.width, depth=16, init=[])
            write, read = rows.write_port(domain=self.i_domain), rows.read_port(domain="comb")
            m.d.comb += [write.addr.eq(crossing.i), write.data.eq(self.i), write.en.eq(some), read.addr.eq(told)]
            which = read.data
        with m.If(some):
            m.d[self.i_domain] += crossing.i.eq(crossing.i + 1)
        m.d[self.o_domain] += self.o.eq(0)
        with m.If(told != crossing.o):
            m.d[self.o_domain] += [told.eq(told + 1), self.o.eq(which)]
        return m
