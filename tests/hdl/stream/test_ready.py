import pytest
from amaranth.hdl import ResetInserter, Signal
from streams import make_rng, receive_all, send_all, simulate
from verbena.hdl.stream.ready import ReadyQueue


def test_each_once_in_order_of_arrival():
    dut = ReadyQueue(8)

    async def testbench(ctx):
        await send_all(ctx, dut.i, [3, 3, 5, 1, 5, 3, 1, 7])
        # The first 3 went on to the output as the second came, which was queued again; the third found that one there.
        assert await receive_all(ctx, dut.o, 5) == [3, 3, 5, 1, 7]
        for _ in range(10):
            assert not ctx.get(dut.o.valid)
            assert ctx.get(dut.empty)
            await ctx.tick()

    simulate(dut, testbench)


def test_latency():
    dut = ReadyQueue(4)

    async def testbench(ctx):
        assert ctx.get(dut.empty)
        await send_all(ctx, dut.i, [2])
        assert ctx.get(dut.o.valid)
        assert not ctx.get(dut.empty)
        await send_all(ctx, dut.i, [3])  # behind one that is stuck
        await receive_all(ctx, dut.o, 1)
        for _ in range(2):
            assert not ctx.get(dut.o.valid)
            assert not ctx.get(dut.empty)
            await ctx.tick()
        assert ctx.get(dut.o.valid)
        await receive_all(ctx, dut.o, 1)
        assert ctx.get(dut.empty)

    simulate(dut, testbench)


def test_one_a_cycle():
    """The whole set passes without a gap, straight through as well as out of the queue."""
    dut = ReadyQueue(16)

    async def run(ctx, stuck):
        got = []
        for time in range(16 + stuck):
            ctx.set(dut.i.valid, time < 16)
            ctx.set(dut.i.payload, time % 16)
            ctx.set(dut.o.ready, time >= stuck)
            _, _, valid, payload = await ctx.tick().sample(dut.o.valid, dut.o.payload)
            if valid and time >= stuck:
                got.append(payload)
        return got

    async def testbench(ctx):
        assert await run(ctx, 1) == list(range(16))
        assert await run(ctx, 16) == list(range(16))

    simulate(dut, testbench)


@pytest.mark.parametrize("count", [2, 4, 5, 16])
@pytest.mark.parametrize("stalls", [(0, 0), (0.3, 0.3), (0, 0.8), (0.8, 0), (0.5, 0.5)])
def test_no_addition_is_forgotten(count, stalls):
    """Each id comes once at least behind its last addition, and never without one of its own."""
    rng = make_rng()
    dut = ReadyQueue(count)

    async def testbench(ctx):
        unused = [0] * count  # additions that nothing has answered
        expected = set()
        for time in range(2000):
            quiet = time % 400 > 300
            add = rng.randrange(count) if rng.random() >= stalls[0] and not quiet else None
            ready = quiet or rng.random() >= stalls[1]
            ctx.set(dut.i.payload, rng.randrange(count) if add is None else add)
            ctx.set(dut.i.valid, add is not None)
            ctx.set(dut.o.ready, ready)
            assert ctx.get(dut.i.ready)
            if ctx.get(dut.empty):
                assert not expected
                assert not ctx.get(dut.o.valid)
            if ctx.get(dut.o.valid) and ready:
                number = ctx.get(dut.o.payload)
                assert unused[number]
                unused[number] -= 1
                expected.discard(number)
                if time % 400 > 302:
                    unused[number] = min(unused[number], 1)  # at the output and in the queue: no more than that
            if add is not None:
                unused[add] += 1
                expected.add(add)
            if time % 400 == 399:
                assert ctx.get(dut.empty)
                unused = [0] * count
            await ctx.tick()

    simulate(dut, testbench, seed=rng.seed_value)


@pytest.mark.parametrize("stalls", [(0, 0), (0.3, 0.3), (0, 0.8), (0.8, 0), (0.5, 0.5)])
def test_order(stalls):
    """Ids that are added only when they wait nowhere come in the order of their addition."""
    rng = make_rng()
    dut = ReadyQueue(16)

    async def testbench(ctx):
        waiting = []
        edges = aiter(ctx.tick().sample(dut.o.valid, dut.o.payload, dut.o.ready))
        for _ in range(2000):
            absent = [number for number in range(16) if number not in waiting]
            add = rng.choice(absent) if absent and rng.random() >= stalls[0] else None
            ctx.set(dut.i.payload, add or 0)
            ctx.set(dut.i.valid, add is not None)
            ctx.set(dut.o.ready, rng.random() >= stalls[1])
            _, _, valid, number, ready = await anext(edges)
            if valid and ready:
                assert number == waiting.pop(0)
            if add is not None:
                waiting.append(add)

    simulate(dut, testbench, seed=rng.seed_value)


def test_reset_forgets():
    """Ids that waited at a reset do not come out behind it, and can be added again as if new."""
    rng = make_rng()
    count = 8
    dut, reset = ReadyQueue(count), Signal()

    async def testbench(ctx):
        for _ in range(40):
            for _ in range(rng.randrange(30)):
                ctx.set(dut.i.valid, rng.random() < 0.7)
                ctx.set(dut.i.payload, rng.randrange(count))
                ctx.set(dut.o.ready, rng.random() < 0.3)
                await ctx.tick()
            ctx.set(reset, 1)
            await ctx.tick()
            ctx.set(reset, 0)
            ctx.set(dut.o.ready, 0)
            for _ in range(count):
                assert not ctx.get(dut.o.valid)
                ctx.set(dut.i.valid, rng.random() < 0.7)
                await ctx.tick()
            ctx.set(dut.i.valid, 0)
            assert ctx.get(dut.empty)
            ids = rng.sample(range(count), count)
            await send_all(ctx, dut.i, ids)
            assert await receive_all(ctx, dut.o, count) == ids
            for _ in range(5):
                assert not ctx.get(dut.o.valid)
                await ctx.tick()

    simulate(ResetInserter(reset)(dut), testbench, seed=rng.seed_value)


@pytest.mark.parametrize("count", [1, 0, 2.5])
def test_refuses_a_wrong_count(count):
    with pytest.raises(ValueError, match=str(count)):
        ReadyQueue(count)
