"""One stream to several users."""

from amaranth.hdl import Module, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

__all__ = ["TagRouter"]


class TagRouter(wiring.Component):
    """Hands items with ``tag`` 0 to ``o[0]`` and those with ``tag`` 1 to ``o[1]``, in order: one that is not taken
    holds up all behind it. Nothing is buffered.

    Parameters
    ----------
    shape : StructLayout
        With a member ``tag`` of 1 bit.

    Members
    -------
    i : stream of ``shape``
    o : 2 streams of ``shape``
    """

    def __init__(self, shape):
        self.shape = shape
        super().__init__({"i": In(stream.Signature(shape)), "o": Out(stream.Signature(shape)).array(2)})

    def elaborate(self, platform):
        m = Module()
        tag = self.i.payload.tag
        for number, port in enumerate(self.o):
            m.d.comb += [
                Value.cast(port.payload).eq(Value.cast(self.i.payload)),
                port.valid.eq(self.i.valid & (tag == number)),
            ]
            with m.If(tag == number):
                m.d.comb += self.i.ready.eq(port.ready)
        return m
