"""What the host is told when the engine cannot go on."""

from amaranth.hdl import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ..abi.eqe import EventType
from ..stream.transfer import Event

__all__ = ["DeviceFatal"]


class DeviceFatal(wiring.Component):
    """Tells DEVICE_FATAL, once: host memory does not answer.

    Members
    -------
    overdue : 1
        Of the :class:`..dma.bus_watch.BusWatch`.
    event : stream of ``Event``
    """

    overdue: In(1)
    event: Out(stream.Signature(Event))

    def elaborate(self, platform):
        m = Module()
        told = Signal()
        m.d.comb += self.event.payload.type.eq(EventType.DEVICE_FATAL)
        with m.If(self.event.ready):
            m.d.sync += self.event.valid.eq(0)
        with m.If(self.overdue & ~told):
            m.d.sync += [self.event.valid.eq(1), told.eq(1)]
        return m
