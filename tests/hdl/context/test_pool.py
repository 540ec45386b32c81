"""The pool: each list comes out as it was put in, whatever the others do, and nobody is refused its first row."""

from collections import deque

import pytest
from amaranth.back import rtlil
from streams import make_rng, send_all, simulate
from verbena.hdl.context.pool import Pool

QPS = 4
WIDTH = 21


class World:
    """A pool, what its lists hold, and one user each for put, take and look."""

    def __init__(self, rows, qps=QPS, seed=None):
        self.rng = make_rng(seed)
        self.dut = Pool(WIDTH, rows, qps)
        self.rows, self.qps = rows, qps
        self.lists = [deque() for _ in range(qps)]
        self.promised = [0] * qps  # rows of the list, with those that are being put in or taken out
        self.puts, self.takes, self.looks = 0, 0, 0
        self.fullest = 0
        self.over = False

    @property
    def extra(self):
        return sum(max(0, len(one) - 1) for one in self.lists)

    async def put(self, ctx, qp, value):
        await send_all(ctx, self.dut.put, [{"qp": qp, "row": value}])
        self.lists[qp].append(value)
        self.puts += 1
        self.fullest = max(self.fullest, sum(map(len, self.lists)))

    async def take(self, ctx, qp, every=0):
        await send_all(ctx, self.dut.take, [{"qp": qp, "all": every}])
        if every:
            self.lists[qp].clear()
        elif self.lists[qp]:
            self.lists[qp].popleft()
        self.takes += 1

    async def look(self, ctx, qp, pause=0):
        """What a look at ``qp`` shows, and shows ``pause`` cycles later; None: nothing."""
        dut = self.dut
        ctx.set(dut.look_qp, qp)
        await ctx.tick()
        while ctx.get(dut.changing):
            await ctx.tick()
        wanted = self.lists[qp][0] if self.lists[qp] else None
        ctx.set(dut.look, 1)
        await ctx.tick()
        ctx.set(dut.look, 0)
        some = ctx.get(dut.some)
        await ctx.tick().repeat(2 + pause)
        self.looks += 1
        assert ctx.get(dut.some) == some
        return (ctx.get(dut.row) if some else None), wanted


@pytest.mark.parametrize("count", [300, pytest.param(900, marks=pytest.mark.slow)])
@pytest.mark.parametrize("rows", [16, 64, 512])
def test_random(rows, count):
    """Puts as long as something is spare, takes, looks, now and then all rows of a QP at once."""
    world = World(rows)
    rng, dut = world.rng, world.dut

    async def put(ctx):
        for number in range(count):
            # It fills up, and gets empty.
            while rng.random() < (0.1 if 3 * number // count != 1 else 0.9):
                await ctx.tick()
            qp = rng.choice([0, rng.randrange(QPS)])
            if not world.lists[qp] or ctx.get(dut.spare):
                await world.put(ctx, qp, rng.getrandbits(WIDTH))
        world.over = True

    async def take(ctx):
        while not world.over:
            while rng.random() < (0.5 if 3 * world.puts // count == 1 else 0.9):
                await ctx.tick()
            await world.take(ctx, rng.randrange(QPS), rng.random() < 0.02)

    async def look(ctx):
        while not world.over:
            await ctx.tick()
            qp = rng.randrange(QPS)
            shown, wanted = await world.look(ctx, qp, rng.choice([0, 0, 7]))
            assert shown == wanted or wanted is None, "not the first row"

    simulate(dut, put, take, look, seed=rng.seed_value)
    assert world.takes > count // 9
    assert world.looks > count // 9


def test_what_one_may_have():
    """All but one row for each other; then each other gets its own, and the next life begins with all rows."""
    world = World(16)
    dut = world.dut

    async def script(ctx):
        for life in range(3):
            count = 0
            while not count or ctx.get(dut.spare):
                await world.put(ctx, life, count)
                count += 1
                await ctx.tick()
            assert count == 15 - QPS + 1
            for qp in range(QPS):
                if qp != life:
                    await world.put(ctx, qp, 100 + qp)
            await ctx.tick().repeat(4)
            for number in range(count - life):
                assert await world.look(ctx, life) == (number, number)
                await world.take(ctx, life)
            for qp in range(QPS):
                await world.take(ctx, qp, 1)
                assert (await world.look(ctx, qp))[0] is None
            assert ctx.get(dut.spare) == 15 - QPS
        assert world.fullest == 15

    simulate(dut, script)


def test_a_row_that_is_looked_at_stays():
    """Even if it is taken, and written again."""
    world = World(16)

    async def script(ctx):
        await world.put(ctx, 1, 11)
        await ctx.tick().repeat(4)
        await world.look(ctx, 1)
        await world.take(ctx, 1)
        for value in range(20, 28):
            await world.put(ctx, 2, value)
            await ctx.tick()
            assert ctx.get(world.dut.row) == 11

    simulate(world.dut, script)


def test_cycles():
    """A put or a take begins every 4 cycles."""
    world = World(16)
    dut = world.dut
    taken = []

    async def script(ctx):
        await world.put(ctx, 0, 1)
        ctx.set(dut.put.payload, {"qp": 1, "row": 2})
        ctx.set(dut.put.valid, 1)
        ctx.set(dut.take.payload.qp, 0)
        for cycle in range(12):
            ctx.set(dut.take.valid, cycle in (2, 3))
            taken.append((ctx.get(dut.put.ready), ctx.get(dut.take.ready)))
            await ctx.tick()

    simulate(dut, script)
    assert [cycle for cycle, (put, _) in enumerate(taken) if put] == [7, 11]
    assert [cycle for cycle, (_, take) in enumerate(taken) if take] == [3]


@pytest.mark.parametrize(("rows", "qps"), [(8, 4), (12, 2), (16, 3), (16, 1)])
def test_sizes_that_make_no_sense(rows, qps):
    with pytest.raises(ValueError, match=r"must be a power of two"):
        Pool(8, rows, qps)


def test_converts():
    rtlil.convert(Pool(280, 256, 64))
