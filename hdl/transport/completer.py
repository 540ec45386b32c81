"""When send WQEs are complete, and how: ACKs, NAKs, local failures and flushing, in the order of the queue."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, enum, memory, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ..abi.commands import QpAction
from ..abi.contexts import QP_CONTEXT, QpState
from ..abi.cqe import Syndrome, WcOpcode, WcStatus
from ..stream.ram import Ram
from ..stream.table import Table
from ..stream.transfer import AttributeWrite, Completion, QpControl, QpError
from .layouts import Ack, Failure, Flush, Outstanding
from .live_row import LiveRow
from .psn import Sent, psn_before, psn_next

__all__ = ["Completer"]

NO_EVENT = 255
"""In ``QpError``: the completion says it all."""

State = data.StructLayout(
    {
        "oldest": 16,  # WQE that is next to complete
        "acked": 24,  # last PSN known to have arrived
        "dead": 1,  # a WQE completed in error: until RESET only flushing goes on
        "failed": 1,  # the WQE `index` failed on this side and completes with the status below
        "index": 16,
        "status": 8,
        "syndrome": 8,
    }
)

Entry = data.StructLayout({"last_psn": 24, "opcode": 4, "signaled": 1})


class Kind(enum.Enum):
    """What is being dealt with."""

    CONTROL = 0
    FAILURE = 1
    FLUSH = 2
    ACK = 3


class Completer(wiring.Component):
    """Completes the WQEs of each send queue in order: exactly one fate each, and a CQE if it is signaled or failed.

    *An ACK* completes all messages that end at or before its PSN. It counts only if its PSN lies behind the last one
    acknowledged, and no further than the last one sent: whatever else comes does nothing. A message of which a part is
    acknowledged waits for the rest. *A NAK* acknowledges what precedes its PSN; then the oldest message fails: it is
    the one that holds the PSN, also if it is still being sent. A NAK for a PSN sequence error, and an RNR NAK, fail it
    too, as if the retries were used up. *A local failure* takes effect when its WQE is the oldest. After any failure
    the QP is dead, and ``error`` says so; what remains waits for its *flush*: every WQE up to the index given completes
    with WR_FLUSH_ERR, or with its own failure. ACKs and failures count in RTS and SQD (a failure in ERR is kept for the
    flush), flushes in ERR.

    *Cycles*: an ACK 5, and 2 for each message that it completes; one that does nothing 4. A flush 5 and 2 for each WQE.
    ``outstanding`` is taken at once, one every 2 cycles, also while an ACK is dealt with; an ACK must not follow its
    message sooner than 4 cycles later. One completion, one error and one kick are buffered.

    Source: IBA volume 1, 9.7.5 (acknowledgement), 9.9.2 and 10.8 (completion errors), C9-148.

    Parameters
    ----------
    qps : int
        QPs, a power of two.
    window : int
        Most messages of a QP that are begun and not complete, a power of two.

    Members
    -------
    attribute, attribute_en : ``AttributeWrite``
        The command block's broadcast.
    control : stream of ``QpControl``; reply : stream of ``{index}``
        ``reply`` stays until it is taken, and holds up further QUERYs only.
    outstanding : stream of ``Outstanding``
    sent, sent_en : ``Sent``
        Every packet, before it can be acknowledged; not in two cycles in succession.
    failed_requester, failed_transmitter : stream of ``Failure``
    flush : stream of ``Flush``
    ack : stream of ``Ack``
    completion : stream of ``Completion``
    error : stream of ``QpError``
    ready : stream of QP index
        The QP may find its window open again.
    acked_qp, acked : 12, 16
        Oldest WQE that is not complete, one cycle later.
    count_rx_acks, count_rx_naks : 1
    """

    def __init__(self, qps, window=64):
        if qps < 2 or qps & qps - 1:
            raise ValueError(f"qps must be a power of two, at least 2, not {qps!r}")
        if window < 2 or window & window - 1 or window > 1 << 14:
            raise ValueError(f"window must be a power of two from 2 to 16384, not {window!r}")
        self.qps = qps
        self.window = window
        super().__init__(
            {
                "attribute": In(AttributeWrite),
                "attribute_en": In(1),
                "control": In(stream.Signature(QpControl)),
                "reply": Out(stream.Signature(data.StructLayout({"index": 16}))),
                "outstanding": In(stream.Signature(Outstanding)),
                "sent": In(Sent),
                "sent_en": In(1),
                "failed_requester": In(stream.Signature(Failure)),
                "failed_transmitter": In(stream.Signature(Failure)),
                "flush": In(stream.Signature(Flush)),
                "ack": In(stream.Signature(Ack)),
                "completion": Out(stream.Signature(Completion)),
                "error": Out(stream.Signature(QpError)),
                "ready": Out(stream.Signature(range(qps))),
                "acked_qp": In(12),
                "acked": Out(16),
                "count_rx_acks": Out(1),
                "count_rx_naks": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        slot_bits = ceil_log2(self.window)
        qp_bits = ceil_log2(self.qps)
        m.submodules.table = table = Table(QP_CONTEXT, Table.words_of(QP_CONTEXT, "state", "sq_cqn"), self.qps)
        m.submodules.states = states = Ram(State, self.qps)
        m.submodules.entries = entries = Ram(Entry, self.qps * self.window)
        m.submodules.begun = begun = LiveRow(16, self.qps)  # WQEs before this one have an entry
        m.submodules.latest = latest = LiveRow(24, self.qps)  # last PSN sent
        m.submodules.oldest = oldest = memory.Memory(shape=16, depth=self.qps, init=[])  # for the requester to read
        oldest_write = oldest.write_port()
        oldest_read = oldest.read_port(transparent_for=(oldest_write,))

        at, qp = Signal(qp_bits), Signal(qp_bits)
        kind = Signal(Kind)
        action = Signal(QpAction)
        psn, index = Signal(24), Signal(16)
        status, syndrome = Signal(8), Signal(8)  # of the failure; `syndrome`: or of the AETH
        state = Signal(State)  # the QP's, while it is dealt with
        m.d.comb += [
            table.write.eq(self.attribute),
            table.write_en.eq(self.attribute_en),
            table.index.eq(at),
            at.eq(qp),
            states.r_addr.eq(at),
            states.w_addr.eq(qp),
            states.w_data.eq(state),
            begun.r_addr.eq(at),
            latest.r_addr.eq(at),
            oldest_read.addr.eq(self.acked_qp),
            self.acked.eq(oldest_read.data),
            oldest_write.addr.eq(qp),
        ]

        # -- What the requester tells.
        message = self.outstanding.payload
        clearing = Signal()
        begun_written = Signal()  # in the cycle before: not twice in succession
        m.d.sync += begun_written.eq(begun.w_en)
        restarting = Signal()  # the first PSN is set; waits for a cycle in which nothing is sent
        m.d.comb += [
            self.outstanding.ready.eq(~clearing & ~begun_written),
            entries.w_addr.eq(Cat(message.wqe_index[:slot_bits], message.qp[:qp_bits])),
            entries.w_data.last_psn.eq(message.last_psn),
            entries.w_data.opcode.eq(message.opcode),
            entries.w_data.signaled.eq(message.signaled),
            entries.w_en.eq(self.outstanding.valid & self.outstanding.ready),
            begun.w_addr.eq(Mux(clearing, qp, message.qp)),
            begun.w_data.eq(Mux(clearing, 0, message.wqe_index + 1)),
            begun.w_en.eq(clearing | entries.w_en),
            latest.w_addr.eq(Mux(self.sent_en, self.sent.qp, qp)),
            latest.w_data.eq(Mux(self.sent_en, self.sent.psn, state.acked)),
            latest.w_en.eq(self.sent_en | restarting),
        ]

        # -- The oldest WQE: whether it is one of those that matter, known a cycle after it changes.
        following = Signal(16)
        at_begun, at_failed, at_index = Signal(), Signal(), Signal()
        entry = entries.r_data
        seek = Signal(16)
        m.d.comb += [
            following.eq(state.oldest + 1),
            seek.eq(state.oldest),
            entries.r_addr.eq(Cat(seek[:slot_bits], qp)),
        ]
        m.d.sync += [
            at_begun.eq(state.oldest == begun.row),
            at_failed.eq(state.failed & (state.oldest == state.index)),
            at_index.eq(state.oldest == index),
        ]
        crowded, moved = Signal(), Signal()

        # -- What a NAK means. Once there is retransmission, a sequence error and RNR go back to `acked` + 1 instead.
        is_ack, is_rnr = syndrome[5:8] == 0, syndrome[5:8] == 1
        is_nak = (syndrome[5:8] == 3) & (syndrome[:5] <= 4)
        nak_status = Signal(WcStatus)
        with m.Switch(Cat(syndrome[:3], is_rnr)):
            with m.Case("1---"):
                m.d.comb += nak_status.eq(WcStatus.RNR_RETRY_EXC_ERR)
            with m.Case("0000"):
                m.d.comb += nak_status.eq(WcStatus.RETRY_EXC_ERR)
            with m.Case("0010"):
                m.d.comb += nak_status.eq(WcStatus.REM_ACCESS_ERR)
            with m.Case("0011"):
                m.d.comb += nak_status.eq(WcStatus.REM_OP_ERR)
            with m.Default():
                m.d.comb += nak_status.eq(WcStatus.REM_INV_REQ_ERR)

        # -- A completion of the oldest WQE: `good` if it is a success; `emit` if it leaves a CQE.
        emit, good = Signal(), Signal()
        free = Signal()
        done = self.completion.payload
        flushing = kind == Kind.FLUSH
        m.d.comb += free.eq(~self.completion.valid | self.completion.ready)
        with m.If(free):
            m.d.sync += [
                self.completion.valid.eq(emit),
                done.cq.eq(table.row.sq_cqn),
                done.qp.eq(qp),
                done.wqe_index.eq(state.oldest),
                done.opcode.eq(Mux(entry.opcode[1], WcOpcode.SEND, WcOpcode.RDMA_WRITE)),
                done.status.eq(Mux(flushing, WcStatus.WR_FLUSH_ERR, nak_status)),
                done.syndrome.eq(Mux(flushing, Syndrome.FLUSHED, Syndrome.REMOTE_NAK)),
                done.solicited.eq(~good),
            ]
            with m.If(at_failed):
                m.d.sync += [done.status.eq(state.status), done.syndrome.eq(state.syndrome)]
            with m.If(good):
                m.d.sync += [done.status.eq(WcStatus.SUCCESS), done.syndrome.eq(Syndrome.NONE)]

        step = Signal()  # the oldest WQE is complete
        m.d.comb += [oldest_write.data.eq(following), oldest_write.en.eq(step)]
        with m.If(step):
            m.d.comb += seek.eq(following)
            m.d.sync += [state.oldest.eq(following), moved.eq(1)]

        for port in (self.error, self.ready, self.reply):
            with m.If(port.ready):
                m.d.sync += port.valid.eq(0)
        m.d.comb += [self.error.payload.event.eq(NO_EVENT)]

        alive = ((table.row.state == QpState.RTS) | (table.row.state == QpState.SQD)) & ~state.dead
        broken = table.row.state == QpState.ERR
        with m.FSM():
            with m.State("IDLE"):
                sources = [
                    (Kind.CONTROL, self.control),
                    (Kind.FAILURE, self.failed_requester),
                    (Kind.FAILURE, self.failed_transmitter),
                    (Kind.FLUSH, self.flush),
                    (Kind.ACK, self.ack),
                ]
                m.d.sync += [
                    action.eq(self.control.payload.action),
                    psn.eq(Mux(self.control.valid, self.control.payload.psn, self.ack.payload.psn)),
                    qp.eq(at),
                    moved.eq(0),
                ]
                open_ = Signal()
                query = self.control.valid & (self.control.payload.action == QpAction.QUERY)
                m.d.comb += open_.eq(~self.ready.valid & ~self.error.valid & ~(query & self.reply.valid))
                choice = m.If
                for what, port in sources:
                    with choice(port.valid):
                        m.d.comb += [at.eq(port.payload.qp), port.ready.eq(open_)]
                        m.d.sync += kind.eq(what)
                        if what is Kind.FAILURE:
                            m.d.sync += [
                                index.eq(port.payload.wqe_index),
                                status.eq(port.payload.status),
                                syndrome.eq(port.payload.syndrome),
                            ]
                        elif what is Kind.FLUSH:
                            m.d.sync += index.eq(port.payload.index)
                        elif what is Kind.ACK:
                            m.d.sync += syndrome.eq(port.payload.syndrome)
                    choice = m.Elif
                with m.If(open_ & Cat(port.valid for _, port in sources).any()):
                    m.next = "READ"
                counted = self.ack.valid & self.ack.ready
                received = self.ack.payload.syndrome[5:8]
                m.d.comb += [
                    self.count_rx_acks.eq(counted & (received == 0)),
                    self.count_rx_naks.eq(counted & ((received == 1) | (received == 3))),
                ]
            with m.State("READ"):
                m.next = "FETCH"
            with m.State("FETCH"):
                m.d.comb += seek.eq(states.r_data.oldest)
                m.d.sync += state.eq(states.r_data)
                m.next = "JUDGE"
            with m.State("JUDGE"):
                ahead = Signal(16)  # of the oldest WQE
                m.d.comb += ahead.eq(index - state.oldest)
                m.d.sync += crowded.eq((begun.row - state.oldest)[slot_bits - 1 : 16] != 0)
                m.next = "IDLE"
                with m.Switch(kind):
                    with m.Case(Kind.ACK):
                        within = psn_before(state.acked, psn) & ~psn_before(latest.row, psn)
                        with m.If(alive & within & (is_ack | is_nak | is_rnr)):
                            m.d.sync += state.acked.eq(psn_next(psn, Mux(is_ack, 0, (1 << 24) - 1)))
                            m.next = "WALK"
                    with m.Case(Kind.FAILURE):
                        earlier = ~state.failed | (index - state.index)[15]
                        with m.If((alive | broken) & ~state.dead & ~ahead[15] & earlier):
                            m.d.sync += [
                                state.failed.eq(1),
                                state.index.eq(index),
                                state.status.eq(status),
                                state.syndrome.eq(syndrome),
                            ]
                            with m.If(alive & (ahead == 0)):
                                m.next = "SETTLE"
                            with m.Else():
                                m.next = "WRITE"
                    with m.Case(Kind.FLUSH):
                        # The index is behind if the oldest WQE failed for want of being readable.
                        with m.If(broken & (ahead[14:16] != 3)):
                            m.d.sync += state.dead.eq(1)
                            m.next = "FLUSH"
                    with m.Case(Kind.CONTROL):
                        with m.Switch(action):
                            with m.Case(QpAction.RESET):
                                m.d.sync += [state.oldest.eq(0), state.dead.eq(0), state.failed.eq(0)]
                                m.next = "CLEAR"
                            with m.Case(QpAction.START_SEND):
                                m.d.sync += state.acked.eq(psn_next(psn, (1 << 24) - 1))
                                m.next = "RESTART"
                            with m.Case(QpAction.QUERY):
                                m.d.sync += [self.reply.valid.eq(1), self.reply.payload.index.eq(state.oldest)]
            with m.State("WALK"):
                covered = ~psn_before(state.acked, entry.last_psn)
                m.d.comb += good.eq(1)
                with m.If(covered & ~at_begun & ~at_failed):
                    m.d.comb += [emit.eq(entry.signaled), step.eq(free | ~entry.signaled)]
                    with m.If(step):
                        m.next = "NEXT"
                with m.Elif(at_failed | ~is_ack):
                    m.next = "FAIL"
                with m.Else():
                    m.d.comb += states.w_en.eq(1)
                    m.d.sync += [self.ready.valid.eq(moved & crowded), self.ready.payload.eq(qp)]
                    m.next = "IDLE"
            with m.State("NEXT"):
                m.next = "WALK"
            with m.State("SETTLE"):
                m.next = "FAIL"
            with m.State("FAIL"):
                m.d.comb += [emit.eq(1), step.eq(free)]
                with m.If(free):
                    m.d.sync += [
                        state.dead.eq(1),
                        state.failed.eq(state.failed & ~at_failed),
                        self.error.valid.eq(1),
                        self.error.payload.qp.eq(qp),
                    ]
                    m.next = "WRITE"
            with m.State("FLUSH"):
                m.next = "FLUSH_STEP"
            with m.State("FLUSH_STEP"):
                with m.If(at_index):
                    m.next = "WRITE"
                with m.Else():
                    m.d.comb += [emit.eq(1), step.eq(free)]
                    with m.If(free):
                        m.next = "FLUSH"
            with m.State("CLEAR"):
                m.d.comb += [
                    clearing.eq(1),
                    oldest_write.data.eq(0),
                    oldest_write.en.eq(1),
                ]
                m.next = "WRITE"
            with m.State("RESTART"):
                m.d.comb += restarting.eq(1)
                with m.If(~self.sent_en):
                    m.next = "WRITE"
            with m.State("WRITE"):
                m.d.comb += states.w_en.eq(1)
                m.next = "IDLE"
        return m
