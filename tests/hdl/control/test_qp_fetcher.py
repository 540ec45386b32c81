"""QpFetcher: where the next job's QP is, and that its record is read once, when it may be."""

import pytest
from directory_bench import DirectoryBench
from streams import make_rng, simulate
from verbena.hdl.control.next_job import JobKind
from verbena.hdl.control.qp_fetcher import QpFetcher

QPS, SLOTS = 16, 4
KINDS = [kind for kind in JobKind if kind not in (JobKind.LOST, JobKind.EVICT)]


class World:
    """The directory, a job, and a record that may be on its way to memory."""

    def __init__(self):
        self.rng = make_rng()
        self.dut = DirectoryBench(QpFetcher, qps=QPS, slots=SLOTS)

    async def start(self, ctx):
        while not ctx.get(self.dut.directory_ready):
            await ctx.tick()
        for qp in range(QPS):  # three kinds, by turns
            row = [{"here": 0, "known": 0, "value": 0}, {"here": 0, "known": 1, "value": 5}]
            row += [{"here": 1, "known": 1, "value": qp % SLOTS}]
            await self.place(ctx, qp, row[qp % 3])

    async def place(self, ctx, qp, row):
        ctx.set(self.dut.place, 1)
        ctx.set(self.dut.place_index, qp)
        ctx.set(self.dut.place_row, row)
        await ctx.tick()
        ctx.set(self.dut.place, 0)

    async def give(self, ctx, kind, qp):
        ctx.set(self.dut.i.payload, {"kind": kind, "index": qp})
        ctx.set(self.dut.i.valid, 1)
        assert ctx.get(self.dut.i.ready)
        await ctx.tick()
        ctx.set(self.dut.i.valid, 0)
        assert ctx.get(self.dut.o.valid)
        assert not ctx.get(self.dut.i.ready)

    async def take(self, ctx):
        ctx.set(self.dut.o.ready, 1)
        await ctx.tick()
        ctx.set(self.dut.o.ready, 0)
        assert not ctx.get(self.dut.o.valid)

    async def reads(self, ctx, cycles):
        """How many reads begin in so many cycles."""
        count = 0
        for _ in range(cycles):
            count += ctx.get(self.dut.read)
            await ctx.tick()
        return count

    def run(self, testbench):
        simulate(self.dut, testbench, seed=self.rng.seed_value)


def test_where_the_qp_of_a_job_is():
    """And the record of one that is away is read, once a job."""
    world = World()
    dut = world.dut

    async def testbench(ctx):
        await world.start(ctx)
        for _ in range(40):
            qp, kind = world.rng.randrange(QPS), world.rng.choice(KINDS)
            await world.give(ctx, kind, qp)
            assert ctx.get(dut.o.payload.index) == qp
            assert ctx.get(dut.o.payload.kind) == kind
            assert await world.reads(ctx, 5 + world.rng.randrange(8)) == (qp % 3 == 1)
            assert [ctx.get(dut.absent), ctx.get(dut.away), ctx.get(dut.here)] == [qp % 3 == n for n in range(3)]
            assert ctx.get(dut.fetched) == (qp % 3 == 1)
            if qp % 3 == 2:
                assert ctx.get(dut.slot) == qp % SLOTS
            if qp % 3 == 1:
                assert ctx.get(dut.timer)
            await world.take(ctx)

    world.run(testbench)


def test_nothing_is_looked_for_to_evict():
    world = World()

    async def testbench(ctx):
        await world.start(ctx)
        await world.give(ctx, JobKind.EVICT, 1)
        assert await world.reads(ctx, 20) == 0
        assert not ctx.get(world.dut.away)
        await world.take(ctx)

    world.run(testbench)


@pytest.mark.parametrize("cause", ["wrote", "reading", "hold"])
def test_what_a_read_waits_for(cause):
    """The QP's own record on its way to memory, another read, and whoever says so; not for the record of another QP."""
    world = World()
    dut = world.dut

    async def testbench(ctx):
        await world.start(ctx)
        for _ in range(10):
            own = world.rng.random() < 0.7
            qp = world.rng.choice([1, 4, 7])
            ctx.set(dut.written_index, qp if own else 10)
            ctx.set(getattr(dut, cause), 1)
            await world.give(ctx, JobKind.WANTED, qp)
            waits = own or cause != "wrote"
            assert await world.reads(ctx, 12) == (not waits)
            assert ctx.get(dut.away)
            ctx.set(getattr(dut, cause), 0)
            assert await world.reads(ctx, 4) == waits
            await world.take(ctx)

    world.run(testbench)


def test_a_qp_that_leaves_meanwhile():
    """It had a slot when the job came: its record is read once it has been written."""
    world = World()
    dut = world.dut

    async def testbench(ctx):
        await world.start(ctx)
        await world.give(ctx, JobKind.COMMAND, 2)
        assert await world.reads(ctx, 10) == 0
        ctx.set(dut.wrote, 1)
        ctx.set(dut.written_index, 2)
        await world.place(ctx, 2, {"here": 0, "known": 1, "value": 0})
        assert await world.reads(ctx, 20) == 0
        assert ctx.get(dut.away)
        assert not ctx.get(dut.timer)
        ctx.set(dut.wrote, 0)
        assert await world.reads(ctx, 10) == 1

    world.run(testbench)
