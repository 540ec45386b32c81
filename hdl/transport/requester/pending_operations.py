"""The operations on keys that send queues wait for, while others go on."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ...abi.cqe import WcStatus
from ...abi.tables import AccessStatus
from ...memory.entry_writer import KeyResult
from ...stream.fifo import Queue
from ..common.layouts import Departed, Failure
from ..common.psn import PSN_BITS

__all__ = ["OPERATIONS", "OperationBegun", "PendingOperations"]

OPERATIONS = 3
"""Under way at a time: one that changes its entry, one that is checked, and one on its way."""

KNOWN_AFTER = 4
"""Cycles after which the completer knows a message that it has taken."""

OperationBegun = data.StructLayout({"qp": 12, "wqe_index": 16, "psn": PSN_BITS, "binds": 1})
"""What is remembered of an operation: its WQE, the PSN of the packet before, and whether it binds a window."""


class PendingOperations(wiring.Component):
    """Turns results of operations, which come in their order, into what the completer hears: that the WQE is done, or
    that it has failed.

    A result is taken when the completer knows the message, ``KNOWN_AFTER`` cycles after ``told``, and passes in the
    same cycle. A bind fails with MW_BIND_ERR, others with LOC_QP_OP_ERR; after a bus error all fail with GENERAL_ERR.

    Parameters
    ----------
    count : int
        Operations under way, at least 1.

    Members
    -------
    begin, begun : 1, ``OperationBegun``
        Strobe, while not ``full``: an operation is asked for, and its message is said. That of the one before is known.
    told : 1
        The last message that was said has been taken. Not looked at together with ``begin``.
    operated : stream of ``KeyResult``
        A result comes 2 cycles after its ``begin`` at the earliest.
    full : 1
        No further one may begin.
    busy, qp : arrays of ``count``, of 1 and 12
        An operation of this QP is not over, or the completer has not taken what came of it.
    local : stream of ``Departed``; failed : stream of ``Failure``
        Good and bad results.
    """

    def __init__(self, count=OPERATIONS):
        if not isinstance(count, int) or count < 1:
            raise ValueError(f"count must be a positive int, not {count!r}")
        self.count = count
        super().__init__(
            {
                "begin": In(1),
                "begun": In(OperationBegun),
                "told": In(1),
                "operated": In(stream.Signature(KeyResult)),
                "full": Out(1),
                "busy": Out(1).array(count),
                "qp": Out(12).array(count),
                "local": Out(stream.Signature(Departed)),
                "failed": Out(stream.Signature(Failure)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.begun = fifo = Queue(OperationBegun, self.count)
        begun, over = fifo.o.payload, Signal()
        m.d.comb += [
            fifo.i.valid.eq(self.begin),
            fifo.i.payload.eq(self.begun),
            fifo.o.ready.eq(over),
            over.eq(self.operated.valid & self.operated.ready),
            self.full.eq(Cat(self.busy).all()),
        ]

        # -- Whose: one place after the other is taken, and left.
        tail, head = Signal(self.count, init=1), Signal(self.count, init=1)  # one bit
        with m.If(self.begin):
            m.d.sync += tail.eq(tail.rotate_left(1))
        with m.If(over):
            m.d.sync += head.eq(head.rotate_left(1))
        for place, (busy, qp) in enumerate(zip(self.busy, self.qp, strict=True)):
            with m.If(self.begin & tail[place]):
                m.d.sync += [busy.eq(1), qp.eq(self.begun.qp)]
            with m.Elif(over & head[place]):
                m.d.sync += busy.eq(0)

        # -- Results. Of several operations all but the last one are known.
        known = Signal(KNOWN_AFTER)  # shifts
        hears = Signal()
        status, good = self.operated.payload.status, Signal()
        m.d.comb += [
            hears.eq(known[-1] | (fifo.level > 1)),
            good.eq(status == AccessStatus.OK),
            self.local.valid.eq(self.operated.valid & hears & good),
            self.local.payload.qp.eq(begun.qp),
            self.local.payload.psn.eq(begun.psn),
            self.failed.valid.eq(self.operated.valid & hears & ~good),
            self.failed.payload.qp.eq(begun.qp),
            self.failed.payload.wqe_index.eq(begun.wqe_index),
            self.failed.payload.syndrome.eq(status),
            self.failed.payload.status.eq(Mux(begun.binds, WcStatus.MW_BIND_ERR, WcStatus.LOC_QP_OP_ERR)),
            self.operated.ready.eq(hears & Mux(good, self.local.ready, self.failed.ready)),
        ]
        with m.If(status == AccessStatus.BUS):
            m.d.comb += self.failed.payload.status.eq(WcStatus.GENERAL_ERR)
        with m.If(self.begin):
            m.d.sync += known.eq(0)
        with m.Elif(self.told):
            m.d.sync += known.eq(Cat(1, known))
        return m
