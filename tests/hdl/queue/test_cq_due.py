"""CqDue: events that are due, with and without moderation, in one event queue and in several."""

import pytest
from streams import make_rng, receive_all, shared, simulate
from verbena.hdl.abi.contexts import CQ_CONTEXT
from verbena.hdl.queue.cq_due import CqDue

SLOTS = 8


async def describe(ctx, dut, slot, **attributes):
    """Attributes of a CQ, as the command block writes them."""
    words = CQ_CONTEXT.words(**({"cq_count": 0, "cq_period": 0, "comp_vector": 0} | attributes))
    for number, word in enumerate(words):
        ctx.set(dut.write, {"index": slot, "word": number, "data": word})
        ctx.set(dut.write_en, 1)
        await ctx.tick()
    ctx.set(dut.write_en, 0)
    await ctx.tick().repeat(3)


async def tell(ctx, dut, number, **news):
    ctx.set(dut.news, {"number": number, "begins": 0, "gathers": 0, "urgent": 0} | news)
    ctx.set(dut.news_en, 1)
    await ctx.tick()
    ctx.set(dut.news_en, 0)


@pytest.mark.parametrize(
    ("options", "latency"),
    [({}, 1), ({"queues": 4}, 3), ({"moderation": True}, 3), ({"moderation": True, "queues": 4}, 5)],
)
def test_latency(options, latency):
    """A queue's register, two cycles for the vector, two for moderation; and it is inside all the time."""
    rng = make_rng()
    dut = shared(CqDue, SLOTS, **options)
    vector = 2 if "queues" in options else 0

    async def testbench(ctx):
        if options:
            await describe(ctx, dut, 5, comp_vector=vector)
        await ctx.tick().repeat(2 * SLOTS)
        assert not ctx.get(dut.waits)
        await tell(ctx, dut, 5 | SLOTS, gathers=1)  # nothing is due
        await ctx.tick().repeat(8)
        assert not ctx.get(dut.waits)
        await tell(ctx, dut, 5 | SLOTS, begins=1)
        for _ in range(latency):
            assert ctx.get(dut.waits)
            assert not any(ctx.get(port.valid) for port in dut.o)
            await ctx.tick()
        assert [ctx.get(port.valid) for port in dut.o] == [number == vector for number in range(len(dut.o))]
        assert await receive_all(ctx, dut.o[vector], 1) == [5 | SLOTS]
        await ctx.tick().repeat(2)
        assert not ctx.get(dut.waits)

    simulate(dut, testbench, seed=rng.seed_value)


@pytest.mark.parametrize("queues", [1, 4])
def test_an_event_that_waits_comes_at_a_command(queues):
    """It waits for its time, without a unit for ever; ``hurry`` brings it to the CQ's own event queue."""
    rng = make_rng()
    dut = shared(CqDue, SLOTS, moderation=True, queues=queues)
    vector = queues - 1

    async def testbench(ctx):
        await describe(ctx, dut, 3, cq_period=20, cq_count=4, comp_vector=vector)
        await ctx.tick().repeat(2 * SLOTS)
        await tell(ctx, dut, 3, begins=1)
        await ctx.tick().repeat(100)
        assert ctx.get(dut.moderates)
        assert ctx.get(dut.waits)
        assert not any(ctx.get(port.valid) for port in dut.o)
        ctx.set(dut.hurry, 1)
        ctx.set(dut.hurry_slot, 3)
        assert await receive_all(ctx, dut.o[vector], 1) == [3]
        ctx.set(dut.hurry, 0)
        await ctx.tick().repeat(3)
        assert not ctx.get(dut.moderates)
        assert not ctx.get(dut.waits)

    simulate(dut, testbench, seed=rng.seed_value)
