"""The completer's work on one event, step by step."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ...abi.commands import QpAction
from ...abi.contexts import QpState
from ...abi.cqe import Syndrome, WcStatus
from ...stream.transfer import QpControl
from ..common.psn import PSN_BITS, psn_next
from .ack_context import AckContext
from .completer_arbiter import CompleterEvent, EventKind
from .outstanding_messages import OldestMessage
from .response_effect import ResponseEffect
from .response_meaning import Meaning
from .retry_account import RetryAccount, RetryCause

__all__ = ["CompleterFsm"]


class CompleterFsm(wiring.Component):
    """Takes one event at a time, updates the acknowledge context (the row) of its QP, and drives the outputs.

    The row is read 2 cycles after ``begin`` and checked in the next cycle; the oldest message is read 2 cycles later.
    The row is written at the end of the event, in the cycle in which the next event is chosen. The FSM goes on to the
    next message only if the completion register is free, or becomes free in this cycle.

    Members
    -------
    idle, begin : 1
        The next event may be taken, is taken.
    event : ``CompleterEvent``; control : ``QpControl``
        From the next cycle on, until ``idle``; with a control token, ``control`` until ``control_taken``.
    next_qp : 12
        The event's QP in the cycle of ``begin``.
    stored, row, write
        The QP's row as it is kept; as it is, until the next event's takes its place; it is to be kept.
    same : 1
        The event is of the same QP as the one before: ``stored`` may not be right yet, and ``row`` is.
    state, retry_count, rnr_retry
        Attributes of the QP.
    write_conflict : 1
        They are undefined in this cycle.
    meaning : ``Meaning``
    load, compare, within, newest, none : 1
        See :class:`.psn_window.PsnWindow`.
    message : ``OldestMessage``
        2 cycles after ``seek``, its index.
    clear, restart, restarted : 1
        See :class:`.outstanding_messages.OutstandingMessages`.
    free, busy, emit, status, syndrome, fail, drained, schedule, back, answer
        See :class:`.completer_outputs.CompleterOutputs`.
    count_implied_naks, dropped : 1
        An implied NAK; a response that nothing waits for.
    """

    idle: Out(1)
    begin: In(1)
    event: In(CompleterEvent)
    control: In(QpControl)
    control_taken: Out(1)
    stored: In(AckContext)
    row: Out(AckContext)
    write: Out(1)
    next_qp: In(12)
    same: Out(1)
    seek: Out(16)
    state: In(4)
    retry_count: In(3)
    rnr_retry: In(3)
    write_conflict: In(1)
    meaning: In(Meaning)
    load: Out(1)
    compare: Out(1)
    within: In(1)
    newest: In(1)
    none: In(1)
    message: In(OldestMessage)
    clear: Out(1)
    restart: Out(1)
    restarted: In(1)
    free: In(1)
    busy: In(1)
    emit: Out(1)
    status: Out(8)
    syndrome: Out(8)
    fail: Out(1)
    drained: Out(1)
    schedule: Out(1)
    back: Out(1)
    answer: Out(1)
    count_implied_naks: Out(1)
    dropped: Out(1)

    def elaborate(self, platform):
        m = Module()
        m.submodules.effect = effect = ResponseEffect()
        m.submodules.account = account = RetryAccount()
        row = self.row
        progress, message, meaning, event = row.progress, self.message, self.meaning, self.event
        response = Signal()
        ahead = Signal(16)
        done = Signal()  # and the row has changed
        m.d.sync += self.write.eq(done)
        m.d.comb += [
            response.eq(event.kind == EventKind.RESPONSE),
            ahead.eq(event.index - progress.oldest),
        ]

        # -- Known a cycle after the attributes, the row, or its oldest WQE.
        sending, stopping, alive, broken = Signal(), Signal(), Signal(), Signal()
        at_failed, at_bound, beyond = Signal(), Signal(), Signal()
        past, far, earlier, current = Signal(), Signal(), Signal(), Signal()
        with m.If(~self.write_conflict):
            m.d.sync += [
                sending.eq((self.state == QpState.RTS) | (self.state == QpState.SQD)),
                stopping.eq(self.state == QpState.SQD),
                broken.eq(self.state == QpState.ERR),
            ]
        m.d.sync += [
            at_failed.eq(row.failed & (progress.oldest == row.index)),
            at_bound.eq(progress.oldest == row.bound),
            beyond.eq(meaning.target != progress.unacked),
        ]
        m.d.comb += alive.eq(sending & ~row.dead)
        # The response counts. The QP may have gone to ERR meanwhile: what is complete must not be forgotten.
        counts, moved = Signal(), Signal()
        m.d.sync += counts.eq((self.within & meaning.known & alive) | moved)
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

        step = Signal()  # the oldest WQE is done with
        following = Signal(16)
        first = Signal(PSN_BITS)  # of the WQE that follows
        m.d.comb += [
            following.eq(progress.oldest + 1),
            first.eq(psn_next(message.last_psn)),
            self.seek.eq(progress.oldest),
        ]
        with m.If(step):
            m.d.sync += progress.oldest.eq(following)
        with m.FSM():
            with m.State("IDLE"):
                m.d.comb += self.idle.eq(1)
                m.d.sync += self.same.eq(self.next_qp == event.qp)
                with m.If(self.begin):
                    m.next = "READ"
            with m.State("READ"):
                m.next = "FETCH"
            with m.State("FETCH"):
                m.d.comb += self.load.eq(1)
                with m.If(~self.same):
                    m.d.comb += self.seek.eq(self.stored.progress.oldest)
                    m.d.sync += row.eq(self.stored)
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
                with m.If(self.free & ~self.busy & ~self.write_conflict):
                    with m.Switch(event.kind):
                        for kind in EventKind:
                            with m.Case(kind):
                                m.next = "WEIGH" if kind is EventKind.RESPONSE else kind.name
                    with m.If(meaning.failing):
                        m.next = "FAILURE"

            # -- Responses: what is complete, one message after the other, and then what is left of it.
            with m.State("WEIGH"):
                m.next = "RESPONSE"
            with m.State("RESPONSE"):
                m.d.comb += self.seek.eq(following)  # in case
                with m.If(~counts):
                    m.d.comb += self.dropped.eq(1)
                    m.next = "IDLE"
                with m.Elif(message.complete & ~at_failed):
                    m.d.comb += [self.emit.eq(message.signaled), step.eq(1)]
                    m.d.sync += [
                        progress.first.eq(first),
                        progress.unacked.eq(first),
                        progress.reads.eq(progress.reads + message.is_read),
                        moved.eq(1),
                    ]
                    m.next = "STEPPED"
                with m.Else():
                    with m.If(effect.acknowledged):
                        m.d.sync += progress.unacked.eq(meaning.target)
                    with m.If(effect.progressed):
                        m.d.sync += [row.generation.eq(row.generation + 1), row.recovery.eq(0)]
                    with m.If(effect.rested):
                        m.d.sync += progress.waiting.eq(0)
                    with m.If(meaning.credits):
                        m.d.sync += [progress.limit.eq(meaning.limit), progress.limited.eq(meaning.limited)]
                    with m.If(effect.implied):
                        m.d.comb += self.count_implied_naks.eq(1)
                        m.d.sync += cause.eq(RetryCause.IMPLIED)
                    with m.If(effect.more):
                        m.next = "LOOK"
                    with m.Else():
                        m.d.comb += [done.eq(1), self.schedule.eq(1)]
                        m.next = "IDLE"
            with m.State("STEPPED"):
                with m.If(self.free):
                    m.next = "WEIGH"

            # -- Failures, of a response's WQE too, and timers.
            with m.State("FAILURE"):
                taken = Mux(response, self.within & alive, alive | (broken & ~row.dead))
                with m.If(taken & ~past & earlier):
                    m.d.sync += [
                        row.failed.eq(1),
                        row.index.eq(event.index),
                        row.status.eq(meaning.status),
                        row.syndrome.eq(meaning.syndrome),
                    ]
                with m.If(response):
                    m.next = "WEIGH"
                with m.Elif(alive):
                    m.d.sync += cause.eq(Mux(past, RetryCause.UNBLOCK, RetryCause.NONE))
                    m.next = "LOOK"
                with m.Else():
                    m.d.comb += done.eq(1)
                    m.next = "IDLE"
            with m.State("FIRED"):
                m.d.sync += cause.eq(Mux(progress.waiting, RetryCause.READY, RetryCause.TIMEOUT))
                m.next = "IDLE"
                with m.If(alive & current & (progress.waiting | ~self.none)):
                    m.next = "LOOK"
            with m.State("LOOK"), m.If(~self.write_conflict):
                m.next = "SETTLE"
            with m.State("SETTLE"):
                with m.If(at_failed | meaning.fatal | exhausted):
                    with m.If(~at_failed):
                        m.d.sync += [row.status.eq(status), row.syndrome.eq(syndrome)]
                    m.next = "FAIL"
                with m.Else():
                    m.d.comb += [done.eq(1), self.back.eq(retry), self.schedule.eq(response & ~retry)]
                    m.d.sync += row.recovery.eq(recovery)
                    with m.If(retry | wait):
                        m.d.sync += [
                            progress.waiting.eq(wait),
                            row.rnr_timer.eq(meaning.rnr_timer),
                            row.generation.eq(row.generation + 1),
                        ]
                    with m.If(row.drain & draining & at_bound):
                        m.d.comb += self.drained.eq(1)
                        m.d.sync += row.drain.eq(0)
                    m.next = "IDLE"
            with m.State("FAIL"):
                m.d.comb += [self.emit.eq(1), self.status.eq(row.status), self.syndrome.eq(row.syndrome)]
                m.d.comb += [step.eq(1), done.eq(1), self.fail.eq(1)]
                m.d.sync += [row.dead.eq(1), row.failed.eq(0)]
                m.next = "IDLE"

            # -- The end of a life: everything before `bound` is flushed; or of work in it: it is told.
            with m.State("FLUSH"):
                m.next = "IDLE"
                with m.If(Mux(event.drain, draining, broken & ~far)):
                    m.d.sync += [row.bound.eq(event.index), row.drain.eq(event.drain), row.dead.eq(~event.drain)]
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
                    m.next = "IDLE"
                with m.Else():
                    m.d.comb += [self.emit.eq(1), step.eq(1)]
                    m.next = "FLUSHED"

            with m.State("CONTROL"):
                m.d.comb += [done.eq(1), self.control_taken.eq(1)]
                m.next = "IDLE"
                with m.Switch(self.control.action):
                    with m.Case(QpAction.RESET):
                        m.d.comb += self.clear.eq(1)
                        m.d.sync += [row.eq(0), row.generation.eq(row.generation + 1)]
                    with m.Case(QpAction.START_SEND):
                        m.d.comb += self.control_taken.eq(0)
                        m.d.sync += [
                            progress.unacked.eq(self.control.psn),
                            progress.first.eq(self.control.psn),
                            row.drain.eq(0),
                        ]
                        m.next = "RESTART"
                    with m.Case(QpAction.RESUME):
                        m.d.sync += row.drain.eq(0)
                    with m.Case(QpAction.QUERY):
                        m.d.comb += self.answer.eq(1)
            with m.State("RESTART"):
                m.d.comb += [self.restart.eq(1), self.control_taken.eq(self.restarted)]
                with m.If(self.restarted):
                    m.next = "IDLE"
        return m
