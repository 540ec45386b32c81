"""RingPrefetcher against a Python model of rings, host memory and consumers."""

import pytest
from amaranth.back import rtlil
from conflict_ram import tear
from queue_world import Late, World, make
from streams import make_rng, pause, plain, send_all
from verbena.hdl.abi.commands import QpAction
from verbena.hdl.abi.contexts import QpState
from verbena.hdl.abi.wqe import PUSH_MAX
from verbena.hdl.queue.wqe_fetcher import RingPrefetcher

BASES = [0x1000, 0x7FFF_FFFF_F000, 0xFFFF_FF00_0000_0000, 0x40_0000]

CASES = [
    (64, "sq", 16, [(0, 6), (1, 7), (4, 6), (6, 7)]),
    (64, "sq", 8, [(0, 7), (2, 6), (9, 6), (3, 7)]),
    (64, "rq", 16, [(0, 4), (1, 5), (5, 6), (15, 7)]),
    (128, "rq", 8, [(2, 4), (6, 4), (0, 7), (1, 6)]),
    (256, "rq", 8, [(0, 4), (1, 4), (7, 5), (3, 6)]),
    (512, "rq", 16, [(0, 4), (2, 4), (6, 4), (1, 5)]),
    (512, "sq", 16, [(1, 6), (5, 7), (0, 7), (15, 6)]),
    (64, "sq", 16, [(0, 9), (2, 8), (3, 9), (5, 6)]),
    (512, "sq", 8, [(3, 9), (1, 7), (4, 8), (0, 6)]),
    (128, "rq", 16, [(0, 8), (2, 8), (4, 7), (1, 4)]),
]


def wqe_bytes(geometries):
    """Of an engine with rings of these sizes."""
    return max(128, *(1 << log_stride for _, log_stride in geometries))


@pytest.mark.parametrize("count", [12, pytest.param(24, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("width", "kind", "blocks", "geometries"), CASES)
def test_rings(width, kind, blocks, geometries, count):
    rng = make_rng()
    first = rng.choice([0, 0xFFF8])
    dut = make(width, kind, blocks, cls=Late, alone=True, wqe_bytes=wqe_bytes(geometries))
    dut.first = first
    world = World(dut, kind, rng, latency=rng.choice([(1, 3), (1, 200), (140, 140)]))
    each = first + count
    world.may_push = 0.5 if kind == "sq" and (width == 512 or wqe_bytes(geometries) == 128) else 0
    world.once = True
    for qp, (log_size, log_stride) in enumerate(geometries):
        world.add(qp, BASES[qp], log_size, log_stride)

    async def driver(ctx):
        for ring in world.rings.values():
            await world.configure(ctx, ring)
        while any(ring.posted < each for ring in world.rings.values()):
            await pause(ctx, rng, 0.8)
            ring = rng.choice(list(world.rings.values()))
            before = ring.posted
            for _ in range(rng.choice([1, 1, 2, 5, 16])):
                if ring.posted < each and ring.posted - ring.freed < ring.size:
                    world.post(ring)
            if rng.random() < 0.5:
                await world.ring(ctx, ring, rng.choice([before, ring.freed, ring.posted]))
            await world.ring(ctx, ring)

    async def consumer(ctx):
        while any(ring.seen < each for ring in world.rings.values()):
            await world.consume(ctx, await world.arrival(ctx))

    world.run(driver, consumer, deadline=30_000)
    assert (world.pushes > 0) == (world.may_push > 0)


@pytest.mark.parametrize("count", [16, pytest.param(40, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", ["sq", "rq"])
def test_attributes_are_renewed(kind, count, monkeypatch):
    """Attributes that are written while doorbells are rung and WQEs are fetched: nothing is read from elsewhere, and
    neither a doorbell nor a turn is lost.
    """
    tear(monkeypatch)
    rng = make_rng()
    world = World(make(64, kind, alone=True), kind, rng, latency=(1, 20), stall=0)
    world.may_push = 0.3 if kind == "sq" else 0
    for qp in range(4):
        world.add(qp, BASES[qp], 2 + qp, 6)

    async def driver(ctx):
        for ring in world.rings.values():
            await world.configure(ctx, ring)
        while any(ring.posted < count for ring in world.rings.values()):
            await pause(ctx, rng, 0.8)
            ring = rng.choice(list(world.rings.values()))
            for _ in range(rng.choice([1, 1, 2, 5, 16])):
                if ring.posted < count and ring.posted - ring.freed < ring.size:
                    world.post(ring)
            await world.ring(ctx, ring)

    async def consumer(ctx):
        while any(ring.seen < count for ring in world.rings.values()):
            await world.consume(ctx, await world.arrival(ctx))

    world.run(driver, consumer, background=(world.renew,), deadline=30_000)


@pytest.mark.parametrize("kind", ["sq", "rq"])
def test_a_ring_is_renewed_in_each_cycle_of_its_turn(kind, monkeypatch):
    """A word of its attributes is written in each cycle after a doorbell: the read goes to the ring all the same."""
    tear(monkeypatch)
    rng = make_rng()
    world = World(make(64, kind, qps=2, alone=True), kind, rng, latency=(1, 1), stall=0)
    ring = world.add(1, BASES[2], 6, 6)

    times = {}  # words to be written, by time

    async def renews(ctx):
        while not world.attributes:
            await ctx.tick()
        while True:
            await ctx.tick()
            number = times.pop(world.time, None)
            ctx.set(world.dut.attribute_en, number is not None)
            if number is not None:
                word = world.attributes[1][number]
                ctx.set(world.dut.attribute, {"index": 1, "word": number, "data": word})

    async def testbench(ctx):
        await world.configure(ctx, ring)
        for number in (number for number, word in enumerate(world.attributes[1]) if word):
            for delay in range(1, 10):
                times[world.time + delay] = number
                world.post(ring)
                await world.ring(ctx, ring)
                while ring.seen < ring.posted:
                    await world.consume(ctx, await world.arrival(ctx))

    world.run(testbench, background=(renews,), deadline=20_000)


@pytest.mark.parametrize("log_size", [0, 3, 12, 14, 15])
def test_overclaim(log_size):
    """A doorbell beyond the ring never makes the engine read beyond it: the ring is in error, and until RESET only."""
    rng = make_rng()
    world = World(make(64, "sq", 16, 2), "sq", rng, latency=(5, 50))
    ring = world.add(1, 0x10_0000, log_size, 6)
    other = world.add(0, 0x2000, 2, 6)
    reset = {"qp": 1, "action": QpAction.RESET}

    async def testbench(ctx):
        await world.configure(ctx, ring)
        await world.configure(ctx, other)
        world.post(ring)
        await world.ring(ctx, ring)
        assert await world.arrival(ctx) == 1
        await world.consume(ctx, 1)
        for index in ring.seen - 1, ring.seen - 0x7FFF, ring.seen:  # stale and repeated: harmless
            if index >= 0 or log_size < 15:
                await world.ring(ctx, ring, index)
        for _ in range(20):
            await ctx.tick()
        assert (await world.status(ctx, 1)) == {"producer": 1, "fetched": 1, "error": 0}
        if log_size < 15:
            wrong = rng.randrange(ring.seen + ring.size + 1, ring.seen + 0x8000)
            await world.ring(ctx, ring, wrong)
            assert await world.arrival(ctx) == 1
            assert (await world.status(ctx, 1)) == {"producer": 1, "fetched": 1, "error": 1}
        world.post(other)
        await world.ring(ctx, other)
        assert await world.arrival(ctx) == 0
        await world.consume(ctx, 0)
        await send_all(ctx, world.dut.control, [reset])
        assert (await world.status(ctx, 1)) == {"producer": 0, "fetched": 0, "error": 0}

    world.run(testbench)


@pytest.mark.parametrize(
    ("log_stride", "most"), [(0, 128), (3, 128), (5, 128), (8, 128), (15, 128), (9, 256), (5, 512), (10, 512)]
)
def test_bad_stride(log_stride, most):
    rng = make_rng()
    world = World(make(64, "sq", 16, 2, wqe_bytes=most), "sq", rng)
    ring = world.add(0, 0x1000, 4, log_stride)

    async def testbench(ctx):
        await world.configure(ctx, ring)
        await world.ring(ctx, ring, 1)
        assert await world.arrival(ctx) == 0
        assert (await world.status(ctx, 0)) == {"producer": 0, "fetched": 0, "error": 1}
        for _ in range(50):
            await ctx.tick()
        assert not world.log

    world.run(testbench)


def test_reset_state_ignores_doorbells():
    rng = make_rng()
    world = World(make(64, "rq", 16, 2), "rq", rng)
    ring = world.add(1, 0x1000, 4, 4)

    async def testbench(ctx):
        await world.ring(ctx, ring, 1)  # nobody has set up anything
        await world.configure(ctx, ring, QpState.RESET)
        await world.ring(ctx, ring, 1)
        for _ in range(50):
            await ctx.tick()
            assert not ctx.get(world.dut.arrived.valid)
        assert (await world.status(ctx, 1)) == {"producer": 0, "fetched": 0, "error": 0}
        assert not world.log

    world.run(testbench)


@pytest.mark.parametrize("kind", ["sq", "rq"])
def test_bus_error(kind):
    rng = make_rng()
    world = World(make(64, kind, 16, 2), kind, rng, latency=(50, 100), stall=0)
    broken = world.add(0, 0x1000, 4, 6)
    sound = world.add(1, 0x8000, 4, 6)
    world.fail = lambda address: address == broken.base + 4 * 64

    async def testbench(ctx):
        for ring in broken, sound:
            await world.configure(ctx, ring)
            for _ in range(16):
                world.post(ring)
            await world.ring(ctx, ring)
        error = False
        while sound.seen < 16 or not error:
            if await world.arrival(ctx):
                await world.consume(ctx, 1)
            else:
                status = await world.status(ctx, 0)
                assert status.fetched in (0, 2, 4)
                error = status.error
        reads = len(world.log)
        await world.ring(ctx, broken, 17)  # claims too much
        await send_all(ctx, world.dut.consumed, [{"qp": 0, "index": 4}])
        await world.ring(ctx, broken, 20)
        for _ in range(200):
            await ctx.tick()
        assert len(world.log) == reads
        assert (await world.status(ctx, 0)).fetched == 4
        await send_all(ctx, world.dut.control, [{"qp": 0, "action": QpAction.RESET}])
        world.fail = lambda address: False
        broken.posted = broken.freed = broken.seen = 0
        world.post(broken)
        await world.ring(ctx, broken)
        while not broken.seen:
            await world.consume(ctx, await world.arrival(ctx))

    world.run(testbench)


@pytest.mark.parametrize("kind", ["sq", "rq"])
def test_arrivals_wait(kind):
    """Data and bad doorbells wait for whoever takes arrivals slowly, and each is told."""
    rng = make_rng()
    world = World(make(512, kind, 16, 4, cls=RingPrefetcher), kind, rng, latency=(1, 5), stall=0)
    world.may_push = 0.3 if kind == "sq" else 0
    *sound, broken, misrung = (world.add(qp, 0x1_0000 * (qp + 1), 5, 6) for qp in range(4))
    world.fail = lambda address: broken.base <= address < broken.base + 0x1_0000
    told, failed = [], set()

    async def takes(ctx):
        while True:
            await pause(ctx, rng, 0.9)
            told.append(await world.arrival(ctx))

    async def driver(ctx):
        for ring in world.rings.values():
            await world.configure(ctx, ring)
        for step in range(60):
            if step in (20, 40):
                world.post(broken)
                await world.ring(ctx, broken)
                await world.ring(ctx, misrung, misrung.size + 1)
            ring = rng.choice(sound)
            if ring.posted - ring.freed < ring.size:
                world.post(ring)
            await world.ring(ctx, ring)

    async def consumer(ctx):
        while any(ring.posted < 10 or ring.seen < ring.posted for ring in sound) or failed != {broken.qp, misrung.qp}:
            while not told:
                await ctx.tick()
            qp = told.pop(0)
            if world.rings[qp] in sound:
                await world.consume(ctx, qp)
            elif (await world.status(ctx, qp)).error:
                failed.add(qp)

    world.run(driver, consumer, background=(takes,), deadline=30_000)
    assert world.waited


@pytest.mark.parametrize("resets", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_reset_in_flight(resets):
    """Resets at any time, of one QP among busy others: nothing old appears in the new life."""
    rng = make_rng()
    world = World(make(64, "sq", 16, 4), "sq", rng, latency=(1, 150))
    world.may_push = 0.5
    for qp in range(4):
        world.add(qp, 0x1_0000 * (qp + 1), 3 + qp, 6 + qp % 2)
    lives = [0] * 4
    total = [0] * 4
    busy = [False]

    async def driver(ctx):
        for ring in world.rings.values():
            await world.configure(ctx, ring)
        while min(lives) < resets or not all(total):  # each has been served as well
            await pause(ctx, rng, 0.9)
            ring = rng.choice(list(world.rings.values()))
            if rng.random() < 0.15:
                while busy[0]:
                    await ctx.tick()
                busy[0] = True
                await send_all(ctx, world.dut.control, [{"qp": ring.qp, "action": QpAction.RESET}])
                assert (await world.status(ctx, ring.qp)) == {"producer": 0, "fetched": 0, "error": 0}
                assert all(not ring.base <= r[1] < ring.base + 0x1_0000 for r in world.reads)
                ring.posted = ring.freed = ring.seen = 0
                ring.slots.clear()
                lives[ring.qp] += 1
                busy[0] = False
            else:
                for _ in range(rng.randrange(8)):
                    if ring.posted - ring.freed < ring.size:
                        world.post(ring)
                await world.ring(ctx, ring)
                action = rng.choice([a for a in QpAction if a != QpAction.RESET])
                await send_all(ctx, world.dut.control, [{"qp": ring.qp, "action": action}])

    async def consumer(ctx):
        while True:
            qp = await world.arrival(ctx)
            while busy[0]:
                await ctx.tick()
            busy[0] = True
            total[qp] += await world.consume(ctx, qp)
            busy[0] = False

    world.run(driver, background=(consumer,), deadline=60_000)
    assert min(total) > 0


@pytest.mark.parametrize("stall", [0, 0.9])
def test_reset_meets_turn(stall):
    """RESET in each of the cycles after a doorbell: when it is accepted, nothing of the QP is under way."""
    rng = make_rng()
    world = World(make(64, "sq", 16, 2), "sq", rng, latency=(20, 20), stall=stall)
    ring, other = world.add(1, 0x1000, 4, 6), world.add(0, 0x8000, 4, 6)
    dut = world.dut

    async def testbench(ctx):
        for each in ring, other:
            await world.configure(ctx, each)
        for delay in range(0, 14, 4 if stall else 1):
            world.post(other)
            await world.ring(ctx, other)
            for _ in range(5):
                world.post(ring)
            await world.ring(ctx, ring)
            for _ in range(delay):
                await ctx.tick()
            await send_all(ctx, dut.control, [{"qp": 1, "action": QpAction.RESET}])
            ring.posted = ring.freed = ring.seen = 0
            ring.slots.clear()
            reads = sum(qp == 1 for _, qp, _ in world.log)
            for _ in range(100):
                assert (await world.status(ctx, 1)) == {"producer": 0, "fetched": 0, "error": 0}
            assert sum(qp == 1 for _, qp, _ in world.log) == reads
            while other.seen < other.posted:
                qp = await world.arrival(ctx)
                await world.consume(ctx, qp)

    world.run(testbench)


async def taken(ctx, port, item, limit=64):
    """Sends an item that must be taken within ``limit`` cycles."""
    ctx.set(port.payload, item)
    ctx.set(port.valid, 1)
    for _ in range(limit):
        _, _, ready = await ctx.tick().sample(port.ready)
        if ready:
            ctx.set(port.valid, 0)
            return
    raise AssertionError(f"not taken: {item}")


@pytest.mark.parametrize("push", [0, 1])
def test_doorbells_are_taken_while_the_bus_stands_still(push):
    """Reads wait for a bus that takes none; doorbells, and words that are pushed, wait for no read."""
    rng = make_rng()
    world = World(make(64, "sq", 16, 8), "sq", rng, stall=0)
    dut = world.dut
    rings = [world.add(qp, 0x1_0000 * (qp + 1), 3, 6) for qp in range(8)]

    async def ring_of(ctx, each, push):
        world.post(each)
        if push:
            [words] = [each.slots[each.posted - 1]]
            for n, word in enumerate(part for whole in words for part in (whole & 0xFFFFFFFF, whole >> 32)):
                await taken(ctx, dut.push, {"qp": each.qp, "word": n, "data": word})
        await taken(ctx, dut.doorbell, {"qp": each.qp, "index": each.posted, "push": push})

    async def testbench(ctx):
        for each in rings:
            await world.configure(ctx, each)
        world.blocked = True
        for each in rings[:4]:
            await ring_of(ctx, each, 0)
        for _ in range(3):
            for each in rings[4:]:
                await ring_of(ctx, each, push)
        assert not world.log
        world.blocked = False
        while any(each.seen < each.posted for each in rings):
            await world.consume(ctx, await world.arrival(ctx))

    world.run(testbench)
    assert world.pushes == 4 * push


def test_doorbells_are_taken_while_a_reset_waits_for_the_bus():
    """The ring's last read is back, and the bus takes no other ring's."""
    rng = make_rng()
    world = World(make(64, "sq", 16, 4), "sq", rng, latency=(100, 100), stall=0)
    dut = world.dut
    rings = [world.add(qp, 0x1_0000 * (qp + 1), 3, 6) for qp in range(4)]

    async def testbench(ctx):
        for each in rings:
            await world.configure(ctx, each)
            world.post(each)
        await taken(ctx, dut.doorbell, {"qp": 0, "index": 1, "push": 0})
        while not world.log:
            await ctx.tick()
        world.blocked = True
        ctx.set(dut.control.payload, {"qp": 0, "action": QpAction.RESET})
        ctx.set(dut.control.valid, 1)
        for each in rings[1:]:
            await taken(ctx, dut.doorbell, {"qp": each.qp, "index": 1, "push": 0})
        for _ in range(150):
            _, _, ready = await ctx.tick().sample(dut.control.ready)
            if ready:
                ctx.set(dut.control.valid, 0)
        assert len(world.log) == 1
        for index in 0, 1, 2:
            await taken(ctx, dut.doorbell, {"qp": 3, "index": index, "push": 0})
        assert not ctx.get(dut.control.valid), "the RESET waits for a read of another ring"
        assert await world.status(ctx, 0) == {"producer": 0, "fetched": 0, "error": 0}

    world.run(testbench)


def test_reset_is_silent():
    """While RESET waits for the reads in flight, they change nothing that the consumer sees."""
    rng = make_rng()
    world = World(make(64, "sq", 16, 2), "sq", rng, latency=(100, 100))
    ring, other = world.add(1, 0x1000, 4, 6), world.add(0, 0x8000, 4, 6)

    async def testbench(ctx):
        for each in ring, other:
            await world.configure(ctx, each)
            for _ in range(12):
                world.post(each)
            await world.ring(ctx, each)
        while len(world.log) < 2:
            await ctx.tick()
        ctx.set(world.dut.control.payload, {"qp": 1, "action": QpAction.RESET})
        ctx.set(world.dut.control.valid, 1)
        ready = False
        while not ready:
            assert (await world.status(ctx, 1)).fetched == 0
            _, _, ready = await ctx.tick().sample(world.dut.control.ready)
        ctx.set(world.dut.control.valid, 0)
        while other.seen < 12:
            assert await world.arrival(ctx) == 0
            await world.consume(ctx, 0)
        for _ in range(50):
            if ctx.get(world.dut.arrived.valid):
                assert await world.arrival(ctx) == 0
            await ctx.tick()

    world.run(testbench)


async def go_back(ctx, world, ring, index, disturb=0.0, stall=0.0):
    """Rewinds; meanwhile what was consumed before, of all rings, may be said once more."""
    dut, rng = world.dut, world.rng
    ctx.set(dut.rewind.payload, {"qp": ring.qp, "index": index & 0xFFFF})
    ctx.set(dut.rewind.valid, 1)
    done = heard = False
    while not done:
        if not ctx.get(dut.consumed.valid) or heard:
            each = rng.choice(list(world.rings.values()))
            ctx.set(dut.consumed.payload, {"qp": each.qp, "index": each.seen & 0xFFFF})
            ctx.set(dut.consumed.valid, rng.random() < disturb)
        ctx.set(dut.rewound.ready, rng.random() >= stall and not ctx.get(dut.consumed.valid))
        signals = dut.rewind.ready, dut.rewound.valid, dut.rewound.ready, dut.rewound.payload, dut.consumed.ready
        _, _, taken, valid, ready, payload, heard = await ctx.tick().sample(*signals)
        if taken:
            ctx.set(dut.rewind.valid, 0)
        if valid:
            assert plain(payload) == {"qp": ring.qp, "index": index & 0xFFFF}
            assert not taken
        done = valid and ready
    ctx.set(dut.rewound.ready, 0)
    ring.seen = index


@pytest.mark.parametrize("count", [10, pytest.param(24, marks=pytest.mark.slow)])
@pytest.mark.parametrize("disturb", [0, 0.8])
def test_rewind(disturb, count):
    """Rings go back at any time to what is not complete; each WQE can be read until it is, and none is forgotten."""
    rng = make_rng()
    dut = make(64, "sq", cls=Late, alone=True)
    dut.first = rng.choice([0, 0xFFF8])
    world = World(dut, "sq", rng, latency=rng.choice([(1, 3), (1, 150)]))
    world.may_push = 0.5
    each = dut.first + count
    for qp, (log_size, log_stride) in enumerate([(0, 6), (3, 7), (6, 6), (5, 7)]):
        world.add(qp, BASES[qp], log_size, log_stride)
    rings = list(world.rings.values())
    times = [0] * 4

    async def driver(ctx):
        for ring in rings:
            await world.configure(ctx, ring)
        while any(ring.posted < each for ring in rings):
            await pause(ctx, rng, 0.8)
            ring = rng.choice(rings)
            for _ in range(rng.choice([1, 1, 4, 16])):
                if ring.posted < each and ring.posted - ring.freed < ring.size:
                    world.post(ring)
            await world.ring(ctx, ring)

    async def consumer(ctx):
        while any(ring.freed < each for ring in rings):
            ring = rng.choice(rings)
            if rng.random() < 0.15 and times[ring.qp] < 8:
                times[ring.qp] += 1
                begun = ring.seen
                await go_back(ctx, world, ring, ring.freed, disturb, rng.choice([0, 0.8]))
                if rng.random() < 0.5:
                    ring.freed = rng.randint(
                        ring.seen, max(ring.seen, begun)
                    )  # a late answer; the host posts anew in those places
            if not ctx.get(dut.arrived.valid) and rng.random() < 0.5:
                await ctx.tick()
                continue
            ring = rings[await world.arrival(ctx)]
            status = await world.status(ctx, ring.qp)
            assert not status.error
            count = (status.fetched - ring.seen) & 0xFFFF
            assert ring.seen + count <= ring.posted
            said = ring.seen
            for n in range(count):
                words = await world.words(ctx, ring, ring.seen)
                assert ring.seen < ring.freed or words == ring.slots[ring.seen]
                ring.seen += 1
                if rng.random() < 0.5 or n == count - 1 or world.far(ring, said):
                    await send_all(ctx, dut.consumed, [{"qp": ring.qp, "index": ring.seen & 0xFFFF}])
                    said = ring.seen
                if rng.random() < 0.3 or ring.seen == each or ring.posted - ring.freed == ring.size:
                    ring.freed = max(ring.freed, ring.seen)  # complete

    world.run(driver, consumer, deadline=60_000)
    assert sum(times) > 0


@pytest.mark.parametrize("stall", [0, 0.9])
def test_rewind_meets_turn(stall):
    """In each of the cycles after a doorbell: nothing of the past arrives, and what is posted is fetched once more."""
    rng = make_rng()
    world = World(make(64, "sq", 16, 2), "sq", rng, latency=(20, 20), stall=stall)
    ring, other = world.add(1, 0x1000, 4, 6), world.add(0, 0x8000, 4, 6)

    async def testbench(ctx):
        for each in ring, other:
            await world.configure(ctx, each)
        for delay in range(0, 14, 4 if stall else 1):
            world.post(other)
            await world.ring(ctx, other)
            for _ in range(5):
                world.post(ring)
            await world.ring(ctx, ring)
            for _ in range(delay):
                await ctx.tick()
            await go_back(ctx, world, ring, ring.freed)
            status = await world.status(ctx, 1)
            assert (status.producer, status.fetched, status.error) == (ring.posted, ring.freed, 0)
            while ring.seen < ring.posted or other.seen < other.posted:
                await world.consume(ctx, await world.arrival(ctx))

    world.run(testbench)


@pytest.mark.parametrize(
    ("width", "stride", "most"), [(64, 6, 128), (64, 7, 128), (512, 6, 128), (512, 7, 512), (64, 8, 256), (64, 9, 512)]
)
def test_push(width, stride, most):
    """A pushed WQE is not read, unless the ring goes back: what counts then is what stands in the ring."""
    rng = make_rng()
    world = World(make(width, "sq", wqe_bytes=most), "sq", rng, stall=0)
    ring = world.add(2, 0x1000, 2, stride)
    world.asks = False  # a turn would cost a cycle
    times = []

    async def testbench(ctx):
        await world.configure(ctx, ring)
        for _ in range(6):
            world.post(ring)
            there = ring.slots[ring.seen]
            pushed = ring.slots[ring.seen] = [rng.getrandbits(64) & rng.choice([1, -1]) for _ in there]
            pushed[PUSH_MAX // 8 :] = []
            await world.push(ctx, ring, pushed)
            start = world.time
            await send_all(ctx, world.dut.doorbell, [{"qp": 2, "index": ring.posted, "push": 1}])
            assert await world.arrival(ctx) == 2
            times.append(world.time - start - 1)
            assert (await world.words(ctx, ring, ring.seen))[: len(pushed)] == pushed
            assert not world.log
            if rng.random() < 0.5:
                await go_back(ctx, world, ring, ring.seen)
                ring.slots[ring.seen] = there
                assert await world.arrival(ctx) == 2
                assert len(world.log) == 1
                world.log.clear()
                assert await world.words(ctx, ring, ring.seen) == there
            ring.seen += 1
            await send_all(ctx, world.dut.consumed, [{"qp": 2, "index": ring.seen}])
            ring.freed = ring.seen

    world.run(testbench)
    assert times == [13 if stride == 6 else 21] * 6
    assert (world.pushes, world.push_fetches) == (6, 0)


@pytest.mark.parametrize("why", ["other", "unopened", "two", "unconsumed", "plain before", "reset"])
def test_push_falls_back(why):
    """If the buffer is another's, or the ring has more to do, the WQE is read like all others."""
    rng = make_rng()
    world = World(make(64, "sq", 16, 4), "sq", rng, stall=0)
    ring = world.add(2, 0x1000, 2, 6)
    world.add(0, 0x8000, 2, 6)

    async def testbench(ctx):
        async def push(qp=2, words=range(16)):
            await send_all(ctx, world.dut.push, [{"qp": qp, "word": n, "data": 0x5555} for n in words])

        for each in world.rings.values():
            await world.configure(ctx, each)
        world.post(ring)
        await world.ring(ctx, ring)
        assert await world.arrival(ctx) == 2
        if why != "unconsumed":
            await world.consume(ctx, 2)
        if why == "other":
            await push(words=range(8))
            await push(0, [0])
            await push(words=range(8, 16))
        elif why == "unopened":
            await push(words=range(1, 16))
        else:
            await push()
        if why == "plain before":
            world.post(ring)
            await world.ring(ctx, ring)
            await push()
        if why == "two":
            world.post(ring)
        if why == "reset":
            await send_all(ctx, world.dut.control, [{"qp": 2, "action": QpAction.RESET}])
            ring.posted = ring.freed = ring.seen = 0
        world.post(ring)
        await send_all(ctx, world.dut.doorbell, [{"qp": 2, "index": ring.posted, "push": 1}])
        while ring.seen < ring.posted:
            assert await world.arrival(ctx) == 2
            await world.consume(ctx, 2)
        # And next time all is well.
        if why == "other":
            world.post(world.rings[0])
            words = range(1, 16)
            world.rings[0].slots[0] = [0x5555 << 32 | 0x5555] * 8
            await push(0, words)
            await send_all(ctx, world.dut.doorbell, [{"qp": 0, "index": 1, "push": 1}])
            assert await world.arrival(ctx) == 0
            await world.consume(ctx, 0)

    world.run(testbench)
    assert world.push_fetches == 1
    assert world.pushes == (why == "other")


@pytest.mark.parametrize("what", ["rewind", "reset"])
def test_push_is_stopped(what):
    """In each of the cycles after its doorbell, and among reads of another ring: nothing arrives that should not."""
    rng = make_rng()
    world = World(make(64, "sq", 16, 2), "sq", rng, latency=(10, 10), stall=0.1)
    ring, other = world.add(1, 0x1000, 4, 6), world.add(0, 0x8000, 4, 6)
    dut = world.dut

    async def testbench(ctx):
        for each in ring, other:
            await world.configure(ctx, each)
        for delay in range(24):
            for _ in range(rng.randrange(4)):
                world.post(other)
            await world.ring(ctx, other)
            for _ in range(rng.randrange(20)):
                await ctx.tick()
            world.post(ring)
            world.may_push = 1
            await world.ring(ctx, ring)
            world.may_push = 0
            for _ in range(delay):
                await ctx.tick()
            if what == "reset":
                ctx.set(dut.status_qp, 1)
                ctx.set(dut.control.payload, {"qp": 1, "action": QpAction.RESET})
                ctx.set(dut.control.valid, 1)
                ready, seen = False, []
                while not ready:
                    *_, ready, status, valid, qp = await ctx.tick().sample(
                        dut.control.ready, dut.status, dut.arrived.valid, dut.arrived.payload
                    )
                    seen.append((status.fetched, valid and qp == 1))
                ctx.set(dut.control.valid, 0)
                # From the third cycle on the ring stands still; what stood there already may wait.
                assert len(set(seen[3:])) <= 1
                ring.posted = ring.freed = ring.seen = 0
                ring.slots.clear()
                for _ in range(30):
                    assert (await world.status(ctx, 1)) == {"producer": 0, "fetched": 0, "error": 0}
            else:
                await go_back(ctx, world, ring, ring.freed)
                status = await world.status(ctx, 1)
                assert (status.producer, status.fetched, status.error) == (ring.posted, ring.freed, 0)
            while ring.seen < ring.posted or other.seen < other.posted:
                await world.consume(ctx, await world.arrival(ctx))

    world.run(testbench, deadline=20_000)
    assert world.pushes > 0


@pytest.mark.parametrize("stall", [0, 0.9])
def test_push_meets_turns(stall):
    """Turns of its own ring while it is copied, and reads of another that wait for memory: no WQE is read twice."""
    rng = make_rng()
    world = World(make(64, "sq", 16, 2), "sq", rng, latency=(10, 10), stall=stall)
    world.once = True
    ring, other = world.add(1, 0x1000, 4, 6), world.add(0, 0x8000, 4, 6)

    async def testbench(ctx):
        for each in ring, other:
            await world.configure(ctx, each)
        for delay in range(14):
            world.post(ring)
            for n, word in enumerate(ring.slots[ring.seen]):
                for half in range(2):
                    data = word >> 32 * half & 0xFFFFFFFF
                    await send_all(ctx, world.dut.push, [{"qp": 1, "word": 2 * n + half, "data": data}])
            for _ in range(9):
                world.post(other)
            await world.ring(ctx, other)
            await send_all(ctx, world.dut.doorbell, [{"qp": 1, "index": ring.posted, "push": 1}])
            for _ in range(delay):
                await ctx.tick()
            await send_all(ctx, world.dut.consumed, [{"qp": 1, "index": ring.freed}])
            while ring.seen < ring.posted or other.seen < other.posted:
                await world.consume(ctx, await world.arrival(ctx))
            world.post(ring)
            await world.ring(ctx, ring)
            while ring.seen < ring.posted:
                await world.consume(ctx, await world.arrival(ctx))

    world.run(testbench, deadline=20_000)
    assert (world.pushes, world.push_fetches) == (14, 0)
    assert [length for _, qp, length in world.log if qp == 1] == [64] * 14


def test_false_pushes():
    """What is no doorbell does not become one because something was pushed, and its words are forgotten."""
    rng = make_rng()
    world = World(make(64, "sq", 16, 4), "sq", rng, stall=0)
    ring, bad = world.add(2, 0x1000, 2, 6), world.add(1, 0x8000, 2, 8)

    async def testbench(ctx):
        async def push(qp, index, words=range(16)):
            await send_all(ctx, world.dut.push, [{"qp": qp, "word": n, "data": 0x5555} for n in words])
            await send_all(ctx, world.dut.doorbell, [{"qp": qp, "index": index & 0xFFFF, "push": 1}])
            for _ in range(50):
                await ctx.tick()

        await push(2, 1)  # nobody has set up anything
        await world.configure(ctx, ring)
        await world.configure(ctx, bad)
        await push(2, 0)
        await push(2, -1)
        assert (await world.status(ctx, 2)) == {"producer": 0, "fetched": 0, "error": 0}
        assert not ctx.get(world.dut.arrived.valid)
        await push(1, 1)
        assert (await world.status(ctx, 1)) == {"producer": 0, "fetched": 0, "error": 1}
        assert await world.arrival(ctx) == 1
        world.post(ring)
        await push(2, 1, [])
        assert len(world.log) == 1
        await world.consume(ctx, 2)
        assert await world.arrival(ctx) == 2
        await push(2, 6)
        assert (await world.status(ctx, 2)) == {"producer": 1, "fetched": 1, "error": 1}
        assert len(world.log) == 1

    world.run(testbench)
    assert (world.pushes, world.push_fetches) == (0, 1)


@pytest.mark.parametrize("stall", [0.9, pytest.param(0.99, marks=pytest.mark.slow)])
def test_a_rewind_ignores_what_is_consumed(stall):
    """What was consumed before frees nothing, as long as the requester does not know that the ring has gone back."""
    rng = make_rng()
    world = World(make(64, "sq", 16, 2), "sq", rng, latency=(5, 10), stall=0)
    ring = world.add(1, 0x1000, 6, 6)

    async def testbench(ctx):
        await world.configure(ctx, ring)
        for _ in range(40):
            world.post(ring)
        await world.ring(ctx, ring)
        for _ in range(200):
            await ctx.tick()
        ring.seen = 16
        await send_all(ctx, world.dut.consumed, [{"qp": 1, "index": 16}])
        await go_back(ctx, world, ring, 0, disturb=0.9, stall=stall)
        for _ in range(200):
            await ctx.tick()
        assert (await world.status(ctx, 1)).fetched == 16
        await world.consume(ctx, 1)
        assert ring.seen == 16

    world.run(testbench)


def test_rewind_before_reset():
    """Both at once: RESET has the last word. A RESET of another QP waits for it."""
    rng = make_rng()
    world = World(make(64, "sq", 16, 2), "sq", rng, latency=(20, 20))
    ring, other = world.add(1, 0x1000, 4, 6), world.add(0, 0x8000, 4, 6)

    async def testbench(ctx):
        for each in ring, other:
            await world.configure(ctx, each)
        for victim in ring, other:
            for each in ring, other:
                for _ in range(6):
                    world.post(each)
                await world.ring(ctx, each)
                while each.seen < each.posted:
                    await world.consume(ctx, await world.arrival(ctx))
                for _ in range(3):
                    world.post(each)
                await world.ring(ctx, each)
            ctx.set(world.dut.control.payload, {"qp": victim.qp, "action": QpAction.RESET})
            ctx.set(world.dut.control.valid, 1)
            await go_back(ctx, world, ring, ring.freed)
            await send_all(ctx, world.dut.control, [{"qp": victim.qp, "action": QpAction.RESET}])
            assert (await world.status(ctx, victim.qp)) == {"producer": 0, "fetched": 0, "error": 0}
            victim.posted = victim.freed = victim.seen = 0
            victim.slots.clear()
            world.post(victim)
            await world.ring(ctx, victim)
            for each in ring, other:
                while each.seen < each.posted:
                    await world.consume(ctx, await world.arrival(ctx))

    world.run(testbench)


def test_rewind_keeps_errors():
    """A ring in error stays so, and nothing is fetched; other control tokens pass meanwhile."""
    rng = make_rng()
    world = World(make(64, "sq", 16, 2), "sq", rng, latency=(5, 50))
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
            ctx.set(world.dut.control.payload, {"qp": ring.qp, "action": QpAction.ERROR})
            ctx.set(world.dut.control.valid, 1)
            await ctx.tick()
            assert ctx.get(world.dut.control.ready)
            ctx.set(world.dut.control.valid, 0)
            await go_back(ctx, world, ring, 0)
            for _ in range(30):
                assert (await world.status(ctx, ring.qp)) == {"producer": 1, "fetched": 0, "error": 1}
                if ctx.get(world.dut.arrived.valid):  # the misrung one is fetched again all the same
                    await world.arrival(ctx)
                    break
        assert len(world.log) <= reads + 1
        assert all(qp == 0 for _, qp, _ in world.log[reads:])

    world.run(testbench)


def steady(world, count, period, qps):
    """Cycles a WQE if the driver posts as fast as it may, and each WQE is consumed after ``period`` cycles at most."""
    dut = world.dut
    marks = []

    async def driver(ctx):
        for ring in world.rings.values():
            await world.configure(ctx, ring)
        while any(ring.posted < count for ring in world.rings.values()):
            for ring in world.rings.values():
                if ring.posted < count and ring.posted - ring.freed < ring.size:
                    world.post(ring)
                    await world.ring(ctx, ring)
            await ctx.tick()

    async def consumer(ctx):
        waiting = []
        while len(marks) < count * qps:
            ctx.set(dut.arrived.ready, 1)
            _, _, valid, qp = await ctx.tick().sample(dut.arrived.valid, dut.arrived.payload)
            ctx.set(dut.arrived.ready, 0)
            if valid and qp not in waiting:
                waiting.append(qp)
            if waiting:
                ring = world.rings[waiting.pop(0)]
                status = await world.status(ctx, ring.qp)
                if (status.fetched - ring.seen) & 0xFFFF:
                    ring.slots.pop(ring.seen)
                    ring.seen += 1
                    await send_all(ctx, dut.consumed, [{"qp": ring.qp, "index": ring.seen & 0xFFFF}])
                    ring.freed = ring.seen
                    marks.append(world.time)
                    waiting.append(ring.qp)

    world.run(driver, consumer)
    half = len(marks) // 2
    return (marks[-1] - marks[half]) / (len(marks) - 1 - half)


@pytest.mark.parametrize(
    ("blocks", "quota", "qps", "stride", "most"),
    [(32, 10, 1, 6, 10), (32, 10, 1, 7, 16.5), (32, 10, 32, 6, 11), (16, 8, 32, 6, 11)],
)
def test_rate(blocks, quota, qps, stride, most):
    """Cycles a WQE, a doorbell each, when memory answers after 140 cycles. 128 bytes take the bus 16."""
    world = World(make(64, "sq", blocks, 32, quota=quota), "sq", make_rng(1), latency=(140, 140), stall=0)
    for qp in range(qps):
        world.add(qp, 0x2000 * (qp + 1), 6, stride)
    rate = steady(world, 200 if qps == 1 else 8, 0, qps)
    print(f"{rate:.1f} cycles a WQE")
    assert rate <= most


def test_latency():
    world = World(make(64, "sq", 16, 4), "sq", make_rng(2), latency=(140, 140), stall=0)
    ring = world.add(3, 0x1000, 4, 6)
    times = {}

    async def testbench(ctx):
        await world.configure(ctx, ring)
        for _ in range(10):
            await ctx.tick()
        world.post(ring)
        start = world.time  # cycles counted by the edges passed
        ctx.set(world.dut.doorbell.payload, {"qp": 3, "index": 1})
        ctx.set(world.dut.doorbell.valid, 1)
        await ctx.tick()
        ctx.set(world.dut.doorbell.valid, 0)
        while not ctx.get(world.dut.read.valid):
            await ctx.tick()
        times["read"] = world.time - start
        arrived = False
        while not arrived:
            signals = world.dut.arrived.valid, world.dut.data.valid, world.dut.data.payload.last
            _, _, arrived, valid, last = await ctx.tick().sample(*signals)
            if valid and last:
                start = world.time
        times["arrived"] = world.time - start

    world.run(testbench)
    assert times == {"read": 5, "arrived": 1}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"qps": 3}, "qps must be a power of two, at least 2, not 3"),
        ({"blocks": 12}, "blocks must be a power of two, at least 4, not 12"),
        ({"size": 64}, "size must be a power of two, at least 128, not 64"),
        ({"quota": 1}, "quota must be at least 2, and less than there are blocks, not 1"),
        ({"patience": 7}, "patience must be at least 8, not 7"),
        ({"base": "nothing"}, "base must name a field of the QP context, not 'nothing'"),
        ({"min_stride": 8}, "min_stride must be 16, 32, 64 or 128, not 8"),
        ({"max_stride": 1024}, "max_stride must be 16 to 512, and not below min_stride, not 1024"),
        ({"max_stride": 256}, "size must be a power of two, at least 256, not 128"),
        ({"reads": 1}, "reads must be 2 to 64, not 1"),
        ({"data_width": 32}, "data_width must be 64, 128, 256 or 512, not 32"),
    ],
)
def test_wrong_arguments(arguments, message):
    good = {"data_width": 64, "qps": 4, "blocks": 8, "size": 128, "quota": 4, "base": "rq_base"}
    good |= {"log_size": "log_rq_size", "stride": "log_rq_stride", "min_stride": 16, "max_stride": 128}
    with pytest.raises(ValueError, match=message):
        RingPrefetcher(**(good | arguments))


def test_converts():
    rtlil.convert(RingPrefetcher.receive(256, 4))
