"""The steps of a command for a completion queue."""

import pytest
from streams import make_rng, plain, simulate
from verbena.hdl.abi.commands import CommandStatus
from verbena.hdl.abi.contexts import CQ_CONTEXT_WORDS
from verbena.hdl.control.cq_command import CqCommand


@pytest.mark.parametrize("bad", [0, 1])
@pytest.mark.parametrize(("keep", "stay"), [(0, 0), (1, 0), (1, 1)])
def test_completions_are_held_while_attributes_are_written(bad, keep, stay):
    rng = make_rng()
    dut = CqCommand()
    log = []

    async def completions(ctx):
        port = dut.control
        while True:
            for _ in range(rng.randrange(1, 6)):
                await ctx.tick()
            ctx.set(port.ready, 1)
            ctx.set(dut.bad, bad)
            valid = 0
            while not valid:
                _, _, valid, payload = await ctx.tick().sample(port.valid, port.payload)
            log.append(plain(payload))
            ctx.set(port.ready, 0)
            ctx.set(dut.bad, 0)

    async def mover(ctx):
        while True:
            await ctx.tick()
            if ctx.get(dut.write):
                log.append(("write", ctx.get(dut.first)))
                ctx.set(dut.moving, 1)
                await ctx.tick().repeat(rng.randrange(1, 6))
                ctx.set(dut.moving, 0)

    async def host(ctx):
        ctx.set(dut.number, 77)
        ctx.set(dut.keep, keep)
        ctx.set(dut.stay, stay)
        for _ in range(3):
            del log[:]
            ctx.set(dut.go, 1)
            await ctx.tick()
            ctx.set(dut.go, 0)
            while not ctx.get(dut.done):
                await ctx.tick()
            assert ctx.get(dut.status) == (CommandStatus.BUS_ERROR if bad else CommandStatus.OK)
            holds = [{"cq": 77, "hold": hold, "keep": keep, "stay": stay} for hold in (1, 0)]
            assert log == ([holds[0]] if bad else [holds[0], ("write", CQ_CONTEXT_WORDS - 1), holds[1]])
            await ctx.tick()

    simulate(dut, host, background=[completions, mover], seed=rng.seed_value)
