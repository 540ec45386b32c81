"""What a peer asked for with READs and atomics, cut into response packets."""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ...context.pool import Pool
from ...dma.atomic import AtomicOperands, AtomicResult
from ...stream.packet import PacketBeat
from ...stream.ram import Ram
from ...stream.slice import Slice
from ...stream.transfer import AccessRequest, Passage
from ...stream.words import WORD_BITS, SavedWord
from ..common.layouts import (
    Answered,
    Recall,
    Release,
    ResponseEntry,
    ResponseKind,
    TxDescriptor,
)
from ..common.psn import psn_before
from .read_mark import ReadMark
from .replay_cache import ReplayCache
from .response_packet import CutState, ResponsePacket
from .response_scheduler import ResponseScheduler
from .response_swap import ResponseSwap

__all__ = ["EntryWrite", "ReadAtomicResponder"]

EntryWrite = data.StructLayout({"qp": 12, "entry": ResponseEntry})
"""Responder to READ/atomic responder."""


class ReadAtomicResponder(wiring.Component):
    """Keeps what each QP's peer has asked for, and answers: one packet a turn, the QPs in turns, each QP's entries in
    order. An entry takes a row of a pool that all QPs share (:class:`...context.pool.Pool`) until it is cut to its end.

    An entry may be cut once the acknowledger has released it. READs overlap with READs before them, atomics with
    atomics; an entry of the other kind waits until all before it are answered, as a replay does. The access check sees
    key, bounds and rights of each packet; the first that is refused stops its QP until a token. A QP in ERR goes on:
    the peer was right to ask before the error, and the NAK waits behind the answers.

    *A recall*: the peer asks again from a PSN on, and will ask again for all that is behind it. So READs and replays
    whose next packet is at that PSN or later are given up, from the oldest entry of the QP on, a READ in its middle,
    too, and count as answered. An atomic that is not yet executed is not given up, nor is what is behind it.

    A replay is answered with what the atomic of the same PSN has found; a READ that is asked for again is served if it
    is one that was asked for before, or the rest of one: its end, key and last PSN are the same, and it does not begin
    earlier (:class:`.read_mark.ReadMark`). The last 16 READs and atomics of each QP are known. If it is none of
    them, nothing is sent, and the entry counts as answered. A READ that was begun before is refused in silence
    (``quiet``): it may be a late copy of one that is complete, and the region is gone.

    Source: InfiniBand volume 1, 9.7.1 (duplicate requests).

    A token makes its QP forget its entries; it goes down the transmit path as a RESPONSE_TOKEN whose run has ``clear``.
    See :class:`.response_scheduler.ResponseScheduler` for what becomes of answers meanwhile. SAVE also gives away what
    is known of the QP, and LOAD takes it, as words of :class:`.response_swap.ResponseSwap`; meanwhile nobody else has a
    turn. SAVE must come when all entries of its QP are answered, or one of them was refused.

    *Cycles*: from ``release`` to ``access`` 10 for an atomic, 11 for a READ. A small READ or atomic takes 10, or 9 if
    several QPs have some: the scheduler's four operations. A packet of a large READ takes 11, or 14 from 1024 bytes on.
    A replay, or a READ that is asked for again, takes up to 37 more. A recall takes 10 as soon as the packet being cut
    has gone, and 15 or more an entry that is given up. Of ``atomics`` one less may be between their cut
    and their result.

    Parameters
    ----------
    qps : int
        QPs, a power of two.
    data_width : int
        64, 128, 256 or 512 bits.
    rows : int or None
        Of the pool, a power of two, more than twice the QPs; None: 256, or 4 a QP.
    atomics : int
        A power of two; 0: none comes.
    swaps : bool
        There are SAVE and LOAD.

    Members
    -------
    entry : stream of ``EntryWrite``
        Before its ``release``; at most 16 of a QP may be unanswered, and a second one only with ``room``. Taken within
        7 cycles, or 70 if a QP forgets its entries. ``ready`` is a register. While one waits for its row nothing is
        released.
    room : 1
        A QP that has entries may have another one; one that has none always may. From the cycle after an entry is
        taken, until the next one.
    release : stream of ``Release``
    served_qp, served : 12, 5
        Entries of the QP that are answered, modulo 32; 1 cycle later.
    recall, recall_en, recalled : ``Recall``, 1, 1
        As long as ``recall_en`` is on; when nothing is left to be given up, ``recalled`` strobes.
    hold : 1
        Responses enough wait for their payload: no further one is begun. It may come 4 cycles behind the packet that
        causes it, if that has at least 1024 bytes.
    answered_i, answered_o : stream of ``Answered``
        From the transmitter; and on to the acknowledger, with no register behind.
    packet : stream of ``TxDescriptor``; access : stream of ``AccessRequest``
        Of each packet a TX descriptor and a run.
    inline : stream of ``PacketBeat``
        8 bytes for each TX descriptor with source INLINE.
    operands : stream of ``AtomicOperands``; result : stream of ``AtomicResult``
        One for each run with ``tag``, in order. A result comes before its packet is answered.
    token_done : 1
        Strobe: a token has been to the transmitter and is back. Nothing of the QP's past follows on any output.
    count_atomics, count_replays : 1
        Strobes.
    saved, loaded : streams of ``SavedWord`` and of words
        With ``swaps``: 2 to 34 words a QP.
    swap_qp, serving : 12, 1
        With ``swaps``: entries of the QP are released and not answered, 1 cycle later. SAVE waits for them, and all
        packets behind it: so it is better begun when there are none.
    """

    def __init__(self, qps, data_width=64, rows=None, atomics=16, *, swaps=False):
        if not isinstance(qps, int) or not 2 <= qps <= 4096 or qps & qps - 1:
            raise ValueError(f"qps must be a power of two from 2 to 4096, not {qps!r}")
        self.qps = qps
        self.atomics = atomics
        self.data_width = data_width
        self.rows = rows or max(256, 4 * qps)
        self.swaps = swaps
        words = {
            "saved": Out(stream.Signature(SavedWord)),
            "loaded": In(stream.Signature(WORD_BITS)),
            "swap_qp": In(12),
            "serving": Out(1),
        }
        super().__init__(
            {
                "entry": In(stream.Signature(EntryWrite)),
                "room": Out(1),
                "release": In(stream.Signature(Release)),
                "served_qp": In(12),
                "served": Out(5),
                "recall": In(Recall),
                "recall_en": In(1),
                "recalled": Out(1),
                "hold": In(1),
                "answered_i": In(stream.Signature(Answered)),
                "answered_o": Out(stream.Signature(Answered)),
                "packet": Out(stream.Signature(TxDescriptor)),
                "access": Out(stream.Signature(AccessRequest)),
                "inline": Out(stream.Signature(PacketBeat(data_width))),
                "operands": Out(stream.Signature(AtomicOperands)),
                "result": In(stream.Signature(AtomicResult)),
                "token_done": Out(1),
                "count_atomics": Out(1),
                "count_replays": Out(1),
            }
            | (words if swaps else {})
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.pool = pool = Pool(ResponseEntry, self.rows, self.qps)
        m.submodules.states = states = Ram(CutState, self.qps)
        m.submodules.scheduler = scheduler = ResponseScheduler(self.qps, swaps=self.swaps)
        m.submodules.cache = cache = ReplayCache(self.qps, self.atomics, swaps=self.swaps)
        m.submodules.mark = mark = ReadMark()
        m.submodules.cutter = cutter = ResponsePacket(self.qps)
        entry, state = pool.row, states.r_data
        wiring.connect(m, wiring.flipped(self.answered_i), scheduler.answered_i)
        wiring.connect(m, scheduler.answered_o, wiring.flipped(self.answered_o))
        wiring.connect(m, cutter.access, wiring.flipped(self.access))
        wiring.connect(m, cutter.packet, wiring.flipped(self.packet))
        wiring.connect(m, cache.operands, wiring.flipped(self.operands))
        wiring.connect(m, wiring.flipped(self.result), cache.result)

        # -- An entry that waits for the pool is counted, and nothing is released meanwhile: it might be that one.
        m.submodules.waiting = waiting = Slice(EntryWrite)
        wiring.connect(m, wiring.flipped(self.entry), waiting.i)
        spare = Signal()
        m.d.sync += spare.eq((pool.spare != 0) & ~waiting.o.valid)
        m.d.comb += [
            pool.put.payload.qp.eq(waiting.o.payload.qp),
            pool.put.payload.row.eq(waiting.o.payload.entry),
            pool.put.valid.eq(waiting.o.valid),
            waiting.o.ready.eq(pool.put.ready),
            self.room.eq(spare & ~waiting.o.valid),
            scheduler.release.payload.eq(self.release.payload),
            scheduler.release.valid.eq(self.release.valid & ~waiting.o.valid),
            self.release.ready.eq(scheduler.release.ready),
        ]

        m.d.comb += [
            pool.look_qp.eq(scheduler.qp),
            states.r_addr.eq(scheduler.qp),
            scheduler.served_qp.eq(self.served_qp),
            scheduler.recall_qp.eq(self.recall.qp),
            scheduler.hold.eq(self.hold),
            self.served.eq(scheduler.served),
            self.token_done.eq(scheduler.token_done),
            cache.qp.eq(scheduler.qp),
            cache.place.eq(state.place),
            cache.entry.eq(entry),
            self.count_atomics.eq(cache.count_atomics),
        ]

        # -- What the entry is, and whether it may be begun or goes on.
        kind, may = cutter.kind, Signal()
        reads = Signal()
        m.d.comb += reads.eq((entry.kind == ResponseKind.READ) | (entry.kind == ResponseKind.REPEAT))
        m.d.sync += [
            kind.read.eq(reads),
            kind.repeat.eq(entry.kind == ResponseKind.REPEAT),
            kind.replay.eq(entry.kind == ResponseKind.REPLAY),
            may.eq(
                scheduler.open
                & (state.middle | ~scheduler.flying | ((entry.kind != ResponseKind.REPLAY) & (state.atomic != reads)))
            ),
        ]

        # -- The packet. Its state is written out of registers: until the QP has another turn some cycles pass.
        written = Signal()
        m.d.sync += [states.w_addr.eq(scheduler.qp), states.w_data.eq(cutter.following), states.w_en.eq(written)]
        m.d.comb += [
            cutter.qp.eq(scheduler.qp),
            cutter.token.eq(scheduler.token),
            cutter.entry.eq(entry),
            cutter.state.eq(state),
            cutter.was_cut.eq(cache.was_cut),
            cutter.lost.eq(scheduler.lost),
            mark.end.eq(cutter.end),
            mark.key.eq(entry.rkey),
            mark.extent.eq(entry.swap),
            mark.path_mtu.eq(entry.path_mtu),
            cache.mark.eq(mark.mark),
            scheduler.complete.eq(cutter.last),
        ]
        beat = self.inline.payload
        m.d.comb += [
            beat.data.eq(Cat(cache.value.word_select(7 - byte, 8) for byte in range(8))),
            beat.count.eq(8),
            beat.first.eq(1),
            beat.last.eq(1),
        ]
        with m.If(self.inline.ready):
            m.d.sync += self.inline.valid.eq(0)
        if self.swaps:
            swap = self._swap(m, scheduler, states, cache)
            m.d.comb += [scheduler.swap_qp.eq(self.swap_qp), self.serving.eq(scheduler.serving)]

        with m.If(scheduler.ended):
            m.d.sync += scheduler.end.eq(0)
        # Rows back to the pool: that of an entry which is cut to its end, or all of the QP.
        gives, every, given_qp = Signal(), Signal(), Signal.like(scheduler.qp)
        gives_every = Signal()  # both, in one bit: what follows from it is long
        with m.If(gives):
            m.d.sync += [gives.eq(~pool.take.ready), gives_every.eq(gives_every & ~pool.take.ready)]
        with m.Else():
            m.d.sync += [
                gives.eq(scheduler.ended & (cutter.last | scheduler.token)),
                gives_every.eq(scheduler.ended & scheduler.token),
                every.eq(scheduler.token),
                given_qp.eq(scheduler.qp),
            ]
        m.d.comb += [
            pool.take.valid.eq(gives),
            pool.take.payload.qp.eq(given_qp),
            pool.take.payload.all.eq(every),
        ]
        uncounted = Signal(3)  # `hold` does not count the packet that has left: a bit for each cycle of that
        m.d.sync += uncounted.eq(uncounted >> 1)
        with m.If(cutter.large):
            m.d.sync += uncounted.eq(-1)
        m.d.sync += [self.recalled.eq(0), scheduler.recall.eq(self.recall_en & ~self.recalled)]
        with m.FSM():
            with m.State("IDLE"):
                # A single row goes back before the next one does.
                m.d.comb += scheduler.free.eq(~uncounted[0] & ~gives_every)
                with m.If(scheduler.begun):
                    m.next = "LOOK"
            with m.State("LOOK"):
                # The row of its entry before may be just going back.
                m.d.comb += pool.look.eq(~pool.changing)
                with m.If(pool.look):
                    m.next = "READ"
            with m.State("READ"):
                m.next = "ROW"
            with m.State("ROW"):
                m.next = "WEIGH"
            with m.State("WEIGH"):
                m.d.comb += cutter.ends.eq(1)
                m.next = "DECIDE"
            with m.State("DECIDE"):
                m.d.comb += [mark.load.eq(1), cutter.load.eq(1)]
                m.d.sync += scheduler.skip.eq(0)
                m.next = "WEIGH"  # if it has to wait, all is computed once more
                with m.If(scheduler.token):
                    m.d.comb += cutter.say.eq(1)
                    m.d.sync += scheduler.end.eq(1)
                    m.next = "SAY"
                    if self.swaps:
                        with m.If(scheduler.passage != Passage.RESET):
                            m.d.comb += [
                                cutter.say.eq(0),
                                swap.save.eq(scheduler.passage == Passage.SAVE),
                                swap.load.eq(scheduler.passage == Passage.LOAD),
                            ]
                            m.d.sync += scheduler.end.eq(0)
                            m.next = "SWAP"
                with m.Elif(scheduler.recalling):
                    m.next = "RECALL"
                with m.Elif(~may):
                    m.next = "IDLE"
                with m.Elif(kind.read & ~(kind.repeat & ~state.middle)):
                    m.d.sync += scheduler.end.eq(1)
                    m.next = "MEASURE"
                with m.Elif(kind.read | kind.replay):
                    # The value that was found last stands until it is taken.
                    with m.If(~self.inline.valid):
                        m.d.comb += cache.search.eq(1)
                        m.next = "SEARCH"
                with m.Elif(cache.room):
                    m.d.comb += [cache.put.eq(1), cutter.say.eq(1)]
                    m.d.sync += scheduler.end.eq(1)
                    m.next = "SAY"
            with m.State("RECALL"):
                # Who asked may have given up, and another may ask.
                m.next = "IDLE"
                with m.If(self.recall_en & (self.recall.qp == scheduler.qp)):
                    given_up = ~psn_before(cutter.psn, self.recall.psn)
                    with m.If(scheduler.open & (kind.read | kind.replay) & given_up):
                        m.d.comb += cache.keep.eq(cutter.fresh)
                        m.next = "LOST"
                    with m.Else():
                        m.d.sync += [self.recalled.eq(1), scheduler.recall.eq(0)]
            with m.State("MEASURE"):
                m.d.comb += [cache.keep.eq(cutter.fresh), cache.cut.eq(1), cutter.measure.eq(1), cutter.say.eq(1)]
                m.next = "SAY"
            with m.State("SEARCH"):
                with m.If(cache.done & cache.found & kind.repeat):
                    m.d.comb += cutter.again.eq(1)
                    m.d.sync += scheduler.end.eq(1)
                    m.next = "MEASURE"
                with m.Elif(cache.done & cache.found):
                    m.d.comb += [self.count_replays.eq(1), cutter.say.eq(1)]
                    m.d.sync += [self.inline.valid.eq(1), scheduler.end.eq(1)]
                    m.next = "SAY"
                with m.Elif(cache.done):
                    m.next = "LOST"
            with m.State("LOST"):
                m.d.comb += scheduler.lost.eq(1)
                with m.If(scheduler.lost_told):
                    m.d.comb += written.eq(1)
                    m.d.sync += [scheduler.end.eq(1), scheduler.skip.eq(1)]
                    m.next = "IDLE"
            with m.State("SAY"), m.If(cutter.gone):
                m.d.comb += written.eq(1)
                m.next = "IDLE"
            if self.swaps:
                # Nothing of the QP is on the transmit path: all that was released is answered. So nobody waits until
                # the token has come out there; it clears the poison behind what was sent.
                with m.State("SWAP"), m.If(~swap.busy):
                    m.d.comb += cutter.say.eq(1)
                    m.next = "SAID"
                with m.State("SAID"), m.If(cutter.gone):
                    m.d.comb += [written.eq(1), scheduler.sent.eq(1)]
                    m.d.sync += scheduler.end.eq(1)
                    m.next = "IDLE"
        return m

    def _swap(self, m, scheduler, states, cache):
        """Where the words come from, and go to."""
        m.submodules.swap = swap = ResponseSwap()
        wiring.connect(m, swap.saved, wiring.flipped(self.saved))
        wiring.connect(m, wiring.flipped(self.loaded), swap.loaded)
        m.d.comb += [
            swap.state.counts.eq(scheduler.counts),
            swap.state.atomic.eq(states.r_data.atomic),
            swap.state.place.eq(states.r_data.place),
            scheduler.loaded.eq(swap.loaded_state.counts),
            cache.look.eq(swap.look),
            cache.slot.eq(swap.slot),
            swap.row.eq(cache.row),
            cache.write.eq(swap.write),
            cache.new_row.eq(swap.new_row),
        ]
        with m.If(scheduler.token & (scheduler.passage == Passage.LOAD)):
            m.d.sync += [
                states.w_data.atomic.eq(swap.loaded_state.atomic),
                states.w_data.place.eq(swap.loaded_state.place),
            ]
        return swap
