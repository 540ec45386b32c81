"""A job that waits for its operation: what it asks, whom it holds, and what it comes back with."""

from streams import make_rng, simulate
from verbena.hdl.abi.tables import AccessStatus
from verbena.hdl.memory.key_operations import KeyOperation
from verbena.hdl.transport.responder.parked_job import ParkedJob

ROUNDS = 40


def random_job(rng):
    return {
        "qp": rng.randrange(3),
        "invalidate": int(rng.random() < 0.3),
        "immediate": rng.randrange(1 << 32),
        "pd": rng.randrange(1 << 24),
        "psn": rng.randrange(1 << 24),
    }


def test_random():
    rng = make_rng()
    dut = ParkedJob()

    async def testbench(ctx):
        coming = None

        async def tick():
            """A cycle in which another job may be next; what is said of it follows."""
            nonlocal coming
            coming = random_job(rng)
            ctx.set(dut.coming, coming)
            await ctx.tick()

        for _ in range(ROUNDS):
            for _ in range(rng.randrange(3)):
                await tick()
                assert not ctx.get(dut.held)
                assert not ctx.get(dut.operation.valid)
                assert not ctx.get(dut.back)
            job = random_job(rng) | {"invalidate": 1}
            ctx.set(dut.coming, job)
            ctx.set(dut.park, 1)
            await ctx.tick()
            ctx.set(dut.park, 0)
            asks, works, stays = (rng.randrange(6) for _ in range(3))
            status = rng.choice([AccessStatus.OK, *AccessStatus])

            def check():
                held = coming["qp"] == job["qp"] or coming["invalidate"]  # noqa: B023
                assert ctx.get(dut.held) == held
                assert {name: ctx.get(dut.job[name]) for name in job} == job  # noqa: B023

            for _ in range(asks):
                await tick()
                check()
                assert ctx.get(dut.operation.valid)
                assert not ctx.get(dut.operated.ready)
            asked = ctx.get(dut.operation.payload)
            assert asked.operation == KeyOperation.INVALIDATE
            assert asked.key == int.from_bytes(job["immediate"].to_bytes(4, "little"), "big")
            assert (asked.pd, asked.qp) == (job["pd"], job["qp"])
            ctx.set(dut.operation.ready, 1)
            await tick()
            ctx.set(dut.operation.ready, 0)
            for _ in range(works):
                await tick()
                check()
                assert not ctx.get(dut.operation.valid)
                assert not ctx.get(dut.back)
            ctx.set(dut.operated.payload.status, status)
            ctx.set(dut.operated.valid, 1)
            assert ctx.get(dut.operated.ready)
            await tick()
            ctx.set(dut.operated.valid, 0)
            for _ in range(stays):
                await tick()
                check()
                assert ctx.get(dut.back)
                assert ctx.get(dut.status) == status
            ctx.set(dut.leave, 1)
            await tick()
            ctx.set(dut.leave, 0)
            await tick()
            assert not ctx.get(dut.back)

    simulate(dut, testbench, seed=rng.seed_value)
