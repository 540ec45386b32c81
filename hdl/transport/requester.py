"""The send queues: whose turn it is, and what it does."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ..abi.commands import QpAction
from ..abi.contexts import QP_CONTEXT, QpState
from ..abi.cqe import Syndrome, WcStatus
from ..stream.packet import PacketBeat
from ..stream.ram import Ram
from ..stream.table import Table
from ..stream.transfer import AccessRequest, AttributeWrite, QpControl
from .layouts import Failure, Flush, Outstanding, RequestHeader
from .psn import Sent
from .segmenter import Segmenter, SendState
from .wqe_words import word_address

__all__ = ["Requester"]

RingIndex = data.StructLayout({"qp": 12, "index": 16})
RingStatus = data.StructLayout({"producer": 16, "fetched": 16, "error": 1})
Reply = data.StructLayout({"psn": 24, "index": 16})


class Requester(wiring.Component):
    """Turns send WQEs into packets, one packet of one QP a turn: RC SEND and RDMA WRITE, with and without immediate.

    A QP index from ``ready`` is one turn. If its QP has more to do afterwards, the index goes to ``again``, so that a
    long message and other QPs alternate. The next turn reads its QP's state while the present one cuts its packet.

    *Cycles*: 8 a packet if several QPs are ready, 9 for the last of a message; 11 if only one is and ``again`` comes
    back after 2. From ``ready`` to ``access`` 9; to ``packet`` 9, and 10 at the end of a message. A further
    scatter/gather entry costs 2 or 3 more, 8 bytes of inline data 1. A turn that finds nothing to do takes 3.

    *Buffering*: 16 accesses and 16 words of inline data. A packet is not begun before the header of the one before has
    been taken, and its message by ``outstanding``.

    *A message starts* in state RTS if fewer than ``window`` are not complete; if not, the turn ends without ``again``,
    and whoever moves ``acked`` must put the QP on ``ready`` once more. In SQD a message under way goes on to its end.
    In ERR a turn gives up all fetched WQEs (all posted ones, if the ring cannot be read) and says so on ``flush``. In
    other states it does nothing.

    *Errors*: a malformed WQE, or a ring in error, goes to ``failed``, and the QP sends nothing more until RESET. Of a
    malformed WQE's packet nothing comes out; earlier packets of its message may have.

    *Control*: RESET zeroes the state, and puts a header with ``token`` and a run with ``clear`` behind all packets;
    START_SEND sets the PSN; ERROR puts the QP on ``again``; QUERY answers on ``reply``. All wait for the packet under
    way.

    Parameters
    ----------
    qps : int
        QPs, a power of two.
    window : int
        Most messages of a QP that are begun and not complete, a power of two.
    data_width : int
        64, 128, 256 or 512 bits: width of ``inline``.
    area : int
        Bytes a QP of fetched WQEs, a power of two: WQE ``i`` begins at ``i << log_sq_stride``, modulo ``area``.

    Members
    -------
    ready, again : stream of QP index
        Turns. The index on ``again`` is not to be taken from ``ready`` in the cycle in which it appears.
    control : stream of ``QpControl``; reply : stream of ``{psn, index}``
        ``reply`` stays until it is taken, and holds up further QUERYs only.
    attribute, attribute_en : ``AttributeWrite``
        The command block's broadcast.
    status_qp, status : 12, ``{producer, fetched, error}``
        Indices of the QP's ring, one cycle later.
    word_addr, word : ``{qp, word}``, 64
        Words of fetched WQEs, two cycles later; ``word_addr.word`` is the byte in the area divided by 8.
    consumed : stream of ``{qp, index}``
        WQEs before ``index`` need not be kept.
    acked_qp, acked : 12, 16
        The QP's oldest WQE that is not complete, one cycle later.
    packet : stream of ``RequestHeader``; access : stream of ``AccessRequest``; inline : stream of ``PacketBeat``
        Packets; for each a run of accesses, and with ``inline`` set a packet of inline data.
    outstanding : stream of ``Outstanding``
        Taken before the last packet of its message comes out.
    sent, sent_en : ``Sent``
        Each packet's PSN, before the packet comes out.
    failed : stream of ``Failure``; flush : stream of ``Flush``
    count_stall_window : 1
        A turn found the window closed.
    """

    def __init__(self, qps, window=64, data_width=64, area=1024):
        if qps < 2 or qps & qps - 1:
            raise ValueError(f"qps must be a power of two, at least 2, not {qps!r}")
        if window < 2 or window & window - 1 or window > 1 << 14:
            raise ValueError(f"window must be a power of two from 2 to 16384, not {window!r}")
        self.qps = qps
        self.window = window
        self.data_width = data_width
        self.area = area
        super().__init__(
            {
                "ready": In(stream.Signature(range(qps))),
                "again": Out(stream.Signature(range(qps))),
                "control": In(stream.Signature(QpControl)),
                "reply": Out(stream.Signature(Reply)),
                "attribute": In(AttributeWrite),
                "attribute_en": In(1),
                "status_qp": Out(12),
                "status": In(RingStatus),
                "word_addr": Out(word_address(area)),
                "word": In(64),
                "consumed": Out(stream.Signature(RingIndex)),
                "acked_qp": Out(12),
                "acked": In(16),
                "packet": Out(stream.Signature(RequestHeader)),
                "access": Out(stream.Signature(AccessRequest)),
                "inline": Out(stream.Signature(PacketBeat(data_width))),
                "outstanding": Out(stream.Signature(Outstanding)),
                "sent": Out(Sent),
                "sent_en": Out(1),
                "failed": Out(stream.Signature(Failure)),
                "flush": Out(stream.Signature(Flush)),
                "count_stall_window": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        words = Table.words_of(QP_CONTEXT, "state", "type", "path_mtu", "pd", "log_sq_stride")
        m.submodules.table = table = Table(QP_CONTEXT, words, self.qps)
        m.submodules.states = states = Ram(SendState, self.qps)
        m.submodules.segmenter = segmenter = Segmenter(self.data_width, self.area)
        for name in ("packet", "access", "inline", "outstanding"):
            wiring.connect(m, getattr(segmenter, name), wiring.flipped(getattr(self, name)))
        state = states.r_data
        segment = segmenter.i

        # -- A turn, or a control token, reads everything about its QP; `at` is its address while it does.
        at = Signal(range(self.qps))
        qp = Signal(range(self.qps))
        action = Signal(QpControl.members["action"])
        psn = Signal(24)
        is_control = Signal()
        status = Signal(RingStatus)
        acked = Signal(16)
        settled = Signal()  # nothing of a packet is under way, and what it reported is taken
        m.d.comb += [
            table.write.eq(self.attribute),
            table.write_en.eq(self.attribute_en),
            table.index.eq(at),
            states.r_addr.eq(at),
            self.status_qp.eq(at),
            self.acked_qp.eq(at),
            self.word_addr.eq(segmenter.word_address),
            segmenter.word.eq(self.word),
            settled.eq(~self.consumed.valid & ~self.failed.valid & ~self.again.valid & ~self.flush.valid),
            at.eq(qp),
        ]

        # -- What may be done, from the registers that the reading left.
        waiting = Signal(16)  # WQEs that can be read and are not begun
        begun = Signal(16)
        running, draining, broken = Signal(), Signal(), Signal()
        pending, closed = Signal(), Signal()
        m.d.comb += [
            waiting.eq(status.fetched - state.index),
            begun.eq(state.index - acked),
            running.eq((table.row.state == QpState.RTS) & ~state.halted),
            draining.eq((table.row.state == QpState.SQD) & ~state.halted),
            broken.eq(table.row.state == QpState.ERR),
            pending.eq(waiting != 0),
            closed.eq(begun[ceil_log2(self.window) :] != 0),
            segment.payload.qp.eq(qp),
            segment.payload.state.eq(state),
            segment.payload.path_mtu.eq(table.row.path_mtu),
            segment.payload.type.eq(table.row.type),
            segment.payload.pd.eq(table.row.pd),
            segment.payload.large.eq(table.row.log_sq_stride[0]),
            segment.payload.reset.eq(is_control),
        ]

        write, zero, giving_up, starting, halting = Signal(), Signal(), Signal(), Signal(), Signal()
        target = Mux(status.error, status.producer, status.fetched)
        several = Signal()  # another WQE is there behind the one being sent
        m.d.comb += [
            # A message is not under way when this side writes, so the fields that only then count may be anything.
            states.w_addr.eq(Mux(segmenter.done, segmenter.qp, qp)),
            states.w_en.eq(segmenter.done | write),
            states.w_data.eq(segmenter.next),
        ]
        with m.If(~segmenter.done):
            m.d.comb += [
                states.w_data.index.eq(Mux(giving_up, target, Mux(zero, 0, state.index))),
                states.w_data.psn.eq(Mux(starting, psn, Mux(zero, 0, state.psn))),
                states.w_data.middle.eq(0),
                states.w_data.halted.eq(halting | (state.halted & ~zero)),
            ]

        for port in (self.again, self.consumed, self.failed, self.flush, self.reply):
            with m.If(port.ready):
                m.d.sync += port.valid.eq(0)
        with m.If(segmenter.good):
            m.d.sync += [self.again.valid.eq(segmenter.more | several), self.again.payload.eq(segmenter.qp)]
        with m.If(segmenter.done):
            m.d.sync += [
                self.consumed.valid.eq(segmenter.ended),
                self.consumed.payload.qp.eq(segmenter.qp),
                self.consumed.payload.index.eq(segmenter.next.index),
                self.failed.valid.eq(segmenter.failed),
                self.failed.payload.qp.eq(segmenter.qp),
                self.failed.payload.wqe_index.eq(segmenter.next.index),
                self.failed.payload.syndrome.eq(segmenter.syndrome),
            ]
        m.d.comb += [
            self.failed.payload.status.eq(WcStatus.LOC_QP_OP_ERR),
            self.sent.qp.eq(segmenter.qp),
            self.sent.psn.eq(self.packet.payload.transport.psn),
            self.sent_en.eq(segmenter.done & ~segmenter.failed),
        ]

        with m.FSM():
            with m.State("IDLE"):
                chosen = Signal(range(self.qps))
                held = Signal()  # a QP whose packet is under way must wait for its new state
                m.d.comb += [
                    chosen.eq(Mux(self.control.valid, self.control.payload.qp, self.ready.payload)),
                    at.eq(chosen),
                    held.eq(segmenter.busy & (segmenter.qp == self.ready.payload)),
                    self.control.ready.eq(
                        ~segmenter.busy
                        & settled
                        & ~(self.reply.valid & (self.control.payload.action == QpAction.QUERY))
                    ),
                    self.ready.ready.eq(~self.control.valid & ~held),
                ]
                m.d.sync += [
                    qp.eq(chosen),
                    is_control.eq(self.control.valid),
                    action.eq(self.control.payload.action),
                    psn.eq(self.control.payload.psn),
                ]
                with m.If(Mux(self.control.valid, self.control.ready, self.ready.valid & ~held)):
                    m.next = "READ"
            with m.State("READ"):
                m.d.sync += [status.eq(self.status), acked.eq(self.acked)]
                with m.If(is_control):
                    m.next = "CONTROL"
                with m.Else():
                    m.next = "TURN"
            with m.State("CONTROL"):
                m.next = "IDLE"
                with m.Switch(action):
                    with m.Case(QpAction.RESET):
                        m.d.comb += [write.eq(1), zero.eq(1), segment.valid.eq(1)]
                        with m.If(~segment.ready):
                            m.next = "CONTROL"
                    with m.Case(QpAction.START_SEND):
                        m.d.comb += [write.eq(1), starting.eq(1)]
                    with m.Case(QpAction.ERROR):
                        m.d.sync += [self.again.valid.eq(1), self.again.payload.eq(qp)]
                    with m.Case(QpAction.QUERY):
                        m.d.sync += [
                            self.reply.valid.eq(1),
                            self.reply.payload.psn.eq(state.psn),
                            self.reply.payload.index.eq(state.index),
                        ]
            with m.State("TURN"):
                m.next = "IDLE"
                with m.If(broken):
                    with m.If(segmenter.busy | ~settled):
                        m.next = "TURN"
                    with m.Else():
                        m.d.comb += [write.eq(1), giving_up.eq(1)]
                        m.d.sync += [
                            self.flush.valid.eq(1),
                            self.flush.payload.qp.eq(qp),
                            self.flush.payload.index.eq(target),
                            self.consumed.valid.eq(1),
                            self.consumed.payload.qp.eq(qp),
                            self.consumed.payload.index.eq(status.fetched),
                        ]
                with m.Elif(Mux(state.middle, running | draining, running & pending & ~closed)):
                    m.d.comb += segment.valid.eq(settled)
                    with m.If(settled & segment.ready):
                        m.d.sync += several.eq(waiting[1:] != 0)
                    with m.Else():
                        m.next = "TURN"
                with m.Elif(running & pending):
                    m.d.comb += self.count_stall_window.eq(1)
                with m.Elif(running & ~state.middle & status.error):
                    with m.If(segmenter.busy | ~settled):
                        m.next = "TURN"
                    with m.Else():
                        m.d.comb += [write.eq(1), halting.eq(1)]
                        m.d.sync += [
                            self.failed.valid.eq(1),
                            self.failed.payload.qp.eq(qp),
                            self.failed.payload.wqe_index.eq(state.index),
                            self.failed.payload.syndrome.eq(Syndrome.RING_BUS),
                        ]
        return m
