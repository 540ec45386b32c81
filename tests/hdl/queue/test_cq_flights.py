"""CqFlights against a list of what is under way."""

import pytest
from streams import make_rng, shared, simulate
from verbena.hdl.abi.cqc import CQN_BITS
from verbena.hdl.queue.cq_flights import CqFlights


@pytest.mark.parametrize("writes", [2, 16])
def test_answers_and_marks(writes):
    """Each answer is told of its write, and ``visible`` waits for what went out before the mark, and for no more."""
    rng = make_rng()
    dut = shared(CqFlights, writes)

    async def testbench(ctx):
        flying, before, ages = [], 0, []  # `before`: of those under way went out before the mark
        kept = 0
        for _ in range(2000):
            goes, mark = rng.random() < 0.6, rng.random() < 0.05
            answers = bool(flying) and rng.random() < 0.5
            flight = {"number": rng.getrandbits(CQN_BITS), "urgent": rng.getrandbits(1), "saves": rng.getrandbits(1)}
            status = rng.choice([0, 0, 1, 5])
            ctx.set(dut.i.payload, flight)
            ctx.set(dut.i.valid, goes)
            ctx.set(dut.done.valid, answers)
            ctx.set(dut.done.payload, {"status": status, "tag": 0})
            ctx.set(dut.mark, mark)
            ready, taken = ctx.get(dut.i.ready), ctx.get(dut.done.ready)
            assert ctx.get(dut.visible) == (before == 0)
            assert ctx.get(dut.o_en) == (answers and taken)
            if answers:
                assert taken or ages[0] < 2  # only just gone out
            if answers and taken:
                shown = ctx.get(dut.o)
                assert {name: shown[name] for name in flight} == flying[0]
                assert ctx.get(dut.failed) == (status != 0)
            await ctx.tick()
            ages = [age + 1 for age in ages]
            if answers and taken:
                flying.pop(0)
                ages.pop(0)
                before = max(0, before - 1)
            if goes and ready:
                flying.append(flight)
                ages.append(0)
            if mark:
                before = len(flying)
            assert len(flying) <= writes
            assert ready or len(flying) >= writes - 1
            kept = max(kept, len(flying))
        assert kept == writes

    simulate(dut, testbench, seed=rng.seed_value)
