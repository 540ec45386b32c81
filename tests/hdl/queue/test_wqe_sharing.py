"""How rings share the blocks of a RingPrefetcher: nobody starves, nobody takes all, and no block is lost."""

import pytest
from queue_world import World, make
from streams import make_rng, send_all
from verbena.hdl.abi.commands import QpAction
from verbena.hdl.queue.ring import BATCH


async def pause_for(ctx, cycles):
    for _ in range(cycles):
        await ctx.tick()


async def post(ctx, world, ring, count):
    for _ in range(count):
        world.post(ring)
    await world.ring(ctx, ring)


def set_up(kind, qps, **options):
    rng = make_rng()
    world = World(make(64, kind, qps=qps, **options), kind, rng, latency=(140, 140), stall=0)
    world.asks = False
    return world, [world.add(qp, 0x1_0000 * (qp + 1), 8, 6) for qp in range(qps)]


async def configure(ctx, world):
    for ring in world.rings.values():
        await world.configure(ctx, ring)


@pytest.mark.parametrize("quota", [2, 10])
def test_one_alone_has_its_quota(quota):
    """And no more: of the others each finds a block at once."""
    world, rings = set_up("sq", 8, blocks=32, quota=quota)

    async def testbench(ctx):
        await configure(ctx, world)
        await post(ctx, world, rings[0], 200)
        await ctx.tick().repeat(600)
        assert (await world.status(ctx, 0)).fetched == quota * BATCH // 64
        for ring in rings[1:]:
            await post(ctx, world, ring, 1)
        start = world.time
        for _ in range(7):
            while await world.arrival(ctx) == 0:
                pass
        assert world.time - start < 300

    world.run(testbench)


@pytest.mark.parametrize("count", [16, pytest.param(20, marks=pytest.mark.slow)])
def test_all_at_once_get_the_same(count):
    """16 QPs with more WQEs than there are blocks: once all wait, each has its read when all others have had theirs."""
    world, rings = set_up("sq", 16, blocks=8, quota=4)

    async def testbench(ctx):
        await configure(ctx, world)
        for ring in rings:
            await post(ctx, world, ring, count)
        while any(ring.seen < count for ring in rings):
            await world.consume(ctx, await world.arrival(ctx))

    world.run(testbench, deadline=20_000)
    assert {length for _, _, length in world.log} == {BATCH}, "blocks were taken away without need"
    assert len(world.log) == 16 * count // 4
    # Who came first had its quota; from then on they take turns.
    order = [qp for _, qp, _ in world.log]
    for start in range(16, len(order) - 32):
        assert max(order[start : start + 16].count(qp) for qp in range(16)) <= 2


@pytest.mark.parametrize("count", [30, pytest.param(80, marks=pytest.mark.slow)])
@pytest.mark.parametrize("silent", [7, 12])
def test_who_never_consumes_stops_nobody(silent, count):
    """Rings whose WQEs nobody reads hold all blocks, or wait for one; two others get on."""
    world, rings = set_up("sq", 16, blocks=8, quota=3)
    active = rings[silent : silent + 2]
    times = []

    async def testbench(ctx):
        await configure(ctx, world)
        for ring in rings[:silent]:
            await post(ctx, world, ring, 20)
        await ctx.tick().repeat(1000)
        start = world.time
        for ring in active:
            await post(ctx, world, ring, count)
        while any(ring.seen < count for ring in active):
            qp = await world.arrival(ctx)
            if world.rings[qp] in active:
                await world.consume(ctx, qp)
                times.append(world.time)
        assert times[0] - start < (silent + 1) * (128 + 150)
        # Each of the two has a block at least, four WQEs a read.
        last = times[-12:]
        print(f"{times[0] - start} cycles until the first, {(last[-1] - last[0]) / 11:.1f} for each of the last")
        assert last[-1] - last[0] < 11 * 160
        # Those who were silent wake: what they had is fetched again.
        for ring in rings[:3]:
            while ring.seen < 20:
                ctx.set(world.dut.status_qp, ring.qp)
                await ctx.tick()
                if not await world.consume(ctx, ring.qp):
                    await send_all(ctx, world.dut.wanted, [ring.qp])
                    await ctx.tick().repeat(20)

    world.run(testbench, deadline=20_000)


@pytest.mark.parametrize("first", [0, *(pytest.param(first, marks=pytest.mark.slow) for first in (1, 2))])
def test_a_doorbell_meets_its_ring_making_room(first):
    """In each cycle around the time at which a ring makes room: what is posted then is fetched, though nobody asks."""
    world, rings = set_up("sq", 4, blocks=4, quota=2, patience=16)
    dut = world.dut
    waiter, holders = rings[0], rings[1:]

    async def testbench(ctx):
        await configure(ctx, world)
        for delay in range(first, 44, 3):
            for ring in holders:
                await post(ctx, world, ring, 1)
            for _ in holders:
                await world.arrival(ctx)
            await post(ctx, world, waiter, 1)
            await pause_for(ctx, delay)
            for ring in holders:
                await post(ctx, world, ring, 1)
            ctx.set(dut.status_qp, waiter.qp)
            ctx.set(dut.arrived.ready, 1)
            missing, start = {ring.qp for ring in rings}, world.time
            edges = aiter(ctx.tick().sample(dut.arrived.valid, dut.arrived.payload))
            while missing:
                _, _, valid, qp = await anext(edges)
                if valid:
                    missing.discard(qp)
                assert world.time - start < 3000, f"{missing} did not come, {delay} cycles after the doorbell"
            ctx.set(dut.arrived.ready, 0)
            for ring in rings:
                await send_all(ctx, dut.control, [{"qp": ring.qp, "action": QpAction.RESET}])
                ring.posted = ring.freed = ring.seen = 0
                ring.slots.clear()

    world.run(testbench, deadline=60_000)


def test_what_is_wanted_comes_at_once():
    """Receive rings, more than blocks, that wait for messages: when one comes, its WQE is there after two reads,
    one that is on its way, and its own, at most.
    """
    world, rings = set_up("rq", 16, blocks=8, quota=4)
    rng = world.rng
    worst = 0

    async def drop_arrivals(ctx):
        ctx.set(world.dut.arrived.ready, 1)
        async for _ in ctx.tick():
            pass

    async def testbench(ctx):
        nonlocal worst
        await configure(ctx, world)
        for ring in rings:
            await post(ctx, world, ring, 40)
        await ctx.tick().repeat(500)
        for _ in range(12):
            ring = rng.choice(rings)
            if ring.seen == ring.posted:
                continue
            start = world.time
            while (await world.status(ctx, ring.qp)).fetched == ring.seen & 0xFFFF:
                await send_all(ctx, world.dut.wanted, [ring.qp])
                await ctx.tick()
            worst = max(worst, world.time - start)
            assert await world.words(ctx, ring, ring.seen) == ring.slots.pop(ring.seen)
            ring.seen += 1
            await send_all(ctx, world.dut.consumed, [{"qp": ring.qp, "index": ring.seen}])
            ring.freed = ring.seen
            await pause_for(ctx, rng.randrange(60))

    world.run(testbench, background=(drop_arrivals,), deadline=20_000)
    print(f"{worst} cycles at most")
    assert worst < 2 * 145 + 100


@pytest.mark.parametrize("count", [4, pytest.param(8, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", ["sq", "rq"])
def test_reset_gives_all_blocks_back(kind, count):
    """At any moment; afterwards there are as many as before, for two QPs that share them."""
    world, rings = set_up(kind, 4, blocks=8, quota=4)
    rng, dut = world.rng, world.dut
    world.may_push = 0.5 if kind == "sq" else 0
    aside = 1 if kind == "sq" else 0

    async def drop_arrivals(ctx):
        ctx.set(dut.arrived.ready, 1)
        async for _ in ctx.tick():
            pass

    async def testbench(ctx):
        await configure(ctx, world)
        for _ in range(count):
            for ring in rings:
                for _ in range(rng.randrange(3)):
                    await post(ctx, world, ring, rng.randrange(1, 12))
                if rng.random() < 0.3:
                    await send_all(ctx, dut.wanted, [ring.qp])
            await pause_for(ctx, rng.randrange(500))
            for ring in rings:
                if rng.random() < 0.5:
                    fetched = (await world.status(ctx, ring.qp)).fetched
                    ring.seen = ring.freed = rng.randint(0, fetched)
                    await send_all(ctx, dut.consumed, [{"qp": ring.qp, "index": ring.seen}])
                    await pause_for(ctx, rng.choice([0, 0, 1, 2, 3, 20]))
            for ring in rng.sample(rings, 4):
                await send_all(ctx, dut.control, [{"qp": ring.qp, "action": QpAction.RESET}])
                ring.posted = ring.freed = ring.seen = 0
                ring.slots.clear()
            world.may_push, saved = 0, world.may_push
            for ring in rings[:2]:
                await post(ctx, world, ring, 100)
                if kind == "rq":  # it is in use
                    await ctx.tick().repeat(200)
                    await send_all(ctx, dut.consumed, [{"qp": ring.qp, "index": 0}])
            world.may_push = saved
            await ctx.tick().repeat(700)
            fetched = [(await world.status(ctx, qp)).fetched for qp in range(2)]
            assert sum(fetched) == (8 - aside) * dut.size // 64
            for ring in rings[:2]:
                await send_all(ctx, dut.control, [{"qp": ring.qp, "action": QpAction.RESET}])
                ring.posted = ring.freed = ring.seen = 0
                ring.slots.clear()

    world.run(testbench, background=(drop_arrivals,), deadline=20_000)


@pytest.mark.parametrize("count", [10, pytest.param(30, marks=pytest.mark.slow)])
@pytest.mark.parametrize("seed", range(4))
def test_random_sharing(seed, count):
    """Few blocks, many rings, consumers that come and go, pushes and rings that go back: each WQE is read as posted, in
    order, and none is forgotten.
    """
    rng = make_rng(seed)
    kind = ("sq", "rq")[seed % 2]
    world = World(make(64, kind, qps=8, blocks=8, quota=4, patience=16), kind, rng, latency=(1, 60), stall=0.1)
    world.may_push = 0.3 if kind == "sq" else 0
    rings = [world.add(qp, 0x1_0000 * (qp + 1), 1 + qp % 6, 6 + qp % 2) for qp in range(8)]
    sleeping = set()

    async def driver(ctx):
        for ring in rings:
            await world.configure(ctx, ring)
        while any(ring.posted < count for ring in rings):
            ring = rng.choice(rings)
            for _ in range(rng.randrange(8)):
                if ring.posted < count and ring.posted - ring.freed < ring.size:
                    world.post(ring)
            await world.ring(ctx, ring)
            await pause_for(ctx, rng.randrange(20))

    async def consumer(ctx):
        while any(ring.seen < count for ring in rings):
            if rng.random() < 0.05:
                sleeping.clear()
                sleeping.update(rng.sample(range(8), rng.randrange(6)))
            qp = rng.choice([qp for qp in range(8) if qp not in sleeping])
            if ctx.get(world.dut.arrived.valid):
                qp = await world.arrival(ctx)
            if qp not in sleeping:
                await world.consume(ctx, qp)
            ctx.set(world.dut.status_qp, rng.randrange(8))
            await ctx.tick().repeat(rng.choice([1, 5, 60]))

    world.run(driver, consumer, deadline=120_000)
