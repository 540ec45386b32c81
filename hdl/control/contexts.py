"""The contexts: the broadcast to the tables, and the copy in full for whoever wants to read."""

from amaranth.hdl import Cat, Module, Mux
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ..abi.contexts import QP_CONTEXT, QP_CONTEXT_WORDS
from ..stream.ram import Ram
from ..stream.transfer import AttributeWrite

__all__ = ["Contexts"]

SRQN_BITS = QP_CONTEXT.fields["srqn"].width


class Contexts(wiring.Component):
    """Broadcasts words of contexts, a cycle after they are written, and keeps those of QPs.

    Members
    -------
    number, word
        Of the QP, CQ or SRQ, and of its context: what is written or read.
    data, write_qp, write_cq, write_srq
    qp_attribute, qp_attribute_en, cq_attribute, cq_attribute_en
        The broadcast, registers.
    ring_attribute, ring_attribute_en
        That to whoever has the rings of QPs, and behind them those of SRQs: number ``qps`` is SRQ 0.
    row : 32
        2 cycles after ``number`` and ``word``. A word written is there when it has been broadcast for a cycle.
    """

    def __init__(self, qps):
        self.qps = qps
        super().__init__(
            {
                "number": In(12),
                "word": In(range(QP_CONTEXT_WORDS)),
                "data": In(32),
                "write_qp": In(1),
                "write_cq": In(1),
                "write_srq": In(1),
                "qp_attribute": Out(AttributeWrite),
                "qp_attribute_en": Out(1),
                "cq_attribute": Out(AttributeWrite),
                "cq_attribute_en": Out(1),
                "ring_attribute": Out(AttributeWrite),
                "ring_attribute_en": Out(1),
                "row": Out(32),
            }
        )

    def elaborate(self, platform):
        m = Module()
        qp_bits = ceil_log2(self.qps)
        attribute = self.qp_attribute
        m.submodules.ram = ram = Ram(32, self.qps * QP_CONTEXT_WORDS)
        m.d.sync += [
            attribute.index.eq(Mux(self.write_srq, self.qps | self.number[:SRQN_BITS], self.number)),
            attribute.word.eq(self.word),
            attribute.data.eq(self.data),
            self.qp_attribute_en.eq(self.write_qp),
            self.cq_attribute_en.eq(self.write_cq),
            self.ring_attribute_en.eq(self.write_qp | self.write_srq),
        ]
        m.d.comb += [
            self.cq_attribute.eq(attribute),
            self.ring_attribute.eq(attribute),
            ram.w_addr.eq(Cat(attribute.word, attribute.index[:qp_bits])),
            ram.w_data.eq(attribute.data),
            ram.w_en.eq(self.qp_attribute_en),
            ram.r_addr.eq(Cat(self.word, self.number[:qp_bits])),
            self.row.eq(ram.r_data),
        ]
        return m
