"""What each response means, one by one."""

import pytest
from completer_world import CREDITS, FATAL, PSNS
from streams import make_rng, plain, simulate
from verbena.hdl.abi.cqe import Syndrome, WcStatus
from verbena.hdl.abi.tables import AccessStatus
from verbena.hdl.transport.common.layouts import ResponseJobKind as Kind
from verbena.hdl.transport.completer.response_meaning import ResponseMeaning
from verbena.hdl.transport.completer.retry_account import RetryCause

FLAGS = ("known", "inclusive", "data", "fatal", "failing", "credits", "nak")


def meanings(jobs):
    """(meaning, psn, ACKs counted, NAKs counted) of each of ``jobs``: (job, status of its Done or None: no load)."""
    dut = ResponseMeaning()
    out = []

    async def testbench(ctx):
        for job, status in jobs:
            ctx.set(dut.job, job)
            ctx.set(dut.done_status, status or 0)
            ctx.set(dut.load, status is not None)
            ctx.set(dut.start, 1)
            acks = naks = 0
            psn = None
            for cycle in range(4):
                await ctx.tick()
                ctx.set(dut.start, 0)
                ctx.set(dut.job, {"psn": 1, "syndrome": 0x60})
                acks += ctx.get(dut.count_rx_acks)
                naks += ctx.get(dut.count_rx_naks)
                if cycle == 1:
                    psn = ctx.get(dut.psn)
            out.append((plain(ctx.get(dut.meaning)), psn, acks, naks))

    simulate(dut, testbench)
    return out


def true(meaning):
    return {name for name in FLAGS if meaning[name]}


def test_syndromes():
    rng = make_rng()
    jobs = [
        {"kind": Kind.ACK, "psn": rng.choice([0, 5, PSNS - 1]), "msn": rng.randrange(1 << 24), "syndrome": syndrome}
        for syndrome in range(256)
    ]
    for syndrome, (job, (meaning, psn, acks, naks)) in enumerate(zip(jobs, meanings([(j, 0) for j in jobs]))):
        group = syndrome >> 5
        assert psn == job["psn"]
        assert meaning["target"] == (psn + (group == 0)) % PSNS
        assert (acks, naks) == (group == 0, group in (1, 3))
        if group == 0:
            assert true(meaning) == {"known", "inclusive", "credits"}
            assert meaning["limited"] == (syndrome != 31)
            assert syndrome == 31 or meaning["limit"] == (job["msn"] + CREDITS[syndrome]) % 65536
        elif group == 1:
            assert true(meaning) == {"known", "nak"}
            assert meaning["cause"] == RetryCause.NOT_READY
            assert meaning["rnr_timer"] == syndrome & 31
        elif syndrome == 0x60:
            assert true(meaning) == {"known", "nak"}
            assert meaning["cause"] == RetryCause.SEQUENCE
        elif syndrome in FATAL:
            assert true(meaning) == {"known", "fatal", "nak"}
            assert meaning["status"] == FATAL[syndrome]
            assert meaning["syndrome"] == Syndrome.REMOTE_NAK
        else:
            assert true(meaning) == set()
        if group not in (1, 3) or syndrome in FATAL:
            assert meaning["cause"] == RetryCause.NONE


@pytest.mark.parametrize("verdict", range(8))
def test_data(verdict):
    ((meaning, _, acks, naks),) = meanings([({"kind": Kind.DATA, "psn": 9, "syndrome": 0x62, "status": 3}, verdict)])
    assert acks == naks == 0
    if verdict == 0:
        assert true(meaning) == {"known", "inclusive", "data"}
        assert meaning["target"] == 10
    elif verdict == AccessStatus.POISONED:
        assert "known" not in true(meaning)
        assert "failing" not in true(meaning)
    else:
        assert true(meaning) == {"known", "data", "failing"}
        assert meaning["target"] == 9
        assert meaning["status"] == (WcStatus.GENERAL_ERR if verdict == 7 else WcStatus.LOC_PROT_ERR)
        assert meaning["syndrome"] == verdict


def test_departed():
    """All up to there has arrived, whatever the rest of the job says; and it is no ACK, and says nothing of credits."""
    rng = make_rng()
    jobs = [
        {"kind": Kind.DEPARTED, "psn": psn, "syndrome": rng.randrange(256), "msn": 5, "status": 3}
        for psn in (0, 9, PSNS - 1)
    ]
    for job, (meaning, psn, acks, naks) in zip(jobs, meanings([(job, rng.randrange(8)) for job in jobs])):
        assert true(meaning) == {"known", "inclusive"}
        assert meaning["cause"] == RetryCause.NONE
        assert (psn, meaning["target"]) == (job["psn"], (job["psn"] + 1) % PSNS)
        assert acks == naks == 0


def test_others():
    jobs = [({"kind": kind, "psn": 9, "syndrome": 17, "status": 7}, 0) for kind in (Kind.SKIPPED, Kind.FAILED)]
    jobs.append((jobs[0][0], None))
    skipped, failed, none = [meaning for meaning, *_ in meanings(jobs)]
    assert true(skipped) == {"known"}
    assert true(failed) == {"known", "failing"}
    assert true(none) == set()
    assert skipped["target"] == failed["target"] == 9
    for meaning in (failed, none):
        assert (meaning["status"], meaning["syndrome"]) == (7, 17)
