"""The send queues: whose turn it is, and what it does."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ...abi.commands import QpAction
from ...abi.contexts import QP_CONTEXT, QpState, QpType
from ...abi.wqe import WQE_DEFAULT
from ...context.bank import ContextBank
from ...context.fetch import ContextFetch
from ...memory.key_operations import KEY_CLIENT
from ...queue.ring import RingIndex, RingStatus, send_batch, word_address
from ...stream.arbiter import FirstArbiter
from ...stream.connections import connect_signals, link
from ...stream.packet import PacketBeat
from ...stream.transfer import AccessRequest, AttributeWrite, QpControl
from ...stream.waiting_set import WaitingSet
from ...stream.words import WORD_BITS, SavedWord
from ..common.layouts import Departed, Failure, Flush, Outstanding, Progress, TxDescriptor, TxDescriptorKind, UdRoute
from ..common.psn import Sent, psn_next
from .admission import AdmissionCheck
from .pending_operations import OPERATIONS, PendingOperations
from .requester_arbiter import RequesterArbiter, RequesterEvent, RequesterItem
from .requester_context import BLOCKS_BITS, Phase, RequesterContext, RequesterContextUpdate, StateChange
from .requester_outputs import OutputStrobes, Reply, RequesterOutputs
from .requester_swap import RequesterSwap
from .segmenter import ReadBegun, Segmenter
from .send_decision import SendAction, SendDecision, window_closed
from .turn_hold import TurnHold

__all__ = ["Requester"]

ATTRIBUTES = ("state", "type", "path_mtu", "pd", "log_sq_stride", "max_rd_atomic")
"""Fields of the QP context that count for requests."""

KEY_PORTS = KEY_CLIENT | {
    "local": Out(stream.Signature(Departed)),
    "operating": Out(1).array(OPERATIONS),
    "operating_qp": Out(12).array(OPERATIONS),
}
"""For WQEs that change MPT entries."""

ROWS = 2
"""Rows of block RAM for each context: 4 would take 2 block RAMs less, and 2 cycles more from doorbell to wire."""


class Requester(wiring.Component):
    """Turns send WQEs into packets, one packet of one QP a turn: SEND and RDMA WRITE, with and without immediate, of RC
    and UC, SEND of UD, RDMA READ and atomics of RC.

    A QP index from ``ready`` is one turn. If its QP has more to do afterwards, the index goes to ``again``, so that a
    long message and other QPs alternate. What there is to do, turns and all else, is done one after the other, and the
    next one's context is fetched meanwhile (:class:`verbena.hdl.context.fetch.ContextFetch`); that of the present one
    is written back when it is done.

    *Cycles*: 10 a packet, whether several QPs are ready or one, if ``again`` comes back after 1. From ``ready`` to
    ``access`` 11; to ``packet`` 12, and 13 at the end of a message. A further scatter/gather entry costs 2 or 3 more, 8
    bytes of inline data 1, an atomic's operands 2. A turn that sends nothing takes 6, most of which falls into the
    packet before.

    *Buffering*: 16 accesses and 16 words of inline data. A packet is not begun before the header of the one before has
    been taken, and its message by ``outstanding``.

    *A message starts* in state RTS if fewer than ``window`` are not complete. When its WQE is begun for the first time
    further conditions hold: with FENCE no READ or atomic is outstanding; a READ or atomic has fewer than
    ``max_rd_atomic`` and fewer than 16 before it; a message that needs a receive WQE has a credit, or nothing is
    outstanding. And no packet is sent 2**22 PSNs ahead of the first that is not acknowledged, nor while the peer is
    waited for after an RNR NAK. If a message may not start, the turn ends and the QP does not go to ``again``: the
    completer puts it on ``ready`` when it changes ``progress``. In SQD what was sent before goes on to the end of its
    message. In ERR a turn gives up all fetched WQEs (all posted ones, if the ring cannot be read) and says so on
    ``flush``. In other states it does nothing.

    *Retries*: ``retry`` has the ring rewound to the oldest WQE that is not complete, with ``rewind``, and puts a VOID
    TX descriptor with a run with ``clear`` behind all packets. After ``rewound`` the QP passes over what has been
    completed meanwhile, one WQE a turn, and goes on at the first PSN that is not acknowledged, which may lie inside of
    a message, and of a READ: it asks for the rest. A WQE that is sent again is not told of again.

    *Operations on keys* (``keys``): a WQE that changes an MPT entry has no packet and no PSN. It begins when all before
    it are complete, once, so going back does not repeat it; and those behind it wait until it is complete. Other QPs
    go on, also with their own operations, of which :data:`.pending_operations.OPERATIONS` are under way at a time: who
    has to wait for the end of one comes on ``resumed`` then. Tokens of its QP wait for it, and others behind them.

    *Errors*: a malformed WQE, or a ring in error, goes to ``failed``, and the QP sends nothing more until RESET or a
    retry. Of a malformed WQE's packet nothing comes out; earlier packets of its message may have.

    *Control*: RESET zeroes the state, and puts a REQUEST_TOKEN and a run with ``clear`` behind all packets; START_SEND
    sets the PSN; ERROR and RESUME put the QP on ``again``; DRAIN, too, and no message starts from then on: when none is
    under way, that is said on ``flush``, unless RESUME or START_SEND comes before. QUERY answers on ``reply``. All wait
    for the packet under way; the QP's attributes must be written before.

    *A QP that goes and comes* (``swaps``): STOP puts the same behind all packets as RESET, and from then on no turn of
    the QP has any effect, whatever its state; retries and rewound rings have, since the QP goes on with them later.
    SAVE, behind STOP, gives the state away, and leaves the QP stopped. It is taken when none of its retries can come
    any more, and its words go later. LOAD is taken when its words have come; the QP has the state that was given away,
    and goes to ``again``. The ring must then be where it was, and ``progress`` be told. RESET leaves a QP stopped, too,
    until START_SEND, ERROR or LOAD: turns find nothing while another QP gets ready to come in its place.

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
    uc, ud, raw : bool
        There are QPs of type UC, of type UD, of type RAW_PACKET.
    swaps : bool
        There are STOP, SAVE and LOAD.
    gids : bool
        There is a table of GIDs.
    keys : bool
        There are WQEs that change MPT entries, and SENDs with invalidate.
    wqe_bytes : int
        Bytes of the largest WQE.

    Members
    -------
    ready, again : stream of QP index
        Turns. The index on ``again`` is not to be taken from ``ready`` in the cycle in which it appears.
    control : stream of ``QpControl``; reply : stream of ``{psn, index}``
        ``reply`` stays until it is taken, and holds up further QUERYs only.
    saved : stream of ``SavedWord``; loaded : stream of words
        With ``swaps``, see :class:`.requester_swap.RequesterSwap`. Other QPs do not wait for them.
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
    progress_qp, progress, progress_en : 12, ``Progress``, 1
        How far the peer is from now on: the completer says so before it puts the QP on ``ready``.
    retry : stream of QP index
        Taken when nothing is under way: who says it must meanwhile take what the requester says.
    packet : stream of ``TxDescriptor``; access : stream of ``AccessRequest``; inline : stream of ``PacketBeat``
        Packets; for each a run of accesses, and with source INLINE a packet of inline data.
    route : stream of ``UdRoute``
        With ``gids``, of UD: taken before the packet comes out.
    outstanding : stream of ``Outstanding``
        Taken before the last packet of its message comes out for the first time.
    reads : stream of ``{qp, again, target}``
        A READ or atomic, likewise; and each time that the rest of a READ is asked for, with ``again``.
    read_allowance : 4
        A QP with no more READs and atomics than this outstanding may begin one. Counts ``reads`` from the cycle after
        they are taken.
    sent, sent_en : ``Sent``
        The last PSN that a packet stands for, before the packet comes out; unless one at or behind it was said before.
        With START_SEND, the PSN before the first one; with LOAD, that which was said last. Not in two cycles in
        succession.
    failed : stream of ``Failure``; flush : stream of ``Flush``
    operation : stream of ``KeyRequest``; operated : stream of ``KeyResult``
        With ``keys``: what a WQE does to an MPT entry, and what came of it, which goes to ``local`` or ``failed``.
    local : stream of ``Departed``
        With ``keys``: that went well, and nobody will acknowledge it. ``psn`` is that of the packet before.
    resumed : stream of QP index
        With ``keys``: turns of those who wait for the end of another QP's operation.
    busy, busy_qp : 1, 12
        With ``swaps``: something is done for this QP. A token behind it waits.
    operating, operating_qp : arrays of ``OPERATIONS``, of 1 and 12
        With ``keys``: an operation of this QP is under way. A token behind it waits.
    hold : 1
        Packets enough wait for their payload: a turn that would send is put off, and its QP goes to ``again``
        (:class:`.turn_hold.TurnHold`).
    count_stall_window : 1
        A turn found the window closed.
    """

    def __init__(
        self,
        qps,
        window=64,
        data_width=64,
        blocks=32,
        *,
        uc=True,
        ud=True,
        raw=False,
        swaps=False,
        gids=False,
        keys=False,
        wqe_bytes=WQE_DEFAULT,
    ):
        if qps < 2 or qps & qps - 1:
            raise ValueError(f"qps must be a power of two, at least 2, not {qps!r}")
        if window < 2 or window & window - 1 or window > 1 << 14:
            raise ValueError(f"window must be a power of two from 2 to 16384, not {window!r}")
        self.qps = qps
        self.window = window
        self.data_width = data_width
        self.blocks = blocks
        self.uc = uc
        self.ud = ud
        self.raw = raw
        self.swaps = swaps
        self.gids = gids
        self.keys = keys
        self.wqe_bytes = wqe_bytes
        swap = {"saved": Out(stream.Signature(SavedWord)), "loaded": In(stream.Signature(WORD_BITS))}
        swap |= {"busy": Out(1), "busy_qp": Out(12)}
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
                "word_addr": Out(word_address(blocks, send_batch(wqe_bytes))),
                "word": In(64),
                "consumed": Out(stream.Signature(RingIndex)),
                "rewind": Out(stream.Signature(RingIndex)),
                "rewound": In(stream.Signature(RingIndex)),
                "progress_qp": In(12),
                "progress": In(Progress),
                "progress_en": In(1),
                "retry": In(stream.Signature(range(qps))),
                "packet": Out(stream.Signature(TxDescriptor)),
                "access": Out(stream.Signature(AccessRequest)),
                "inline": Out(stream.Signature(PacketBeat(data_width))),
                "outstanding": Out(stream.Signature(Outstanding)),
                "reads": Out(stream.Signature(ReadBegun)),
                "read_allowance": In(4, init=15),
                "sent": Out(Sent),
                "sent_en": Out(1),
                "failed": Out(stream.Signature(Failure)),
                "flush": Out(stream.Signature(Flush)),
                "hold": In(1),
                "count_stall_window": Out(1),
            }
            | (swap if swaps else {})
            | ({"route": Out(stream.Signature(UdRoute))} if gids else {})
            | (KEY_PORTS | {"resumed": Out(stream.Signature(range(qps)))} if keys else {})
        )

    def _stride(self, attributes):
        """log2 of how many times a WQE has 64 bytes: ``log_sq_stride``, 6 to 9, less 6."""
        low, high = attributes.log_sq_stride[:2]
        return Cat(low, ~high) if self.wqe_bytes > 128 else low

    def elaborate(self, platform):
        m = Module()
        states = {"send": RequesterContext, "progress": Progress}
        bank = ContextBank(QP_CONTEXT, ATTRIBUTES, states, self.qps, ROWS)
        m.submodules.fetch = fetch = ContextFetch(RequesterItem, bank, others=("progress",), follows=("oldest",))
        m.submodules.update = update = RequesterContextUpdate(swaps=self.swaps)
        m.submodules.arbiter = arbiter = RequesterArbiter(self.qps)
        m.submodules.admission = admission = AdmissionCheck()
        m.submodules.decision = decision = SendDecision(self.window, swaps=self.swaps)
        m.submodules.segmenter = segmenter = Segmenter(
            self.data_width, self.blocks, self.gids, keys=self.keys, wqe_bytes=self.wqe_bytes
        )
        m.submodules.outputs = outputs = RequesterOutputs(self.qps)
        m.submodules.turn_hold = turn_hold = TurnHold(self.qps)
        sources = {name: wiring.flipped(getattr(self, name)) for name in ("ready", "control", "retry", "rewound")}
        if self.swaps:
            m.submodules.swap = swap = self._connect_swap(m, sources)
        for name, source in sources.items():
            wiring.connect(m, source, getattr(arbiter, name))
        names = ("operation",) if self.keys else ()
        names += ("route",) if self.gids else ()
        for name in ("packet", "access", "inline", "outstanding", "reads", *names):
            wiring.connect(m, getattr(segmenter, name), wiring.flipped(getattr(self, name)))
        for name in OutputStrobes.members:
            if not self.keys or name != "failed":
                wiring.connect(m, getattr(outputs, name), wiring.flipped(getattr(self, name)))
        wiring.connect(m, arbiter.o, fetch.i)
        segment = segmenter.i

        # -- What there is to do, and what is known of its QP, until it is `done`.
        here, done = fetch.o.payload, Signal()
        qp, event, action, attributes = here.slot, here.item.event, here.item.action, here.attributes
        if self.swaps:
            m.d.comb += [self.busy.eq(fetch.o.valid), self.busy_qp.eq(qp)]
        operates = Signal()  # an operation of the QP is under way, as of a cycle ago
        if self.keys:
            theirs = zip(self.operating, self.operating_qp, strict=True)
            m.d.sync += operates.eq(Cat(busy & (its == qp) for busy, its in theirs).any())
            self._operate(m, segmenter, outputs)
        state, progress, status = here.states.send, here.states.progress, self.status
        starts = Signal()  # nothing has been sent from the PSN on with which it is to start
        settled = Signal()  # nothing of a packet is under way, and what it reported is taken
        idle, was_idle = Signal(), Signal()
        placed = Signal()  # `places` are those of the QP
        of_packet = Signal()
        m.d.sync += [was_idle.eq(idle), placed.eq(~done | of_packet)]
        m.d.comb += [
            fetch.attribute.eq(self.attribute),
            fetch.attribute_en.eq(self.attribute_en),
            fetch.other.progress.slot.eq(self.progress_qp),
            fetch.other.progress.data.eq(self.progress),
            fetch.other.progress.en.eq(self.progress_en),
            # What a turn decides on must not change meanwhile. A ring goes back to what is the oldest WQE now.
            fetch.follow.eq(event == RequesterEvent.RETRY),
            fetch.o.ready.eq(done),
            # While a packet is cut nobody wants to know of its own ring. A fetch takes long enough for what comes.
            self.status_qp.eq(Mux(fetch.o.valid & ~of_packet & ~done, qp, fetch.fetching.slot)),
            segmenter.places.eq(self.places),
            self.reading.eq(segmenter.busy),
            self.reading_qp.eq(segmenter.qp),
            self.wanted.payload.eq(qp),
            self.word_addr.eq(segmenter.word_address),
            segmenter.word.eq(self.word),
            idle.eq(settled & ~segmenter.busy),
        ]
        coming = fetch.coming.item.event
        for port, free, kind in (
            (self.rewind, arbiter.rewind_free, RequesterEvent.RETRY),
            (self.reply, arbiter.reply_free, RequesterEvent.CONTROL),
        ):
            m.d.sync += free.eq(~(port.valid | (fetch.o.valid & (event == kind)) | (coming == kind)))

        # -- What may be done.
        held = turn_hold.held
        what, started = Signal(SendAction), Signal()
        datagram = (attributes.type == QpType.UD) & self.ud
        frame = (attributes.type == QpType.RAW_PACKET) & self.raw
        unreliable = ((attributes.type == QpType.UC) & self.uc) | datagram | frame
        skipped = Signal(BLOCKS_BITS)  # of the message, those that are acknowledged
        steps = Signal(4)
        m.d.comb += [
            admission.state.eq(state),
            admission.progress.eq(progress),
            admission.max_rd_atomic.eq(attributes.max_rd_atomic),
            admission.read_allowance.eq(self.read_allowance),
            decision.state.eq(state),
            decision.status.eq(status),
            decision.qp_state.eq(attributes.state),
            decision.waiting.eq(progress.waiting),
            decision.oldest.eq(progress.oldest),
            decision.fresh.eq(admission.o.fresh),
            segment.payload.qp.eq(qp),
            segment.payload.state.eq(state),
            segment.payload.admission.eq(admission.o),
            segment.payload.path_mtu.eq(attributes.path_mtu),
            segment.payload.connected.eq((attributes.type == QpType.RC) | unreliable),
            segment.payload.unreliable.eq(unreliable),
            segment.payload.datagram.eq(datagram),
            segment.payload.raw.eq(frame),
            admission.unreliable.eq(unreliable),
            segment.payload.pd.eq(attributes.pd),
            segment.payload.stride.eq(self._stride(attributes)),
            update.state.eq(state),
            update.operand.eq(here.item.operand),
            outputs.target.eq(Mux(status.error, status.producer, status.fetched)),
            update.unacked.eq(progress.unacked),
            update.skipped.eq(skipped),
        ]
        if self.swaps:
            m.d.comb += [
                swap.state.eq(state),
                swap.state.stopped.eq(0),
                swap.wake.eq(self._has_work(attributes.state, state, progress, status)),
                update.loaded.eq(swap.value),
            ]
        # The WQE is read while its QP's context comes out of the fetch, or while the packet before leaves.
        preview = fetch.preview
        m.d.comb += [
            segmenter.ahead_index.eq(Mux(fetch.o.valid, state.index, preview.states.send.index)),
            segmenter.ahead_stride.eq(Mux(fetch.o.valid, self._stride(attributes), self._stride(preview.attributes))),
        ]
        restarts = Signal()
        m.d.sync += restarts.eq(action == QpAction.RESTART_SEND)
        if self.ud:
            types = (attributes.type, preview.attributes.type)
            m.d.comb += segmenter.ahead_datagram.eq(Mux(fetch.o.valid, *(each == QpType.UD for each in types)))
        empty, calm = Signal(), Signal()  # nothing was there one and two cycles ago: `places` are those of what comes
        m.d.sync += [empty.eq(~fetch.o.valid), calm.eq(empty & ~fetch.o.valid & segment.ready & settled & ~held)]
        with m.If(~fetch.o.valid):
            is_turn = fetch.fetching.item.event == RequesterEvent.TURN
            m.d.comb += segmenter.ahead.eq(fetch.moves & is_turn & calm)
        with m.If(event == RequesterEvent.TURN):
            m.d.comb += segment.payload.kind.eq(TxDescriptorKind.REQUEST)
        with m.Elif((event == RequesterEvent.CONTROL) & ~restarts):
            m.d.comb += segment.payload.kind.eq(TxDescriptorKind.REQUEST_TOKEN)
        with m.Else():
            m.d.comb += segment.payload.kind.eq(TxDescriptorKind.VOID)

        # -- What is said, by the packet or by this side.
        several = Signal()  # there will be something to do behind the packet being cut
        said = Signal()  # that has been said
        end = outputs.packet
        connect_signals(m, segmenter, end, "syndrome", "status", "ended", "failed", "done", "good", "lost")
        m.d.comb += [
            end.more.eq((segmenter.more | several) & ~said),
            outputs.of_packet.eq(of_packet),
            outputs.qp.eq(qp),
            outputs.state.eq(state),
            outputs.status.eq(status),
            outputs.progress.eq(progress),
            outputs.action.eq(what),
            settled.eq(outputs.settled),
            self.sent.qp.eq(qp),
            self.sent.psn.eq(psn_next(fetch.write.send.data.top_psn, -1)),
            self.sent_en.eq(starts | (segmenter.done & segmenter.fresh)),
        ]
        m.d.comb += [
            turn_hold.hold.eq(self.hold),
            turn_hold.left.eq(self.packet.valid & self.packet.ready),
            turn_hold.length.eq(self.packet.payload.transport.length),
            turn_hold.here.eq(fetch.o.valid),
            turn_hold.qp.eq(qp),
        ]

        def strobe(*names):
            m.d.comb += [outputs.strobe[name].eq(1) for name in names]

        def begin(may):
            """A packet is begun before it is known whether it is to be sent: that takes the whole cycle."""
            m.d.comb += segment.valid.eq(may)
            m.d.sync += started.eq(segment.valid & segment.ready)

        changes, takes, written = Signal(), Signal(), Signal()

        def change(to):
            m.d.sync += update.change.eq(to)
            m.next = "CHANGE"

        def last_of_all(to):
            """A token goes behind all packets, and the state changes."""
            m.d.comb += segment.valid.eq(1)
            change(to)
            with m.If(~segment.ready):
                m.next = "CONTROL"

        # Behind a packet the state is written back at once; else it is changed, and taken in a cycle of its own. The
        # change is made once more then, which is the same.
        write = fetch.write.send
        m.d.sync += written.eq(changes)
        m.d.comb += [
            write.change.eq(changes),
            write.en.eq((of_packet & segmenter.done) | (takes & written)),
            done.eq((of_packet & (segmenter.done | ~segmenter.busy)) | takes),
        ]
        m.d.comb += write.data.eq(Mux(of_packet, segmenter.next, update.o))
        with m.FSM():
            with m.State("IDLE"):
                m.d.sync += said.eq(0)
                with m.If(fetch.o.valid), m.Switch(event):
                    with m.Case(RequesterEvent.TURN):
                        begin(settled & ~held & placed)
                        m.d.comb += segmenter.ahead.eq(placed & ~segment.ready & ~segmenter.busy)
                        m.next = "DECIDE"
                    for other in (event for event in RequesterEvent if event is not RequesterEvent.TURN):
                        with m.Case(other), m.If(idle):
                            m.next = other.name
            with m.State("CONTROL"), m.If(~operates):
                m.next = "TAKE"
                with m.Switch(action):
                    with m.Case(QpAction.RESET):
                        last_of_all(StateChange.RESET)
                    with m.Case(QpAction.START_SEND):
                        change(StateChange.START)
                    with m.Case(QpAction.DRAIN):
                        change(StateChange.DRAIN)
                        strobe("again")
                    with m.Case(QpAction.RESUME):
                        change(StateChange.DRAIN_ENDS)
                        strobe("again")
                    with m.Case(QpAction.RESTART_SEND):
                        # A VOID run takes the poison away that the WQE left which has failed.
                        last_of_all(StateChange.START)
                    with m.Case(QpAction.ERROR, QpAction.SEND_ERROR):
                        strobe("again")
                        if self.swaps:
                            change(StateChange.STOP_ENDS)
                    with m.Case(QpAction.QUERY):
                        strobe("reply")
                    if self.swaps:
                        with m.Case(QpAction.STOP):
                            last_of_all(StateChange.STOP)
                        with m.Case(QpAction.SAVE):
                            m.d.comb += swap.save.eq(1)
                        with m.Case(QpAction.LOAD):
                            change(StateChange.LOAD)
                            m.d.comb += swap.load.eq(1)
                            strobe("again")
            with m.State("RETRY"):
                m.next = "TAKE"
                with m.If(decision.alive & (state.phase != Phase.REWINDING)):
                    m.d.comb += segment.valid.eq(1)
                    with m.If(segment.ready):
                        change(StateChange.REWIND)
                        strobe("rewind")
                    with m.Else():
                        m.next = "RETRY"
            with m.State("REWOUND"):
                # The turn is for a QP in ERR, too: what was said to be consumed meanwhile did not count.
                strobe("again")
                m.next = "TAKE"
                with m.If(state.phase == Phase.REWINDING):
                    change(StateChange.REWOUND)
            with m.State("DECIDE"):
                begin(settled & ~held & ~started)
                m.d.comb += segmenter.cancel.eq(started & ~decision.send)
                m.d.sync += what.eq(decision.o)
                with m.If(decision.send):
                    m.d.sync += several.eq(decision.several)
                    m.next = "START"
                    with m.If(started | (segment.valid & segment.ready)):
                        m.next = "PACKET"
                with m.Else():
                    m.next = "ACT"
            with m.State("START"):
                m.d.comb += segment.valid.eq(settled & ~held)
                m.d.sync += several.eq(decision.several)
                with m.If(held):
                    with m.If(was_idle & turn_hold.counted):
                        strobe("again")
                        m.d.comb += turn_hold.put_off.eq(1)
                        m.next = "TAKE"
                with m.Elif(settled & segment.ready):
                    m.next = "PACKET"
            with m.State("PACKET"):
                m.d.comb += of_packet.eq(1)
                m.d.comb += turn_hold.comes.eq(1)
                with m.If(segmenter.sends & several):
                    # Said early, so that the context is there when its turn comes.
                    strobe("again")
                    m.d.sync += said.eq(1)
                with m.If(done):
                    m.next = "IDLE"
            with m.State("ACT"):  # what is rarer has a cycle of its own
                m.d.comb += segmenter.cancel.eq(started)
                m.d.comb += turn_hold.comes.eq(1)
                m.d.sync += [
                    started.eq(0),
                    skipped.eq(progress.unacked - progress.first),
                    steps.eq(attributes.path_mtu),
                    update.target.eq(Mux(what == SendAction.PASS, state.index + 1, outputs.target)),
                ]
                with m.If(was_idle | (what == SendAction.NOTHING)):
                    m.next = "TAKE"
                    with m.Switch(what):
                        with m.Case(SendAction.GIVE_UP):
                            change(StateChange.GIVE_UP)
                            strobe("flush", "consumed")
                        with m.Case(SendAction.RESUME):
                            m.next = "RESUME"
                        with m.Case(SendAction.PASS):
                            change(StateChange.PASS)
                            strobe("consumed", "again")
                        with m.Case(SendAction.DRAINED):
                            change(StateChange.DRAIN_ENDS)
                            strobe("flush")
                        with m.Case(SendAction.CLOSED):
                            m.d.comb += self.count_stall_window.eq(1)
                        with m.Case(SendAction.BROKEN):
                            change(StateChange.HALT)
                            strobe("failed")
                        if self.swaps:
                            with m.Case(SendAction.STOPPED):
                                pass
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
                    strobe("again")
            with m.State("CHANGE"):
                m.d.comb += [
                    changes.eq(1),
                    starts.eq((update.change == StateChange.START) | (update.change == StateChange.LOAD)),
                ]
                m.next = "TAKE"
            with m.State("TAKE"):
                m.d.comb += takes.eq(1)
                m.next = "IDLE"
        return m

    def _operate(self, m, segmenter, outputs):
        """What goes on beside turns: operations on keys, and who waits for the end of one."""
        m.submodules.pending = pending = PendingOperations()
        m.submodules.postponed = postponed = WaitingSet(self.qps)
        m.submodules.failures = failures = FirstArbiter(Failure, 2)
        wiring.connect(m, wiring.flipped(self.operated), pending.operated)
        wiring.connect(m, pending.local, wiring.flipped(self.local))
        link(m, pending.failed, failures.i[0])
        link(m, outputs.failed, failures.i[1])
        wiring.connect(m, failures.o, wiring.flipped(self.failed))
        m.d.comb += [
            pending.begin.eq(segmenter.operates),
            pending.begun.eq(segmenter.begun_operation),
            pending.told.eq(~segmenter.outstanding.valid),
            segmenter.occupied.eq(pending.full),
            *(port.eq(busy) for port, busy in zip(self.operating, pending.busy, strict=True)),
            *(port.eq(qp) for port, qp in zip(self.operating_qp, pending.qp, strict=True)),
            postponed.i.valid.eq(segmenter.postponed),
            postponed.i.payload.eq(segmenter.qp),
            self.resumed.valid.eq(postponed.o.valid & ~pending.full),
            self.resumed.payload.eq(postponed.o.payload),
            postponed.o.ready.eq(self.resumed.ready & ~pending.full),
        ]

    def _has_work(self, qp_state, state, progress, status):
        """1 if a turn would find something to do that no ACK, no timer and no doorbell will ask for; perhaps also if a
        message may not start for want of a credit, a READ or a fence."""
        posted = status.producer != state.index
        open_ = ~window_closed(state.index, progress.oldest, self.window)
        begins = Mux((qp_state == QpState.SQD) | state.draining, state.index != state.top, open_)
        goes_on = state.draining | status.error | (state.phase == Phase.RESUME) | (posted & begins)
        alive = (qp_state == QpState.RTS) | (qp_state == QpState.SQD)
        sends = alive & ~progress.waiting & (state.phase != Phase.HALTED) & goes_on
        return sends | (((qp_state == QpState.ERR) | (qp_state == QpState.SQE)) & posted)

    def _connect_swap(self, m, sources):
        """Stands between tokens and retries and those who choose among them."""
        swap = RequesterSwap(self.qps)
        for name, passed in ("control", swap.token), ("retry", swap.retried):
            wiring.connect(m, sources[name], getattr(swap, name))
            sources[name] = passed
        for name in ("saved", "loaded"):
            wiring.connect(m, wiring.flipped(getattr(self, name)), getattr(swap, name))
        for name in ("rewind", "rewound"):
            port = getattr(self, name)
            m.d.comb += getattr(swap, name).eq(port.valid & port.ready)
        return swap
