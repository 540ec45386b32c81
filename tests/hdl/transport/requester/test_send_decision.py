"""The whole table of turns."""

from itertools import product

import pytest
from amaranth.sim import Simulator
from at_once import AtOnce
from verbena.hdl.abi.contexts import QpState
from verbena.hdl.transport.requester.requester_context import Phase
from verbena.hdl.transport.requester.send_decision import SendAction, SendDecision

WINDOW = 8


def expected(phase, qp_state, begun, pending, error, waiting, draining, fresh):
    """As the requester's docstring has it."""
    middle = phase == Phase.MIDDLE
    if qp_state in (QpState.ERR, QpState.SQE):
        return SendAction.GIVE_UP
    if qp_state not in (QpState.RTS, QpState.SQD) or phase in (Phase.HALTED, Phase.REWINDING):
        return SendAction.NOTHING
    if phase == Phase.OPERATING and begun:
        waiting = True
    stopping = draining or qp_state == QpState.SQD
    sent_before = middle or not fresh or phase == Phase.RESUME
    if phase == Phase.RESUME:
        if begun == 0:
            return SendAction.RESUME
        if pending:
            return SendAction.PASS
    may = sent_before if stopping else middle or begun < WINDOW
    if phase != Phase.RESUME and pending and may and not waiting:
        return "SEND"
    if draining and not sent_before:
        return SendAction.DRAINED
    if phase != Phase.RESUME and pending and begun >= WINDOW and not stopping:
        return SendAction.CLOSED
    if not pending and error and (sent_before or not stopping):
        return SendAction.BROKEN
    return SendAction.NOTHING


def test_table():
    dut = SendDecision(WINDOW)

    async def testbench(ctx):
        put = AtOnce(ctx)
        for phase, qp_state in product(Phase, QpState):
            for begun, *flags in product((-1, 0, WINDOW - 1, WINDOW), *[(False, True)] * 5):
                pending, error, waiting, draining, fresh = flags
                if begun > 0 and phase == Phase.RESUME:
                    continue  # an index never lies ahead of the oldest WQE there
                if phase == Phase.MIDDLE and not pending:
                    continue  # the WQE under way is there
                put(dut.state, {"phase": phase, "index": 65535, "draining": draining})
                put(dut.status, {"fetched": (65535 + 3 * pending) % 65536, "error": error})
                put(dut.qp_state, qp_state)
                put(dut.waiting, waiting)
                put(dut.oldest, (65535 - begun) % 65536)
                put(dut.fresh, fresh)
                put.set()
                want = expected(phase, qp_state, begun, *flags)
                await ctx.tick()
                assert ("SEND" if ctx.get(dut.send) else SendAction(ctx.get(dut.o))) == want, (
                    phase,
                    qp_state,
                    begun,
                    flags,
                )
                assert ctx.get(dut.several) == (pending or draining)
                assert ctx.get(dut.alive) == (qp_state in (QpState.RTS, QpState.SQD))

    sim = Simulator(dut)
    sim.add_clock(1e-6)
    sim.add_testbench(testbench)
    sim.run()


@pytest.mark.parametrize(("fetched", "several"), [(1, 0), (2, 1), (65535, 1)])
def test_several(fetched, several):
    dut = SendDecision(WINDOW)

    async def testbench(ctx):
        ctx.set(dut.status, {"fetched": fetched})
        await ctx.tick()
        assert ctx.get(dut.several) == several

    sim = Simulator(dut)
    sim.add_clock(1e-6)
    sim.add_testbench(testbench)
    sim.run()
