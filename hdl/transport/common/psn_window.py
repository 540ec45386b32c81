"""Whether a response can be the answer to what was sent."""

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .psn import PSN_BITS

__all__ = ["PsnWindow"]


class PsnWindow(wiring.Component):
    """Compares a PSN with the first that is not acknowledged and the last one sent; 2 cycles.

    Up to ``2**22`` packets and a READ of ``2**23`` may be on their way: more than signed differences can tell apart, so
    these are unsigned, and two upper bits of ones in the second one mean -1: nothing is on its way. A response
    ``2**23`` packets ahead or more is refused, so that signed differences do for the rest.

    Members
    -------
    psn, first : 24
        The PSN that came, and the first that is not acknowledged; sampled with ``load``.
    load, compare : 1
        1 cycle and (once or several times) later: the outputs stand from the cycle behind on.
    unacked, latest : 24
        ``first`` again, and the last PSN sent; sampled with ``compare``.
    within, newest, none : 1
        It was sent and is not acknowledged; it is the last one sent; everything that was sent is acknowledged.
    """

    psn: In(PSN_BITS)
    first: In(PSN_BITS)
    load: In(1)
    compare: In(1)
    unacked: In(PSN_BITS)
    latest: In(PSN_BITS)
    within: Out(1)
    newest: Out(1)
    none: Out(1)

    def elaborate(self, platform):
        m = Module()
        span = Signal(PSN_BITS)
        flight = Signal(PSN_BITS)
        m.d.comb += flight.eq(self.latest - self.unacked)
        with m.If(self.load):
            m.d.sync += span.eq(self.psn - self.first)
        with m.If(self.compare):
            m.d.sync += [
                self.within.eq(~span[-1] & (span <= flight) & ~flight[-2:].all()),
                self.newest.eq(span == flight),
                self.none.eq(flight[-2:].all()),
            ]
        return m
