"""The completer's output streams: completions, errors, QPs to schedule, retries."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ...abi.cqe import WcOpcode
from ...abi.eqe import EventType
from ...abi.wqe import SendOpcode
from ...memory.key_operations import KeyOperation
from ...stream.transfer import SEND_FAILED, Completion, QpError
from ...stream.waiting_set import WaitingSet
from ..common.layouts import OPERATED
from ..common.psn import Sent

__all__ = ["CompleterOutputs"]

OPCODES = {
    SendOpcode.RDMA_WRITE: WcOpcode.RDMA_WRITE,
    SendOpcode.RDMA_WRITE_WITH_IMM: WcOpcode.RDMA_WRITE,
    SendOpcode.SEND: WcOpcode.SEND,
    SendOpcode.SEND_WITH_IMM: WcOpcode.SEND,
    SendOpcode.RDMA_READ: WcOpcode.RDMA_READ,
    SendOpcode.ATOMIC_CMP_AND_SWP: WcOpcode.COMP_SWAP,
    SendOpcode.ATOMIC_FETCH_AND_ADD: WcOpcode.FETCH_ADD,
}

OPERATIONS = {
    KeyOperation.INVALIDATE: WcOpcode.LOCAL_INV,
    KeyOperation.REGISTER: WcOpcode.REG_MR,
    KeyOperation.BIND: WcOpcode.BIND_MW,
}

ATOMIC_BYTES = 8


class CompleterOutputs(wiring.Component):
    """Composes the items of the output streams and holds them until they are taken: one of each, and of ``retry`` a
    set.

    A completion gives the byte length for atomics alone: the driver knows that of a READ from its WQE.

    Parameters
    ----------
    qps : int
        QPs, a power of two.
    keys : bool
        There are operations on keys.
    swaps : bool
        With ``owe``, ``sent`` and ``sent_en``.

    Members
    -------
    qp, qpn, cq : 12, 24, 16
    wqe_index, opcode, status, syndrome : 16, 4, 8, 8
        Of the completion. ``opcode`` is the SendOpcode.
    emit : 1
        Completion; not in the cycle after one without ``free``.
    free : 1
        There is none, or it is being taken.
    fail, drained, schedule, answer : 1
        Error; event SQ_DRAINED; ``ready``; ``reply`` with ``wqe_index``. The first three only if not ``busy``.
    back : 1
        Retry.
    owe; sent, sent_en : 1; ``Sent``, 1
        With ``swaps``: a retry as soon as the requester says what the QP has sent. Before, it does not have the QP.
    busy : 1
        An error or an entry for ``ready`` is not taken.
    completion, error, ready, retry, reply
        See :class:`.completer.Completer`.
    """

    def __init__(self, qps, *, swaps=False, keys=False):
        self.qps = qps
        self.keys = keys
        self.swaps = swaps
        super().__init__(
            {
                "qp": In(12),
                "qpn": In(24),
                "cq": In(16),
                "wqe_index": In(16),
                "opcode": In(4),
                "status": In(8),
                "syndrome": In(8),
                "emit": In(1),
                "free": Out(1),
                "fail": In(1),
                "drained": In(1),
                "schedule": In(1),
                "answer": In(1),
                "back": In(1),
                "busy": Out(1),
                "completion": Out(stream.Signature(Completion)),
                "error": Out(stream.Signature(QpError)),
                "ready": Out(stream.Signature(range(qps))),
                "retry": Out(stream.Signature(range(qps))),
                "reply": Out(stream.Signature(data.StructLayout({"index": 16}))),
            }
            | ({"owe": In(1), "sent": In(Sent), "sent_en": In(1)} if swaps else {})
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.retries = retries = WaitingSet(self.qps)
        wiring.connect(m, retries.o, wiring.flipped(self.retry))
        item = self.completion.payload
        opcode = Signal(WcOpcode)
        atomic = Signal()
        with m.Switch(self.opcode):
            for send, completed in OPCODES.items():
                with m.Case(send):
                    m.d.comb += [opcode.eq(completed), atomic.eq(send.name.startswith("ATOMIC"))]
            for operation, completed in OPERATIONS.items() if self.keys else ():
                with m.Case(OPERATED | operation.value):
                    m.d.comb += opcode.eq(completed)
        m.d.comb += [
            self.free.eq(~self.completion.valid | self.completion.ready),
            self.busy.eq(self.error.valid | self.ready.valid),
            retries.i.valid.eq(self.back),
            retries.i.payload.eq(self.qp),
        ]
        if self.swaps:
            owed, due, debtor = Signal(), Signal(), Signal(range(self.qps))
            with m.If(self.owe):
                m.d.sync += [owed.eq(1), debtor.eq(self.qp)]
            with m.Elif(self.sent_en & (self.sent.qp == debtor)):
                m.d.sync += [owed.eq(0), due.eq(owed)]
            with m.Elif(~self.back):
                m.d.sync += due.eq(0)
            with m.If(~self.back):
                m.d.comb += [retries.i.valid.eq(due), retries.i.payload.eq(debtor)]
        with m.If(self.free):
            m.d.sync += [
                self.completion.valid.eq(self.emit),
                item.qp.eq(self.qp),
                item.qpn.eq(self.qpn),
                item.cq.eq(self.cq),
                item.wqe_index.eq(self.wqe_index),
                item.opcode.eq(opcode),
                item.status.eq(self.status),
                item.syndrome.eq(self.syndrome),
                item.byte_length.eq(Mux(atomic, ATOMIC_BYTES, 0)),
                item.solicited.eq(self.status != 0),
            ]
        for port, say in (
            (self.error, self.fail | self.drained),
            (self.ready, self.schedule),
            (self.reply, self.answer),
        ):
            with m.If(say):
                m.d.sync += port.valid.eq(1)
            with m.Elif(port.ready):
                m.d.sync += port.valid.eq(0)
        with m.If(~self.busy):
            m.d.sync += [
                self.error.payload.qp.eq(self.qp),
                self.error.payload.event.eq(Mux(self.drained, EventType.SQ_DRAINED, SEND_FAILED)),
                self.ready.payload.eq(self.qp),
            ]
        with m.If(self.answer):
            m.d.sync += self.reply.payload.index.eq(self.wqe_index)
        return m
