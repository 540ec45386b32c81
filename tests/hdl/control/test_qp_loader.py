"""QpLoader: what is waited for before a QP comes, and how that ends."""

import pytest
from streams import make_rng, simulate
from verbena.hdl.control.qp_loader import QpLoader

STROBES = ("closes", "load", "failed", "unwritten", "came")


def run(scenario):
    """Runs ``scenario(ctx, dut, step)``; ``step`` sets inputs, and gives the strobes of a cycle."""
    rng = make_rng()
    dut = QpLoader()

    async def testbench(ctx):
        async def step(**inputs):
            for name, value in inputs.items():
                ctx.set(getattr(dut, name), value)
            found = [name for name in STROBES if ctx.get(getattr(dut, name))]
            await ctx.tick()
            return found

        for _ in range(8):
            await step(begin=1, fetched=0, reading=0, bad=0, missing=0, attributes_busy=0, said=0)
            await step(begin=0)
            await scenario(ctx, dut, step, rng)
            for _ in range(3):
                assert await step() == []

    simulate(dut, testbench, seed=rng.seed_value)


def test_who_comes():
    """Its record is given a cycle after its slot is closed; it is there when all have it, and its attributes, too."""

    async def scenario(ctx, dut, step, rng):
        for fetched, reading in ((0, 0), (0, 1), (1, 1)):
            for _ in range(rng.randrange(4)):
                assert await step(fetched=fetched, reading=reading, bad=rng.randrange(2)) == []
        assert await step(fetched=1, reading=0, bad=0) == ["closes"]
        assert await step(attributes_busy=0) == ["load"]
        for _ in range(rng.randrange(5)):
            assert ctx.get(dut.say)
            assert await step(attributes_busy=1) == []
        assert await step(attributes_busy=1, said=1) == []
        assert not ctx.get(dut.say)
        for _ in range(rng.randrange(5)):
            assert await step(said=0) == []
        assert await step(attributes_busy=0) == ["came"]

    run(scenario)


@pytest.mark.parametrize("late", [False, True])
def test_a_record_that_is_bad(late):
    async def scenario(ctx, dut, step, rng):
        if late:
            for _ in range(1 + rng.randrange(5)):
                assert await step(fetched=1, reading=1) == []
        assert await step(fetched=1, reading=0, bad=1) == ["failed"]
        assert not ctx.get(dut.say)

    run(scenario)


def test_a_record_that_is_lost_is_told_before_it_is_waited_for():
    async def scenario(ctx, dut, step, rng):
        for _ in range(rng.randrange(5)):
            assert await step() == []
        assert await step(missing=1) == ["unwritten"]

    run(scenario)
