"""The receiving half of a reliable connection: requests in, accesses and answers out."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ...abi.commands import QpAction
from ...abi.eqe import EventType
from ...abi.wqe import WQE_DEFAULT
from ...queue.wqe_fetcher import RingIndex, RingStatus
from ...stream.connections import connect_signals
from ...stream.transfer import AccessRequest, AttributeWrite, Event, Passage
from ...stream.words import WORD_BITS, SavedWord, StateWords
from ..common.layouts import Job, PassingToken, Recall, ResponseEntry
from ..common.token_passing import TokenPassing
from ..receive.layouts import ReceivedRequest, RecvPlace, RequestState, SharedWqe, Work
from .flush_queue import FlushQueue
from .recv_placement import PlacementKind, RecvPlacement
from .request_validator import RequestValidator
from .shared_receive import SharedReceive

__all__ = ["Responder", "ResponderReply", "ResponderState", "ResponseWrite"]

ResponderReply = data.StructLayout({"psn": 24, "index": 16})
"""Next PSN expected, and next receive WQE to use."""

ResponseWrite = data.StructLayout({"qp": 12, "entry": ResponseEntry})
"""A READ or an atomic that is to be answered."""


ResponderState = data.StructLayout({"request_state": RequestState, "place": RecvPlace, "flushing": 1})
"""What the responder knows of a QP. ``flushing``: its receive WQEs are flushed, those posted later, too."""

PATIENCE = 1023
"""Cycles for which a request waits while the READ/atomic responder gives up responses, or has no row for another:
reception must not wait for transmission. A response of 4096 bytes that is on its way leaves within half of that."""


class Responder(wiring.Component):
    """Takes one request at a time: judges it (:class:`.request_validator.RequestValidator`), says where its payload
    goes (:class:`.recv_placement.RecvPlacement`), and leaves to the acknowledger what is to be answered once the
    payload is there. Serves SEND and WRITE, with and without immediate, RDMA READ, and atomics; other requests are
    invalid (NAK 0x61). A READ or an atomic, also an old one that is asked for again, goes to the READ/atomic responder,
    and its job releases it. When one is asked for again the requester has gone back, and will ask for all behind it
    again, too. So first what is behind it is recalled there; the request waits for that, and for ``room``, but
    no longer than :data:`PATIENCE`.

    Each packet has exactly one run on ``access`` and exactly one job on ``job``, the run first, in order.

    A packet takes 6 cycles; a SEND 8 if it begins in an entry of its receive WQE, and 6 cycles more for each further
    one. Nothing is buffered: the request stays at the input until it is done with, and is taken when the QP's state is
    written back. A receive WQE that is posted but not yet fetched is waited for.

    ACKs and responses carry credits: the receive WQEs that are posted and not used, of which a message under way uses
    one. A QP with a shared receive queue says :data:`.aeth.NO_CREDITS`.

    *Shared receive queues* (``srqs``): a message takes the next WQE there with its first packet, an RDMA WRITE with
    immediate with its last one, for which it waits a cycle longer. That is consumed at once, and the QP has it from
    then on by its ``id``, its number in the table of WQEs. If a later packet has to know more of it than the entry that
    the message has come to, the QP's own ring, which lies in that table, is set to it, and reads it. A QP in ERR gives
    up the WQE that it has, and says QP_LAST_WQE_REACHED (IBA 10.2.9.4); with RESET it gives it up as well.

    If the QP goes to ERR, its receive WQEs complete with WR_FLUSH_ERR, in order; those posted later, too. Who has some
    comes out at ``flush`` for each of them, and goes through the lookup like a packet. The control token RESET passes
    down as a job; an ERROR token must come after the attribute ``state``.

    SAVE and LOAD pass down as RESET does. Before, SAVE gives away the QP's ``ResponderState``, 4 words, which may go
    while later requests are served; LOAD waits for them. If no job of the QP is under way, which is so but for a packet
    that came just before, the token does not wait behind payload of others: it comes out at ``passing``, and its job
    only keeps to its run, which clears what the QP's slot has been refused. A QP that is loaded is flushed from then
    on, if it was before: so its receive ring must be loaded first, or its flush held back.

    Parameters
    ----------
    qps : int
        QPs, a power of two.
    blocks : int
        Blocks of fetched receive WQEs, a power of two.
    atomics : bool
        Atomics are served; else they are invalid requests.
    swaps : bool
        There are SAVE and LOAD.
    keys : bool
        SENDs with invalidate are served; else they are invalid requests.
    wqe_bytes : int
        Bytes of the largest send WQE; receive WQEs have up to 256 of them.
    srqs : int
        Shared receive queues, a power of two up to ``qps``; their rings have numbers from ``qps`` on.

    Members
    -------
    request : stream of ``ReceivedRequest``
    settled : 1
        The request may be taken.
    next_qp : QP index
        That of the request in the next cycle, if another one is there then.
    request_state, request_state_en, place, place_en : ``RequestState``, 1, ``RecvPlace``, 1
        What the QP has from now on, with ``request.ready``.
    flush : stream of QP index
        A receive WQE of this QP may have to be flushed.
    access : stream of ``AccessRequest``
    job : stream of ``Job``
        Silent jobs change nothing; those with ``cause`` set are of a QP that has failed, or what UC does not serve.
    entry : stream of ``ResponseWrite``
        READs and atomics for the READ/atomic responder, in the cycle in which their job is taken.
    room : 1
        A QP that has unanswered ones may have another. What comes before the next ``entry`` may only set it.
    served_qp, served
        Entries of the QP that are answered, modulo 256, 1 cycle later; they are counted from 0 after RESET.
    recall, recall_en, recalled : ``Recall``, 1, 1
        As long as ``recall_en`` is on, the READ/atomic responder gives up responses from this PSN on; ``recalled`` when
        it has.
    status_qp, status : RingStatus
        A QP's receive ring, 1 cycle later, followed while the QP is looked at.
    wanted : stream of QP index
        The QP, at which is looked, has a receive WQE that is needed, and posted, but not fetched. What is not taken at
        once may be withdrawn, and comes again.
    places, word_addr, word
        Fetched receive WQEs, see :class:`.recv_placement.RecvPlacement`.
    consumed : stream of ``RingIndex``
        Fetched receive WQEs before this one are done with; said before their job goes out. Its ``ready`` may not wait
        for ``valid``: a request that uses no WQE waits for it, too.
    arrived : stream of QP
        Receive WQEs of the QP were fetched. Always ready but for a cycle now and then.
    attribute, attribute_en, point, event
        With ``srqs``: the broadcast to rings; to which WQE a QP's own ring is to be set, a stream of ``RingIndex``; and
        :class:`.shared_queues.SharedQueues`' events.
    reply : stream of ``ResponderReply``
        Answer to QUERY.
    count_drop_sequence, count_drop_duplicate, count_drop_busy : 1
        Strobes.
    saved, loaded : streams of ``SavedWord`` and of words
        With ``swaps``, as the next ones.
    passing : stream of ``PassingToken``
        One must be taken before the next token comes.
    job_done, held, held_qp : 1, 1, 12
        As of :class:`.acknowledger.Acknowledger`.
    """

    def __init__(
        self,
        qps,
        blocks=64,
        atomics=True,
        *,
        swaps=False,
        srqs=0,
        grh=False,
        keys=False,
        wqe_bytes=WQE_DEFAULT,
    ):
        if not isinstance(qps, int) or not 2 <= qps <= 4096 or qps & qps - 1:
            raise ValueError(f"qps must be a power of two from 2 to 4096, not {qps!r}")
        self.qps = qps
        self.blocks = blocks
        self.atomics = atomics
        self.swaps = swaps
        self.srqs = srqs
        self.keys = keys
        words = {
            "saved": Out(stream.Signature(SavedWord)),
            "loaded": In(stream.Signature(WORD_BITS)),
            "passing": Out(stream.Signature(PassingToken)),
            "job_done": In(1),
            "held": In(1),
            "held_qp": In(12),
        }
        shared = {
            "attribute": In(AttributeWrite),
            "attribute_en": In(1),
            "point": Out(stream.Signature(RingIndex)),
            "shared_ring": Out(12),
            "shared_ring_en": Out(1),
            "event": Out(stream.Signature(Event)),
        }
        self._placement = RecvPlacement(blocks, grh, wqe_bytes)
        super().__init__(
            {
                "request": In(stream.Signature(ReceivedRequest)),
                "settled": In(1),
                "next_qp": In(range(qps)),
                "request_state": Out(RequestState),
                "request_state_en": Out(1),
                "place": Out(RecvPlace),
                "place_en": Out(1),
                "flush": Out(stream.Signature(range(qps))),
                "access": Out(stream.Signature(AccessRequest)),
                "job": Out(stream.Signature(Job)),
                "entry": Out(stream.Signature(ResponseWrite)),
                "room": In(1),
                "served_qp": Out(12),
                "served": In(5),
                "recall": Out(Recall),
                "recall_en": Out(1),
                "recalled": In(1),
                "status_qp": Out(12),
                "status": In(RingStatus),
                "wanted": Out(stream.Signature(12)),
                "places": In(self._placement.places.shape()),
                "word_addr": Out(self._placement.word_addr.shape()),
                "word": In(64),
                "consumed": Out(stream.Signature(RingIndex)),
                "arrived": In(stream.Signature(12)),
                "reply": Out(stream.Signature(ResponderReply)),
                "count_drop_sequence": Out(1),
                "count_drop_duplicate": Out(1),
                "count_drop_busy": Out(1),
            }
            | (words if swaps else {})
            | (shared if srqs else {})
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.validator = validator = RequestValidator(self.atomics, self.keys)
        m.submodules.placement = placement = self._placement
        m.submodules.flushes = flushes = FlushQueue(self.qps, swaps=self.swaps)
        request = self.request.payload
        transport, state, work = request.transport, request.state, request.work

        ring_error, fetches = Signal(), Signal()
        settled, failing, needs = Signal(), Signal(), Signal()
        m.d.sync += [
            settled.eq(self.settled),  # stays until something is written back
            self.wanted.valid.eq(0),
        ]
        consumed_sent, said = Signal(), Signal()
        take, finish = Signal(), Signal()
        leaves = Signal()  # in this cycle the request may be taken
        looked_at = Signal(range(self.qps))
        has_recalled = Signal()
        # The packet takes a WQE of a shared receive queue, as is known when it comes and, from a register, from then
        # on; the receive WQE that it needs, and its ring, likewise; and the QP's own ring was set.
        comes, takes, has_found = Signal(), Signal(), Signal()
        first_index, index, first_ring, ring = Signal(16), Signal(16), Signal(12), Signal(12)
        m.d.sync += [index.eq(first_index), ring.eq(first_ring)]
        m.d.sync += ring_error.eq(self.status.error)  # as the checks see it
        patience = Signal(range(PATIENCE + 1))
        m.d.comb += [
            self.request.ready.eq(take),
            self.request_state.eq(validator.next),
            self.place.eq(placement.next),
            flushes.qp.eq(request.qp),
            looked_at.eq(Mux(self.request.valid & ~leaves, request.qp, self.next_qp)),
            self.status_qp.eq(looked_at),
            self.served_qp.eq(looked_at),
            first_index.eq(state.index),
            first_ring.eq(request.qp),
            validator.request.eq(request),
            validator.index.eq(index),
            validator.takes.eq(takes),
            validator.id.eq(placement.id),
            validator.status.eq(self.status),
            validator.served.eq(self.served),
            validator.flush.eq(work == Work.FLUSH),
            validator.misfit.eq(placement.misfit),
            validator.too_long.eq(placement.too_long),
            validator.byte_length.eq(placement.byte_length),
        ]
        wiring.connect(m, placement.access, wiring.flipped(self.access))
        m.d.comb += [
            flushes.arrived.valid.eq(self.arrived.valid & (self.arrived.payload < self.qps)),
            flushes.arrived.payload.eq(self.arrived.payload),
            self.arrived.ready.eq(flushes.arrived.ready),
        ]
        wiring.connect(m, flushes.o, wiring.flipped(self.flush))
        m.d.comb += [
            placement.places.eq(self.places),
            self.word_addr.eq(placement.word_addr),
            placement.word.eq(self.word),
            self.wanted.payload.eq(ring),
        ]

        packet = placement.i.payload
        m.d.comb += [
            packet.clear.eq(work == Work.CONTROL),
            # Of UC nothing outlasts its message; what is not executed ends it.
            packet.fresh.eq(request.unreliable & request.accept & (validator.begin | ~validator.execute)),
            packet.datagram.eq(request.datagram),
            packet.begin.eq(validator.begin),
            packet.end.eq(validator.end),
            packet.length.eq(Mux(work == Work.PACKET, transport.length, 0)),
            packet.pd.eq(request.attributes.pd),
            packet.qp.eq(request.qp),
            packet.address.eq(transport.address),
            packet.rkey.eq(transport.rkey),
            packet.total.eq(transport.dma_length),
            packet.index.eq(index),
            packet.shared.eq(request.attributes.srq),
            packet.log_stride.eq(request.attributes.log_rq_stride),
            placement.place.eq(request.place),
        ]
        with m.If(validator.execute):
            m.d.comb += packet.kind.eq(Mux(validator.write, PlacementKind.WRITE, PlacementKind.SEND))

        m.d.comb += [
            self.job.payload.eq(validator.job),
            self.entry.payload.qp.eq(request.qp),
            self.entry.payload.entry.eq(validator.entry),
            validator.room.eq(self.room),
            self.recall.qp.eq(request.qp),
            self.recall.psn.eq(transport.psn),
            self.consumed.payload.qp.eq(ring),
            self.consumed.payload.index.eq(index + 1),
            self.reply.payload.psn.eq(state.epsn),
            self.reply.payload.index.eq(state.index),
        ]

        if self.swaps:
            loads = Signal()
            words = self._words(m, flushes, loads)
            self._pass(m, finish)

        uses = Signal()  # the WQE at the ring is used up
        if self.srqs:
            m.submodules.shared = shared = SharedReceive(self.qps, self.srqs)
            wiring.connect(m, shared.event, wiring.flipped(self.event))
            m.d.comb += [
                shared.attribute.eq(self.attribute),
                shared.attribute_en.eq(self.attribute_en),
                shared.request.eq(request),
                shared.valid.eq(self.request.valid),
                shared.has_found.eq(has_found),
                shared.take.eq(validator.take),
                shared.consume.eq(validator.consume),
                shared.left.eq(validator.left),
                shared.finish.eq(finish),
                shared.broken.eq(validator.job.fatal & (validator.job.event == EventType.QP_FATAL)),
                comes.eq(shared.comes),
                takes.eq(shared.takes),
                uses.eq(shared.uses),
                validator.lapse.eq(shared.lapses),
                self.shared_ring.eq(shared.ring),
                self.shared_ring_en.eq(comes & ~leaves),
                self.point.payload.qp.eq(request.qp),
                self.point.payload.index.eq(state.index),
            ]
            with m.If(comes):
                m.d.comb += [first_index.eq(shared.head), first_ring.eq(shared.ring)]
            with m.If(shared.found):
                m.d.comb += validator.request.state.wqe.eq(SharedWqe.FOUND)
        else:
            m.d.comb += [validator.request.attributes.srq.eq(0), uses.eq(validator.consume)]

        with m.FSM():
            with m.State("IDLE"):
                m.d.sync += [consumed_sent.eq(0), has_recalled.eq(0), patience.eq(PATIENCE), failing.eq(0)]
                m.d.sync += has_found.eq(0)
                with m.If(self.request.valid):
                    m.next = "CHECK"
                    with m.If(comes):
                        m.next = "SHARED"
                    with m.If(work == Work.CONTROL):
                        m.next = "IDLE"
                        with m.Switch(request.action):
                            with m.Case(QpAction.RESET):
                                m.d.comb += [flushes.reset.eq(1), validator.token.eq(1)]
                                m.next = "PLACE"
                            with m.Case(QpAction.START_RECEIVE):
                                m.next = "START"
                            with m.Case(QpAction.QUERY):
                                m.next = "REPLY"
                            if self.swaps:
                                with m.Case(QpAction.SAVE):
                                    m.next = "SAVE"
                                with m.Case(QpAction.LOAD):
                                    m.d.comb += words.load.eq(~words.busy)
                                    m.next = "IDLE"
                                    with m.If(~words.busy):
                                        m.next = "LOAD"
                            with m.Default():
                                m.d.sync += failing.eq(request.action == QpAction.ERROR)
                                m.next = "LEAVE"

            with m.State("SHARED"):  # its ring was looked at when the packet came, not before
                m.next = "CHECK"
            with m.State("CHECK"):  # the blocks of the QP's WQEs come a cycle behind the status of its ring
                m.d.comb += placement.look.eq(1)
                m.next = "DECIDE"
                if self.swaps:
                    # One that came before SAVE is of a QP that is not there now.
                    with m.If((work == Work.FLUSH) & ~flushes.failed):
                        m.next = "LEAVE"
            with m.State("DECIDE"):
                unfetched = self.status.producer != self.status.fetched
                m.d.comb += [validator.decide.eq(1), placement.load.eq(1)]
                m.d.sync += fetches.eq(~ring_error)
                m.next = "PLACE"
                with m.If(work == Work.PACKET):
                    with m.If(validator.wait):
                        m.d.sync += self.wanted.valid.eq(~validator.find)
                        m.next = "CHECK"
                        if self.srqs:
                            with m.If(validator.find):
                                m.next = "FIND"
                    with m.If(validator.again & ~has_recalled):
                        m.next = "RECALL"
                    with m.Elif(validator.crowded & (patience != 0)):
                        m.d.sync += patience.eq(patience - 1)
                        m.next = "DECIDE"
                with m.Elif(~validator.flushable):
                    m.d.sync += [needs.eq(unfetched), self.wanted.valid.eq(unfetched)]
                    m.next = "WANT"
            with m.State("WANT"):  # of a receive WQE that arrives from here on a flush comes
                m.next = "CHECK"
                with m.If(~needs | self.wanted.ready):
                    m.next = "LEAVE"

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
                # A ring in error takes back what it has fetched, which is what a packet that is executed uses. Others
                # and flushes use what it has not: it fetches nothing any more.
                m.d.comb += [
                    self.consumed.valid.eq(uses & (fetches | validator.execute) & ~consumed_sent),
                    leaves.eq(1),
                    # Whether one is used or not: that is known late, and there is room but for some cycles.
                    said.eq((consumed_sent | self.consumed.ready) & settled),
                    self.job.valid.eq(said & (~validator.job.release | self.entry.ready)),
                    self.entry.valid.eq(said & validator.job.release & self.job.ready),
                    finish.eq(self.job.valid & self.job.ready),
                ]
                with m.If(self.consumed.ready):
                    m.d.sync += consumed_sent.eq(1)
                with m.If(finish):
                    m.d.comb += [
                        take.eq(1),
                        self.request_state_en.eq(1),
                        self.place_en.eq(packet.kind != PlacementKind.DISCARD),
                        flushes.add.eq(work == Work.FLUSH),
                        self.count_drop_sequence.eq(validator.count_drop_sequence),
                        self.count_drop_duplicate.eq(validator.count_drop_duplicate),
                        self.count_drop_busy.eq(validator.count_drop_busy),
                    ]
                    m.next = "IDLE"
                    if self.swaps:
                        m.d.sync += loads.eq(0)
                        with m.If(loads):
                            m.d.comb += [self.place_en.eq(1), flushes.fail.eq(words.value.flushing)]

            if self.srqs:
                with m.State("FIND"):
                    m.d.comb += self.point.valid.eq(1)
                    with m.If(self.point.ready):
                        m.d.sync += has_found.eq(1)
                        m.next = "CHECK"

            with m.State("START"):
                fresh = Signal(RequestState)
                m.d.comb += [
                    leaves.eq(1),
                    fresh.epsn.eq(transport.psn),
                    self.request_state.eq(fresh),
                    self.request_state_en.eq(settled),
                    take.eq(settled),
                ]
                with m.If(settled):
                    m.next = "IDLE"
            with m.State("REPLY"):
                m.d.comb += self.reply.valid.eq(1)
                with m.If(self.reply.ready):
                    m.next = "LEAVE"
            with m.State("LEAVE"):
                m.d.comb += [leaves.eq(1), take.eq(settled), flushes.fail.eq(failing & settled)]
                with m.If(settled):
                    m.next = "IDLE"
            if self.swaps:
                with m.State("SAVE"), m.If(~words.busy):
                    m.d.comb += [words.save.eq(1), flushes.reset.eq(1), validator.token.eq(1)]
                    m.next = "PLACE"
                with m.State("LOAD"), m.If(~words.busy):
                    m.d.comb += validator.token.eq(1)
                    m.d.sync += loads.eq(1)
                    m.next = "PLACE"
        return m

    def _pass(self, m, finish):
        """A token whose QP has no job under way goes by. The next one comes when it has been taken."""
        m.submodules.passing = passing = TokenPassing(self.qps)
        request, passes = self.request.payload, passing.passes
        connect_signals(m, self, passing, "held", "held_qp")
        m.d.comb += [
            passing.qp.eq(request.qp),
            passing.action.eq(request.action),
            passing.control.eq(request.work == Work.CONTROL),
            passing.leaves.eq(finish),
            passing.by.eq(passes),
            passing.done.eq(self.job_done),
        ]
        with m.If(passes):
            m.d.comb += self.job.payload.silent.eq(1)
        with m.If(self.passing.ready):
            m.d.sync += self.passing.valid.eq(0)
        with m.If(finish & passes):
            m.d.sync += [
                self.passing.valid.eq(1),
                self.passing.payload.qp.eq(request.qp),
                self.passing.payload.passage.eq(self.job.payload.passage),
            ]

    def _words(self, m, flushes, loads):
        """The words of SAVE and LOAD, and the passage of a token."""
        m.submodules.words = words = StateWords(ResponderState)
        request = self.request.payload
        has_more = self.status.producer != request.state.index
        if self.srqs:
            has_more = Mux(request.attributes.srq, request.state.wqe != SharedWqe.TOLD, has_more)
        m.d.comb += [
            words.state.request_state.eq(request.state),
            words.state.place.eq(request.place),
            words.state.flushing.eq(flushes.failed),
            words.wake.eq(flushes.failed & has_more),  # receive WQEs are to be flushed
        ]
        wiring.connect(m, words.saved, wiring.flipped(self.saved))
        wiring.connect(m, wiring.flipped(self.loaded), words.loaded)
        with m.If(loads):
            m.d.comb += [self.request_state.eq(words.value.request_state), self.place.eq(words.value.place)]
        with m.Switch(request.action):
            with m.Case(QpAction.SAVE):
                m.d.comb += self.job.payload.passage.eq(Passage.SAVE)
            with m.Case(QpAction.LOAD):
                m.d.comb += self.job.payload.passage.eq(Passage.LOAD)
        return words
