"""Which QP stands in a slot: what a memory window of type 2 is bound to."""

from amaranth.hdl import Module, Signal
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import In, Out

from ..abi.contexts import QP_CONTEXT
from ..stream.transfer import AttributeWrite

__all__ = ["QPN_BITS", "QpNumbers"]

QPN = QP_CONTEXT.fields["qpn"]
QPN_BITS = QPN.width
WORD = 32


class QpNumbers(wiring.Component):
    """The number of each slot's QP, read in the same cycle.

    Parameters
    ----------
    qps : int
        Slots.

    Members
    -------
    attribute : ``AttributeWrite`` with ``attribute_en``
        The broadcast. It takes effect two cycles later.
    qp, qpn : 12, 24
    """

    def __init__(self, qps):
        self.qps = qps
        super().__init__({"attribute": In(AttributeWrite), "attribute_en": In(1), "qp": In(12), "qpn": Out(QPN_BITS)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.rows = rows = memory.Memory(shape=QPN_BITS, depth=self.qps, init=[])
        put, get = rows.write_port(), rows.read_port(domain="comb")
        first = QPN.offset % WORD
        written = Signal.like(self.attribute)
        m.d.sync += [
            written.eq(self.attribute),
            put.en.eq(self.attribute_en & (self.attribute.word == QPN.offset // WORD)),
        ]
        m.d.comb += [
            put.addr.eq(written.index),
            put.data.eq(written.data[first : first + QPN_BITS]),
            get.addr.eq(self.qp),
            self.qpn.eq(get.data),
        ]
        return m
