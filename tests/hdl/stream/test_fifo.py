import pytest
from amaranth.back import rtlil
from streams import check_reset_leaves_payload, make_rng, receive_all, send_all, simulate
from verbena.hdl.stream.fifo import Queue
from verbena.hdl.stream.packet import PacketBeat


@pytest.mark.parametrize("depth", [1, 2, 3, 5, 16, 64, 65, 128, 200])
@pytest.mark.parametrize("stalls", [(0, 0), (0.3, 0.3), (0, 0.6), (0.6, 0)])
@pytest.mark.parametrize(("bypass", "sparse"), [(False, False), (True, False), (True, True)])
def test_order(depth, stalls, bypass, sparse):
    rng = make_rng()
    dut = Queue(16, depth, bypass=bypass and depth <= 64, sparse=sparse and depth <= 64)
    sent = [rng.randrange(1 << 16) for _ in range(2 * depth + 100)]

    async def producer(ctx):
        await send_all(ctx, dut.i, sent, rng, stalls[0])

    async def consumer(ctx):
        assert await receive_all(ctx, dut.o, len(sent), rng, stalls[1]) == sent
        if dut.sparse:
            assert ctx.get(dut.level) == 1
            await ctx.tick()
        assert ctx.get(dut.level) == 0
        assert not ctx.get(dut.o.valid)

    simulate(dut, producer, consumer, seed=rng.seed_value)


@pytest.mark.parametrize(("depth", "bypass"), [*((d, 0) for d in (1, 2, 3, 7, 64, 65, 100)), (1, 1), (2, 1), (64, 1)])
def test_holds_exactly_depth_items(depth, bypass):
    dut = Queue(16, depth, bypass=bool(bypass))

    async def testbench(ctx):
        await send_all(ctx, dut.i, range(depth))
        await ctx.tick().repeat(12)
        assert ctx.get(dut.level) == depth
        assert not ctx.get(dut.i.ready)
        assert await receive_all(ctx, dut.o, depth) == list(range(depth))

    simulate(dut, testbench)


@pytest.mark.parametrize(
    ("depth", "bypass", "latency"), [(3, 0, 2), (64, 0, 2), (65, 0, 5), (1024, 0, 5), (2, 1, 1), (64, 1, 1)]
)
def test_latency_and_throughput(depth, bypass, latency):
    dut = Queue(16, depth, bypass=bool(bypass))
    times = []

    async def producer(ctx):
        await send_all(ctx, dut.i, range(300))

    async def consumer(ctx):
        ctx.set(dut.o.ready, 1)
        cycle = 0
        edges = aiter(ctx.tick().sample(dut.o.valid))
        while len(times) < 300:
            _, _, valid = await anext(edges)
            if valid:
                times.append(cycle)
            cycle += 1

    simulate(dut, producer, consumer)
    assert times == list(range(latency, latency + 300))


@pytest.mark.parametrize("bypass", [False, True])
def test_a_sparse_one_rests(bypass):
    """The first item is as quick as ever; then one comes every second cycle."""
    dut = Queue(16, 16, bypass=bypass, sparse=True)
    times = []

    async def producer(ctx):
        await send_all(ctx, dut.i, range(60))

    async def consumer(ctx):
        ctx.set(dut.o.ready, 1)
        cycle = 0
        edges = aiter(ctx.tick().sample(dut.o.valid))
        while len(times) < 60:
            *_, valid = await anext(edges)
            if valid:
                times.append(cycle)
            cycle += 1

    simulate(dut, producer, consumer)
    assert times == [2 - bypass + 2 * n for n in range(60)]


@pytest.mark.parametrize("depth", [8, 100])
def test_keeps_the_shape(depth):
    dut = Queue(PacketBeat(64), depth)
    beat = {"data": 0x0123456789ABCDEF, "count": 8, "first": 1, "last": 0, "error": 1}

    async def testbench(ctx):
        await send_all(ctx, dut.i, [beat])
        (got,) = await receive_all(ctx, dut.o, 1)
        assert got == beat

    assert dut.o.payload.shape() == PacketBeat(64)
    simulate(dut, testbench)
    rtlil.convert(dut)


@pytest.mark.parametrize("depth", [0, -1, 2.5])
def test_refuses_a_wrong_depth(depth):
    with pytest.raises(ValueError, match=str(depth)):
        Queue(8, depth)


def test_refuses_a_bypass_around_block_ram():
    with pytest.raises(ValueError, match="at most 64 with bypass, not 65"):
        Queue(8, 65, bypass=True)
    with pytest.raises(ValueError, match="at most 64 if sparse, not 65"):
        Queue(8, 65, sparse=True)


def test_a_reset_leaves_the_payload():
    check_reset_leaves_payload(Queue(8, 4))
