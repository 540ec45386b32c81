"""The receiving half of a reliable connection: requests in, accesses and answers out."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ..abi.commands import QpAction
from ..abi.contexts import QP_CONTEXT
from ..queue.wqe_fetcher import RingIndex, RingStatus
from ..stream.ram import Ram
from ..stream.table import Table
from ..stream.transfer import AccessRequest, AttributeWrite, QpControl
from .flush_queue import FlushQueue
from .judge import Judge
from .layouts import Job, LookedUp, Recall, ResponseEntry
from .receive_buffer import PlacementKind, ReceiveBuffer
from .request_check import READS_MAX, ReceiveState

__all__ = ["Responder", "ResponderReply", "RingEntry"]

ResponderReply = data.StructLayout({"psn": 24, "index": 16})
"""Next PSN expected, and next receive WQE to use."""

ATTRIBUTES = ("state", "path_mtu", "access", "min_rnr_timer", "pd", "log_rq_stride", "max_dest_rd_atomic")
"""Fields of the QP context that count here."""

RingEntry = data.StructLayout({"qp": 12, "slot": ceil_log2(READS_MAX), "entry": ResponseEntry})
"""A row of a response ring."""


RECALL_LIMIT = 511
"""Cycles for which a request waits while the replier gives up responses: reception must not wait for transmission."""


class Work(enum.Enum, shape=2):
    """What the responder is busy with."""

    PACKET = 0
    FLUSH = 1
    QUERY = 2
    RESET = 3


class Responder(wiring.Component):
    """Takes one request at a time: judges it (:class:`.judge.Judge`), says where its payload goes
    (:class:`.receive_buffer.ReceiveBuffer`), and leaves to the acknowledger what is to be answered once the payload is
    there. Serves SEND and WRITE, with and without immediate, RDMA READ, and atomics; other requests are invalid (NAK
    0x61). A READ or an atomic, also an old one that is asked for again, goes into the QP's response ring, and its job
    releases it. When one is asked for again the requester has gone back, and will ask for all behind it again, too. So
    first what is behind it is recalled from the ring; the request waits for that, but no longer than
    :data:`RECALL_LIMIT`.

    Each packet has exactly one run on ``access`` and exactly one job on ``job``, the run first, in order.

    A packet takes 8 cycles; a SEND 10 if it begins in an entry of its receive WQE, and 5 cycles more for a second one,
    6 for each further one. 3 less if there was nothing to do before, and ``soon`` told of the QP 3 cycles ahead.
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
    atomics : bool
        Atomics are served; else they are invalid requests.

    Members
    -------
    attribute, attribute_en
        Broadcast of QP attributes. While it is on, nothing new is decided.
    request : stream of ``LookedUp``
    soon : QP index
        Probably that of the next request; a wrong one costs only time.
    access : stream of ``AccessRequest``
    job : stream of ``Job``
        Silent jobs change nothing; those with ``cause`` set are of a QP that has failed.
    entry, entry_en
        Write port of the response rings, :data:`READS_MAX` rows a QP; on while the job waits to be taken, too.
    served_qp, served
        Entries of the QP that are answered, modulo 256, 1 cycle later; they are counted from 0 after RESET.
    recall, recall_en, recalled : ``Recall``, 1, 1
        As long as ``recall_en`` is on, the replier gives up responses from this PSN on; ``recalled`` when it has.
    status_qp, status : RingStatus
        The QP's receive ring, 1 cycle later, followed while the QP is looked at.
    word_addr, word
        Fetched receive WQEs, see :class:`.receive_buffer.ReceiveBuffer`.
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

    def __init__(self, qps, area=256, atomics=True):
        if not isinstance(qps, int) or not 2 <= qps <= 4096 or qps & qps - 1:
            raise ValueError(f"qps must be a power of two from 2 to 4096, not {qps!r}")
        self.qps = qps
        self.area = area
        self.atomics = atomics
        self._buffer = ReceiveBuffer(qps, area)
        super().__init__(
            {
                "attribute": In(AttributeWrite),
                "attribute_en": In(1),
                "request": In(stream.Signature(LookedUp)),
                "soon": In(range(qps)),
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
                "word_addr": Out(self._buffer.word_addr.shape()),
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
        m.submodules.judge = judge = Judge(table.layout, self.atomics)
        m.submodules.buffer = buffer = self._buffer
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
        torn = table.torn
        # Whoever is idle reads what may be needed next: rows are there if `qp` was the `same` in this cycle and in the
        # two before, and nothing was written meanwhile.
        idle, rested = Signal(), Signal(2)
        shown, same = Signal.like(qp), Signal()
        prepared = Signal()
        m.d.sync += [rested.eq(Cat(idle, rested[0])), shown.eq(qp), same.eq(qp == shown)]
        m.d.comb += prepared.eq(
            rested.all() & same & (qp == self.request.payload.qp) & (shown == self.request.payload.qp) & ~torn[1]
        )

        m.d.comb += [
            qp_next.eq(qp),
            table.write.eq(self.attribute),
            table.write_en.eq(self.attribute_en),
            table.index.eq(qp),
            ram.r_addr.eq(qp),
            ram.w_addr.eq(qp),
            ram.w_data.eq(judge.next),
            buffer.qp.eq(qp),
            flushes.qp.eq(qp_next),
            self.status_qp.eq(qp),
            self.served_qp.eq(qp),
            judge.request.eq(self.request.payload),
            judge.qp.eq(qp),
            judge.row.eq(table.row),
            judge.receive.eq(state),
            judge.status.eq(self.status),
            judge.served.eq(self.served),
            judge.flush.eq(work == Work.FLUSH),
            judge.misfit.eq(buffer.misfit),
            judge.too_long.eq(buffer.too_long),
            judge.byte_length.eq(buffer.byte_length),
        ]
        wiring.connect(m, buffer.access, wiring.flipped(self.access))
        wiring.connect(m, wiring.flipped(self.arrived), flushes.arrived)
        m.d.comb += [self.word_addr.eq(buffer.word_addr), buffer.word.eq(self.word)]

        packet = buffer.i.payload
        m.d.comb += [
            packet.clear.eq(work == Work.RESET),
            packet.begin.eq(judge.begin),
            packet.end.eq(judge.end),
            packet.length.eq(Mux(work == Work.PACKET, transport.length, 0)),
            packet.pd.eq(pd),
            packet.qp.eq(qp),
            packet.address.eq(transport.address),
            packet.rkey.eq(transport.rkey),
            packet.total.eq(transport.dma_length),
            packet.index.eq(state.index),
            packet.log_stride.eq(table.row.log_rq_stride),
            buffer.look.eq(judge.look),
        ]
        with m.If(judge.execute):
            m.d.comb += packet.kind.eq(Mux(judge.write, PlacementKind.WRITE, PlacementKind.SEND))

        m.d.comb += [
            self.job.payload.eq(judge.job),
            self.entry.qp.eq(qp),
            self.entry.slot.eq(judge.slot),
            self.entry.entry.eq(judge.entry),
            self.recall.qp.eq(qp),
            self.recall.psn.eq(transport.psn),
            self.consumed.payload.qp.eq(qp),
            self.consumed.payload.index.eq(judge.next.index),
            self.reply.payload.psn.eq(state.epsn),
            self.reply.payload.index.eq(state.index),
        ]

        with m.If(judge.look):
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
                    qp_next.eq(Mux(self.request.valid, self.request.payload.qp, self.soon)),
                    judge.look.eq(1),
                ]
                m.d.sync += [qp.eq(qp_next), consumed_sent.eq(0), has_recalled.eq(0), patience.eq(RECALL_LIMIT)]
                with m.If(self.control.valid):
                    m.d.comb += qp_next.eq(self.control.payload.qp)
                    with m.Switch(self.control.payload.action):
                        with m.Case(QpAction.RESET):
                            m.d.comb += flushes.reset.eq(1)
                            m.d.comb += judge.token.eq(1)
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
                m.d.comb += judge.look.eq(1)
                with m.If(~torn[1]):
                    m.next = "DECIDE"
            with m.State("DECIDE"):
                m.d.comb += [judge.decide.eq(1), buffer.load.eq(1)]
                with m.Switch(work):
                    with m.Case(Work.PACKET):
                        m.next = "PLACE"
                        with m.If(judge.wait):
                            m.next = "CHECK"
                        with m.If(judge.again & ~has_recalled):
                            m.next = "RECALL"
                    with m.Case(Work.FLUSH):
                        m.next = "IDLE"
                        with m.If(judge.flushable):
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
                m.d.comb += [judge.place.eq(1), buffer.i.valid.eq(1)]
                with m.If(buffer.i.ready):
                    m.next = "FINISH"
            with m.State("FINISH"):
                m.d.comb += [
                    self.entry_en.eq(judge.job.release),  # the same again and again, until it is released
                    self.consumed.valid.eq(judge.consume & consumable & ~consumed_sent),
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
                        self.count_drop_sequence.eq(judge.count_drop_sequence),
                        self.count_drop_duplicate.eq(judge.count_drop_duplicate),
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
