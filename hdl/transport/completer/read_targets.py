"""Which READs and atomics are on their way, and where their responses go."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ...stream.ram import Ram
from ..common.layouts import ReadTarget
from ..common.psn import PSN_BITS

__all__ = ["READS", "ReadTargetWrite", "ReadTargets"]

READS = 16
"""Most READs and atomics of a QP that are on their way."""

ReadTargetWrite = data.StructLayout({"qp": 12, "slot": ceil_log2(READS), "again": 1, "target": ReadTarget})
"""A READ or atomic is begun; ``slot`` is the number of those begun before, modulo 16. Or, with ``again``, the rest of a
READ is asked for, and ``target.psn`` is the first PSN of that; the other fields say nothing."""

Count = data.StructLayout({"count": ceil_log2(2 * READS), "again": 1, "psn": PSN_BITS})
"""Of a QP: READs and atomics that were ever begun; whether, and where, the rest of one was asked for last."""


class ReadTargets(wiring.Component):
    """A ring of 16 targets a QP, how many were ever put in, and where a READ was asked for again.

    Counts are taken modulo 32, so that a full ring can be told from an empty one. An item of ``reads`` is taken in the
    cycle after it came, unless ``reset`` is set, and counts 2 cycles later; until then nothing is free.

    Parameters
    ----------
    qps : int
        QPs, a power of two.

    Members
    -------
    reads : stream of ``ReadTargetWrite``
    free : 1
        The count of ``qp`` is looked at, and ``reset`` may be set in the next cycle.
    qp, head, target : QP index, 5, ``ReadTarget``
        The target in row ``head`` modulo 16, 2 cycles later.
    count : 5
        2 cycles after a cycle in which ``free`` is set: READs and atomics that were ever begun, modulo 32.
    again, psn : 1, 24
        Likewise: the rest of a READ was asked for, the last time from this PSN on.
    reset, reset_qp
        Zero the count. Begins in the cycle after one in which ``free`` is set, and may last.
    """

    def __init__(self, qps):
        self.qps = qps
        super().__init__(
            {
                "reads": In(stream.Signature(ReadTargetWrite)),
                "free": Out(1),
                "qp": In(range(qps)),
                "head": In(ceil_log2(2 * READS)),
                "target": Out(ReadTarget),
                "count": Out(ceil_log2(2 * READS)),
                "again": Out(1),
                "psn": Out(PSN_BITS),
                "reset": In(1),
                "reset_qp": In(range(qps)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        item = self.reads.payload
        bits = ceil_log2(self.qps)
        m.submodules.ring = ring = Ram(ReadTarget, self.qps * READS)
        m.submodules.counts = counts = Ram(Count, self.qps)
        row, changed = counts.r_data, Signal(Count)
        qp = Signal(bits)
        again, psn = Signal(), Signal(PSN_BITS)  # of the item that is counted
        waits = Signal()  # an item does; in the first cycle of IDLE nobody, so that the other side has its turn, too
        m.d.sync += waits.eq(0)
        m.d.comb += [
            ring.r_addr.eq(Cat(self.head[: ceil_log2(READS)], self.qp)),
            ring.w_addr.eq(Cat(item.slot, item.qp[:bits])),
            ring.w_data.eq(item.target),
            self.target.eq(ring.r_data),
            counts.r_addr.eq(Mux(waits, item.qp, self.qp)),
            counts.w_addr.eq(Mux(self.reset, self.reset_qp, qp)),
            changed.count.eq(row.count + ~again),
            changed.again.eq(row.again | again),
            changed.psn.eq(Mux(again, psn, row.psn)),
            self.count.eq(row.count),
            self.again.eq(row.again),
            self.psn.eq(row.psn),
        ]
        with m.If(~self.reset):
            m.d.comb += counts.w_data.eq(changed)
        with m.FSM():
            with m.State("IDLE"):
                # Nobody looks at the row until it is counted.
                m.d.comb += [self.free.eq(~waits), counts.w_en.eq(self.reset), ring.w_en.eq(waits & ~item.again)]
                m.d.sync += [qp.eq(item.qp), again.eq(item.again), psn.eq(item.target.psn)]
                m.d.sync += waits.eq(self.reads.valid & ~self.reads.ready)
                with m.If(waits & ~self.reset):
                    m.d.comb += self.reads.ready.eq(1)
                    m.next = "READ"
            with m.State("READ"):
                m.next = "WRITE"
            with m.State("WRITE"):
                m.d.comb += counts.w_en.eq(1)
                m.next = "IDLE"
        return m
