"""The receiving half of a reliable connection: requests in, accesses and answers out."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ...abi.commands import QpAction
from ...abi.contexts import QP_CONTEXT
from ...queue.wqe_fetcher import RingIndex, RingStatus
from ...stream.ram import Ram
from ...stream.table import Table
from ...stream.transfer import AccessRequest, AttributeWrite, QpControl
from ..common.layouts import Job, LookedUp, Recall, ResponseEntry
from .flush_queue import FlushQueue
from .recv_placement import PlacementKind, RecvPlacement
from .request_check import READS_MAX, ReceiveState
from .request_validator import RequestValidator

__all__ = ["Responder", "ResponderReply", "RingEntry"]

ResponderReply = data.StructLayout({"psn": 24, "index": 16})
"""Next PSN expected, and next receive WQE to use."""

ATTRIBUTES = ("state", "path_mtu", "access", "min_rnr_timer", "pd", "log_rq_stride", "max_dest_rd_atomic")
"""Fields of the QP context that count here."""

RingEntry = data.StructLayout({"qp": 12, "slot": ceil_log2(READS_MAX), "entry": ResponseEntry})
"""A row of a response ring."""


RECALL_LIMIT = 511
"""Cycles for which a request waits while the READ/atomic responder gives up responses: reception must not wait for
transmission."""


class Work(enum.Enum, shape=2):
    """What the responder is busy with."""

    PACKET = 0
    FLUSH = 1
    QUERY = 2
    RESET = 3


class Responder(wiring.Component):
    """Takes one request at a time: judges it (:class:`.request_validator.RequestValidator`), says where its payload
    goes (:class:`.recv_placement.RecvPlacement`), and leaves to the acknowledger what is to be answered once the
    payload is there. Serves SEND and WRITE, with and without immediate, RDMA READ, and atomics; other requests are
    invalid (NAK 0x61). A READ or an atomic, also an old one that is asked for again, goes into the QP's response ring,
    and its job releases it. When one is asked for again the requester has gone back, and will ask for all behind it
    again, too. So first what is behind it is recalled from the ring; the request waits for that, but no longer than
    :data:`RECALL_LIMIT`.

    Each packet has exactly one run on ``access`` and exactly one job on ``job``, the run first, in order.

    A packet takes 8 cycles; a SEND 10 if it begins in an entry of its receive WQE, and 5 cycles more for a second one,
    6 for each further one. 3 less if there was nothing to do before, and ``hint`` told of the QP 3 cycles ahead.
    Nothing is buffered: the request stays at the input until it is done with. A receive WQE that is posted but not yet
    fetched is waited for.

    ACKs and responses carry credits: the receive WQEs that are posted and not used, of which a message under way uses
    one. (A QP with a shared receive queue would have to say :data:`.aeth.NO_CREDITS`.)

    If the QP goes to ERR, its receive WQEs complete with WR_FLUSH_ERR, in order, 9 cycles each; those posted later,
    too. Requests and flushes take turns. The control token RESET passes down as a job; an ERROR token must come after
    the attribute ``state``.

    Parameters
    ----------
    qps : int
        QPs, a power of two.
    area : int
        Bytes a QP of fetched receive WQEs, a power of two, at least 128.

    Members
    -------
    attribute, attribute_en
        Broadcast of QP attributes. While it is on, nothing new is decided.
    request : stream of ``LookedUp``
    hint : QP index
        Probably that of the next request; a wrong one costs only time.
    access : stream of ``AccessRequest``
    job : stream of ``Job``
        Silent jobs change nothing; those with ``cause`` set are of a QP that has failed.
    entry, entry_en
        Write port of the response rings, :data:`READS_MAX` rows a QP; on while the job waits to be taken, too.
    served_qp, served
        Entries of the QP that are answered, modulo 256, 1 cycle later; they are counted from 0 after RESET.
    recall, recall_en, recalled : ``Recall``, 1, 1
        As long as ``recall_en`` is on, the READ/atomic responder gives up responses from this PSN on; ``recalled`` when
        it has.
    status_qp, status : RingStatus
        The QP's receive ring, 1 cycle later, followed while the QP is looked at.
    word_addr, word
        Fetched receive WQEs, see :class:`.recv_placement.RecvPlacement`.
    consumed : stream of ``RingIndex``
        Fetched receive WQEs before this one are done with; said before their job goes out.
    arrived : stream of QP
        Receive WQEs of the QP were fetched. Always ready but for a cycle now and then.
    control : stream of ``QpControl``
    reply : stream of ``ResponderReply``
        Answer to QUERY.
    count_drop_sequence, count_drop_duplicate : 1
        Strobes.
    """

    def __init__(self, qps, area=256):
        if not isinstance(qps, int) or not 2 <= qps <= 4096 or qps & qps - 1:
            raise ValueError(f"qps must be a power of two from 2 to 4096, not {qps!r}")
        self.qps = qps
        self.area = area
        self._placement = RecvPlacement(qps, area)
        super().__init__(
            {
                "attribute": In(AttributeWrite),
                "attribute_en": In(1),
                "request": In(stream.Signature(LookedUp)),
                "hint": In(range(qps)),
                "access": Out(stream.Signature(AccessRequest)),
                "job": Out(stream.Signature(Job)),
                "entry": Out(RingEntry),
                "entry_en": Out(1),
                "served_qp": Out(12),
                "served": In(8),
                "recall": Out(Recall),
                "recall_en": Out(1),
                "recalled": In(1),
                "status_qp": Out(12),
                "status": In(RingStatus),
                "word_addr": Out(self._placement.word_addr.shape()),
                "word": In(64),
                "consumed": Out(stream.Signature(RingIndex)),
                "arrived": In(stream.Signature(12)),
                "control": In(stream.Signature(QpControl)),
                "reply": Out(stream.Signature(ResponderReply)),
                "count_drop_sequence": Out(1),
                "count_drop_duplicate": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.table = table = Table(QP_CONTEXT, ATTRIBUTES, self.qps)
        m.submodules.ram = ram = Ram(ReceiveState, self.qps)
        m.submodules.validator = validator = RequestValidator(table.layout)
        m.submodules.placement = placement = self._placement
        m.submodules.flushes = flushes = FlushQueue(self.qps)
        transport = self.request.payload.transport
        state = ram.r_data

        work = Signal(Work)
        qp = Signal(range(self.qps))  # whose rows are read: a register, because they stand far from each other
        qp_next = Signal.like(qp)
        pd = Signal(24)
        consumable = Signal()
        packets_turn = Signal()
        consumed_sent = Signal()
        finish = Signal()
        has_recalled = Signal()
        patience = Signal(range(RECALL_LIMIT + 1))
        write_conflict = table.write_conflict
        # Whoever is idle reads what may be needed next: rows are there if `qp` was the `same` in this cycle and in the
        # two before, and nothing was written meanwhile.
        idle, rested = Signal(), Signal(2)
        shown, same = Signal.like(qp), Signal()
        prepared = Signal()
        m.d.sync += [rested.eq(Cat(idle, rested[0])), shown.eq(qp), same.eq(qp == shown)]
        m.d.comb += prepared.eq(
            rested.all()
            & same
            & (qp == self.request.payload.qp)
            & (shown == self.request.payload.qp)
            & ~write_conflict[1]
        )

        m.d.comb += [
            qp_next.eq(qp),
            table.write.eq(self.attribute),
            table.write_en.eq(self.attribute_en),
            table.index.eq(qp),
            ram.r_addr.eq(qp),
            ram.w_addr.eq(qp),
            ram.w_data.eq(validator.next),
            placement.qp.eq(qp),
            flushes.qp.eq(qp_next),
            self.status_qp.eq(qp),
            self.served_qp.eq(qp),
            validator.request.eq(self.request.payload),
            validator.qp.eq(qp),
            validator.row.eq(table.row),
            validator.receive.eq(state),
            validator.status.eq(self.status),
            validator.served.eq(self.served),
            validator.flush.eq(work == Work.FLUSH),
            validator.misfit.eq(placement.misfit),
            validator.too_long.eq(placement.too_long),
            validator.byte_length.eq(placement.byte_length),
        ]
        wiring.connect(m, placement.access, wiring.flipped(self.access))
        wiring.connect(m, wiring.flipped(self.arrived), flushes.arrived)
        m.d.comb += [self.word_addr.eq(placement.word_addr), placement.word.eq(self.word)]

        packet = placement.i.payload
        m.d.comb += [
            packet.clear.eq(work == Work.RESET),
            packet.begin.eq(validator.begin),
            packet.end.eq(validator.end),
            packet.length.eq(Mux(work == Work.PACKET, transport.length, 0)),
            packet.pd.eq(pd),
            packet.qp.eq(qp),
            packet.address.eq(transport.address),
            packet.rkey.eq(transport.rkey),
            packet.total.eq(transport.dma_length),
            packet.index.eq(state.index),
            packet.log_stride.eq(table.row.log_rq_stride),
            placement.look.eq(validator.look),
        ]
        with m.If(validator.execute):
            m.d.comb += packet.kind.eq(Mux(validator.write, PlacementKind.WRITE, PlacementKind.SEND))

        m.d.comb += [
            self.job.payload.eq(validator.job),
            self.entry.qp.eq(qp),
            self.entry.slot.eq(validator.slot),
            self.entry.entry.eq(validator.entry),
            self.recall.qp.eq(qp),
            self.recall.psn.eq(transport.psn),
            self.consumed.payload.qp.eq(qp),
            self.consumed.payload.index.eq(validator.next.index),
            self.reply.payload.psn.eq(state.epsn),
            self.reply.payload.index.eq(state.index),
        ]

        with m.If(validator.look):
            m.d.sync += [
                pd.eq(table.row.pd),
                # A ring in error fetches nothing any more, and what it has not fetched it cannot take back.
                consumable.eq(~self.status.error),
            ]

        with m.FSM():
            with m.State("IDLE"):
                # Looks whether or not the right rows are there: if not, it looks again.
                m.d.comb += [
                    idle.eq(1),
                    qp_next.eq(Mux(self.request.valid, self.request.payload.qp, self.hint)),
                    validator.look.eq(1),
                ]
                m.d.sync += [qp.eq(qp_next), consumed_sent.eq(0), has_recalled.eq(0), patience.eq(RECALL_LIMIT)]
                with m.If(self.control.valid):
                    m.d.comb += qp_next.eq(self.control.payload.qp)
                    with m.Switch(self.control.payload.action):
                        with m.Case(QpAction.RESET):
                            m.d.comb += flushes.reset.eq(1)
                            m.d.comb += validator.token.eq(1)
                            m.d.sync += work.eq(Work.RESET)
                            m.next = "PLACE"
                        with m.Case(QpAction.START_RECEIVE):
                            m.next = "START"
                        with m.Case(QpAction.ERROR):
                            m.d.comb += [flushes.fail.eq(1), self.control.ready.eq(1)]
                        with m.Case(QpAction.QUERY):
                            m.d.sync += work.eq(Work.QUERY)
                            m.next = "AIM"
                        with m.Default():
                            m.d.comb += self.control.ready.eq(1)
                with m.Elif(flushes.o.valid & ~(self.request.valid & packets_turn)):
                    m.d.comb += [qp_next.eq(flushes.o.payload), flushes.o.ready.eq(1)]
                    m.d.sync += [work.eq(Work.FLUSH), packets_turn.eq(1)]
                    m.next = "AIM"
                with m.Elif(self.request.valid):
                    m.d.sync += [work.eq(Work.PACKET), packets_turn.eq(0)]
                    m.next = "READ"
                    with m.If(prepared):
                        m.next = "DECIDE"

            with m.State("AIM"):  # what is rarer than packets is not asked for at once
                m.next = "READ"
            with m.State("READ"):
                m.next = "SHOW"
            with m.State("SHOW"):
                m.next = "CHECK"
            with m.State("CHECK"):
                m.d.comb += validator.look.eq(1)
                with m.If(~write_conflict[1]):
                    m.next = "DECIDE"
            with m.State("DECIDE"):
                m.d.comb += [validator.decide.eq(1), placement.load.eq(1)]
                with m.Switch(work):
                    with m.Case(Work.PACKET):
                        m.next = "PLACE"
                        with m.If(validator.wait):
                            m.next = "CHECK"
                        with m.If(validator.again & ~has_recalled):
                            m.next = "RECALL"
                    with m.Case(Work.FLUSH):
                        m.next = "IDLE"
                        with m.If(validator.flushable):
                            m.next = "PLACE"
                    with m.Default():
                        m.next = "REPLY"

            with m.State("RECALL"):
                m.d.comb += self.recall_en.eq(1)
                m.d.sync += patience.eq(patience - 1)
                with m.If(self.recalled | (patience == 0)):
                    m.d.sync += has_recalled.eq(1)
                    m.next = "CHECK"

            with m.State("PLACE"):
                m.d.comb += [validator.place.eq(1), placement.i.valid.eq(1)]
                with m.If(placement.i.ready):
                    m.next = "FINISH"
            with m.State("FINISH"):
                m.d.comb += [
                    self.entry_en.eq(validator.job.release),  # the same again and again, until it is released
                    self.consumed.valid.eq(validator.consume & consumable & ~consumed_sent),
                    self.job.valid.eq(~self.consumed.valid | self.consumed.ready),
                    finish.eq(self.job.valid & self.job.ready),
                ]
                m.d.sync += consumed_sent.eq(self.job.valid)
                with m.If(finish):
                    m.d.comb += [
                        ram.w_en.eq(1),
                        self.request.ready.eq(work == Work.PACKET),
                        self.control.ready.eq(work == Work.RESET),
                        flushes.add.eq(work == Work.FLUSH),
                        self.count_drop_sequence.eq(validator.count_drop_sequence),
                        self.count_drop_duplicate.eq(validator.count_drop_duplicate),
                    ]
                    m.next = "IDLE"

            with m.State("START"):
                fresh = Signal(ReceiveState)
                m.d.comb += [
                    fresh.epsn.eq(self.control.payload.psn),
                    ram.w_data.eq(fresh),
                    ram.w_en.eq(1),
                    self.control.ready.eq(1),
                ]
                m.next = "IDLE"
            with m.State("REPLY"):
                m.d.comb += [self.reply.valid.eq(1), self.control.ready.eq(self.reply.ready)]
                with m.If(self.reply.ready):
                    m.next = "IDLE"
        return m
