"""What the cable does."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ..abi.eqe import EventType
from ..stream.transfer import Event

__all__ = ["PORT", "PortState"]

PORT = 1
"""Number of the one port."""


class PortState(wiring.Component):
    """Tells when the port goes up or down: PORT_ACTIVE or PORT_ERR for port 1.

    After reset the port counts as up, so that only a missing cable is news. While an event waits, the port may change
    again: what is told in the end is what it is, and changes that were taken back are not told.

    Members
    -------
    link : 1
        The MAC has a link; synchronous.
    event : stream of ``Event``
    """

    link: In(1)
    event: Out(stream.Signature(Event))

    def elaborate(self, platform):
        m = Module()
        told = Signal(init=1)
        m.d.comb += [
            self.event.payload.type.eq(Mux(told, EventType.PORT_ACTIVE, EventType.PORT_ERR)),
            self.event.payload.number.eq(PORT),
        ]
        with m.If(self.event.ready):
            m.d.sync += self.event.valid.eq(0)
        with m.If(~self.event.valid & (self.link != told)):
            m.d.sync += [self.event.valid.eq(1), told.eq(self.link)]
        return m
