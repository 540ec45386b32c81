"""The retries of a send queue, proven for one event of any kind in any state that the same proof says can follow."""

import pytest
from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In
from prover import assume, claim, cover, prove, reach
from verbena.hdl.transport.completer.ack_context import Recovery
from verbena.hdl.transport.completer.retry_account import RetryAccount, RetryCause

DEPTH = 3
FOR_EVER = 7


class Retries(wiring.Component):
    """An account beside the state that it keeps, and a count of its own. An implied NAK after a timeout is a retry that
    is not counted; between two that are, there is one at most.

    Assumed: at first as many retries are counted as there were, not more than allowed, and after one that is not
    counted no other is implied; the attributes stay; nothing is acknowledged unless ``acknowledged``. All but the last
    are claimed of what follows, too: they are no restriction.
    """

    cause: In(RetryCause)
    acknowledged: In(1)
    retry_count: In(3)
    rnr_retry: In(3)
    recovery: In(Recovery)
    waiting: In(1)
    extra: In(1)

    def elaborate(self, platform):
        m = Module()
        m.submodules.account = account = RetryAccount()
        first = Signal(init=1)
        row, waiting = Signal(Recovery), Signal()
        retry_count, rnr_retry = Signal(3), Signal(3)
        backs, waits = Signal(8), Signal(8)  # since something was acknowledged
        extra = Signal()  # the last retry did not count
        free = account.retry & (self.cause == RetryCause.IMPLIED) & (row.retries != 0)
        counted = account.retry & (self.cause != RetryCause.READY) & (self.cause != RetryCause.UNBLOCK) & ~free
        m.d.comb += [
            account.cause.eq(Mux(first | self.acknowledged, RetryCause.NONE.value, self.cause.as_value())),
            account.waiting.eq(waiting),
            account.recovery.eq(row),
            account.retry_count.eq(retry_count),
            account.rnr_retry.eq(rnr_retry),
        ]
        m.d.sync += first.eq(0)
        with m.If(first):
            m.d.sync += [
                row.eq(self.recovery),
                waiting.eq(self.waiting),
                retry_count.eq(self.retry_count),
                rnr_retry.eq(self.rnr_retry),
                backs.eq(self.recovery.retries),
                waits.eq(self.recovery.rnr_retries),
                extra.eq(self.extra),
            ]
            assume(m, ~self.extra | self.recovery.retrying)
            assume(m, self.recovery.retries <= self.retry_count)
            assume(m, self.recovery.rnr_retries <= self.rnr_retry)
        with m.Elif(self.acknowledged):
            m.d.sync += [row.eq(0), backs.eq(0), waits.eq(0), extra.eq(0)]
        with m.Elif(~account.exhausted):
            m.d.sync += [row.eq(account.next), backs.eq(backs + counted), waits.eq(waits + account.wait)]
            with m.If(account.retry | account.wait):
                m.d.sync += waiting.eq(account.wait)
            with m.If(free):
                m.d.sync += extra.eq(1)
            with m.Elif(counted | (account.retry & (self.cause == RetryCause.READY))):
                m.d.sync += extra.eq(0)
        claim(m, "retries_bounded", first | (backs <= retry_count))
        claim(m, "waits_bounded", first | (rnr_retry == FOR_EVER) | (waits <= rnr_retry))
        claim(m, "counted", first | ((row.retries == backs) & ((rnr_retry == FOR_EVER) | (row.rnr_retries == waits))))
        claim(m, "one_is_free", first | self.acknowledged | ~(extra & (free | ~row.retrying)))
        claim(m, "one_fate", account.retry + account.wait + account.exhausted <= 1)
        claim(m, "calm_while_waiting", ~(waiting & account.wait))
        reach(m, "free", ~first & free)
        reach(m, "last_retry", ~first & counted & (backs + 1 == retry_count) & (retry_count == 3))
        reach(m, "exhausted", ~first & account.exhausted & (backs == retry_count) & (retry_count == 7))
        return m


def test_it_holds(tmp_path):
    verdict = prove(Retries(), tmp_path, DEPTH)
    assert verdict.holds, verdict.log


def test_it_is_reached(tmp_path):
    assert cover(Retries(), tmp_path, DEPTH).holds


@pytest.mark.parametrize(
    ("cause", "field"),
    [(RetryCause.TIMEOUT, "retries"), (RetryCause.IMPLIED, "retrying")],
    ids=["a timeout clears the count", "what is free has no end"],
)
def test_what_is_forgotten_is_found(tmp_path, monkeypatch, cause, field):
    elaborate = RetryAccount.elaborate

    def forgetful(self, platform):
        m = elaborate(self, platform)
        with m.If(self.cause == cause):
            m.d.comb += self.next[field].eq(0)
        return m

    monkeypatch.setattr(RetryAccount, "elaborate", forgetful)
    assert not prove(Retries(), tmp_path, DEPTH).holds
