"""Who has something on its way."""

import pytest
from streams import make_rng, simulate
from verbena.hdl.stream.in_flight import InFlight

QPS = 8


@pytest.mark.parametrize("works", [1, 2])
def test_random(works):
    """It says so of each QP that has some, or for which something is done, and of no other since the last reset."""
    rng = make_rng()
    dut = InFlight(QPS, 16, works=works)

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
            for number in range(works):
                busy, busy_qp = rng.random() < 0.5, rng.randrange(QPS)
                ctx.set(dut.busy[number], busy)
                ctx.set(dut.busy_qp[number], busy_qp)
                if busy:
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
