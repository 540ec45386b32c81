"""What is said once a request's payload is in memory, or refused."""

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ...abi.cqe import Syndrome, WcStatus
from ...abi.eqe import EventType
from ...abi.tables import AccessStatus
from ...memory.key_operations import KEY_CLIENT
from ...stream.ram import Ram
from ...stream.transfer import NO_EVENT, Completion, Done, Passage, QpError
from ...stream.words import WORD_BITS, SavedWord
from ..common.aeth import AethSyndrome
from ..common.layouts import Ack, Answered, Job, PassingToken, Release
from .ack_queue import AckAction, AckQueue
from .parked_job import ParkedJob

__all__ = ["Acknowledger"]

DONES_DUE = 64
"""More than runs between the responder and the end of their writing."""

Memory = data.StructLayout({"dead": 1, "blamed": 1, "wqe_index": 16, "msn": 24, "pending": 5})
"""Of a QP: whether it has failed; which receive WQE has already completed because of that; messages acknowledged; how
many READs and atomics are released and not answered, at most 16."""


class Acknowledger(wiring.Component):
    """Pairs the responder's jobs with the ``Done`` of their runs, in order, and then answers: payload before ACK,
    payload before completion.

    A run that was refused ends the QP's life: NAK 0x62 if the key came from the wire, otherwise, and after a bus error,
    0x63. The receive WQE in use completes with LOC_PROT_ERR, or with LOC_ACCESS_ERR if the key was the peer's (WRITE
    with immediate). A job that the responder found to be fatal ends it, too, in the job's words. The QP is reported
    once on ``error``, with QP_ACCESS_ERR if the key was the peer's, QP_FATAL after a bus error, and no event if the
    completion says it all. From then on the QP gets no answer, and its receive WQEs complete with WR_FLUSH_ERR, each
    once; a RESET token ends that. A run that is POISONED, because an earlier one was refused, fails its QP in silence.

    Of UC and UD nothing is acknowledged. A run that was refused, and whose key came from the wire, costs its message
    alone: no error and no event, but a receive WQE that was taken for its immediate completes with LOC_ACCESS_ERR.

    Completions with an error are always solicited.

    A NAK's MSN does not count the message that it refuses.

    The job of a READ or an atomic is not acknowledged: it releases the response, for which everything before it is in
    memory now. Nothing of its own has to be written, so it does not wait for its ``done``, which is taken later. Until
    the last packet of the response has left, or vanished, later answers of the QP wait. A response whose access was
    refused ends the QP's life like a refused run whose key came from the wire; the NAK has the response's PSN, and its
    MSN less the message itself. That NAK waits for nothing, as no later response follows, and takes the place of one
    for a later request, if that has ended the QP's life already: the peer must hear of the first request that failed.

    *SAVE and LOAD* come as jobs that are tokens. SAVE waits until all READs and atomics of its QP are answered, and its
    last ACK or NAK is sent; what is answered is heard meanwhile, with all that follows from it, but the jobs behind
    wait, too. Then the QP's row is given away, in one word with the fields of :data:`Memory`. LOAD waits for that word.
    Those that come at ``passing`` have their turn between two jobs, or while one waits for its ``done``; the jobs that
    they leave behind do nothing.

    A silent job takes 1 cycle, all others 4, one that was refused 5, and 2 more for an error; an answered response
    takes 5, likewise. While a job waits for its ``done``, what it needs is looked up already: a completion is said in
    the cycle of a ``done`` that is OK, otherwise 2 cycles later, and an ACK stands at ``ack`` after 2, a NAK after 3.
    Answers wait in :class:`.ack_queue.AckQueue`.

    Parameters
    ----------
    qps : int
        QPs, a power of two.
    swaps : bool
        There are SAVE and LOAD.
    keys : bool
        There are SENDs with invalidate.

    Members
    -------
    job : stream of ``Job``
        The next one should be there when its ``done`` comes: they need a queue between.
    done : stream of ``Done``
    completion : stream of ``Completion``
    hint_cq : CQ index
        Probably that of the next completion.
    ack : stream of ``Ack``
        To the transmitter.
    backlog : 1
        Packets other than these wait for the wire, see :class:`.ack_queue.AckQueue`.
    release : stream of ``Release``
        To the READ/atomic responder, which must take it also while it offers something at ``answered``. A token is
        passed on here, too; nothing that was answered before is counted after it.
    answered : stream of ``Answered``
        From the transmitter, by way of the READ/atomic responder, which may withdraw answers of a QP once it has the
        QP's token.
    error : stream of ``QpError``
    token_done : 1
        Strobe: a token has come out here. Nothing of the QP's past follows it on any output but ``saved``.
    count_drop_error : 1
        Strobe: a request was refused, or came behind a refused one; RNR NAKs included.
    operation : stream of ``KeyRequest``; operated : stream of ``KeyResult``
        With ``keys``: the key of a SEND with invalidate is made invalid when its payload is there, before it is
        answered or completed. Its job waits aside meanwhile, 1 job at a time: jobs of other QPs go on, until one comes
        of its own QP, or another one that has a key; what is answered goes on, too. If it fails, it is as if its run
        were refused because of that key.
    saved, loaded : streams of ``SavedWord`` and of words
        With ``swaps``: a QP's row, one word. The next ones, too:
    passing : stream of ``PassingToken``
        Of a QP that has no job here, nor on its way.
    job_done, held, held_qp : 1, 1, 12
        Strobe: the oldest job has been taken, and is not that of a token that has passed; another one of this QP is
        held aside.
    """

    def __init__(self, qps, *, swaps=False, keys=False):
        if not isinstance(qps, int) or not 2 <= qps <= 4096 or qps & qps - 1:
            raise ValueError(f"qps must be a power of two from 2 to 4096, not {qps!r}")
        self.qps = qps
        self.swaps = swaps
        self.keys = keys
        words = {
            "saved": Out(stream.Signature(SavedWord)),
            "loaded": In(stream.Signature(WORD_BITS)),
            "passing": In(stream.Signature(PassingToken)),
            "job_done": Out(1),
            "held": Out(1),
            "held_qp": Out(12),
        }
        super().__init__(
            {
                "job": In(stream.Signature(Job)),
                "done": In(stream.Signature(Done)),
                "completion": Out(stream.Signature(Completion)),
                "hint_cq": Out(Completion.members["cq"]),
                "ack": Out(stream.Signature(Ack)),
                "backlog": In(1),
                "release": Out(stream.Signature(Release)),
                "answered": In(stream.Signature(Answered)),
                "error": Out(stream.Signature(QpError)),
                "token_done": Out(1),
                "count_drop_error": Out(1),
            }
            | (words if swaps else {})
            | (KEY_CLIENT if keys else {})
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.ram = ram = Ram(Memory, self.qps)
        m.submodules.acks = acks = AckQueue(self.qps, swaps=self.swaps)
        job = Signal(Job)
        resumed = Signal()  # the turn is that of a job that has waited for an operation
        aside, passing = Signal(), Signal()  # the turn is that of a token that passes; one is there
        m.d.comb += job.eq(self.job.payload)
        answered = self.answered.payload
        memory = ram.r_data
        response = Signal()  # the turn is not a job's, but that of a response that was answered
        of_job = Signal(init=1)  # always the opposite of `response`, which chooses many bits: for what decides
        status = Signal(AccessStatus)
        turn_qp = Signal(12)
        early = Signal()  # the job need not wait
        dones_due, done_due = Signal(range(DONES_DUE)), Signal()  # `done` of such jobs that are still to come
        done = Signal()  # that of the job is there
        bad = Signal()  # and is not OK
        fate = Signal(AccessStatus)  # of the job's run, or of its operation on a key
        remote = Signal()  # the key came from the wire
        qp = turn_qp[: ceil_log2(self.qps)]

        m.d.comb += [
            turn_qp.eq(Mux(response, answered.qp, job.qp)),
            early.eq(of_job & job.release),
            done.eq(resumed | aside | (self.done.valid & ~done_due & ~early)),
            status.eq(Mux(response, answered.status, Mux(bad, fate, AccessStatus.OK))),
            ram.r_addr.eq(qp),
            ram.w_addr.eq(qp),
        ]
        wiring.connect(m, acks.o, wiring.flipped(self.ack))
        m.d.sync += acks.backlog.eq(self.backlog)
        completion = self.completion.payload
        cq = Signal.like(completion.cq)
        qpn, source_qpn = Signal.like(completion.qpn), Signal.like(completion.source_qpn)

        # What this turn brings, found once it is known how the run or the response fared.
        gone = Signal()  # the QP has failed before
        refused = Signal()  # this run or response fails it
        failed = Signal()  # this job fails it
        dropped = Signal()  # this run costs its message
        last = Signal()  # the job tells that the QP takes no more shared receive WQEs
        reports = Signal()  # the command block hears of it
        completes = Signal()
        releases = Signal()  # also a token
        speaks = Signal()  # to the queue of answers
        drops = Signal()
        bus = Signal()
        pending = Signal(5)
        messages_before = Signal(24)  # the response's own; a response is answered with a NAK or not at all
        m.d.sync += messages_before.eq(answered.msn - 1)
        forgiven = ~response & job.unreliable & job.remote & (status != AccessStatus.BUS)
        is_gone = memory.dead | (~response & ~forgiven & (status == AccessStatus.POISONED))
        is_refused = (status != AccessStatus.OK) & (status != AccessStatus.POISONED) & ~forgiven
        is_dropped = (status != AccessStatus.OK) & forgiven & ~memory.dead
        # A response still counts in a QP that a later request has killed; of a past life, or behind a refused one, not.
        is_refused &= Mux(response, memory.pending != 0, ~memory.dead)
        is_failed = ~response & ~memory.dead & (status == AccessStatus.OK) & job.fatal
        is_told = is_gone & memory.blamed & (memory.wqe_index == job.wqe_index)
        flushes = job.status == WcStatus.WR_FLUSH_ERR
        not_ready = job.acknowledge & (job.syndrome[5:7] == AethSyndrome.RNR >> 5)

        def decide():
            m.d.sync += [
                cq.eq(job.cq),
                qpn.eq(job.qpn),
                source_qpn.eq(job.source_qpn),
                gone.eq(is_gone),
                refused.eq(is_refused),
                failed.eq(is_failed),
                last.eq(~response & job.last),
                dropped.eq(is_dropped),
                bus.eq(status == AccessStatus.BUS),
            ]
            with m.If(response):
                m.d.sync += [
                    completes.eq(0),
                    releases.eq(0),
                    speaks.eq(1),
                    drops.eq(is_refused),
                    # 0 if it is of a past life; and if it is refused, none of those behind it will be answered.
                    pending.eq(Mux(is_refused, 0, memory.pending - (answered.last & (memory.pending != 0)))),
                ]
            with m.Else():
                m.d.sync += [
                    completes.eq(~is_told & (job.complete | (~job.token & is_refused & job.receive))),
                    releases.eq(job.token | (job.release & ~is_gone)),
                    speaks.eq(
                        job.token | (~is_gone & (job.acknowledge | job.release | (is_refused & ~job.unreliable)))
                    ),
                    drops.eq(
                        ~(job.token | job.last | flushes) & (is_gone | is_refused | is_failed | is_dropped | not_ready)
                    ),
                    pending.eq(Mux(job.token, 0, memory.pending + (job.release & ~is_gone))),
                ]

        answer = acks.answer
        m.d.comb += [
            reports.eq((refused & ~gone) | failed | last),
            completion.cq.eq(cq),
            self.hint_cq.eq(cq),
            completion.qp.eq(job.qp),
            completion.qpn.eq(qpn),
            completion.source_qpn.eq(source_qpn),
            completion.source.eq(job.source),
            completion.wqe_index.eq(job.wqe_index),
            completion.opcode.eq(job.opcode),
            completion.status.eq(job.status),
            completion.syndrome.eq(job.cause),
            completion.flags.eq(job.flags),
            completion.immediate.eq(job.immediate),
            completion.byte_length.eq(job.byte_length),
            completion.solicited.eq(job.solicited | (completion.status != WcStatus.SUCCESS)),
            self.release.payload.qp.eq(job.qp),
            self.release.payload.token.eq(job.token),
            acks.hold.eq(pending != 0),
            answer.qp.eq(turn_qp),
            answer.psn.eq(Mux(response, answered.psn, job.psn)),
            answer.msn.eq(Mux(response, messages_before, Mux(refused, memory.msn, job.msn))),
            answer.syndrome.eq(job.syndrome),
            self.error.payload.qp.eq(turn_qp),
            self.error.payload.event.eq(job.event),
        ]
        with m.If(response & ~refused):
            m.d.comb += acks.action.eq(AckAction.HOLD)
        with m.Elif(~response & job.token):
            m.d.comb += acks.action.eq(AckAction.CLEAR)
        with m.Elif(~response & releases):
            m.d.comb += acks.action.eq(AckAction.RELEASE)
        with m.If(gone):
            m.d.comb += [completion.status.eq(WcStatus.WR_FLUSH_ERR), completion.syndrome.eq(Syndrome.FLUSHED)]
        with m.Elif(refused | dropped):
            m.d.comb += [
                completion.status.eq(Mux(remote, WcStatus.LOC_ACCESS_ERR, WcStatus.LOC_PROT_ERR)),
                completion.syndrome.eq(status),
            ]
        with m.If(refused):
            m.d.comb += [
                answer.syndrome.eq(AethSyndrome.NAK_REMOTE_OPERATION),
                self.error.payload.event.eq(NO_EVENT),
            ]
            with m.If(bus):
                m.d.comb += self.error.payload.event.eq(EventType.QP_FATAL)
            with m.Elif(response | remote):
                m.d.comb += [
                    answer.syndrome.eq(AethSyndrome.NAK_REMOTE_ACCESS),
                    self.error.payload.event.eq(EventType.QP_ACCESS_ERR),
                ]

        written = ram.w_data
        m.d.comb += [written.eq(memory), written.pending.eq(pending)]
        with m.If(response):
            m.d.comb += written.dead.eq(gone | refused)
        with m.Elif(job.token):
            m.d.comb += written.eq(0)
        with m.Elif(gone | refused):
            # A receive WQE that has completed in the midst of its message comes once more, at the message's end or to
            # be flushed. After that its index, or its number, is another's.
            m.d.comb += [written.dead.eq(1), written.blamed.eq(memory.blamed & ~job.complete)]
            with m.If(refused & job.receive):
                m.d.comb += [written.blamed.eq(~job.complete), written.wqe_index.eq(job.wqe_index)]
        with m.Else():
            m.d.comb += [written.dead.eq(failed), written.msn.eq(job.msn)]

        waited = Signal()
        here = Mux(of_job, done | early, self.answered.valid)
        if self.swaps:
            here &= ~self._swap(m, job, ram, acks, of_job, waited)

        leave = Signal()
        own = ~(resumed | aside)  # the turn is that of the oldest job
        may_park, park = Signal(), Signal()  # a job is put aside
        held, back = Signal(), Signal()  # one must wait for that; it comes back
        m.d.comb += [fate.eq(self.done.payload.status), remote.eq(job.remote)]
        if self.keys:
            m.submodules.parked = parked = ParkedJob()
            wiring.connect(m, parked.operation, wiring.flipped(self.operation))
            wiring.connect(m, wiring.flipped(self.operated), parked.operated)
            needs = of_job & job.invalidate & own & (self.done.payload.status == AccessStatus.OK)
            here &= ~(needs & (~waited | ~is_gone))
            m.d.sync += park.eq(may_park & needs & waited & done & ~is_gone)
            m.d.comb += [
                parked.coming.eq(self.job.payload),
                parked.park.eq(park),
                parked.leave.eq(leave & resumed),
                held.eq(parked.held & own),
                back.eq(parked.back),
            ]
            with m.If(resumed):
                m.d.comb += [job.eq(parked.job), fate.eq(parked.status)]
                with m.If(parked.status != AccessStatus.OK):
                    m.d.comb += remote.eq(1)
        if self.swaps:
            token = self.passing.payload
            with m.If(aside):
                m.d.comb += [job.qp.eq(token.qp), job.token.eq(1), job.passage.eq(token.passage)]
                # All that would count beside.
                m.d.comb += [job[name].eq(0) for name in ("release", "complete", "fatal", "last")]
                m.d.comb += fate.eq(AccessStatus.OK)
            passed = self.job.payload.silent & self.job.payload.token
            m.d.comb += [
                passing.eq(self.passing.valid & ~aside),
                self.passing.ready.eq(leave & aside),
                self.job_done.eq(self.job.valid & self.job.ready & ~passed),
            ]
            if self.keys:
                m.d.comb += [self.held.eq(parked.here), self.held_qp.eq(parked.job.qp)]
        over = Signal()  # as `leave`, for responses, which wait for nobody
        m.d.sync += waited.eq(0)
        pass_by = Signal()
        counts = Signal()  # the response is over, or the QP's last
        said = Signal()
        spoken = Signal()  # the queue of answers has been told, and the rest waits
        m.d.comb += [
            self.job.ready.eq((leave & of_job & own) | park),
            self.done.ready.eq((leave & of_job & ~early & own) | park | done_due),
            self.answered.ready.eq((over & ~of_job) | pass_by),
            counts.eq(
                answered.last | ((answered.status != AccessStatus.OK) & (answered.status != AccessStatus.POISONED))
            ),
            # Who releases and completes, a token that gives up a receive WQE, completes first.
            said.eq(Mux(completes, self.completion.ready & ~releases, ~releases | self.release.ready)),
        ]
        # The number is counted a cycle later; whether there are any is known at once.
        early_leave, early_done = leave & early, done_due & self.done.valid
        more, less, due = Signal(), Signal(), Signal.like(dones_due)
        m.d.comb += due.eq(dones_due + more - less)
        m.d.sync += [
            more.eq(early_leave),
            less.eq(early_done),
            dones_due.eq(due),
            done_due.eq(early_leave | (due > 1) | ((due == 1) & ~early_done)),
        ]
        with m.If(leave):
            m.d.sync += [response.eq(0), of_job.eq(1), resumed.eq(0), aside.eq(0)]
        with m.FSM():
            with m.State("PAIR"):
                m.d.sync += bad.eq(0)
                with m.If(self.answered.valid):
                    m.d.comb += pass_by.eq(~counts)
                    m.d.sync += [response.eq(counts), of_job.eq(~counts)]
                    with m.If(counts):
                        m.next = "TURN"
                with m.Elif(back):
                    m.d.sync += resumed.eq(1)
                    m.next = "TURN"
                with m.Elif(passing):
                    m.d.sync += aside.eq(1)
                    m.next = "TURN"
                with m.Elif(self.job.valid):
                    with m.If(~job.silent):
                        m.next = "READ"
                    with m.Elif(done):
                        m.d.comb += [leave.eq(1), self.count_drop_error.eq(job.cause != 0)]
            with m.State("TURN"):
                m.next = "READ"
            with m.State("READ"):
                m.next = "DECIDE"
                with m.If(held & of_job):
                    m.next = "PAIR"
            with m.State("DECIDE"):
                decide()
                # While it waits all is as if the run were OK: that is known by now, if it has waited.
                m.d.sync += waited.eq(of_job)
                with m.If(waited & done & (self.done.payload.status == AccessStatus.OK) & ~job.invalidate):
                    m.d.comb += self.completion.valid.eq(completes)
                    with m.If(completes & self.completion.ready):
                        m.d.sync += completes.eq(0)
                with m.If(~here):
                    # An answer may be withdrawn; a job can wait.
                    with m.If(~of_job | self.answered.valid | passing):
                        m.d.sync += [response.eq(0), of_job.eq(1), aside.eq(0)]
                        m.next = "PAIR"
                with m.Else():
                    m.next = "SAY"
                    with m.If(done & (fate != AccessStatus.OK)):
                        m.d.sync += bad.eq(1)
                        m.next = "AGAIN"
                m.d.comb += may_park.eq(~park & ~self.answered.valid)
                with m.If(park):
                    m.next = "PAIR"
            with m.State("AGAIN"):
                decide()
                m.next = "SAY"
            with m.State("SAY"):
                m.d.comb += [
                    over.eq(~reports),
                    self.completion.valid.eq(completes),
                    self.release.valid.eq(releases & ~completes),
                    acks.put.eq(speaks & ~spoken),
                    ram.w_en.eq(said),
                ]
                m.d.sync += spoken.eq(~said)
                with m.If(self.completion.ready):
                    m.d.sync += completes.eq(0)
                with m.If(said):
                    m.d.comb += self.count_drop_error.eq(drops)
                    with m.If(reports):
                        m.next = "ERROR"
                    with m.Elif(of_job & job.token):
                        m.next = "TOKEN"
                    with m.Else():
                        m.d.comb += leave.eq(1)
                        m.next = "PAIR"
            with m.State("ERROR"):
                m.d.comb += self.error.valid.eq(1)
                with m.If(self.error.ready):
                    m.next = "LEAVE"
            with m.State("LEAVE"):
                m.d.comb += [leave.eq(1), over.eq(1)]
                m.next = "PAIR"
            with m.State("TOKEN"):
                # What is on its way out belongs to the QP's past.
                m.d.comb += [self.token_done.eq(~acks.holds), leave.eq(~acks.holds)]
                with m.If(~acks.holds):
                    m.next = "PAIR"
        return m

    def _swap(self, m, job, ram, acks, of_job, waited):
        """The words of SAVE and LOAD; returns 1 for as long as such a job must wait."""
        saved, loaded = self.saved, self.loaded
        saves, loads, waits = Signal(), Signal(), Signal()
        m.d.comb += [
            saves.eq(of_job & job.token & (job.passage == Passage.SAVE)),
            loads.eq(of_job & job.token & (job.passage == Passage.LOAD)),
            # Whether an answer waits is known a cycle later than the row.
            waits.eq(saves & (~waited | acks.waits | (ram.r_data.pending != 0) | saved.valid)),
            acks.hurry.eq(saves & waited),
            self.release.payload.passage.eq(job.passage),
            saved.payload.last.eq(1),
            loaded.ready.eq(loads & ram.w_en),
        ]
        with m.If(loads):
            m.d.comb += [waits.eq(~loaded.valid), Value.cast(ram.w_data).eq(loaded.payload)]
        with m.If(saved.ready):
            m.d.sync += saved.valid.eq(0)
        with m.If(saves & ram.w_en):
            m.d.sync += [saved.valid.eq(1), saved.payload.data.eq(Value.cast(ram.r_data))]
        return waits
