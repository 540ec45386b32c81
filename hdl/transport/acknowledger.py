"""What is said once a request's payload is in memory, or refused."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ..abi.contexts import QP_CONTEXT
from ..abi.cqe import Syndrome, WcStatus
from ..abi.eqe import EventType
from ..abi.tables import AccessStatus
from ..stream.ram import Ram
from ..stream.table import Table
from ..stream.transfer import AttributeWrite, Completion, Done, QpError
from .ack_queue import AckQueue
from .aeth import AethSyndrome
from .answer import NO_EVENT
from .layouts import Ack, Job

__all__ = ["Acknowledger"]

Memory = data.StructLayout({"dead": 1, "blamed": 1, "wqe_index": 16, "msn": 24})
"""Of a QP: whether it has failed; which receive WQE has already completed because of that; messages acknowledged."""


class Acknowledger(wiring.Component):
    """Pairs the responder's jobs with the ``Done`` of their runs, in order, and then answers: payload before ACK,
    payload before completion.

    A run that was refused ends the QP's life: NAK 0x62 if the key came from the wire, otherwise, and after a bus error,
    0x63. The receive WQE in use completes with LOC_PROT_ERR, or with LOC_ACCESS_ERR if the key was the peer's (WRITE
    with immediate). A job that the responder found to be fatal ends it, too, in the job's words. The QP is reported
    once on ``error``, with QP_ACCESS_ERR if the key was the peer's, QP_FATAL after a bus error, and no event if the
    completion says it all. From then on the QP gets no answer, and its receive WQEs complete with WR_FLUSH_ERR, each
    once; a RESET token ends that. A run that is POISONED, because an earlier one was refused, fails its QP in silence.

    Completions with an error are always solicited.

    A NAK's MSN does not count the message that it refuses.

    A silent job takes 1 cycle, all others 4, and 1 more for an error. Answers wait in :class:`.ack_queue.AckQueue`.

    Parameters
    ----------
    qps : int
        QPs, a power of two.

    Members
    -------
    attribute, attribute_en
        Broadcast of QP attributes.
    job : stream of ``Job``
        The next one should be there when its ``done`` comes: they need a queue between.
    done : stream of ``Done``
    completion : stream of ``Completion``
    ack : stream of ``Ack``
        To the transmitter.
    error : stream of ``QpError``
    token_done : 1
        Strobe: a RESET token has come out here. Nothing of the QP's past follows it on any output.
    count_drop_error : 1
        Strobe: a request was refused, or came behind a refused one; RNR NAKs included.
    """

    def __init__(self, qps):
        if not isinstance(qps, int) or not 2 <= qps <= 4096 or qps & qps - 1:
            raise ValueError(f"qps must be a power of two from 2 to 4096, not {qps!r}")
        self.qps = qps
        super().__init__(
            {
                "attribute": In(AttributeWrite),
                "attribute_en": In(1),
                "job": In(stream.Signature(Job)),
                "done": In(stream.Signature(Done)),
                "completion": Out(stream.Signature(Completion)),
                "ack": Out(stream.Signature(Ack)),
                "error": Out(stream.Signature(QpError)),
                "token_done": Out(1),
                "count_drop_error": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.table = table = Table(QP_CONTEXT, Table.words_of(QP_CONTEXT, "rq_cqn", "dest_qpn"), self.qps)
        m.submodules.ram = ram = Ram(Memory, self.qps)
        m.submodules.acks = acks = AckQueue(self.qps)
        job = self.job.payload
        memory = ram.r_data
        status = Signal(AccessStatus)
        qp = job.qp[: ceil_log2(self.qps)]

        torn = Signal(2)  # a row read while it is written is undefined
        m.d.sync += torn.eq(Cat(self.attribute_en, torn[0]))
        m.d.comb += [
            table.write.eq(self.attribute),
            table.write_en.eq(self.attribute_en),
            table.index.eq(qp),
            ram.r_addr.eq(qp),
            ram.w_addr.eq(qp),
            status.eq(self.done.payload.status),
        ]
        wiring.connect(m, acks.o, wiring.flipped(self.ack))

        gone = Signal()  # the QP has failed before
        refused = Signal()  # this run fails it
        failed = Signal()  # this job fails it
        told = Signal()  # the receive WQE has completed already
        bus = status == AccessStatus.BUS
        completes = Signal()
        answers = Signal()
        completion = self.completion.payload
        answer = acks.answer
        cq = Signal.like(completion.cq)
        source_qpn = Signal.like(completion.source_qpn)
        m.d.comb += [
            completes.eq(~job.token & ~(gone & told) & (job.complete | (refused & job.receive))),
            completion.cq.eq(cq),
            completion.qp.eq(job.qp),
            completion.source_qpn.eq(source_qpn),
            completion.wqe_index.eq(job.wqe_index),
            completion.opcode.eq(job.opcode),
            completion.status.eq(job.status),
            completion.syndrome.eq(job.cause),
            completion.flags.eq(job.flags),
            completion.immediate.eq(job.immediate),
            completion.byte_length.eq(job.byte_length),
            completion.solicited.eq(job.solicited | (completion.status != WcStatus.SUCCESS)),
            answers.eq(job.token | (~gone & (job.acknowledge | refused))),
            acks.clear.eq(job.token),
            answer.qp.eq(job.qp),
            answer.psn.eq(job.psn),
            answer.msn.eq(job.msn),
            answer.syndrome.eq(job.syndrome),
            self.error.payload.qp.eq(job.qp),
            self.error.payload.event.eq(job.event),
        ]
        with m.If(gone):
            m.d.comb += [completion.status.eq(WcStatus.WR_FLUSH_ERR), completion.syndrome.eq(Syndrome.FLUSHED)]
        with m.Elif(refused):
            m.d.comb += [
                completion.status.eq(Mux(job.remote, WcStatus.LOC_ACCESS_ERR, WcStatus.LOC_PROT_ERR)),
                completion.syndrome.eq(status),
                answer.msn.eq(memory.msn),
                answer.syndrome.eq(AethSyndrome.NAK_REMOTE_OPERATION),
                self.error.payload.event.eq(NO_EVENT),
            ]
            with m.If(bus):
                m.d.comb += self.error.payload.event.eq(EventType.QP_FATAL)
            with m.Elif(job.remote):
                m.d.comb += [
                    answer.syndrome.eq(AethSyndrome.NAK_REMOTE_ACCESS),
                    self.error.payload.event.eq(EventType.QP_ACCESS_ERR),
                ]

        written = ram.w_data
        m.d.comb += written.eq(memory)
        with m.If(job.token):
            m.d.comb += written.eq(0)
        with m.Elif(gone | refused):
            # WQEs complete in order: once a later one has, the index may come round.
            m.d.comb += [written.dead.eq(1), written.blamed.eq(memory.blamed & ~completes)]
            with m.If(refused & job.receive):
                m.d.comb += [written.blamed.eq(1), written.wqe_index.eq(job.wqe_index)]
        with m.Else():
            m.d.comb += [written.dead.eq(failed), written.msn.eq(job.msn)]

        leave = Signal()
        flush = job.status == WcStatus.WR_FLUSH_ERR
        not_ready = job.syndrome[5:7] == AethSyndrome.RNR >> 5
        m.d.comb += [self.job.ready.eq(leave), self.done.ready.eq(leave)]
        with m.FSM():
            with m.State("PAIR"):
                with m.If(self.job.valid & self.done.valid):
                    with m.If(job.silent):
                        m.d.comb += [leave.eq(1), self.count_drop_error.eq(job.cause != 0)]
                    with m.Else():
                        m.next = "READ"
            with m.State("READ"):
                m.next = "JUDGE"
            with m.State("JUDGE"):
                m.d.sync += [
                    cq.eq(table.row.rq_cqn),
                    source_qpn.eq(table.row.dest_qpn),
                    gone.eq(memory.dead | (status == AccessStatus.POISONED)),
                    refused.eq(~memory.dead & (status != AccessStatus.OK) & (status != AccessStatus.POISONED)),
                    failed.eq(~memory.dead & (status == AccessStatus.OK) & job.fatal),
                    told.eq(memory.blamed & (memory.wqe_index == job.wqe_index)),
                ]
                with m.If(~torn[1]):
                    m.next = "SAY"
            with m.State("SAY"):
                said = ~completes | self.completion.ready
                m.d.comb += [self.completion.valid.eq(completes), acks.put.eq(answers & said), ram.w_en.eq(said)]
                with m.If(said):
                    m.d.comb += self.count_drop_error.eq(
                        ~job.token & ~flush & (gone | refused | failed | (job.acknowledge & not_ready))
                    )
                    with m.If(job.token):
                        m.next = "TOKEN"
                    with m.Elif(refused | failed):
                        m.next = "ERROR"
                    with m.Else():
                        m.d.comb += leave.eq(1)
                        m.next = "PAIR"
            with m.State("ERROR"):
                m.d.comb += [self.error.valid.eq(1), leave.eq(self.error.ready)]
                with m.If(self.error.ready):
                    m.next = "PAIR"
            with m.State("TOKEN"):
                # What is on its way out belongs to the QP's past.
                m.d.comb += [self.token_done.eq(~acks.holds), leave.eq(~acks.holds)]
                with m.If(~acks.holds):
                    m.next = "PAIR"
        return m
