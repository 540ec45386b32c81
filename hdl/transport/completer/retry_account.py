"""How often a send queue may still go back."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import enum, wiring
from amaranth.lib.wiring import In, Out

from ...abi.cqe import Syndrome, WcStatus
from .ack_context import Recovery

__all__ = ["RetryAccount", "RetryCause"]

FOR_EVER = 7
"""``rnr_retry`` that never ends (``ibv_modify_qp``)."""


class RetryCause(enum.Enum, shape=3):
    """Why a send queue should go back."""

    NONE = 0
    SEQUENCE = 1  # NAK: a packet was lost
    IMPLIED = 2  # the response to a READ or atomic was passed over
    TIMEOUT = 3
    NOT_READY = 4  # RNR NAK: later
    READY = 5  # its time is over
    UNBLOCK = 6  # sending a complete WQE again has failed, which stopped the rest


class RetryAccount(wiring.Component):
    """Combinational: whether a send queue goes back, waits or fails, and what is counted.

    NAKs for a lost packet, implied ones and timeouts share a count, RNR NAKs have their own; both begin anew with
    whatever is acknowledged. One more than allowed is a failure of the oldest WQE. What peers sent before they saw that
    the queue went back implies further NAKs: they do not count until something is acknowledged, or until a timeout. One
    that is implied after a timeout makes the queue go back, too, but does not count: perhaps it comes from what the
    peer sent before, and then one loss would take two retries. While an RNR NAK's time runs, nothing else counts, as
    the queue goes back anyway.

    Source: InfiniBand volume 1, 9.7.5.1.2 and 9.9.2.

    Members
    -------
    cause : RetryCause
    waiting : 1
        An RNR NAK's time runs.
    recovery, next : ``Recovery``
        Before, and after it if it does not fail.
    retry_count, rnr_retry : 3
        Attributes of the QP; an ``rnr_retry`` of 7 has no end.
    retry, wait, exhausted : 1
        It goes back now; it waits; it fails. At most one of them.
    status, syndrome : 8
        How it fails.
    """

    cause: In(RetryCause)
    waiting: In(1)
    recovery: In(Recovery)
    retry_count: In(3)
    rnr_retry: In(3)
    next: Out(Recovery)
    retry: Out(1)
    wait: Out(1)
    exhausted: Out(1)
    status: Out(8)
    syndrome: Out(8)

    def elaborate(self, platform):
        m = Module()
        now, then = self.recovery, self.next
        waiting = self.waiting
        lost, rnr = Signal(), Signal()  # it counts
        implied = Signal()
        m.d.comb += [
            then.eq(now),
            self.exhausted.eq(
                (lost & (now.retries == self.retry_count))
                | (rnr & (now.rnr_retries == self.rnr_retry) & (self.rnr_retry != FOR_EVER))
            ),
            self.wait.eq(rnr & ~self.exhausted),
            self.status.eq(Mux(rnr, WcStatus.RNR_RETRY_EXC_ERR, WcStatus.RETRY_EXC_ERR)),
            self.syndrome.eq(Mux(rnr | (self.cause == RetryCause.SEQUENCE), Syndrome.REMOTE_NAK, Syndrome.NONE)),
        ]
        with m.Switch(self.cause):
            with m.Case(RetryCause.SEQUENCE):
                m.d.comb += [lost.eq(~waiting), then.retrying.eq(now.retrying | ~waiting)]
            with m.Case(RetryCause.IMPLIED):
                m.d.comb += [
                    implied.eq(~waiting & ~now.retrying),
                    lost.eq(implied & (now.retries == 0)),  # else a timeout has counted
                    self.retry.eq(implied & ~lost),
                    then.retrying.eq(now.retrying | ~waiting),
                ]
            with m.Case(RetryCause.TIMEOUT):
                m.d.comb += [lost.eq(1), then.retrying.eq(0)]
            with m.Case(RetryCause.NOT_READY):
                m.d.comb += rnr.eq(~waiting)
            with m.Case(RetryCause.READY):
                m.d.comb += [self.retry.eq(1), then.retrying.eq(0)]
            with m.Case(RetryCause.UNBLOCK):
                m.d.comb += self.retry.eq(~waiting)
        with m.If(lost):
            m.d.comb += [self.retry.eq(~self.exhausted), then.retries.eq(now.retries + 1)]
        with m.If(rnr):
            m.d.comb += then.rnr_retries.eq(now.rnr_retries + 1)
        return m
