"""BlockPool against lists in Python."""

from itertools import pairwise

import pytest
from amaranth.back import rtlil
from streams import make_rng, simulate
from verbena.hdl.queue.block_pool import BlockPool


class Ring:
    """What a QP holds: ``blocks`` are (number of the piece, block), the oldest first."""

    def __init__(self, qp, log_stride, size, first):
        self.qp, self.log_stride = qp, log_stride
        self.per = size >> log_stride
        self.consumed = self.issued = first
        self.blocks = []

    @property
    def tail(self):
        return self.blocks[-1][1] if self.blocks else 0


class World:
    def __init__(self, rng, qps, blocks, size, strides):
        self.rng = rng
        self.dut = BlockPool(qps, blocks, size, strides)
        first = rng.choice([0, (1 << 16) - 20])
        self.rings = [Ring(qp, strides[qp % len(strides)], size, first) for qp in range(qps)]

    async def until(self, ctx, condition, limit=200):
        for _ in range(limit):
            if condition():
                return True
            await ctx.tick()
        return False

    def held(self):
        return [block for ring in self.rings for _, block in ring.blocks]

    async def look(self, ctx, ring):
        """What it holds, and where the first two pieces stand; nothing of it is under way."""
        dut = self.dut
        ctx.set(dut.look_qp, ring.qp)
        ctx.set(dut.place_qp, ring.qp)
        assert ctx.get(dut.holds) == bool(ring.blocks)
        if ring.blocks:
            assert ctx.get(dut.tail) == ring.tail
        await ctx.tick().repeat(2)
        for number, block in ring.blocks[:2]:
            assert ctx.get(dut.places[number % 2]) == block

    async def take(self, ctx, ring):
        """The next piece, or what is left of it."""
        dut = self.dut
        if not await self.until(ctx, lambda: ctx.get(dut.any), 20):
            assert len(self.held()) + ctx.get(dut.spare_valid) == dut.blocks
            return
        offer = ctx.get(dut.offer)
        assert offer not in self.held()
        assert not (ctx.get(dut.spare_valid) and ctx.get(dut.spare) == offer)
        if not ring.blocks or ring.issued % ring.per == 0:
            for name, value in {
                "qp": ring.qp, "first": not ring.blocks, "behind": ring.tail, "index": ring.issued & 0xFFFF,
                "log_stride": ring.log_stride, "take": 1,
            }.items():  # fmt: skip
                ctx.set(getattr(dut, name), value)
            await ctx.tick()
            ctx.set(dut.take, 0)
            ring.blocks.append((ring.issued // ring.per, offer))
        ring.issued += self.rng.randint(1, ring.per - ring.issued % ring.per)

    async def land(self, ctx, ring):
        dut = self.dut
        if ring.blocks or not ctx.get(dut.spare_valid):
            return
        spare = ctx.get(dut.spare)
        assert spare not in self.held()
        item = {"land_qp": ring.qp, "land_index": ring.issued & 0xFFFF, "land_log_stride": ring.log_stride, "land": 1}
        for name, value in item.items():
            ctx.set(getattr(dut, name), value)
        await ctx.tick()
        ctx.set(dut.land, 0)
        ring.blocks.append((ring.issued // ring.per, spare))
        ring.issued += 1

    async def give(self, ctx, ring):
        if ring.consumed != ring.issued or not ring.blocks:
            return
        assert len(ring.blocks) == 1
        for name, value in {"qp": ring.qp, "behind": ring.tail, "give": 1}.items():
            ctx.set(getattr(self.dut, name), value)
        await ctx.tick()
        ctx.set(self.dut.give, 0)
        ring.blocks.clear()

    async def done(self, ctx, ring):
        """Consumed up to somewhere; others may take a block meanwhile."""
        dut = self.dut
        index = self.rng.randint(ring.consumed, ring.issued)
        ignored = self.rng.random() < 0.1
        for name, value in {
            "done_qp": ring.qp,
            "done_index": index & 0xFFFF,
            "ignore_consumed": ignored,
            "done": 1,
        }.items():
            ctx.set(getattr(dut, name), value)
        heard = False
        for _ in range(300):
            hold = self.rng.random() < 0.3
            ctx.set(dut.hold, hold)
            heard = ctx.get(dut.heard)
            await ctx.tick()
            if heard and self.rng.random() < 0.8:  # otherwise it cannot be heard just now
                break
        assert heard
        ctx.set(dut.done, 0)
        ctx.set(dut.hold, 0)
        if not ignored:
            ring.consumed = index
            ring.blocks = [(number, block) for number, block in ring.blocks if number >= index // ring.per]

    async def drop(self, ctx, ring):
        dut = self.dut
        assert await self.until(ctx, lambda: ctx.get(dut.may_drop))
        ctx.set(dut.drop_qp, ring.qp)
        ctx.set(dut.drop, 1)
        await ctx.tick()
        ctx.set(dut.drop, 0)
        ring.blocks.clear()
        ring.consumed = ring.issued = self.rng.randrange(1 << 16)

    async def all_are_there(self, ctx):
        """Each block is given once more to one QP, and none twice."""
        dut = self.dut
        ctx.set(dut.refill, 0)
        for ring in self.rings:
            await self.drop(ctx, ring)
        ring = self.rings[0]
        # A first block holds what is consumed next.
        ring.consumed = ring.issued = -(-ring.issued // ring.per) * ring.per
        aside = {ctx.get(dut.spare)} if ctx.get(dut.spare_valid) else set()
        while len(self.held()) + len(aside) < dut.blocks:
            ring.issued = -(-ring.issued // ring.per) * ring.per
            assert await self.until(ctx, lambda: ctx.get(dut.any)), "a block is lost"
            await self.take(ctx, ring)
        assert sorted({*self.held(), *aside}) == list(range(dut.blocks))
        assert not await self.until(ctx, lambda: ctx.get(dut.any), 50), "a block is there twice"


@pytest.mark.parametrize("count", [600, pytest.param(1500, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("qps", "blocks", "size", "strides"),
    [(2, 4, 256, range(6, 8)), (8, 16, 256, range(6, 8)), (16, 8, 128, range(4, 8)), (4, 64, 128, range(4, 8))],
)
def test_random(qps, blocks, size, strides, count):
    rng = make_rng()
    world = World(rng, qps, blocks, size, strides)
    dut = world.dut

    async def testbench(ctx):
        while not ctx.get(dut.awake):
            await ctx.tick()
        for step in range(count):
            ring = rng.choice(world.rings)
            ctx.set(dut.refill, rng.random() < 0.3)
            actions = [world.take] * 5 + [world.done] * 3 + [world.land, world.give, world.look]
            if rng.random() < 0.3:
                actions = [world.drop]
            await rng.choice(actions)(ctx, ring)
            held = world.held()
            assert len(set(held)) == len(held)
            if step % 300 == 299:
                await world.all_are_there(ctx)

    simulate(dut, testbench, seed=rng.seed_value, deadline=200_000)


def test_victims_go_round():
    """Each holder is named, whatever blocks it has."""
    rng = make_rng()
    world = World(rng, 4, 8, 256, range(6, 8))
    dut = world.dut

    async def testbench(ctx):
        for ring in world.rings[1:]:
            await world.take(ctx, ring)
        seen = []
        for _ in range(dut.blocks):
            seen.append(ctx.get(dut.owner))
            ctx.set(dut.step, 1)
            await ctx.tick()
            ctx.set(dut.step, 0)
        assert {ring.qp for ring in world.rings[1:]} <= set(seen)

    simulate(dut, testbench, seed=rng.seed_value)


@pytest.mark.parametrize(("qps", "blocks"), [(8, 4), (2, 8)])
def test_it_sleeps_until_nobody_holds_anything(qps, blocks):
    dut = BlockPool(qps, blocks, 256, range(6, 8))

    async def testbench(ctx):
        for _ in range(8):
            assert not ctx.get(dut.any)
            assert not ctx.get(dut.may_drop)
            await ctx.tick()
        assert ctx.get(dut.may_drop)
        await ctx.tick()
        assert ctx.get(dut.any)

    simulate(dut, testbench)


def test_cycles():
    """3 cycles to hear what is consumed, 3 more a block; an offer every second cycle."""
    rng = make_rng()
    world = World(rng, 2, 16, 256, range(6, 8))
    dut, ring = world.dut, world.rings[0]

    async def testbench(ctx):
        ctx.set(dut.qp, 0)
        ctx.set(dut.log_stride, 6)
        ctx.set(dut.first, 1)
        await ctx.tick().until(dut.any)
        offers = []
        for piece in range(5):
            while not ctx.get(dut.any):
                offers.append("wait")
                await ctx.tick()
            offers.append(ctx.get(dut.offer))
            ctx.set(dut.behind, ctx.get(dut.tail))
            ctx.set(dut.index, 4 * piece)
            ctx.set(dut.take, 1)
            await ctx.tick()
            ctx.set(dut.take, 0)
            ctx.set(dut.first, 0)
        assert all(offer == "wait" for offer, _ in list(pairwise(offers))[1::2])
        ring.issued = 20
        for index, cycles in (1, 3), (5, 6), (17, 12):
            ctx.set(dut.done_index, index)
            ctx.set(dut.done, 1)
            count = 1
            while not ctx.get(dut.heard):
                await ctx.tick()
                count += 1
            await ctx.tick()
            ctx.set(dut.done, 0)
            await ctx.tick()
            assert count == cycles

    simulate(dut, testbench)


@pytest.mark.parametrize("period", range(2, 8))
def test_who_holds_in_turn_stops_nobody(period):
    """A block goes back in the one cycle of a period in which it is not held, wherever that is."""
    rng = make_rng()
    world = World(rng, 2, 16, 256, range(6, 8))
    dut, ring = world.dut, world.rings[0]

    async def testbench(ctx):
        ctx.set(dut.log_stride, 6)
        for phase in range(period):
            for _ in range(2):
                await world.take(ctx, ring)
            ctx.set(dut.done_qp, ring.qp)
            ctx.set(dut.done_index, ring.blocks[-1][0] * ring.per & 0xFFFF)
            ctx.set(dut.done, 1)
            for cycle in range(3 + period + 3):
                ctx.set(dut.hold, (cycle + phase) % period != 0)
                if ctx.get(dut.heard):
                    break
                await ctx.tick()
            assert ctx.get(dut.heard), phase
            await ctx.tick()
            ctx.set(dut.done, 0)
            ctx.set(dut.hold, 0)
            del ring.blocks[:-1]
            await world.drop(ctx, ring)

    simulate(dut, testbench)


def test_arguments():
    with pytest.raises(ValueError, match="blocks must be a power of two, at least 4, not 6"):
        BlockPool(4, 6, 256, range(6, 8))
    with pytest.raises(ValueError, match="size must be a power of two, at least 128, not 64"):
        BlockPool(4, 8, 64, range(6, 8))


def test_converts():
    rtlil.convert(BlockPool(64, 32, 256, range(6, 8)))
