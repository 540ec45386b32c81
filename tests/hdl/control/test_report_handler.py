"""What follows from each report, in each state."""

import pytest
from streams import collect, make_rng, send_all, simulate
from verbena.hdl.abi.commands import QpAction
from verbena.hdl.abi.contexts import QP_CONTEXT, QpState, QpType
from verbena.hdl.abi.eqe import EventType
from verbena.hdl.control.report_handler import ReportHandler
from verbena.hdl.stream.transfer import NO_EVENT, SEND_FAILED

QPN = 0x123456
LIVES = {QpState.RTR, QpState.RTS, QpState.SQD, QpState.SQE}
SETTLES = 30


def run(event, state, qp_type=QpType.RC, **options):
    """What it writes and says, and the events."""
    rng = make_rng()
    dut = ReportHandler(**options)
    log, events = [], []
    first = QP_CONTEXT.words(state=state, type=qp_type, path_mtu=5, timeout=21)[0]

    async def around(ctx):
        while True:
            if ctx.get(dut.look):
                assert ctx.get(dut.busy)
                await ctx.tick().repeat(rng.randrange(1, 6))
                ctx.set(dut.qpn, QPN)
                ctx.set(dut.first.as_value(), first)
                ctx.set(dut.looked, 1)
                settles = ctx.get(dut.settle)
                await ctx.tick()
                ctx.set(dut.looked, 0)
                if settles:
                    await ctx.tick().repeat(SETTLES)
                    assert not events
                    log.append("settled")
                    ctx.set(dut.settled, 1)
            elif ctx.get(dut.write):
                log.append(("write", ctx.get(dut.value)))
                ctx.set(dut.moving, 1)
                await ctx.tick().repeat(rng.randrange(1, 6))
                ctx.set(dut.moving, 0)
            elif ctx.get(dut.token):
                log.append(("token", ctx.get(dut.action)))
                await ctx.tick().repeat(rng.randrange(1, 7))
                ctx.set(dut.taken, 1)
                await ctx.tick()
                ctx.set(dut.taken, 0)
            else:
                await ctx.tick()

    async def host(ctx):
        ctx.set(dut.report.payload, {"qp": 5, "event": event})
        ctx.set(dut.report.valid, 1)
        for _ in range(5):
            await ctx.tick()
            assert not ctx.get(dut.busy)
        ctx.set(dut.may, 1)
        await ctx.tick()
        ctx.set(dut.may, 0)
        ctx.set(dut.report.valid, 0)
        await send_all(ctx, dut.report, [{"qp": 5, "event": event}])
        for _ in range(3):
            await ctx.tick()
        assert not ctx.get(dut.busy)

    async def take(ctx):
        await collect(ctx, dut.event, events)

    simulate(dut, host, background=[around, take], seed=rng.seed_value)
    return log, events, first


@pytest.mark.parametrize("event", [EventType.QP_FATAL, EventType.QP_REQ_ERR, NO_EVENT])
@pytest.mark.parametrize("state", list(QpState))
def test_an_error_moves_a_queue_pair_that_lives(event, state):
    log, events, first = run(event, state)
    fails = [("write", first ^ state ^ QpState.ERR), ("token", QpAction.ERROR)]
    assert log == (fails if state in LIVES else [])
    assert events == ([{"type": event, "number": QPN}] if state in LIVES and event != NO_EVENT else [])


@pytest.mark.parametrize("qp_type", list(QpType))
def test_a_send_queue_that_fails_takes_the_receive_queue_along_if_it_is_of_rc(qp_type):
    log, events, first = run(SEND_FAILED, QpState.RTS, qp_type)
    to, action = (
        (QpState.ERR, QpAction.ERROR) if qp_type == QpType.RC else (QpState.SQE, QpAction.SEND_ERROR)
    )  # fmt: skip
    assert log == [("write", first ^ QpState.RTS ^ to), ("token", action)]
    assert not events


def test_without_unreliable_queue_pairs_nobody_is_in_sqe():
    log, _, first = run(SEND_FAILED, QpState.RTS, unreliable=False)
    assert log == [("write", first ^ QpState.RTS ^ QpState.ERR), ("token", QpAction.ERROR)]
    assert run(EventType.QP_FATAL, QpState.SQE, unreliable=False)[:2] == ([], [])


@pytest.mark.parametrize("state", list(QpState))
def test_drained_is_told_in_sqd_alone_and_changes_nothing(state):
    log, events, _ = run(EventType.SQ_DRAINED, state)
    assert not log
    assert len(events) == (state == QpState.SQD)


@pytest.mark.parametrize("state", list(QpState))
def test_the_last_shared_wqe_is_told_in_err_alone_when_completions_have_moved(state):
    log, events, _ = run(EventType.QP_LAST_WQE_REACHED, state, srqs=True)
    assert log == (["settled"] if state == QpState.ERR else [])
    assert len(events) == (state == QpState.ERR)
