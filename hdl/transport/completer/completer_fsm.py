"""The completer's work on one event, step by step."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ...abi.commands import QpAction
from ...abi.contexts import QpState
from ...abi.cqe import Syndrome, WcStatus
from ...stream.transfer import QpControl
from ..common.layouts import OPERATED, ResponseJobKind
from ..common.psn import PSN_BITS, psn_next
from .ack_context import ack_context
from .completer_arbiter import CompleterItem, EventKind
from .outstanding_messages import OldestMessage
from .response_effect import ResponseEffect
from .response_meaning import Meaning
from .retry_account import RetryAccount, RetryCause

__all__ = ["CompleterFsm"]


class CompleterFsm(wiring.Component):
    """Has one event at a time, changes the acknowledge context (the row) of its QP, and drives the outputs.

    *Credits* are counted from the MSN, and so without WQEs that change keys; indices are those of all WQEs. So the
    limit is as many WQEs further as such ones are complete.

    The first packet that is not acknowledged is compared in the first cycle of the event; the oldest message is there 2
    cycles later. The row is written back in the last one, in which the event is taken. The FSM goes on to the next
    message only if the completion register is free, or becomes free in this cycle.

    SAVE leaves the row as it was, but ``dead``: a retry that has been asked for still goes back to the oldest WQE, and
    nothing else counts. SAVE and LOAD change ``generation``, so what a timer has said before counts no more.

    Parameters
    ----------
    swaps : bool
        With ``save``, ``restore``, ``swapped``, ``came`` and ``owe``.
    keys : bool
        Something may be done that has no packet: ``meaning.local``. Otherwise that is not looked at.

    Members
    -------
    valid, settled, take : 1
        An event is there; it may be taken; it is taken.
    event : ``CompleterItem``; control : ``QpControl``
        ``control`` with a control token, from its second cycle on.
    row, next, change, write
        The QP's row; as it is from the next cycle on, with ``change``; it is to be kept, with ``take``.
    state, retry_count, rnr_retry
        Attributes of the QP.
    meaning : ``Meaning``
    load, compare, within, newest, none : 1
        See :class:`verbena.hdl.transport.common.psn_window.PsnWindow`.
    message : ``OldestMessage``
        2 cycles after ``seek``, its index.
    clear, cleared : 1
        See :class:`.outstanding_messages.OutstandingMessages`.
    free, busy, emit, status, syndrome, fail, drained, schedule, back, answer, owe
        See :class:`.completer_outputs.CompleterOutputs`.
    save, restore, swapped, came : 1, 1, 1, ``ack_context(keys)``
        ``save``, ``load``, ``done`` and ``value`` of :class:`.completer_swap.CompleterSwap`.
    count_implied_naks, dropped : 1
        An implied NAK; a response that nothing waits for.
    """

    def __init__(self, *, swaps=False, keys=False):
        self.swaps = swaps
        self.keys = keys
        context = ack_context(keys)
        swap = {
            "save": Out(1),
            "restore": Out(1),
            "swapped": In(1),
            "came": In(context),
            "owe": Out(1),
        }
        super().__init__(
            {
                "valid": In(1),
                "settled": In(1),
                "take": Out(1),
                "event": In(CompleterItem),
                "control": In(QpControl),
                "row": In(context),
                "next": Out(context),
                "change": Out(1),
                "write": Out(1),
                "seek": Out(16),
                "state": In(4),
                "retry_count": In(3),
                "rnr_retry": In(3),
                "meaning": In(Meaning),
                "load": Out(1),
                "compare": Out(1),
                "within": In(1),
                "newest": In(1),
                "none": In(1),
                "message": In(OldestMessage),
                "clear": Out(1),
                "cleared": In(1),
                "free": In(1),
                "busy": In(1),
                "emit": Out(1),
                "status": Out(8),
                "syndrome": Out(8),
                "fail": Out(1),
                "drained": Out(1),
                "schedule": Out(1),
                "back": Out(1),
                "answer": Out(1),
                "count_implied_naks": Out(1),
                "dropped": Out(1),
            }
            | (swap if swaps else {})
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.effect = effect = ResponseEffect()
        m.submodules.account = account = RetryAccount()
        row, then = self.row, self.next
        progress, message, meaning, event = row.progress, self.message, self.meaning, self.event
        response = Signal()
        ahead = Signal(16)
        done = Signal()  # and the row has changed
        with m.If(done | self.take):
            m.d.sync += self.write.eq(done)
        m.d.comb += [
            then.eq(row),
            self.change.eq(self.valid & ~self.take),
            response.eq(event.kind == EventKind.RESPONSE),
            ahead.eq(event.index - progress.oldest),
        ]

        # -- Known a cycle after the attributes, the row, or its oldest WQE.
        sending, stopping, alive, broken = Signal(), Signal(), Signal(), Signal()
        at_failed, at_bound, beyond = Signal(), Signal(), Signal()
        past, far, earlier, current = Signal(), Signal(), Signal(), Signal()
        m.d.sync += [
            sending.eq((self.state == QpState.RTS) | (self.state == QpState.SQD)),
            stopping.eq(self.state == QpState.SQD),
            broken.eq((self.state == QpState.ERR) | (self.state == QpState.SQE)),
            at_failed.eq(row.failed & (progress.oldest == row.index)),
            at_bound.eq(progress.oldest == row.bound),
            beyond.eq(meaning.target != progress.unacked),
        ]
        m.d.comb += alive.eq(sending & ~row.dead)
        # The response counts. The QP may have gone to ERR meanwhile: what is complete must not be forgotten.
        counts, moved = Signal(), Signal()
        local = meaning.local if self.keys else 0
        m.d.sync += counts.eq(((self.within | local) & meaning.known & alive) | moved)
        draining = alive & stopping
        cause = Signal(RetryCause)
        m.d.comb += [
            effect.meaning.eq(meaning),
            effect.newest.eq(self.newest),
            effect.moved.eq(moved),
            effect.beyond.eq(beyond),
            effect.stop.eq(message.stop),
            effect.at_failed.eq(at_failed),
            effect.drain.eq(row.drain),
            account.cause.eq(cause),
            account.waiting.eq(progress.waiting),
            account.recovery.eq(row.recovery),
            account.retry_count.eq(self.retry_count),
            account.rnr_retry.eq(self.rnr_retry),
        ]

        # What the account makes of it, a cycle later.
        exhausted, wait, retry = Signal(), Signal(), Signal()
        recovery = Signal.like(account.next)
        status, syndrome = Signal(8), Signal(8)
        m.d.sync += [
            exhausted.eq(account.exhausted),
            wait.eq(account.wait),
            retry.eq(account.retry),
            recovery.eq(account.next),
            status.eq(Mux(meaning.fatal, meaning.status, account.status)),
            syndrome.eq(Mux(meaning.fatal, meaning.syndrome, account.syndrome)),
        ]

        # The limit of credits, as an index: what a response says; and the present one, once the oldest WQE is complete.
        limit, passed = meaning.limit, progress.limit
        if self.keys:
            operation = message.opcode[OPERATED.bit_length() - 1]  # the oldest WQE has no packet
            limit, passed = limit + row.operations, passed + operation
        step = Signal()  # the oldest WQE is done with
        following = Signal(16)
        first = Signal(PSN_BITS)  # of the WQE that follows, as late as it is known that the oldest is complete
        m.d.sync += first.eq(psn_next(message.last_psn))
        m.d.comb += [
            following.eq(progress.oldest + 1),
            self.seek.eq(progress.oldest),
        ]
        with m.If(step):
            m.d.comb += then.progress.oldest.eq(following)
        with m.FSM():
            with m.State("LOAD"):
                m.d.comb += self.load.eq(1)
                with m.If(self.valid):
                    m.next = "CHECK"
            with m.State("CHECK"):
                m.d.comb += self.compare.eq(1)
                m.d.sync += [
                    past.eq(ahead[-1]),
                    far.eq(ahead[-2:].all()),
                    earlier.eq(~row.failed | (event.index - row.index)[15]),
                    current.eq(event.generation == row.generation),
                    cause.eq(meaning.cause),
                    moved.eq(0),
                ]
                with m.If(self.free & ~self.busy):
                    with m.Switch(event.kind):
                        for kind in EventKind:
                            with m.Case(kind):
                                m.next = {EventKind.RESPONSE: "WEIGH", EventKind.TOKEN: "TAKE"}.get(kind, kind.name)
                    with m.If(meaning.failing):
                        m.next = "FAILURE"

            # -- Responses: what is complete, one message after the other, and then what is left of it.
            with m.State("WEIGH"):
                m.next = "RESPONSE"
            with m.State("RESPONSE"):
                m.d.comb += self.seek.eq(following)  # in case
                with m.If(~counts):
                    # A failure may be noted, though the QP has gone to ERR since.
                    m.d.comb += [
                        self.dropped.eq((event.job != ResponseJobKind.DEPARTED) & ~(meaning.local & self.keys)),
                        done.eq(meaning.failing),
                    ]
                    m.next = "TAKE"
                with m.Elif(message.complete & ~at_failed):
                    m.d.comb += [self.emit.eq(message.signaled), step.eq(1)]
                    m.d.comb += [
                        then.progress.first.eq(first),
                        then.progress.unacked.eq(first),
                        then.progress.reads.eq(progress.reads + message.is_read),
                        then.progress.limit.eq(passed),
                    ]
                    if self.keys:
                        m.d.comb += then.operations.eq(row.operations + operation)
                    m.d.sync += moved.eq(1)
                    m.next = "STEPPED"
                with m.Else():
                    with m.If(effect.acknowledged):
                        m.d.comb += then.progress.unacked.eq(meaning.target)
                    with m.If(effect.progressed):
                        m.d.comb += [then.generation.eq(row.generation + 1), then.recovery.eq(0)]
                    with m.If(effect.rested):
                        m.d.comb += then.progress.waiting.eq(0)
                    with m.If(meaning.credits):
                        m.d.comb += [then.progress.limit.eq(limit), then.progress.limited.eq(meaning.limited)]
                    with m.If(effect.implied):
                        m.d.comb += self.count_implied_naks.eq(1)
                        m.d.sync += cause.eq(RetryCause.IMPLIED)
                    with m.If(effect.more):
                        m.next = "LOOK"
                    with m.Else():
                        m.d.comb += [done.eq(1), self.schedule.eq(1)]
                        m.next = "TAKE"
            with m.State("STEPPED"):
                with m.If(self.free):
                    m.next = "WEIGH"

            # -- Failures, of a response's WQE too, and timers.
            with m.State("FAILURE"):
                taken = Mux(response, self.within & alive, alive | (broken & ~row.dead))
                with m.If(taken & ~past & earlier):
                    m.d.comb += [
                        then.failed.eq(1),
                        then.index.eq(event.index),
                        then.status.eq(meaning.status),
                        then.syndrome.eq(meaning.syndrome),
                    ]
                with m.If(response):
                    m.next = "WEIGH"
                with m.Elif(alive):
                    m.d.sync += cause.eq(Mux(past, RetryCause.UNBLOCK, RetryCause.NONE))
                    m.next = "LOOK"
                with m.Else():
                    m.d.comb += done.eq(1)
                    m.next = "TAKE"
            with m.State("FIRED"):
                m.d.sync += cause.eq(Mux(progress.waiting, RetryCause.READY, RetryCause.TIMEOUT))
                m.next = "TAKE"
                with m.If(alive & current & (progress.waiting | ~self.none)):
                    m.next = "LOOK"
            with m.State("LOOK"):
                m.next = "SETTLE"
            with m.State("SETTLE"):
                with m.If(at_failed | meaning.fatal | exhausted):
                    with m.If(~at_failed):
                        m.d.comb += [then.status.eq(status), then.syndrome.eq(syndrome)]
                    m.next = "FAIL"
                with m.Else():
                    m.d.comb += [done.eq(1), self.back.eq(retry), self.schedule.eq(response & ~retry)]
                    m.d.comb += then.recovery.eq(recovery)
                    with m.If(retry | wait):
                        m.d.comb += [
                            then.progress.waiting.eq(wait),
                            then.rnr_timer.eq(meaning.rnr_timer),
                            then.generation.eq(row.generation + 1),
                        ]
                    with m.If(row.drain & draining & at_bound):
                        m.d.comb += [self.drained.eq(1), then.drain.eq(0)]
                    m.next = "TAKE"
            with m.State("FAIL"):
                m.d.comb += [self.emit.eq(1), self.status.eq(row.status), self.syndrome.eq(row.syndrome)]
                m.d.comb += [step.eq(1), done.eq(1), self.fail.eq(1)]
                m.d.comb += [then.dead.eq(1), then.failed.eq(0)]
                m.next = "TAKE"

            # -- The end of a life: everything before `bound` is flushed; or of work in it: it is told.
            with m.State("FLUSH"):
                m.next = "TAKE"
                with m.If(Mux(event.drain, draining, broken & ~far)):
                    m.d.comb += [then.bound.eq(event.index), then.drain.eq(event.drain), then.dead.eq(~event.drain)]
                    m.next = "FLUSHED"
                    with m.If(event.drain):
                        m.next = "LOOK"
            with m.State("FLUSHED"):
                with m.If(self.free):
                    m.next = "FLUSH_NEXT"
            with m.State("FLUSH_NEXT"):
                m.d.comb += [
                    self.status.eq(Mux(at_failed, row.status, WcStatus.WR_FLUSH_ERR)),
                    self.syndrome.eq(Mux(at_failed, row.syndrome, Syndrome.FLUSHED)),
                ]
                with m.If(at_bound):
                    m.d.comb += done.eq(1)
                    m.next = "TAKE"
                with m.Else():
                    m.d.comb += [self.emit.eq(1), step.eq(1)]
                    m.next = "FLUSHED"

            with m.State("CONTROL"):
                m.d.comb += done.eq(1)
                m.next = "TAKE"
                with m.Switch(self.control.action):
                    with m.Case(QpAction.RESET):
                        m.next = "CLEAR"
                    with m.Case(QpAction.START_SEND, QpAction.RESTART_SEND):
                        m.d.comb += [
                            then.progress.unacked.eq(self.control.psn),
                            then.progress.first.eq(self.control.psn),
                            then.drain.eq(0),
                            then.dead.eq(0),
                        ]
                    with m.Case(QpAction.RESUME):
                        m.d.comb += then.drain.eq(0)
                    with m.Case(QpAction.QUERY):
                        m.d.comb += self.answer.eq(1)
                    if self.swaps:
                        with m.Case(QpAction.SAVE):
                            m.next = "SAVE"
                        with m.Case(QpAction.LOAD):
                            m.next = "RESTORE"

            # Messages are forgotten, taken or put back meanwhile.
            with m.State("CLEAR"):
                m.d.comb += self.clear.eq(1)
                with m.If(self.cleared):
                    m.next = "CLEARED"
            with m.State("CLEARED"):
                m.d.comb += [done.eq(1), then.eq(0), then.generation.eq(row.generation + 1)]
                m.next = "TAKE"
            if self.swaps:
                with m.State("SAVE"):
                    m.d.comb += self.save.eq(1)
                    with m.If(self.swapped):
                        m.next = "LEFT"
                with m.State("RESTORE"):
                    m.d.comb += self.restore.eq(1)
                    with m.If(self.swapped):
                        m.next = "CAME"
                with m.State("LEFT"):
                    m.d.comb += [done.eq(1), then.dead.eq(1), then.generation.eq(row.generation + 1)]
                    m.next = "TAKE"
                with m.State("CAME"):
                    # A WQE that was refused is found again only on the way back.
                    m.d.comb += [done.eq(1), then.eq(self.came), self.owe.eq(self.came.failed)]
                    m.d.comb += then.generation.eq(row.generation + 1)
                    m.next = "TAKE"

            with m.State("TAKE"), m.If(self.settled):
                m.d.comb += self.take.eq(1)
                m.next = "LOAD"
        return m
