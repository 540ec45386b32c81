"""The send queues: whose turn it is, and what it does."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ..abi.commands import QpAction
from ..abi.contexts import QP_CONTEXT
from ..queue.ring import BATCH, RingIndex, RingStatus, word_address
from ..stream.connections import told
from ..stream.packet import PacketBeat
from ..stream.table import Table
from ..stream.transfer import AccessRequest, AttributeWrite, QpControl
from .admission import AdmissionCheck
from .announcements import Announcements, Reply, Said
from .layouts import Departure, DepartureKind, Failure, Flush, Outstanding, Progress
from .orders import Order, Orders
from .psn import Sent
from .segmenter import ReadBegun, Segmenter
from .send_state import BLOCKS_BITS, Phase, SendStates, StateChange
from .turn import Turn, TurnChoice

__all__ = ["Requester"]

LARGE_BITS = 10
"""From 2**10 bytes on a packet counts as large: only of those one too many would matter."""


class Requester(wiring.Component):
    """Turns send WQEs into packets, one packet of one QP a turn: RC SEND and RDMA WRITE, with and without immediate,
    RDMA READ and atomics.

    A QP index from ``ready`` is one turn. If its QP has more to do afterwards, the index goes to ``again``, so that a
    long message and other QPs alternate. The next turn reads its QP's state while the present one cuts its packet.

    *Cycles*: 10 a packet if several QPs are ready, 11 for the last of a message; 14 if only one is and ``again`` comes
    back after 1. From ``ready`` to ``access`` 10; to ``packet`` 11, and 12 at the end of a message. A further
    scatter/gather entry costs 2 or 3 more, 8 bytes of inline data 1, an atomic's operands 2. A turn that sends
    nothing takes 4, or 5.

    *Buffering*: 16 accesses and 16 words of inline data. A packet is not begun before the header of the one before has
    been taken, and its message by ``outstanding``.

    *A message starts* in state RTS if fewer than ``window`` are not complete. When its WQE is begun for the first time
    further conditions hold: with FENCE no READ or atomic is outstanding; a READ or atomic has fewer than
    ``max_rd_atomic`` and fewer than 16 before it; a message that needs a receive WQE has a credit, or nothing is
    outstanding. And no packet is sent 2**22 PSNs ahead of the first that is not acknowledged, nor while the peer is
    waited for after an RNR NAK. If it may not start the turn ends without ``again``, and whoever moves ``progress``
    must put the QP on ``ready`` once more. In SQD what was sent before goes on to the end of its message. In ERR a turn
    gives up all fetched WQEs (all posted ones, if the ring cannot be read) and says so on ``flush``. In other states it
    does nothing.

    *Retries*: ``retry`` has the ring rewound to the oldest WQE that is not complete, with ``rewind``, and puts a VOID
    departure with a run with ``clear`` behind all packets. After ``rewound`` the QP passes over what has been completed
    meanwhile, one WQE a turn, and goes on at the first PSN that is not acknowledged, which may lie inside of a message,
    and of a READ: it asks for the rest. A WQE that is sent again is not told of again.

    *Errors*: a malformed WQE, or a ring in error, goes to ``failed``, and the QP sends nothing more until RESET or a
    retry. Of a malformed WQE's packet nothing comes out; earlier packets of its message may have.

    *Control*: RESET zeroes the state, and puts a REQUEST_TOKEN and a run with ``clear`` behind all packets; START_SEND
    sets the PSN; ERROR and RESUME put the QP on ``again``; DRAIN, too, and no message starts from then on: when none is
    under way, that is said on ``flush``, unless RESUME or START_SEND comes before. QUERY answers on ``reply``. All wait
    for the packet under way; the QP's attributes must be written before.

    Parameters
    ----------
    qps : int
        QPs, a power of two.
    window : int
        Most messages of a QP that are begun and not complete, a power of two.
    data_width : int
        64, 128, 256 or 512 bits: width of ``inline``.
    blocks : int
        Blocks of fetched WQEs, a power of two.

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
    places
        Two cycles after ``status_qp``: the blocks in which the QP's next WQEs stand.
    reading, reading_qp : 1, 12
        WQEs of this QP are being read, or are about to be ``consumed``; that at ``status_qp`` not counted.
    wanted : stream of QP index
        The QP, whose turn it is, has come to the end of what is fetched.
    word_addr, word : ``{word, block}``, 64
        Words of fetched WQEs, two cycles later.
    consumed : stream of ``{qp, index}``
        WQEs before ``index`` need not be kept.
    rewind, rewound : stream of ``{qp, index}``
        The ring is to be fetched again from ``index`` on; it is.
    progress_qp, progress : 12, ``Progress``
        How far the peer is, one cycle later.
    retry : stream of QP index
        Taken when nothing is under way: who says it must meanwhile take what the requester says.
    packet : stream of ``Departure``; access : stream of ``AccessRequest``; inline : stream of ``PacketBeat``
        Packets; for each a run of accesses, and with source INLINE a packet of inline data.
    outstanding : stream of ``Outstanding``
        Taken before the last packet of its message comes out for the first time.
    reads : stream of ``{qp, slot, again, target}``
        A READ or atomic, likewise; and each time that the rest of a READ is asked for, with ``again``.
    sent, sent_en : ``Sent``
        The last PSN that a packet stands for, before the packet comes out; unless one at or behind it was said before.
    failed : stream of ``Failure``; flush : stream of ``Flush``
    hold : 1
        Packets enough wait for their payload: a turn that would send is put off, and its QP goes to ``again``. It may
        come 4 cycles behind the packet that causes it, if that has at least 1024 bytes.
    count_stall_window : 1
        A turn found the window closed.
    """

    def __init__(self, qps, window=64, data_width=64, blocks=32):
        if qps < 2 or qps & qps - 1:
            raise ValueError(f"qps must be a power of two, at least 2, not {qps!r}")
        if window < 2 or window & window - 1 or window > 1 << 14:
            raise ValueError(f"window must be a power of two from 2 to 16384, not {window!r}")
        self.qps = qps
        self.window = window
        self.data_width = data_width
        self.blocks = blocks
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
                "places": In(data.ArrayLayout(ceil_log2(blocks), 2)),
                "reading": Out(1),
                "reading_qp": Out(12),
                "wanted": Out(stream.Signature(12)),
                "word_addr": Out(word_address(blocks, BATCH)),
                "word": In(64),
                "consumed": Out(stream.Signature(RingIndex)),
                "rewind": Out(stream.Signature(RingIndex)),
                "rewound": In(stream.Signature(RingIndex)),
                "progress_qp": Out(12),
                "progress": In(Progress),
                "retry": In(stream.Signature(range(qps))),
                "packet": Out(stream.Signature(Departure)),
                "access": Out(stream.Signature(AccessRequest)),
                "inline": Out(stream.Signature(PacketBeat(data_width))),
                "outstanding": Out(stream.Signature(Outstanding)),
                "reads": Out(stream.Signature(ReadBegun)),
                "sent": Out(Sent),
                "sent_en": Out(1),
                "failed": Out(stream.Signature(Failure)),
                "flush": Out(stream.Signature(Flush)),
                "hold": In(1),
                "count_stall_window": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        names = ("state", "type", "path_mtu", "pd", "log_sq_stride", "max_rd_atomic")
        m.submodules.table = table = Table(QP_CONTEXT, names, self.qps)
        m.submodules.states = states = SendStates(self.qps)
        m.submodules.orders = orders = Orders(self.qps)
        m.submodules.admission = admission = AdmissionCheck()
        m.submodules.choice = choice = TurnChoice(self.window)
        m.submodules.segmenter = segmenter = Segmenter(self.data_width, self.blocks)
        m.submodules.announcements = announcements = Announcements(self.qps)
        for name in ("ready", "control", "retry", "rewound"):
            wiring.connect(m, wiring.flipped(getattr(self, name)), getattr(orders, name))
        for name in ("packet", "access", "inline", "outstanding", "reads"):
            wiring.connect(m, getattr(segmenter, name), wiring.flipped(getattr(self, name)))
        for name in Said.members:
            wiring.connect(m, getattr(announcements, name), wiring.flipped(getattr(self, name)))
        state, row, torn = states.row, table.row, table.torn
        segment = segmenter.i

        # -- A turn, or an order, reads everything about its QP; `at` is its address while it does.
        at, qp = Signal(range(self.qps)), Signal(range(self.qps))
        status = Signal(RingStatus)
        progress = Signal(Progress)
        settled = Signal()  # nothing of a packet is under way, and what it reported is taken
        idle, was_idle, was_busy = Signal(), Signal(), Signal()
        changed = Signal()  # in the last cycle, and the state is not to be read in this one
        behind = Signal()  # a packet of the QP that is looked up was just under way
        m.d.sync += [
            was_idle.eq(idle),
            was_busy.eq(segmenter.busy),
            changed.eq(states.change_en),
            behind.eq(was_busy & (segmenter.qp == at)),
        ]
        m.d.comb += [
            table.write.eq(self.attribute),
            table.write_en.eq(self.attribute_en),
            table.index.eq(at),
            states.at.eq(at),
            self.status_qp.eq(at),
            self.progress_qp.eq(at),
            segmenter.places.eq(self.places),
            self.reading.eq(segmenter.busy),
            self.reading_qp.eq(segmenter.qp),
            self.wanted.payload.eq(qp),
            self.word_addr.eq(segmenter.word_address),
            segmenter.word.eq(self.word),
            idle.eq(settled & ~segmenter.busy),
            orders.idle.eq(idle),
            orders.rewind_free.eq(~self.rewind.valid),
            orders.reply_free.eq(~self.reply.valid),
            at.eq(qp),
        ]

        # -- What may be done, from the registers that the reading left.
        todo, started = Signal(Turn), Signal()
        skipped = Signal(BLOCKS_BITS)  # of the message, those that are acknowledged
        steps = Signal(4)
        m.d.comb += [
            admission.state.eq(state),
            admission.progress.eq(progress),
            admission.max_rd_atomic.eq(row.max_rd_atomic),
            choice.state.eq(state),
            choice.status.eq(status),
            choice.qp_state.eq(row.state),
            choice.waiting.eq(progress.waiting),
            choice.draining.eq(states.draining),
            choice.oldest.eq(progress.oldest),
            choice.fresh.eq(admission.o.fresh),
            segment.payload.qp.eq(qp),
            segment.payload.state.eq(state),
            segment.payload.admission.eq(admission.o),
            segment.payload.path_mtu.eq(row.path_mtu),
            segment.payload.type.eq(row.type),
            segment.payload.pd.eq(row.pd),
            segment.payload.large.eq(row.log_sq_stride[0]),
            states.packet_en.eq(segmenter.done),
            states.of_packet.eq(was_busy),
            states.packet_qp.eq(segmenter.qp),
            states.packet.eq(segmenter.next),
            states.newest.eq(segmenter.begun),
            states.fresh.eq(segmenter.fresh),
            states.qp.eq(qp),
            states.operand.eq(orders.operand),
            states.target.eq(Mux(status.error, status.producer, status.fetched)),
            states.unacked.eq(progress.unacked),
            states.skipped.eq(skipped),
        ]
        with m.If(orders.order == Order.TURN):
            m.d.comb += segment.payload.kind.eq(DepartureKind.REQUEST)
        with m.Elif(orders.order == Order.CONTROL):
            m.d.comb += segment.payload.kind.eq(DepartureKind.REQUEST_TOKEN)
        with m.Else():
            m.d.comb += segment.payload.kind.eq(DepartureKind.VOID)

        # -- What is said, by the packet or by this side.
        several = Signal()  # there will be something to do behind the packet being cut
        end = announcements.packet
        told(m, segmenter, end, "qp", "syndrome", "more", "ended", "failed", "done", "good", "lost")
        m.d.comb += [
            end.index.eq(segmenter.next.index),
            announcements.several.eq(several),
            announcements.of_packet.eq(was_busy),
            announcements.qp.eq(qp),
            announcements.state.eq(state),
            announcements.status.eq(status),
            announcements.progress.eq(progress),
            announcements.target.eq(states.target),
            announcements.todo.eq(todo),
            settled.eq(announcements.settled),
            self.sent.qp.eq(segmenter.qp),
            self.sent.psn.eq(segmenter.last_psn),
            self.sent_en.eq(segmenter.done & segmenter.fresh),
        ]
        held = Signal()
        uncounted = Signal(2)  # cycles until `hold` counts the packet that has left
        with m.If(self.packet.valid & self.packet.ready & (self.packet.payload.transport.length[LARGE_BITS:] != 0)):
            m.d.sync += uncounted.eq(~0)
        with m.Elif(uncounted != 0):
            m.d.sync += uncounted.eq(uncounted - 1)
        m.d.comb += held.eq(self.hold | (uncounted != 0))

        def say(*names):
            m.d.comb += [announcements.say[name].eq(1) for name in names]

        def change(what):
            m.d.comb += [states.change_en.eq(1), states.change.eq(what)]

        with m.FSM():
            with m.State("IDLE"):
                m.d.comb += [orders.open.eq(~changed), at.eq(orders.qp)]
                m.d.sync += qp.eq(orders.qp)
                with m.If(orders.take):
                    m.next = "READ"
            with m.State("READ"):
                m.d.sync += [status.eq(self.status), progress.eq(self.progress)]
                with m.If((was_busy & (segmenter.qp == qp)) | behind):
                    m.next = "BEHIND"
                with m.Elif(torn[0]):
                    m.next = "READ"
                with m.Else(), m.Switch(orders.order):
                    for order in Order:
                        with m.Case(order):
                            m.next = order.name
            with m.State("BEHIND"):
                # A packet of the QP is under way, and what was read may be older than it.
                with m.If(~was_busy):
                    m.next = "READ"
            with m.State("CONTROL"):
                m.next = "IDLE"
                with m.Switch(orders.action):
                    with m.Case(QpAction.RESET):
                        change(StateChange.RESET)
                        m.d.comb += [segment.valid.eq(1), states.drain_en.eq(1)]
                        with m.If(~segment.ready):
                            m.next = "CONTROL"
                    with m.Case(QpAction.START_SEND):
                        change(StateChange.START)
                        m.d.comb += states.drain_en.eq(1)
                    with m.Case(QpAction.DRAIN):
                        m.d.comb += [states.drain.eq(1), states.drain_en.eq(1)]
                        say("again")
                    with m.Case(QpAction.RESUME):
                        m.d.comb += states.drain_en.eq(1)
                        say("again")
                    with m.Case(QpAction.ERROR):
                        say("again")
                    with m.Case(QpAction.QUERY):
                        say("reply")
            with m.State("RETRY"):
                m.next = "IDLE"
                with m.If(torn[1]):
                    m.next = "RETRY"
                with m.Elif(choice.alive & (state.phase != Phase.REWINDING)):
                    m.d.comb += segment.valid.eq(1)
                    with m.If(segment.ready):
                        change(StateChange.REWIND)
                        say("rewind")
                    with m.Else():
                        m.next = "RETRY"
            with m.State("REWOUND"):
                # The turn is for a QP in ERR, too: what was said to be consumed meanwhile did not count.
                say("again")
                m.next = "IDLE"
                with m.If(state.phase == Phase.REWINDING):
                    change(StateChange.REWOUND)
            with m.State("TURN"):
                # A packet is begun before it is known whether it is to be sent: that takes the whole cycle.
                m.d.comb += segment.valid.eq(settled & ~held)
                m.d.sync += started.eq(settled & ~held & segment.ready)
                m.next = "DECIDE"
            with m.State("DECIDE"):
                m.d.comb += segmenter.cancel.eq(started & ~choice.send)
                m.d.sync += todo.eq(choice.o)
                with m.If(choice.send & started):
                    m.d.sync += several.eq(choice.several)
                    m.next = "IDLE"
                with m.Elif(choice.send):
                    m.next = "START"
                with m.Else():
                    m.next = "ACT"
            with m.State("START"):
                m.d.comb += segment.valid.eq(settled & ~held & ~torn[1])
                with m.If(torn[1]):
                    pass
                with m.Elif(held):
                    with m.If(was_idle & (uncounted == 0)):  # otherwise its turn would always be too early
                        say("again")
                        m.next = "IDLE"
                with m.Elif(settled & segment.ready):
                    m.d.sync += several.eq(choice.several)
                    m.next = "IDLE"
            with m.State("ACT"):  # what is rarer has a cycle of its own
                m.d.sync += [
                    skipped.eq(progress.unacked - progress.first),
                    steps.eq(row.path_mtu),
                ]
                with m.If((was_idle | (todo == Turn.NOTHING)) & ~torn[1]):
                    m.next = "IDLE"
                    with m.Switch(todo):
                        with m.Case(Turn.GIVE_UP):
                            change(StateChange.GIVE_UP)
                            m.d.comb += states.drain_en.eq(1)
                            say("flush", "consumed")
                        with m.Case(Turn.RESUME):
                            m.next = "RESUME"
                        with m.Case(Turn.PASS):
                            change(StateChange.PASS)
                            say("consumed", "again")
                        with m.Case(Turn.DRAINED):
                            m.d.comb += states.drain_en.eq(1)
                            say("flush")
                        with m.Case(Turn.CLOSED):
                            m.d.comb += self.count_stall_window.eq(1)
                        with m.Case(Turn.BROKEN):
                            change(StateChange.HALT)
                            say("failed")
                        with m.Default():
                            m.d.comb += self.wanted.valid.eq(status.producer != status.fetched)
                            with m.If(self.wanted.valid & ~self.wanted.ready):
                                m.next = "ACT"
            with m.State("RESUME"):
                # A packet is 256 bytes, twice that for each step: nobody waits for this.
                with m.If(steps[1:] != 0):
                    m.d.sync += [skipped.eq(skipped << 1), steps.eq(steps - 1)]
                with m.Else():
                    change(StateChange.RESUME)
                    say("again")
                    m.next = "IDLE"
        return m
