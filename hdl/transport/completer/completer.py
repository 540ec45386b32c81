"""When send WQEs are complete, and how: answers, local failures, timeouts and flushing, in the order of the queue."""

from amaranth.hdl import Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ...abi.commands import QpAction
from ...abi.contexts import QP_CONTEXT
from ...context.bank import ContextBank
from ...context.fetch import ContextFetch
from ...stream.transfer import AttributeWrite, Completion, Done, QpControl, QpError
from ...stream.words import WORD_BITS, SavedWord
from ..common.layouts import (
    Departed,
    Failure,
    Flush,
    Outstanding,
    Progress,
    ResponseJob,
    ResponseJobKind,
    TimerFired,
    Watch,
)
from ..common.psn import PSN_BITS, Sent
from ..common.psn_window import PsnWindow
from .ack_context import ack_context
from .completer_arbiter import CompleterArbiter, CompleterItem, EventKind
from .completer_fsm import CompleterFsm
from .completer_outputs import CompleterOutputs
from .completer_swap import CompleterSwap
from .outstanding_messages import OutstandingMessages
from .response_meaning import ResponseMeaning

__all__ = ["Completer"]

ATTRIBUTES = ("state", "qpn", "retry_count", "rnr_retry", "sq_cqn")
"""Fields of the QP context that count for completions."""

ROWS = 2
"""Rows of block RAM for each context: in 4, what was sent would have to be told more rarely."""


class Completer(wiring.Component):
    """Completes the WQEs of each send queue in order: exactly one fate each, and a CQE if it is signaled or failed; and
    makes a queue go back when something was lost.

    *A response* counts if the packet it names lies between the first that is not acknowledged and the last one sent;
    whatever else comes does nothing. *An ACK* completes all messages that end at or before its packet, but stops at a
    READ or atomic, which only its data completes: what was to come then is lost (an implied NAK, as a response is that
    passes over others). *Data* acknowledges its packet, and all messages before its own. *A NAK* acknowledges what
    precedes its packet. Then the queue goes back if a packet was lost; waits, if the peer was not ready (unless all is
    acknowledged meanwhile), and goes back when its time is over; or the oldest WQE fails, also if it is still being
    sent. So it does when retries are used up (:class:`.retry_account.RetryAccount`).

    *A local failure* takes effect when its WQE is the oldest; of a WQE that is complete, which was sent again in vain,
    it only makes the queue go back. After any failure the QP is dead, and ``error`` says so; what remains waits for its
    *flush*: every WQE up to the index given completes with WR_FLUSH_ERR, or with its own failure. A *drain* is told
    with SQ_DRAINED once all WQEs before its index are complete. Responses, timeouts and failures count in RTS and SQD
    (a failure in ERR is kept for the flush), flushes in ERR, drains in SQD.

    Events are dealt with one after the other, and the next one's context is fetched meanwhile
    (:class:`verbena.hdl.context.fetch.ContextFetch`); that of the present one is written back when it is done, and then
    told to requester and timers.

    *Cycles*: a response 5, and 3 for each message that it completes; up to 3 more if something is to be done about it,
    or a drain waits. A completion comes 9 cycles after its ``done``. A job NOTHING 2. A flush 6 and 2 for each WQE.
    RESET and LOAD take as many cycles as ``window``, SAVE as there are messages. ``outstanding`` is taken at once, but
    for RESET and LOAD; an ACK must not follow its message sooner than 4 cycles later. One completion, one error and one
    entry for ``ready`` are buffered, and one event, whose context has been fetched.

    *SAVE* gives away what the QP has here (:class:`.completer_swap.CompleterSwap`) and leaves it dead, though its
    progress can still be seen; *LOAD* brings it back. They concern a QP that sends nothing and hears of nothing
    meanwhile. Other QPs wait for neither's words: LOAD is looked at when all have come, and SAVE is taken before they
    go. If a failure was noted, a retry follows when the requester, which hears of LOAD last, says what was sent: only
    on the way back it finds the WQE that was refused.

    Source: IBA volume 1, 9.7.5 (acknowledgement), 9.7.7.2 (credits), 9.9.2 and 10.8 (completion errors), C9-148.

    Parameters
    ----------
    qps : int
        QPs, a power of two.
    window : int
        Most messages of a QP that are begun and not complete, a power of two.
    swaps : bool
        QPs can be taken out and put back: with ``saved`` and ``loaded``.

    Members
    -------
    attribute, attribute_en : ``AttributeWrite``
        The command block's broadcast.
    control : stream of ``QpControl``; reply : stream of ``{index}``
        Taken when it is done. ``reply`` stays until it is taken, and holds up further QUERYs only.
    outstanding : stream of ``Outstanding``; sent, sent_en : ``Sent``
        Every packet, before it can be acknowledged; not in two cycles in succession. A QP that starts has sent the PSN
        before its first one.
    failed_requester, failed_transmitter : stream of ``Failure``
    departed : stream of ``Departed``
        In one order with ``failed_transmitter``: who says both says one at a time.
    local : stream of ``Departed``
        With ``keys``: a WQE without a packet is done, and is the oldest. It comes 4 cycles behind its ``outstanding``.
    flush : stream of ``Flush``
    fired : stream of ``TimerFired``
    job : stream of ``ResponseJob``; done : stream of ``Done``
        Taken together.
    token_done : 1
        A job TOKEN is done, and so are all before it; or one has ``passed``.
    passed, job_done : 1
        With ``swaps``, as of :class:`.response_receiver.ResponseReceiver`.
    completion : stream of ``Completion``
    error : stream of ``QpError``
    ready : stream of QP index
        The QP may find that it can go on: whenever a response counted.
    retry : stream of QP index
        The queue goes back to ``progress.unacked``; a set, so never held up.
    context_qp, context_en, progress, watch : 12, 1, ``Progress``, ``Watch``
        For requester and timers: what the QP has from now on. One in 4 cycles at most.
    saved : stream of ``SavedWord``; loaded : stream of words
        What SAVE gives away, and LOAD takes; at most 3 + ``window`` words.
    count_rx_acks, count_rx_naks, count_retries, count_implied_naks, count_drop_response : 1
    """

    def __init__(self, qps, window=64, *, swaps=False, keys=False):
        if qps < 2 or qps & qps - 1:
            raise ValueError(f"qps must be a power of two, at least 2, not {qps!r}")
        if window < 2 or window & window - 1 or window > 1 << 14:
            raise ValueError(f"window must be a power of two from 2 to 16384, not {window!r}")
        self.qps = qps
        self.window = window
        self.swaps = swaps
        self.keys = keys
        swap = {
            "saved": Out(stream.Signature(SavedWord)),
            "loaded": In(stream.Signature(WORD_BITS)),
            "passed": In(1),
            "job_done": Out(1),
        }
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
                "departed": In(stream.Signature(Departed)),
                "flush": In(stream.Signature(Flush)),
                "fired": In(stream.Signature(TimerFired)),
                "job": In(stream.Signature(ResponseJob)),
                "done": In(stream.Signature(Done)),
                "token_done": Out(1),
                "completion": Out(stream.Signature(Completion)),
                "error": Out(stream.Signature(QpError)),
                "ready": Out(stream.Signature(range(qps))),
                "retry": Out(stream.Signature(range(qps))),
                "context_qp": Out(12),
                "context_en": Out(1),
                "progress": Out(Progress),
                "watch": Out(Watch),
                "count_rx_acks": Out(1),
                "count_rx_naks": Out(1),
                "count_retries": Out(1),
                "count_implied_naks": Out(1),
                "count_drop_response": Out(1),
            }
            | (swap if swaps else {})
            | ({"local": In(stream.Signature(Departed))} if keys else {})
        )

    def elaborate(self, platform):
        m = Module()
        bank = ContextBank(QP_CONTEXT, ATTRIBUTES, {"ack": ack_context(self.keys), "latest": PSN_BITS}, self.qps, ROWS)
        m.submodules.arbiter = arbiter = CompleterArbiter(self.qps, keys=self.keys)
        m.submodules.fetch = fetch = ContextFetch(CompleterItem, bank, others=("latest",))
        m.submodules.meaning = meaning = ResponseMeaning()
        m.submodules.messages = messages = OutstandingMessages(self.qps, self.window, swaps=self.swaps)
        m.submodules.window = window = PsnWindow()
        m.submodules.outputs = outputs = CompleterOutputs(self.qps, swaps=self.swaps, keys=self.keys)
        m.submodules.fsm = fsm = CompleterFsm(swaps=self.swaps, keys=self.keys)
        wiring.connect(m, arbiter.o, fetch.i)
        for block, names in (
            (
                arbiter,
                ("control", "failed_requester", "failed_transmitter", "departed", "flush", "fired", "job", "done")
                + (("local",) if self.keys else ()),
            ),
            (outputs, ("completion", "error", "ready", "retry", "reply")),
            (messages, ("outstanding",)),
        ):
            for name in names:
                if not self.swaps or name not in ("control", "outstanding"):
                    wiring.connect(m, getattr(block, name), wiring.flipped(getattr(self, name)))
        here, row, moving = fetch.o.payload, fetch.o.payload.states.ack, fetch.fetching.item
        for block, names in (
            (window, ("load", "compare")),
            (messages, ("clear",)),
            (outputs, ("emit", "status", "syndrome", "fail", "drained", "schedule", "back", "answer")),
        ):
            m.d.comb += [getattr(block, name).eq(getattr(fsm, name)) for name in names]
        for block, names in (
            (window, ("within", "newest", "none")),
            (messages, ("message", "cleared")),
            (outputs, ("free", "busy")),
            (fetch, ("settled",)),
            (meaning, ("meaning",)),
            (here.attributes, ("state", "retry_count", "rnr_retry")),
        ):
            m.d.comb += [getattr(fsm, name).eq(getattr(block, name)) for name in names]

        told = fsm.take & (here.item.kind == EventKind.CONTROL)
        # SAVE leaves a dead row. The requester, which gives its state away later, must still know whether the QP waits.
        leaves = told & (fsm.control.action == QpAction.SAVE) if self.swaps else 0
        m.d.comb += [
            fetch.attribute.eq(self.attribute),
            fetch.attribute_en.eq(self.attribute_en),
            fetch.other.latest.slot.eq(self.sent.qp),
            fetch.other.latest.data.eq(self.sent.psn),
            fetch.other.latest.en.eq(self.sent_en),
            fetch.o.ready.eq(fsm.take),
            fetch.write.ack.data.eq(fsm.next),
            fetch.write.ack.change.eq(fsm.change),
            fetch.write.ack.en.eq(fsm.take & fsm.write),
            fsm.valid.eq(fetch.o.valid),
            fsm.event.eq(here.item),
            fsm.row.eq(row),
            self.context_qp.eq(here.slot),
            self.context_en.eq(fetch.write.ack.en),
            self.progress.eq(row.progress),
            # A queue that has failed sends nothing more, however long its QP takes to go to ERR.
            self.progress.waiting.eq(row.progress.waiting | (row.dead & ~leaves)),
            self.watch.unacked.eq(row.progress.unacked),
            self.watch.waiting.eq(row.progress.waiting),
            self.watch.generation.eq(row.generation),
            self.watch.rnr_timer.eq(row.rnr_timer),
            self.watch.dead.eq(row.dead),
            arbiter.control_taken.eq(told),
            arbiter.dropped.eq(fsm.dropped),
            arbiter.replying.eq(self.reply.valid),
            meaning.start.eq(fetch.moves),
            meaning.load.eq((moving.kind == EventKind.RESPONSE) | (moving.kind == EventKind.TOKEN)),
            meaning.job.kind.eq(moving.job),
            meaning.job.psn.eq(moving.psn),
            meaning.job.msn.eq(moving.msn),
            meaning.job.status.eq(moving.status),
            meaning.job.syndrome.eq(moving.syndrome),
            meaning.done_status.eq(moving.refusal),
            messages.qp.eq(here.slot),
            messages.seek.eq(fsm.seek),
            messages.oldest.eq(row.progress.oldest),
            messages.target.eq(meaning.meaning.target),
            messages.data.eq(meaning.meaning.data),
            window.psn.eq(meaning.psn),
            window.first.eq(row.progress.unacked),
            window.unacked.eq(row.progress.unacked),
            window.latest.eq(here.states.latest),
            outputs.qp.eq(here.slot),
            outputs.qpn.eq(here.attributes.qpn),
            outputs.cq.eq(here.attributes.sq_cqn),
            outputs.wqe_index.eq(row.progress.oldest),
            outputs.opcode.eq(messages.message.opcode),
            self.count_rx_acks.eq(meaning.count_rx_acks),
            self.count_rx_naks.eq(meaning.count_rx_naks),
        ]
        token, passed = Signal(), Signal()  # one is done; another one has passed, and is told of when no other is
        m.d.comb += token.eq(fsm.take & (here.item.kind == EventKind.TOKEN))
        m.d.sync += [
            fsm.control.eq(self.control.payload),  # it stands for 2 cycles before anybody looks at it
            self.token_done.eq(token | passed),
            self.count_retries.eq(fsm.back),
            self.count_implied_naks.eq(fsm.count_implied_naks),
            self.count_drop_response.eq(fsm.dropped | arbiter.discarded),
        ]
        if self.swaps:
            self._swap(m, arbiter, messages, outputs, fsm)
            m.d.comb += self.job_done.eq(
                self.job.valid & self.job.ready & (self.job.payload.kind != ResponseJobKind.PASSED)
            )
            m.d.sync += passed.eq(self.passed | (passed & token))
        return m

    def _swap(self, m, arbiter, messages, outputs, fsm):
        """Tokens of QPs that are taken out or put back."""
        m.submodules.swap = swap = CompleterSwap(self.window, keys=self.keys)
        wiring.connect(m, swap.saved, wiring.flipped(self.saved))
        wiring.connect(m, wiring.flipped(self.loaded), swap.loaded)
        action = self.control.payload.action
        waits = ((action == QpAction.SAVE) & ~swap.empty) | ((action == QpAction.LOAD) & ~swap.full)
        m.d.comb += [
            arbiter.control.valid.eq(self.control.valid & ~waits),
            arbiter.control.payload.eq(self.control.payload),
            self.control.ready.eq(arbiter.control.ready),
            swap.save.eq(fsm.save),
            swap.load.eq(fsm.restore),
            swap.qp.eq(messages.qp),
            swap.row.eq(fsm.row),
            swap.message.eq(messages.message),
            swap.known.eq(messages.known),
            fsm.swapped.eq(swap.done),
            fsm.came.eq(swap.value),
            outputs.owe.eq(fsm.owe),
            outputs.sent.eq(self.sent),
            outputs.sent_en.eq(self.sent_en),
        ]
        with m.If(fsm.save):
            m.d.comb += messages.seek.eq(swap.seek)
        with m.If(fsm.restore):
            wiring.connect(m, swap.outstanding, messages.outstanding)
        with m.Else():
            wiring.connect(m, wiring.flipped(self.outstanding), messages.outstanding)
