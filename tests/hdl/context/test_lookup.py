"""The first stage with contexts in host memory: each item comes with what those before it wrote, wherever that is."""

from itertools import pairwise

import pytest
from amaranth.hdl import ClockDomain, ClockSignal, DomainRenamer, Elaboratable, Module, Signal
from conflict_ram import ConflictRam
from context_world import BASE, NAMES, RECORD, STATES, World
from streams import simulate
from verbena.hdl.context import slot_bank
from verbena.hdl.context.lookup import ContextLookup

QPN_BITS = 12


def make(slots, rows, data_width, **options):
    options = {"qpn_bits": QPN_BITS, **options}
    return ContextLookup(16, RECORD, NAMES, STATES, slots=slots, rows=rows, data_width=data_width, **options)


async def begin(ctx, dut, log_size=10):
    ctx.set(dut.base, BASE)
    ctx.set(dut.log_size, log_size)


def run(world, items, *others, background=(), deadline=60_000):
    async def consumer(ctx):
        await begin(ctx, world.dut)
        await world.consume(ctx, len(items))

    async def producer(ctx):
        await world.produce(ctx, items)

    simulate(
        world.dut, consumer, producer, *others,
        background=[*world.background, *background], seed=world.rng.seed_value, deadline=deadline,
    )  # fmt: skip


def choose(world, count, *, hot=0.3):
    """Items, some of a few QPs."""
    rng, few = world.rng, world.qpns[:3]
    return [(rng.choice(few if rng.random() < hot else world.qpns), rng.getrandbits(16)) for _ in range(count)]


@pytest.mark.parametrize(("rows", "data_width"), [
    (4, 64), (1, 64), (2, 64), (8, 64), (4, 128), (2, 256), (8, 512), (1, 512), (4, 512),
])  # fmt: skip
def test_each_item_sees_what_those_before_it_wrote(rows, data_width, monkeypatch):
    """16 QPs, 4 slots: nearly every item takes another QP's slot away, and is fetched while that is written back."""
    monkeypatch.setattr(slot_bank, "Ram", ConflictRam)
    world = World(make(4, rows, data_width), range(16))
    run(world, choose(world, 120))
    assert world.misses > 60
    assert sum(world.writes.values()) > 40


@pytest.mark.parametrize(("slots", "qps", "latency", "answer"), [
    (4, 16, 4, 120), (4, 5, 30, 2), (8, 1000, 60, 60), (16, 24, 100, 300),
])  # fmt: skip
@pytest.mark.parametrize("stall", [0.0, 0.5])
def test_more_queue_pairs_than_slots(slots, qps, latency, answer, stall, monkeypatch):
    """Fast and slow answers to reads and to writes, so that fetches meet write-backs of the same context under way."""
    monkeypatch.setattr(slot_bank, "Ram", ConflictRam)
    world = World(make(slots, 4, 64), range(qps), latency=latency, answer=answer, stall=stall)
    world.rng.shuffle(world.qpns)
    run(world, choose(world, 120))
    assert world.misses > 20


def test_queue_pairs_that_come_back_at_once(monkeypatch):
    """5 QPs in turns through 4 slots, writes answered late: each fetch is of what has just been given up."""
    monkeypatch.setattr(slot_bank, "Ram", ConflictRam)
    world = World(make(4, 4, 64), range(5), latency=3, answer=200, stall=0.0, hold=0)
    run(world, [(number % 5, number) for number in range(60)])
    assert world.misses > 40


def test_unknown_queue_pairs(monkeypatch):
    """Beyond the table: no slot and no read; and the item behind it, of the slot that it names by chance, is right."""
    monkeypatch.setattr(slot_bank, "Ram", ConflictRam)
    world = World(make(4, 4, 64), range(6))
    world.qpns += [1024 + 5, 4095, 2048]
    run(world, choose(world, 150, hot=0.6))


def test_what_the_bus_does_not_read(monkeypatch):
    """Its items are bad, each fetch is told once, nothing of it is written; and the others are not hurt."""
    monkeypatch.setattr(slot_bank, "Ram", ConflictRam)
    world = World(make(4, 4, 64), range(12))
    world.unread = {3, 7}
    run(world, choose(world, 150))
    lines = 3
    assert {key: lines * count for key, count in world.errors.items()} == {(q, 0): world.reads[q] for q in (3, 7)}
    assert not world.writes[3] + world.writes[7]


@pytest.mark.parametrize("data_width", [64, 512])
def test_what_the_bus_does_not_write(data_width, monkeypatch):
    """Each write-back that fails is told, and the others are not hurt."""
    monkeypatch.setattr(slot_bank, "Ram", ConflictRam)
    world = World(make(4, 4, data_width), range(12))
    world.unwritten, world.unread = {2, 9}, {5}
    run(world, choose(world, 150))
    assert {key[0] for key in world.errors if key[1]} == {2, 9}
    # A write-back has one or two lines.
    for qpn in (2, 9):
        assert world.writes[qpn] / 2 - 2 <= world.errors[qpn, 1] <= world.writes[qpn]


@pytest.mark.parametrize("data_width", [64, 512])
def test_a_context_that_is_closed_is_in_memory(data_width, monkeypatch):
    """While it is closed the record is what its owners wrote last, nobody gets it, and what is changed in it counts."""
    monkeypatch.setattr(slot_bank, "Ram", ConflictRam)
    world = World(make(8, 4, data_width), range(24), answer=80)
    dut, rng = world.dut, world.rng
    items = choose(world, 150)
    closes = 0

    async def command(ctx):
        nonlocal closes
        while len(world.taken) < len(items) - 40:
            for _ in range(rng.randrange(30)):
                await ctx.tick()
            qpn = rng.choice(world.qpns[:3] if rng.random() < 0.6 else world.qpns)
            ctx.set(dut.close_qpn, qpn)
            ctx.set(dut.close, 1)
            await ctx.tick().until(dut.closed)
            before = len(world.taken)
            assert not world.pinned[qpn]
            assert world.kept(qpn) == world.model[qpn]
            world.create(qpn)
            for _ in range(rng.randrange(60)):
                await ctx.tick()
                assert ctx.get(dut.closed)
            assert all(taken != qpn for _, taken in world.taken[before:])
            ctx.set(dut.close, 0)
            await ctx.tick()
            assert not ctx.get(dut.closed)
            closes += 1

    run(world, items, command)
    assert closes > 5


def test_a_slot_that_comes_back_at_once(monkeypatch):
    """The next item has the slot of the last one, but another context in it: nothing of the old one is kept."""
    monkeypatch.setattr(slot_bank, "Ram", ConflictRam)
    world = World(make(4, 4, 64), range(4), stall=0.0, hold=0)
    dut = world.dut

    async def script(ctx):
        await begin(ctx, dut)
        for number in range(12):
            qpn = number // 3
            await world.produce(ctx, [(qpn, number)])
            await world.consume(ctx, 1)
            ctx.set(dut.close_qpn, qpn)
            ctx.set(dut.close, 1)
            await ctx.tick().until(dut.closed)
            assert world.kept(qpn) == world.model[qpn]
            world.create(qpn)
            ctx.set(dut.close, 0)
            await ctx.tick()

    simulate(dut, script, background=world.background, seed=world.rng.seed_value)
    assert world.misses == 12


class Resettable(Elaboratable):
    """A block in a clock domain of its own, to reset it alone."""

    def __init__(self, inner):
        self.inner = inner
        self.reset = Signal()

    def elaborate(self, platform):
        m = Module()
        m.domains.inner = domain = ClockDomain("inner", local=True)
        m.d.comb += [domain.clk.eq(ClockSignal()), domain.rst.eq(self.reset)]
        m.submodules.inner = DomainRenamer("inner")(self.inner)
        return m


@pytest.mark.parametrize("moment", [40, 133, 250, 611])
def test_a_reset_forgets_all(moment, monkeypatch):
    """DEVICE_RESET amid fetches and write-backs: afterwards nothing has a slot, a pin or a write-back under way, and
    all that is fetched is the new table's."""
    monkeypatch.setattr(slot_bank, "Ram", ConflictRam)
    dut = make(4, 4, 64)
    bench = Resettable(dut)
    world = World(dut, range(16), latency=60, answer=60)
    items, more = choose(world, 150), choose(world, 60)
    over = False

    async def consumer(ctx):
        nonlocal over
        await begin(ctx, dut)
        await world.consume(ctx, len(items))
        while not over:
            await ctx.tick()
        await world.consume(ctx, len(more))

    async def producer(ctx):
        await world.produce(ctx, items)
        while not over:
            await ctx.tick()
        await world.produce(ctx, more)

    async def resets(ctx):
        nonlocal over
        for _ in range(moment):
            await ctx.tick()
        world.life += 1
        ctx.set(bench.reset, 1)
        for _ in range(3):
            await ctx.tick()
        for port in (dut.i.valid, dut.o.ready, *(getattr(dut.write, part).en for part in STATES)):
            ctx.set(port, 0)
        world.sent.clear()
        world.release.clear()
        world.pinned.clear()
        for qpn in world.qpns:
            world.create(qpn)
        ctx.set(bench.reset, 0)
        over = True

    simulate(
        bench, consumer, producer, resets, background=world.background, seed=world.rng.seed_value, deadline=100_000
    )
    assert len(world.taken) >= 60


def test_misses_overlap():
    """16 fetches are under way, though all items leave in order."""
    world = World(make(64, 4, 64), range(64), latency=400, answer=30, stall=0.0)
    run(world, [(number, number) for number in range(64)])
    assert world.most_reads > 30
    assert world.taken[-1][0] < 6 * 400


@pytest.mark.parametrize("rows", [1, 2, 4])
def test_hits_go_at_the_pace_of_the_bank(rows):
    world = World(make(8, rows, 64), range(8), stall=0.0, hold=0)
    run(world, [(number % 8, number) for number in range(64)])
    times = [cycle for cycle, _ in world.taken[24:]]
    assert {after - before for before, after in pairwise(times)} == {rows + 2}


def test_wrong_arguments():
    with pytest.raises(ValueError, match="slots must be a power of two from 4 to 1024, not 6"):
        make(6, 4, 64)
    with pytest.raises(ValueError, match="rows must be 1, 2, 4 or 8, not 3"):
        make(4, 3, 64)


@pytest.mark.parametrize("rows", [1, 4])
def test_a_hit_alone(rows):
    """From the cycle in which it comes to that in which it is there: 2 for the lookup, and those of the fetch."""
    dut = make(4, rows, 64)
    world = World(dut, range(4), stall=0.0, latency=10)
    cycles = []

    async def script(ctx):
        await begin(ctx, dut)
        for _ in range(4):
            ctx.set(dut.i.payload.qpn, 3)
            ctx.set(dut.i.valid, 1)
            taken, count = 0, 0
            while not ctx.get(dut.o.valid):
                _, _, taken = await ctx.tick().sample(dut.i.ready)
                count += 1
                if taken:
                    ctx.set(dut.i.valid, 0)
            cycles.append(count)
            ctx.set(dut.o.ready, 1)
            await ctx.tick()
            ctx.set(dut.o.ready, 0)
            for _ in range(10):
                await ctx.tick()

    simulate(dut, script, background=world.background)
    assert cycles[1:] == [rows + 4] * 3
