"""The account of retries: every state and every cause, and a story of each."""

from itertools import product

from streams import make_rng, plain, simulate
from verbena.hdl.abi.cqe import Syndrome, WcStatus
from verbena.hdl.transport.completer.retry_account import RetryAccount, RetryCause


def expected(cause, waiting, retrying, retries, rnr_retries, retry_count, rnr_retry):
    """(what is done, retries, rnr_retries, retrying) in words of the specification."""
    same = (retries, rnr_retries, retrying)
    if cause == RetryCause.READY:
        return "retry", retries, rnr_retries, False
    if waiting or cause == RetryCause.NONE:
        return None, *same
    if cause == RetryCause.UNBLOCK:
        return "retry", *same
    if cause == RetryCause.NOT_READY:
        if rnr_retries == rnr_retry and rnr_retry != 7:
            return ("exhausted",)
        return "wait", retries, (rnr_retries + 1) % 8, retrying
    if cause == RetryCause.IMPLIED and retrying:
        return None, *same
    if cause == RetryCause.IMPLIED and retries:  # a timeout has counted
        return "retry", retries, rnr_retries, True
    if retries == retry_count:
        return ("exhausted",)
    return "retry", (retries + 1) % 8, rnr_retries, cause != RetryCause.TIMEOUT


def test_everything():
    rng = make_rng()
    dut = RetryAccount()
    cases = list(product(RetryCause, (0, 1), (0, 1), range(8), range(8), range(8), range(8)))
    cases = [c for c in rng.sample(cases, 3000) if not (c[0] == RetryCause.TIMEOUT and c[1])]

    async def testbench(ctx):
        for cause, waiting, retrying, retries, rnr_retries, retry_count, rnr_retry in cases:
            ctx.set(dut.cause, cause)
            ctx.set(dut.waiting, waiting)
            ctx.set(dut.recovery, {"retrying": retrying, "retries": retries, "rnr_retries": rnr_retries})
            ctx.set(dut.retry_count, retry_count)
            ctx.set(dut.rnr_retry, rnr_retry)
            what, *counts = expected(cause, waiting, retrying, retries, rnr_retries, retry_count, rnr_retry)
            for name in ("retry", "wait", "exhausted"):
                assert ctx.get(getattr(dut, name)) == (what == name)
            if what == "exhausted":
                rnr = cause == RetryCause.NOT_READY
                told = rnr or cause == RetryCause.SEQUENCE
                assert ctx.get(dut.status) == (WcStatus.RNR_RETRY_EXC_ERR if rnr else WcStatus.RETRY_EXC_ERR)
                assert ctx.get(dut.syndrome) == (Syndrome.REMOTE_NAK if told else Syndrome.NONE)
            else:
                then = plain(ctx.get(dut.next))
                assert [then["retries"], then["rnr_retries"], then["retrying"]] == counts

    simulate(dut, testbench, seed=rng.seed_value)
