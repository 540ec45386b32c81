"""The operation on a key that a send queue waits for, while others go on."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ...abi.cqe import WcStatus
from ...abi.tables import AccessStatus
from ...memory.key_operations import KeyResult
from ..common.layouts import Departed, Failure
from ..common.psn import PSN_BITS

__all__ = ["OperationBegun", "PendingOperation"]

KNOWN_AFTER = 4
"""Cycles after which the completer knows a message that it has taken."""

OperationBegun = data.StructLayout({"qp": 12, "wqe_index": 16, "psn": PSN_BITS, "binds": 1})
"""What is remembered of an operation: its WQE, the PSN of the packet before, and whether it binds a window."""


class PendingOperation(wiring.Component):
    """Turns the result of an operation into what the completer hears: that the WQE is done, or that it has failed.

    A result is taken when the completer knows the message, ``KNOWN_AFTER`` cycles after ``told``, and passes in the
    same cycle. A bind fails with MW_BIND_ERR, others with LOC_QP_OP_ERR; after a bus error all fail with GENERAL_ERR.

    Members
    -------
    begin, begun : 1, ``OperationBegun``
        Strobe, while not ``busy``: an operation is asked for, and its message is said.
    told : 1
        The last message that was said has been taken. Not looked at together with ``begin``.
    operated : stream of ``KeyResult``
    busy, qp : 1, 12
        An operation of this QP is not over, or the completer has not taken what came of it.
    local : stream of ``Departed``; failed : stream of ``Failure``
        Good and bad results.
    """

    def __init__(self):
        super().__init__(
            {
                "begin": In(1),
                "begun": In(OperationBegun),
                "told": In(1),
                "operated": In(stream.Signature(KeyResult)),
                "busy": Out(1),
                "qp": Out(12),
                "local": Out(stream.Signature(Departed)),
                "failed": Out(stream.Signature(Failure)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        begun = Signal(OperationBegun)
        known = Signal(KNOWN_AFTER)  # shifts
        status, good = self.operated.payload.status, Signal()
        m.d.comb += [
            self.qp.eq(begun.qp),
            good.eq(status == AccessStatus.OK),
            self.local.valid.eq(self.operated.valid & known[-1] & good),
            self.local.payload.qp.eq(begun.qp),
            self.local.payload.psn.eq(begun.psn),
            self.failed.valid.eq(self.operated.valid & known[-1] & ~good),
            self.failed.payload.qp.eq(begun.qp),
            self.failed.payload.wqe_index.eq(begun.wqe_index),
            self.failed.payload.syndrome.eq(status),
            self.failed.payload.status.eq(Mux(begun.binds, WcStatus.MW_BIND_ERR, WcStatus.LOC_QP_OP_ERR)),
            self.operated.ready.eq(known[-1] & Mux(good, self.local.ready, self.failed.ready)),
        ]
        with m.If(status == AccessStatus.BUS):
            m.d.comb += self.failed.payload.status.eq(WcStatus.GENERAL_ERR)
        with m.If(self.begin):
            m.d.sync += [self.busy.eq(1), begun.eq(self.begun), known.eq(0)]
        with m.Elif(self.operated.valid & self.operated.ready):
            m.d.sync += [self.busy.eq(0), known.eq(0)]
        with m.Elif(self.busy & self.told):
            m.d.sync += known.eq(Cat(1, known))
        return m
