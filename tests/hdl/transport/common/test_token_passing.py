"""Which tokens pass the jobs of others."""

from streams import make_rng, simulate
from verbena.hdl.abi.commands import QpAction
from verbena.hdl.transport.common.token_passing import TokenPassing

QPS = 8
LATENCY = 3


def test_random():
    """A token SAVE or LOAD passes if its queue pair has no job under way nor held, and no other item does; who passes
    is no job."""
    rng = make_rng()
    dut = TokenPassing(QPS)
    seen = {True: 0, False: 0}

    async def testbench(ctx):
        jobs, held = [], None
        used = set()  # of others a number from before the reset may be taken for one under way
        for _ in range(1000):
            qp, control = rng.randrange(QPS), rng.random() < 0.9
            action = rng.choice([QpAction.SAVE, QpAction.LOAD, rng.choice(list(QpAction))])
            ctx.set(dut.qp, qp)
            ctx.set(dut.control, control)
            ctx.set(dut.action, action)
            for _ in range(LATENCY):
                await ctx.tick()
            swaps = control and action in (QpAction.SAVE, QpAction.LOAD)
            may = qp not in [*jobs, held]
            if qp in used:
                assert ctx.get(dut.passes) == (swaps and may)
                seen[bool(ctx.get(dut.passes))] += swaps
            by = swaps and bool(ctx.get(dut.passes)) and rng.random() < 0.8
            leaves = by or len(jobs) < 6
            ctx.set(dut.leaves, leaves)
            ctx.set(dut.by, by)
            await ctx.tick()
            ctx.set(dut.leaves, 0)
            if leaves and not by:
                jobs.append(qp)
                used.add(qp)
            done = bool(jobs) and rng.random() < 0.6
            held = rng.choice([None, rng.randrange(QPS)])
            ctx.set(dut.held, held is not None)
            ctx.set(dut.held_qp, held or 0)
            ctx.set(dut.done, done)
            await ctx.tick()
            ctx.set(dut.done, 0)
            if done:
                jobs.pop(0)

    simulate(dut, testbench, seed=rng.seed_value)
    assert min(seen.values()) > 20
