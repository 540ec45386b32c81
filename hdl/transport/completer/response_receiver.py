"""What comes back for the send queues: acknowledgements, READ responses, atomic acknowledgements."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ...abi.commands import QpAction
from ...abi.cqe import Syndrome, WcStatus
from ...abi.tables import Access
from ...abi.wqe import SGE, WQE_DEFAULT
from ...stream.packet import PacketBeat
from ...stream.transfer import LENGTH_BITS, AccessRequest, ReadRequest
from ...stream.words import WORD_BITS, SavedWord
from ..common.layouts import ResponseJob, ResponseJobKind
from ..common.psn import psn_before, psn_next
from ..common.token_passing import TokenPassing
from ..receive.layouts import ReadProgress, ReceivedResponse, Work
from .entry_cache import EntryCache
from .read_target_swap import ReadTargetSwap
from .read_targets import HALF_BITS, READS, ReadTargets, ReadTargetWrite, Resumed
from .scatter_walk import ScatterWalk

__all__ = ["NO_AETH", "ResponseReceiver"]

READ_RESPONSE_FIRST, READ_RESPONSE_MIDDLE, READ_RESPONSE_LAST, READ_RESPONSE_ONLY = range(0x0D, 0x11)
ACKNOWLEDGE, ATOMIC_ACKNOWLEDGE = 0x11, 0x12

NO_AETH = 0x40
"""Syndrome in the job of a response that has no AETH: bits 6:5 are reserved on the wire."""


class ResponseReceiver(wiring.Component):
    """Takes one response at a time: gives its payload the place that the WQE of the READ or atomic says, and tells the
    completer what it was.

    Responses are accepted in PSN order, for the oldest READ or atomic that is not finished; a response has the length
    of the path MTU, or, if it is the last, what is left. An atomic is answered by an ATOMIC_ACKNOWLEDGE, and a READ by
    READ responses: LAST or ONLY is the one that is the last, and no other, and FIRST or ONLY is the first one, and no
    other. But where the rest of a READ was asked for, both the first of that and the one of the whole may come. An AETH
    says ACK (InfiniBand volume 1, 9.7.5.1 and 9.9.2). What is accepted goes into the WQE's scatter/gather entries, one
    after the other, with LOCAL_WRITE.

    Each response has exactly one run on ``access``, with ``tag`` 1, and exactly one job on ``job``, in the same order.
    It is taken in the cycle after its run's last access, or later; the job comes a cycle later. Payload that is not
    accepted is discarded.

    ========= ==========================================================================================
    job       response
    ========= ==========================================================================================
    ACK       ACKNOWLEDGE
    DATA      the one that is expected; without AETH the syndrome is ``NO_AETH``
    FAILED    it is the expected one, but has the wrong length or opcode, or its AETH is no ACK (BAD_RESP_ERR), does
              not fit the entries (LOC_LEN_ERR), or needs entries that cannot be read (GENERAL_ERR)
    SKIPPED   later than the one that is expected
    NOTHING   earlier, or nothing is expected; not accepted by the lookup
    TOKEN     none: a control token
    PASSED    none: a token SAVE or LOAD of a QP that had no job under way, of which ``passed`` has told
    ========= ==========================================================================================

    *Cycles* from ``response.valid`` until it is taken: 4 an ACK, and what the lookup does not accept; 9 the first
    response of a READ or atomic, 8 another, 2 more behind the end of one of the same QP; the second entry 4, an empty
    one 3; each further one 6, an empty one 5, and once a message, or once a packet if several QPs need it, the time to
    read the WQE (:class:`.entry_cache.EntryCache`).

    A token SAVE is done like RESET, but the QP's targets leave later, each between two responses, when the words of the
    one before have gone; those of a LOAD come so, too. The job TOKEN says that all before it has been here, and the
    last word that all has gone, or is back. Nobody waits for words, but for the first 6 of a LOAD, and not with
    ``ready``.

    *Buffering*: none but ``job``'s register, and the targets, in a pool (:class:`.read_targets.ReadTargets`, which also
    says when they are taken).

    Parameters
    ----------
    qps : int
        QPs, a power of two.
    data_width : int
        64, 128, 256 or 512 bits: width of ``data``.
    rows : int or None
        Of the pool of targets.
    wqe_bytes : int
        Bytes of the largest send WQE.
    swaps : bool
        QPs can be taken out and put back: with ``saved``, ``loaded``, ``ready`` and ``room``.

    Members
    -------
    response : stream of ``ReceivedResponse``
        A token puts a run with ``clear`` and a job TOKEN behind what came before. RESET forgets all targets of the QP;
        and so does each one without ``swaps``.
    settled : 1
        The response may be taken.
    read_progress, read_progress_en : ``ReadProgress``, 1
        What the QP has from now on, with ``response.ready``.
    reads : stream of ``ReadTargetWrite``
        Each READ or atomic, and where the rest of a READ is asked for, before its request leaves; at most 16 of a QP
        may be unfinished, and one may only be begun if no more than ``allowance`` of its QP are.
    allowance : 4
        Counts from the cycle after an item of ``reads`` is taken.
    access : stream of ``AccessRequest``
    job : stream of ``ResponseJob``
    read : stream of ``ReadRequest``; data : stream of ``PacketBeat``
        Send WQEs in host memory: to a :class:`verbena.hdl.dma.structure.StructureReader`.
    saved : stream of ``SavedWord``; loaded : stream of words
        What SAVE gives away, and LOAD takes: see :class:`.read_target_swap.ReadTargetSwap`; at most 103 words.
    passed : 1
        Strobe: a token has come of whose QP nothing is under way from here to the completer.
    job_done : 1
        Strobe: the oldest job, which is not PASSED, has been taken by the completer.
    ready : 1
        The first words have come, and a token LOAD waits for nothing.
    room : 1
        There are rows for the targets of a QP that comes: see :class:`.read_targets.ReadTargets`.
    """

    def __init__(self, qps, data_width=64, rows=None, *, wqe_bytes=WQE_DEFAULT, swaps=False):
        if not isinstance(qps, int) or not 2 <= qps <= 4096 or qps & qps - 1:
            raise ValueError(f"qps must be a power of two from 2 to 4096, not {qps!r}")
        self.qps = qps
        self.data_width = data_width
        self.rows = rows
        self.wqe_bytes = wqe_bytes
        self.swaps = swaps
        swap = {
            "saved": Out(stream.Signature(SavedWord)),
            "loaded": In(stream.Signature(WORD_BITS)),
            "passed": Out(1),
            "job_done": In(1),
            "ready": Out(1),
            "room": Out(1),
        }
        super().__init__(
            {
                "response": In(stream.Signature(ReceivedResponse)),
                "settled": In(1),
                "read_progress": Out(ReadProgress),
                "read_progress_en": Out(1),
                "reads": In(stream.Signature(ReadTargetWrite)),
                "allowance": Out(range(READS)),
                "access": Out(stream.Signature(AccessRequest)),
                "job": Out(stream.Signature(ResponseJob)),
                "read": Out(stream.Signature(ReadRequest)),
                "data": In(stream.Signature(PacketBeat(data_width))),
            }
            | (swap if swaps else {})
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.targets = targets = ReadTargets(self.qps, self.rows, swaps=self.swaps)
        m.submodules.walk = walk = ScatterWalk()
        m.submodules.cache = cache = EntryCache(self.data_width, wqe_bytes=self.wqe_bytes, swaps=self.swaps)
        wiring.connect(m, wiring.flipped(self.reads), targets.reads)
        wiring.connect(m, cache.read, wiring.flipped(self.read))
        wiring.connect(m, wiring.flipped(self.data), cache.data)

        packet = self.response.payload
        transport = packet.transport
        opcode = transport.opcode[:5]
        target = targets.target
        qp, attributes = packet.qp, packet.attributes
        progress = Signal(ReadProgress)  # its place is the walk's
        kind = Signal(ResponseJobKind)
        resetting = Signal()
        finish = Signal()
        settled = Signal()  # stays until something is written back
        m.d.sync += settled.eq(self.settled)
        is_last = Signal()
        m.d.comb += [
            resetting.eq(packet.work == Work.CONTROL),
            self.read_progress.eq(progress),
            self.read_progress.place.eq(walk.place),
            targets.qp.eq(qp),
            targets.done.eq(self.read_progress_en & ~resetting & is_last),
            self.allowance.eq(targets.allowance),
        ]

        if self.swaps:
            swap = self._connect_swap(m, targets)
            passes = self._pass(m, finish, kind)

        # -- The place of its payload. The target has the first two entries.
        second, sized, alone = Signal(), Signal(), Signal()  # the second is wanted; it is at its size; there is none
        size_word = Signal(64)
        m.d.comb += [
            alone.eq(~target.sge_count[1:].any()),
            *(size_word[SGE.fields[name].offset % 64 :][:32].eq(target.second[name]) for name in ("length", "lkey")),
        ]
        m.d.sync += sized.eq(second & ~alone & ~sized)
        unreadable = Signal()  # why there was no further entry
        with m.If(walk.exhausted):
            m.d.sync += unreadable.eq(~second & cache.failed)
        m.d.comb += [
            walk.start.address.eq(target.address),
            walk.start.key.eq(target.lkey),
            walk.start.left.eq(target.entry_length),
            walk.start.sge.eq(1),
            walk.length.eq(Mux(resetting, 0, transport.length)),
            second.eq(walk.want & (walk.place.sge == 1)),
            walk.word.eq(Mux(second, Mux(sized, size_word, target.second.address), cache.word)),
            walk.take_address.eq(cache.take_address | (second & ~sized & ~alone)),
            walk.take_size.eq(cache.take_size | (second & sized)),
            walk.exhausted.eq(cache.exhausted | (second & alone)),
            cache.want.eq(walk.want & ~second),
            cache.qp.eq(qp),
            cache.index.eq(target.wqe_index),
            cache.stride.eq(target.stride),
            cache.entry.eq(walk.place.sge),
            cache.base.eq(attributes.sq_base),
            cache.log_size.eq(attributes.log_sq_size),
        ]
        mtu = Signal(LENGTH_BITS)
        m.d.sync += mtu.eq(256)
        with m.Switch(attributes.path_mtu):
            for code in range(2, 6):
                with m.Case(code):
                    m.d.sync += mtu.eq(128 << code)
        pending, equal, behind, fits_left, fits_mtu, is_atomic = (Signal() for _ in range(6))
        begins, ends, begun, refuses = Signal(), Signal(), Signal(), Signal()
        resumes = Signal()  # the rest of a READ was asked for from here on
        misplaced = Signal()
        wrong_opcode, wrong_length, accepted = (Signal() for _ in range(3))
        m.d.comb += [
            misplaced.eq((begins == begun) & ~(begun & resumes)),
            wrong_opcode.eq((is_atomic != target.atomic) | (~is_atomic & ((ends != is_last) | misplaced))),
            wrong_length.eq(~Mux(is_last, fits_left, fits_mtu)),
        ]
        m.d.sync += accepted.eq(pending & equal & ~wrong_opcode & ~wrong_length & ~refuses)

        asks = Signal()  # it is no ACK, if it is a packet
        m.d.sync += asks.eq(opcode != ACKNOWLEDGE)

        def look_at_targets():
            """In the 2nd cycle after LOOK, in which it is known what there is of the QP."""
            m.d.sync += [
                pending.eq(targets.some),
                resumes.eq(targets.again & (targets.psn == transport.psn)),
            ]

        with m.FSM():
            with m.State("IDLE"):
                with m.If(self.response.valid):
                    m.next = "LOOK"
                if self.swaps:
                    with m.If(swap.wants):
                        m.next = "TURN"
            with m.State("LOOK"):  # whether it is accepted is known
                m.d.comb += walk.discard.eq(1)
                m.d.sync += kind.eq(Mux(packet.accept, ResponseJobKind.ACK, ResponseJobKind.NOTHING))
                with m.If(targets.free & ~self.job.valid):
                    with m.If(resetting):
                        m.next = "FORGET"
                        if self.swaps:
                            with m.If(packet.action == QpAction.SAVE):
                                m.next = "SAVE"
                            with m.If(packet.action == QpAction.LOAD):
                                m.next = "LOAD"
                    with m.Elif(packet.accept & asks):
                        m.d.comb += targets.look.eq(1)
                        m.next = "READ"
                    with m.Else():
                        m.d.comb += walk.go.eq(1)
                        m.next = "SEND"
            with m.State("FORGET"), m.If(~targets.giving):
                m.d.comb += targets.reset.eq(1)
                m.next = "FORGETS"
            with m.State("FORGETS"):
                with m.If(targets.free):
                    m.next = "TOKEN"
            with m.State("TOKEN"):
                m.d.comb += [walk.go.eq(1), walk.discard.eq(1)]
                m.d.sync += [progress.active.eq(0), kind.eq(ResponseJobKind.TOKEN)]
                m.next = "SEND"
                if self.swaps:
                    m.d.comb += cache.forget.eq(1)
                    with m.If(passes):
                        m.d.sync += kind.eq(ResponseJobKind.PASSED)
                    with m.If(packet.action == QpAction.LOAD):
                        m.d.comb += walk.discard.eq(0)  # its place counts
                        m.d.sync += progress.active.eq(progress.active)
            if self.swaps:
                self._swap(m, swap, targets, walk, progress)

            with m.State("READ"):
                m.d.comb += [walk.load.eq(1), walk.start.eq(packet.progress.place)]
                m.d.sync += progress.eq(packet.progress)
                m.next = "BEGIN"
                with m.If(packet.progress.active):
                    m.next = "CHECK"
            with m.State("BEGIN"):
                look_at_targets()
                m.d.sync += [progress.expected.eq(targets.begin.psn), progress.left.eq(targets.begin.length)]
                m.next = "CHECK"
            with m.State("CHECK"):
                with m.If(progress.active):
                    look_at_targets()
                with m.Else():
                    m.d.comb += walk.load.eq(1)
                m.d.sync += [
                    equal.eq(transport.psn == progress.expected),
                    behind.eq(psn_before(transport.psn, progress.expected)),
                    is_last.eq((progress.left[LENGTH_BITS:] == 0) & (progress.left[:LENGTH_BITS] <= mtu)),
                    fits_left.eq(progress.left == transport.length),
                    fits_mtu.eq(mtu == transport.length),
                    is_atomic.eq(opcode == ATOMIC_ACKNOWLEDGE),
                    begins.eq((opcode == READ_RESPONSE_FIRST) | (opcode == READ_RESPONSE_ONLY)),
                    ends.eq((opcode == READ_RESPONSE_LAST) | (opcode == READ_RESPONSE_ONLY)),
                    begun.eq(progress.active),
                    refuses.eq((opcode != READ_RESPONSE_MIDDLE) & (transport.syndrome[5:] != 0)),
                ]
                m.next = "WEIGH"
            with m.State("WEIGH"):
                m.next = "DECIDE"
            with m.State("DECIDE"):
                m.d.comb += [walk.go.eq(1), walk.discard.eq(~accepted)]
                m.d.sync += [
                    progress.active.eq(~is_last),
                    progress.expected.eq(psn_next(progress.expected)),
                    progress.left.eq(progress.left - transport.length),
                ]
                with m.If(~pending | behind):
                    m.d.sync += kind.eq(ResponseJobKind.NOTHING)
                with m.Elif(~equal):
                    m.d.sync += kind.eq(ResponseJobKind.SKIPPED)
                with m.Elif(accepted):
                    m.d.sync += kind.eq(ResponseJobKind.DATA)
                with m.Else():
                    m.d.sync += kind.eq(ResponseJobKind.FAILED)
                m.next = "SEND"

            with m.State("SEND"), m.If(walk.done):
                m.next = "FINISH"
            with m.State("FINISH"):  # the place behind what came is known
                with m.If(settled):
                    m.d.comb += [
                        finish.eq(1),
                        self.read_progress_en.eq(resetting | ((kind == ResponseJobKind.DATA) & ~walk.short)),
                    ]
                    m.next = "IDLE"
        m.d.comb += self.response.ready.eq(finish)

        # -- Run and job. A packet waits for the job before: then there is room for its own.
        portion = walk.portion.payload
        access = self.access.payload
        m.d.comb += [
            self.access.valid.eq(walk.portion.valid),
            walk.portion.ready.eq(self.access.ready),
            access.key.eq(portion.key),
            access.address.eq(portion.address),
            access.length.eq(portion.length),
            access.span.eq(portion.length),
            access.pd.eq(attributes.pd),
            access.access.eq(Access.LOCAL_WRITE),
            access.qp.eq(qp),
            access.discard.eq(portion.discard),
            access.clear.eq(resetting),
            access.tag.eq(1),
            access.last.eq(portion.last),
        ]
        job = self.job.payload
        with m.If(~self.job.valid):
            m.d.sync += [
                job.qp.eq(qp),
                job.kind.eq(Mux(walk.short, ResponseJobKind.FAILED, kind)),
                job.psn.eq(transport.psn),
                job.msn.eq(transport.msn),
                job.syndrome.eq(Mux(opcode == READ_RESPONSE_MIDDLE, NO_AETH, transport.syndrome)),
                job.status.eq(WcStatus.BAD_RESP_ERR),
                job.wqe_index.eq(target.wqe_index),
            ]
            with m.If(walk.short):
                m.d.sync += [
                    job.syndrome.eq(Mux(unreadable, Syndrome.RING_BUS, Syndrome.LENGTH)),
                    job.status.eq(Mux(unreadable, WcStatus.GENERAL_ERR, WcStatus.LOC_LEN_ERR)),
                ]
            with m.Elif(kind == ResponseJobKind.FAILED):
                m.d.sync += job.syndrome.eq(
                    Mux(wrong_opcode, Syndrome.OPCODE, Mux(refuses, Syndrome.REMOTE_NAK, Syndrome.LENGTH))
                )
            m.d.sync += self.job.valid.eq(finish)
        with m.Elif(self.job.ready):
            m.d.sync += self.job.valid.eq(0)
        return m

    def _connect_swap(self, m, targets):
        """What gives targets away between two responses, and puts them back."""
        m.submodules.swap = swap = ReadTargetSwap(self.qps)
        wiring.connect(m, swap.saved, wiring.flipped(self.saved))
        wiring.connect(m, wiring.flipped(self.loaded), swap.loaded)
        wiring.connect(m, swap.bring, targets.bring)
        # The state has the layout of a target: what stands where is all the same but to who puts it back.
        state, progress, target = swap.state, self.response.payload.progress, targets.target
        resumed = data.View(Resumed, target.second.address[: Resumed.size])
        m.d.comb += [
            swap.qp.eq(self.response.payload.qp),
            state.psn.eq(progress.expected),
            state.length.eq(progress.left),
            state.atomic.eq(progress.active),
            state.address.eq(progress.place.address),
            state.lkey.eq(progress.place.key),
            state.entry_length.eq(progress.place.left),
            state.sge_count.eq(progress.place.sge),
            state.second.address.eq(Cat(targets.again, targets.psn)),
            targets.resumed.eq(resumed),
            swap.some.eq(targets.some),
            swap.half.eq(Mux(swap.second, Value.cast(target)[HALF_BITS:], targets.first)),
            self.ready.eq(swap.ready),
            self.room.eq(targets.room),
        ]
        return swap

    def _pass(self, m, finish, kind):
        """Whether a token need not wait behind payload of others, as its QP has no job under way."""
        m.submodules.passing = passing = TokenPassing(self.qps)
        packet, passed = self.response.payload, kind == ResponseJobKind.PASSED
        m.d.comb += [
            passing.qp.eq(packet.qp),
            passing.action.eq(packet.action),
            passing.control.eq(packet.work == Work.CONTROL),
            passing.leaves.eq(finish),
            passing.by.eq(passed),
            passing.done.eq(self.job_done),
        ]
        m.d.sync += self.passed.eq(finish & passed)
        return passing.passes

    def _swap(self, m, swap, targets, walk, progress):
        """States of tokens SAVE and LOAD, and those in which half a target is given away."""
        with m.State("SAVE"), m.If(swap.empty):
            m.d.comb += swap.save.eq(1)
            m.next = "TOKEN"
        with m.State("LOAD"), m.If(swap.ready):
            m.d.comb += swap.load.eq(1)
            m.next = "COMES"
        # What came goes through the pool, and is taken out at once.
        with m.State("COMES"), m.If(swap.bring.ready):
            m.next = "SEEK"
        with m.State("SEEK"), m.If(targets.free & ~targets.giving):
            m.d.comb += targets.look.eq(1)
            m.next = "SEEN"
        with m.State("SEEN"):
            m.next = "MEASURE"
        with m.State("MEASURE"):
            m.d.sync += [progress.expected.eq(targets.begin.psn), progress.left.eq(targets.begin.length)]
            m.next = "RESTORE"
        with m.State("RESTORE"):
            m.d.comb += [
                walk.load.eq(1),
                walk.start.sge.eq(targets.target.sge_count),
                targets.restore.eq(1),
                targets.done.eq(1),
            ]
            m.d.sync += progress.active.eq(targets.target.atomic)
            m.next = "TOKEN"

        for state, following in (("TURN", "FIND"), ("FIND", None), ("READS", "ARRIVES")):
            with m.State(state):
                m.d.comb += targets.qp.eq(swap.of)
                if following:
                    m.next = following
                else:
                    with m.If(targets.free & ~targets.giving):
                        m.d.comb += targets.look.eq(1)
                        m.next = "READS"
        with m.State("ARRIVES"):
            m.d.comb += [targets.qp.eq(swap.of), swap.found.eq(~swap.second)]
            m.next = "IDLE"
            with m.If(swap.second):
                m.next = "TAKE"
        with m.State("TAKE"):
            m.d.comb += [targets.qp.eq(swap.of), targets.done.eq(1), swap.found.eq(1)]
            m.next = "IDLE"
