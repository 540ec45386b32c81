"""Who has requests between requester and wire."""

import pytest
from streams import make_rng, simulate
from verbena.hdl.transport.tx.in_flight import InFlight

QPS = 8


@pytest.mark.parametrize("busy", [False, True])
def test_random(busy):
    """It says so of each QP that has some, or for which something is done, and of no other since the last reset."""
    rng = make_rng()
    dut = InFlight(QPS, busy=busy)

    async def testbench(ctx):
        under_way, history, asked, last = [], [], [], {}
        for turn in range(3000):
            enter = len(under_way) < 6 and rng.random() < (0.6 if turn // 200 % 2 else 0.2)
            done = bool(under_way) and rng.random() < 0.4
            enter_qp, qp = rng.randrange(QPS), rng.randrange(QPS)
            for signal, value in (
                (dut.enter, enter),
                (dut.enter_qp, enter_qp),
                (dut.done, done),
                (dut.qp, qp),
            ):
                ctx.set(signal, value)
            asked.append(qp)
            history.append(set(under_way))
            if busy:
                works, busy_qp = rng.random() < 0.5, rng.randrange(QPS)
                ctx.set(dut.busy, works)
                ctx.set(dut.busy_qp, busy_qp)
                if works:
                    history[-1].add(busy_qp)
            await ctx.tick()
            if done:
                under_way.pop(0)
            if enter:
                under_way.append(enter_qp)
                last[enter_qp] = turn
            if turn > 1 and asked[-2] in last and last[asked[-2]] < turn - 1:
                assert ctx.get(dut.some) == (asked[-2] in history[-2])

    simulate(dut, testbench, seed=rng.seed_value)
