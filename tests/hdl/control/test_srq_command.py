"""The steps of a command for a shared receive queue."""

import pytest
from streams import make_rng, simulate
from verbena.hdl.control.decoder import Plan
from verbena.hdl.control.srq_command import SrqCommand

CLEARED = [("write", 0, 1, 1), "token"]


@pytest.mark.parametrize(
    ("plan", "word", "destroy", "steps"),
    [
        (Plan.CLEAR_SRQ, 31, 0, [*CLEARED, ("write", 31, 0, 0)]),
        (Plan.CLEAR_SRQ, 31, 1, CLEARED),
        (Plan.WRITE_SRQ, 15, 0, [("write", 15, 1, 0)]),
    ],
)
def test_steps(plan, word, destroy, steps):
    rng = make_rng()
    dut = SrqCommand()
    log = []

    async def around(ctx):
        while True:
            if ctx.get(dut.write):
                log.append(("write", ctx.get(dut.first), ctx.get(dut.single), ctx.get(dut.zero)))
                ctx.set(dut.moving, 1)
                await ctx.tick().repeat(rng.randrange(1, 6))
                assert ctx.get(dut.zero) == log[-1][3]  # it stands
                ctx.set(dut.moving, 0)
            elif ctx.get(dut.token):
                log.append("token")
                await ctx.tick().repeat(rng.randrange(1, 7))
                ctx.set(dut.taken, 1)
                await ctx.tick()
                ctx.set(dut.taken, 0)
            else:
                await ctx.tick()

    async def host(ctx):
        ctx.set(dut.plan, plan)
        ctx.set(dut.word, word)
        ctx.set(dut.destroy, destroy)
        await ctx.tick()
        for _ in range(3):
            del log[:]
            ctx.set(dut.go, 1)
            await ctx.tick()
            ctx.set(dut.go, 0)
            while not ctx.get(dut.done):
                await ctx.tick()
            assert log == steps
            await ctx.tick()

    simulate(dut, host, background=[around], seed=rng.seed_value)
