"""Rings that are away for a while: how far they are goes and comes back, and their WQEs are fetched again."""

import pytest
from queue_world import World, make
from streams import make_rng, pause, send_all
from verbena.hdl.abi.commands import QpAction


class Away:
    """Takes one ring after the other away, in the midst of the others' traffic."""

    def __init__(self, world):
        self.world = world
        self.ring = None  # that is away, or going
        self.inside = set()  # whose WQEs are being read, or posted
        self.swaps = 0

    def open(self, ring):
        return ring is not self.ring

    async def __call__(self, ctx):
        rng = self.world.rng
        while True:
            await pause(ctx, rng, 0.9)
            ring = rng.choice(list(self.world.rings.values()))
            self.ring = ring
            while ring.qp in self.inside:
                await ctx.tick()
            for _ in range(12):  # a doorbell, and what was consumed, are inside
                await ctx.tick()
            word = await self.world.token(ctx, ring, QpAction.SAVE)
            assert word.consumed == ring.freed & 0xFFFF
            assert word.producer == ring.posted & 0xFFFF
            assert (word.misrung, word.failed) == (0, 0)
            await pause(ctx, rng, rng.choice([0.5, 0.99]))
            await self.world.token(ctx, ring, QpAction.LOAD, word)
            ring.seen = ring.freed  # all else must come again
            self.ring = None
            self.swaps += 1


@pytest.mark.parametrize("count", [21, pytest.param(60, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", ["sq", "rq"])
@pytest.mark.parametrize("width", [64, 512])
def test_all_comes_again(kind, width, count):
    """``count`` WQEs of each ring."""
    rng = make_rng()
    dut = make(width, kind, swaps=True)
    world = World(dut, kind, rng, latency=(1, 60))
    away = Away(world)
    rings = [
        world.add(qp, 0x10000 * (qp + 1), log_size, rng.choice([6, 7] if kind == "sq" else [4, 5, 6, 7]))
        for qp, log_size in enumerate([2, 4, 5, 3])
    ]

    async def driver(ctx):
        for ring in rings:
            await world.configure(ctx, ring)
        while any(ring.posted < count for ring in rings):
            await pause(ctx, rng, 0.9)
            ring = rng.choice([ring for ring in rings if ring.posted < count])
            if not away.open(ring) or ring.qp in away.inside or ring.posted - ring.freed >= ring.size:
                await ctx.tick()
                continue
            away.inside.add(ring.qp)
            for _ in range(rng.randint(1, ring.size - (ring.posted - ring.freed))):
                world.post(ring)
            await world.ring(ctx, ring)
            away.inside.discard(ring.qp)

    async def consumer(ctx):
        while any(ring.freed < count for ring in rings) or away.swaps <= count // 3:
            await pause(ctx, rng, 0.5)
            await ctx.tick()
            for ring in rng.sample(rings, len(rings)):
                if away.open(ring) and ring.qp not in away.inside:
                    away.inside.add(ring.qp)
                    await world.consume(ctx, ring.qp)
                    away.inside.discard(ring.qp)

    async def arrivals(ctx):
        while True:
            await world.arrival(ctx)

    async def stale(ctx):
        """What somebody still wants of a ring that is away, or was."""
        while True:
            await pause(ctx, rng, 0.99)
            await send_all(ctx, dut.wanted, [rng.choice(rings).qp])

    world.asks = False
    world.run(driver, consumer, background=(away, arrivals, stale), deadline=60_000)
    assert away.swaps > count // 3


@pytest.mark.parametrize("count", [10, pytest.param(25, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", ["sq", "rq"])
def test_among_busy_rings(kind, count):
    """A ring that rests goes and comes while reads of others end in any cycle; it stays where it is."""
    rng = make_rng()
    dut = make(512, kind, swaps=True)
    world = World(dut, kind, rng, latency=(1, 2), stall=0)
    rings = [world.add(qp, 0x10000 * (qp + 1), 4, 6) for qp in range(4)]
    resting, *busy = rings
    ends = []

    async def testbench(ctx):
        for ring in rings:
            await world.configure(ctx, ring)
        for _ in range(3):
            world.post(resting)
        await world.ring(ctx, resting)
        while resting.seen < 3:
            await world.consume(ctx, await world.arrival(ctx))
        for _ in range(count):
            word = await world.token(ctx, resting, QpAction.SAVE)
            assert word == {"producer": 3, "consumed": 3, "misrung": 0, "failed": 0}
            await world.token(ctx, resting, QpAction.LOAD, word)
        ends.append(1)

    async def traffic(ctx):
        """All that is posted counts as consumed once it has been fetched; nobody reads it."""
        while resting.seen < 3:
            await ctx.tick()
        while not ends:
            for ring in busy:
                while ring.posted - ring.freed < ring.size:
                    world.post(ring)
                await world.ring(ctx, ring)
                status = await world.status(ctx, ring.qp)
                ring.seen += (status.fetched - ring.seen) & 0xFFFF
                if ring.seen > ring.freed:
                    await send_all(ctx, dut.consumed, [{"qp": ring.qp, "index": ring.seen & 0xFFFF}])
                    ring.freed = ring.seen
            await ctx.tick()

    async def looks(ctx):
        """Turns of the others, whether there is something to read or not."""
        while not ends:
            await send_all(ctx, dut.wanted, [rng.choice(busy).qp])
            ctx.set(dut.arrived.ready, resting.seen == 3)

    world.asks = False
    world.run(testbench, background=(traffic, looks), deadline=60_000)


@pytest.mark.parametrize("kind", ["sq", "rq"])
def test_errors_come_back(kind):
    """A ring that was rung wrongly, or could not be read, is in error as before; who waits for its WQEs hears so."""
    rng = make_rng()
    dut = make(64, kind, swaps=True)
    world = World(dut, kind, rng, latency=(5, 50))
    world.asks = False
    misrung, failed = world.add(0, 0x1000, 4, 6), world.add(1, 0x8000, 4, 6)
    world.fail = lambda address: address >= failed.base

    async def testbench(ctx):
        for ring in misrung, failed:
            await world.configure(ctx, ring)
            world.post(ring)
            await world.ring(ctx, ring)
            assert await world.arrival(ctx) == ring.qp
        await world.consume(ctx, 0)
        await world.ring(ctx, misrung, misrung.seen + misrung.size + 1)
        assert await world.arrival(ctx) == 0
        reads = len(world.log)
        for ring in misrung, failed:
            word = await world.token(ctx, ring, QpAction.SAVE)
            bits = ring is misrung, ring is failed
            assert word == {"producer": 1, "consumed": ring.freed, "misrung": bits[0], "failed": bits[1]}
            assert await world.status(ctx, ring.qp) == {"producer": 0, "fetched": 0, "error": 0}
            assert not ctx.get(dut.arrived.valid)
            await world.token(ctx, ring, QpAction.LOAD, word)
            assert await world.arrival(ctx) == ring.qp
            assert await world.status(ctx, ring.qp) == {"producer": 1, "fetched": ring.freed, "error": 1}
        for _ in range(100):
            await ctx.tick()
        assert len(world.log) == reads

    world.run(testbench)
