"""CQs that wait for event queues, of which one is not read."""

from streams import make_rng, pause, received, send_all, shared, simulate
from verbena.hdl.abi.contexts import CQ_CONTEXT
from verbena.hdl.queue.cq_vectors import CqVectors

SLOTS, QUEUES = 16, 4


def test_each_to_its_queue():
    """In order; who is not read holds up no other, and nothing is lost when it is read."""
    rng = make_rng()
    dut = shared(CqVectors, SLOTS, QUEUES)
    vectors = [rng.randrange(QUEUES) for _ in range(SLOTS)]
    got = [[] for _ in range(QUEUES)]
    reading = [vector != 2 for vector in range(QUEUES)]

    def reader(vector):
        async def read(ctx):
            while not reading[vector]:
                await ctx.tick()
            async for number in received(ctx, dut.o[vector], rng, 0.3):
                got[vector].append(number)

        return read

    async def user(ctx):
        for slot, vector in enumerate(vectors):
            # Bits that name no event queue here do not count.
            words = CQ_CONTEXT.words(cq_count=0xFFFF, cq_period=0xFFF, comp_vector=vector | 8)
            ctx.set(dut.write, {"index": slot, "word": 3, "data": words[3]})
            ctx.set(dut.write_en, 1)
            await ctx.tick()
        ctx.set(dut.write_en, 0)
        await ctx.tick().repeat(3)
        assert not ctx.get(dut.holds)
        sent = [[] for _ in range(QUEUES)]
        for round_ in range(6):
            numbers = [slot | rng.randrange(8) << 4 for slot in range(SLOTS)]
            rng.shuffle(numbers)
            for number in numbers:
                vector = vectors[number % SLOTS]
                if vector != 2 or round_ == 0:  # a slot has one CQ inside
                    sent[vector].append(number)
                    await send_all(ctx, dut.i, [number])
                    await pause(ctx, rng, 0.3)
            for _ in range(60):
                await ctx.tick()
            assert got == [[] if vector == 2 else numbers for vector, numbers in enumerate(sent)]
        assert ctx.get(dut.holds) == bool(sent[2])
        reading[2] = True
        for _ in range(100):
            await ctx.tick()
        assert got == sent
        assert not ctx.get(dut.holds)

    simulate(dut, user, background=[reader(vector) for vector in range(QUEUES)], seed=rng.seed_value)


def test_latency():
    """Two cycles more than a queue's."""
    dut = shared(CqVectors, SLOTS, QUEUES)

    async def user(ctx):
        ctx.set(dut.write_en, 1)
        ctx.set(dut.write, {"index": 5, "word": 3, "data": 1 << 28})
        await ctx.tick()
        ctx.set(dut.write_en, 0)
        for _ in range(3):
            await ctx.tick()
        ctx.set(dut.i.valid, 1)
        ctx.set(dut.i.payload, 0x25)
        assert ctx.get(dut.holds)
        await ctx.tick()
        ctx.set(dut.i.valid, 0)
        for _ in range(3):
            assert ctx.get(dut.holds)
            assert not ctx.get(dut.o[1].valid)
            await ctx.tick()
        assert (ctx.get(dut.o[1].valid), ctx.get(dut.o[1].payload)) == (1, 0x25)

    simulate(dut, user)
