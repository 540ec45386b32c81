"""Runs come out whole or not at all."""

import pytest
from streams import collect, make_rng, simulate
from verbena.hdl.transport.requester.run_queue import RunQueue


@pytest.mark.parametrize("most", [6, 17])
def test_runs(most):
    rng = make_rng()
    dut = RunQueue(most)
    wanted, seen = [], []

    async def testbench(ctx):
        number = 0
        for _ in range(150):
            while not ctx.get(dut.room):
                await ctx.tick()
            good = rng.random() < 0.7
            length = rng.randrange(1, most + 1)
            for step in range(length):
                number += 1
                access = {"address": number, "length": number % 4097, "last": step == length - 1}
                ctx.set(dut.access, access)
                ctx.set(dut.put, good or step < length - 1)
                ctx.set(dut.commit, good and step == length - 1)
                ctx.set(dut.drop, not good and step == length - 1)
                if good:
                    wanted.append(number)
                await ctx.tick()
                ctx.set(dut.put, 0)
                ctx.set(dut.commit, 0)
                ctx.set(dut.drop, 0)
                if rng.random() < 0.2:
                    await ctx.tick()
            await ctx.tick()  # room is a register
        for _ in range(100):
            await ctx.tick()

    async def sink(ctx):
        await collect(ctx, dut.o, seen, rng)

    simulate(dut, testbench, background=[sink], seed=rng.seed_value)
    assert [item["address"] for item in seen] == wanted
    assert all(item["length"] == item["span"] == item["address"] % 4097 for item in seen)


@pytest.mark.parametrize("run", [0, 65])
def test_arguments(run):
    with pytest.raises(ValueError, match=str(run)):
        RunQueue(run)
