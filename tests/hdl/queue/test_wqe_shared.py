"""Rings behind those of the QPs, and rings of QPs that are set to one WQE of a table."""

import pytest
from queue_world import Late, World, make
from streams import make_rng, pause, send_all
from verbena.hdl.abi.commands import QpAction
from verbena.hdl.abi.contexts import QpState
from verbena.hdl.queue.ring_swap import RingState

BASES = [0x1000, 0x7FFF_FFFF_F000, 0xFFFF_FF00_0000_0000, 0x40_0000, 0x200_0000, 0x300_0000, 0x500_0000]
NONE = {"producer": 0, "fetched": 0, "error": 0}


class Table:
    """The WQEs of a shared receive queue, where several QPs find them by number."""

    def __init__(self, world, qps, base, log_size, log_stride):
        self.world, self.log_size, self.log_stride = world, log_size, log_stride
        self.rings = [world.add(qp, base, log_size, log_stride) for qp in qps]
        self.at = dict.fromkeys(qps)  # the WQE that the QP's ring was set to
        self.used = set()
        for slot in range(1 << log_size):
            self.write(slot)

    def write(self, slot):
        """Another WQE."""
        ring, rng = self.rings[0], self.world.rng
        for n in range(ring.words):
            self.world.memory[ring.base + (slot << self.log_stride) + 8 * n] = rng.getrandbits(64)

    def words(self, index):
        ring, slot = self.rings[0], index % (1 << self.log_size)
        return [self.world.memory[ring.base + (slot << self.log_stride) + 8 * n] for n in range(ring.words)]

    def choose(self, qp):
        """A WQE that no QP has gets a new content."""
        index = self.world.rng.choice([n for n in range(1 << self.log_size) if n not in self.used])
        assert self.at[qp] is None
        self.used.add(index)
        self.write(index)
        self.at[qp] = index
        return {"qp": qp, "index": index}

    async def point(self, ctx, qp):
        item = self.choose(qp)
        await send_all(ctx, self.world.dut.point, [item])

    async def look(self, ctx, qp):
        """Whether it is there; then it must be what stands in the table."""
        index = self.at[qp]
        status = await self.world.status(ctx, qp)
        assert (status.producer, status.error) == (index + 1, 0)
        assert status.fetched in (index, index + 1)
        if status.fetched == index:
            return False
        assert await self.world.words(ctx, self.world.rings[qp], index) == self.words(index)
        return True

    async def wait(self, ctx, qp, limit=3000):
        """Until it is there; as the responder does, it is looked at, and asked for in between."""
        wanted = self.world.dut.wanted
        start = self.world.time
        while not await self.look(ctx, qp):
            assert self.world.time - start < limit, f"WQE {self.at[qp]} of QP {qp} does not come"
            ctx.set(wanted.payload, qp)
            ctx.set(wanted.valid, 1)
            await ctx.tick()
            ctx.set(wanted.valid, 0)

    async def consume(self, ctx, qp):
        await send_all(ctx, self.world.dut.consumed, [{"qp": qp, "index": self.at[qp] + 1}])
        self.forget(qp)

    def forget(self, qp):
        self.used.discard(self.at[qp])
        self.at[qp] = None


async def set_up(ctx, world):
    for ring in world.rings.values():
        await world.configure(ctx, ring)


async def together(ctx, *sends):
    """Sends items, (port, item, cycles to wait before), at the same time; in which cycle each was taken."""
    taken = [None] * len(sends)
    cycle = 0
    while None in taken:
        for (port, item, delay), when in zip(sends, taken):
            if when is None and delay == cycle:
                ctx.set(port.payload, item)
                ctx.set(port.valid, 1)
        readies = [when is None and delay <= cycle for (_, _, delay), when in zip(sends, taken)]
        _, _, *ready = await ctx.tick().sample(*(port.ready for port, _, _ in sends))
        for number, (port, _, _) in enumerate(sends):
            if readies[number] and ready[number]:
                ctx.set(port.valid, 0)
                taken[number] = cycle
        cycle += 1
    return taken


async def drop_arrivals(ctx, world):
    ctx.set(world.dut.arrived.ready, 1)
    async for _ in ctx.tick():
        pass


def forget(ring):
    ring.posted = ring.freed = ring.seen = 0
    ring.slots.clear()


@pytest.mark.parametrize("count", [12, pytest.param(40, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("width", "qps", "count_shared"), [(64, 4, 3), (64, 4, 2), (512, 4, 1), (64, 2, 2)])
def test_rings_of_any_number(width, qps, count_shared, count):
    """What is posted to one of them is read, in order, and no other is mistaken for it; indices wrap."""
    rng = make_rng()
    first = rng.choice([0, 0xFFF8])
    dut = make(width, "rq", 16, qps, cls=Late, alone=True, shared=count_shared)
    dut.first = first
    world = World(dut, "rq", rng, latency=rng.choice([(1, 3), (1, 200)]))
    assert dut.rings == qps + count_shared
    rings = [world.add(n, BASES[n], rng.randrange(6), rng.choice([5, 6, 7])) for n in range(dut.rings)]
    each = first + count

    async def driver(ctx):
        await set_up(ctx, world)
        while any(ring.posted < each for ring in rings):
            await pause(ctx, rng, 0.8)
            ring = rng.choice(rings)
            before = ring.posted
            for _ in range(rng.choice([1, 1, 2, 5])):
                if ring.posted < each and ring.posted - ring.freed < ring.size:
                    world.post(ring)
            if rng.random() < 0.5:
                await world.ring(ctx, ring, rng.choice([before, ring.freed, ring.posted]))
            await world.ring(ctx, ring)

    async def consumer(ctx):
        while any(ring.seen < each for ring in rings):
            await world.consume(ctx, await world.arrival(ctx))

    world.run(driver, consumer, deadline=40_000)


@pytest.mark.parametrize("lives", [2, pytest.param(8, marks=pytest.mark.slow)])
def test_a_shared_ring_is_made_anew(lives):
    """Among busy others, with reads in flight: state RESET, the token, and then its doorbells count again."""
    rng = make_rng()
    world = World(make(64, "rq", 16, 4, shared=3), "rq", rng, latency=(1, 150))
    rings = [world.add(n, 0x1_0000 * (n + 1), 3 + n % 3, 5 + n % 3) for n in range(7)]
    done = dict.fromkeys(rings[4:], 0)
    served = dict.fromkeys(rings, 0)
    busy = [False]

    async def driver(ctx):
        await set_up(ctx, world)
        while min(done.values()) < lives or not all(served.values()):
            await pause(ctx, rng, 0.9)
            ring = rng.choice(rings)
            if ring in done and rng.random() < 0.3:
                while busy[0]:
                    await ctx.tick()
                busy[0] = True
                await world.configure(ctx, ring, QpState.RESET)
                await send_all(ctx, world.dut.control, [{"qp": ring.qp, "action": QpAction.RESET}])
                assert await world.status(ctx, ring.qp) == NONE
                assert all(not ring.base <= read[1] < ring.base + 0x1_0000 for read in world.reads)
                await world.ring(ctx, ring, 1)
                for _ in range(20):
                    await ctx.tick()
                assert await world.status(ctx, ring.qp) == NONE
                forget(ring)
                await world.configure(ctx, ring)
                done[ring] += 1
                busy[0] = False
            else:
                for _ in range(rng.randrange(8)):
                    if ring.posted - ring.freed < ring.size:
                        world.post(ring)
                await world.ring(ctx, ring)

    async def consumer(ctx):
        while True:
            qp = await world.arrival(ctx)
            while busy[0]:
                await ctx.tick()
            busy[0] = True
            served[world.rings[qp]] += await world.consume(ctx, qp)
            busy[0] = False

    world.run(driver, background=(consumer,), deadline=90_000)


@pytest.mark.parametrize("log_stride", [5, 6, 7])
@pytest.mark.parametrize("width", [64, 512])
def test_a_ring_is_set_to_a_wqe(width, log_stride):
    """To any of the table, one after the other, also the same again; nothing else is read, before or behind it."""
    rng = make_rng()
    world = World(make(width, "rq", 16, 4, shared=2), "rq", rng, latency=(1, 40))
    world.asks = False
    table = Table(world, [1, 3], 0x10_0000, 4, log_stride)

    async def testbench(ctx):
        await set_up(ctx, world)
        for number in range(20):
            qp = rng.choice([1, 3])
            await table.point(ctx, qp)
            await table.wait(ctx, qp)
            for _ in range(rng.randrange(3)):
                assert await table.look(ctx, qp)
            assert len(world.log) == number + 1
            await table.consume(ctx, qp)
            assert (await world.status(ctx, 4 - qp)).error == 0

    world.run(testbench, background=(lambda ctx: drop_arrivals(ctx, world),))
    assert {length for _, _, length in world.log} == {1 << log_stride}


def test_the_last_wqe_of_the_largest_table():
    """Number 32767, in the largest WQEs; and behind the end of a table is its beginning."""
    rng = make_rng()
    world = World(make(64, "rq", 16, 4, shared=2), "rq", rng, latency=(1, 5))
    world.asks = False
    ring = world.add(2, 0x7FFF_0000, 15, 7)
    words = [[rng.getrandbits(64) for _ in range(16)] for _ in range(2)]
    for n in range(16):
        world.memory[ring.base + (32767 << 7) + 8 * n], world.memory[ring.base + 8 * n] = words[0][n], words[1][n]

    async def testbench(ctx):
        await set_up(ctx, world)
        for index, content in ((32767, words[0]), (0, words[1]), (65535, words[0])):
            await send_all(ctx, world.dut.point, [{"qp": 2, "index": index}])
            assert await world.arrival(ctx) == 2
            wanted = {"producer": index + 1 & 0xFFFF, "fetched": index + 1 & 0xFFFF, "error": 0}
            assert await world.status(ctx, 2) == wanted
            assert await world.words(ctx, ring, index) == content
            await send_all(ctx, world.dut.consumed, [{"qp": 2, "index": index + 1 & 0xFFFF}])

    world.run(testbench)


@pytest.mark.parametrize("swaps", [False, True])
@pytest.mark.parametrize("count", [3, pytest.param(40, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("blocks", "latency"), [(8, (1, 60)), (16, (1, 5)), (8, (140, 140))])
def test_set_rings_among_busy_ones(blocks, latency, count, swaps):
    """Two QPs share a table, one has one alone, and one a ring of its own; two shared rings are busy. WQEs are given up
    before they are there, QPs reset, and, with ``swaps``, away for a while."""
    rng = make_rng()
    dut = make(64, "rq", blocks, 4, shared=2, swaps=swaps)
    world = World(dut, "rq", rng, latency=latency)
    world.asks = False
    tables = [Table(world, [0, 1], 0x100_0000, 5, 6), Table(world, [3], 0x200_0000, 2, 5)]
    table_of = {qp: table for table in tables for qp in table.at}
    rings = [world.add(n, 0x1_0000 * (n + 1), 3, rng.choice([5, 6, 7])) for n in (2, 4, 5)]
    seen = {"read": dict.fromkeys(table_of, 0), "given up": 0, "reset": 0, "swapped": 0}
    held = set()  # who is worked at: by one only
    done = []

    async def claim(ctx, qp):
        while qp in held:
            await ctx.tick()
        held.add(qp)

    async def driver(ctx):
        await set_up(ctx, world)
        while not done:
            await pause(ctx, rng, 0.9)
            ring = rng.choice(rings)
            for _ in range(rng.randrange(6)):
                if ring.posted - ring.freed < ring.size:
                    world.post(ring)
            await claim(ctx, ring.qp)
            await world.ring(ctx, ring)
            held.discard(ring.qp)

    async def responder(ctx):
        """One QP at a time."""
        while len(world.attributes) < len(world.rings):
            await ctx.tick()
        while min(seen["read"].values()) < count or min(ring.seen for ring in rings) < count:
            await pause(ctx, rng, 0.5)
            qp = rng.choice([*table_of, *(ring.qp for ring in rings)])
            if qp in held:
                await ctx.tick()
                continue
            held.add(qp)
            if qp not in table_of:
                if not await world.consume(ctx, qp):
                    await send_all(ctx, dut.wanted, [qp])
            else:
                await step(ctx, table_of[qp], qp)
            held.discard(qp)

        done.append(1)

    async def step(ctx, table, qp):
        if table.at[qp] is None:
            await table.point(ctx, qp)
            return
        what = rng.random()
        if what < 0.2:
            await table.look(ctx, qp)
        elif what < 0.4:
            await send_all(ctx, dut.wanted, [rng.choice([*world.rings])])
        elif what < 0.75:
            await table.wait(ctx, qp)
            seen["read"][qp] += 1
            await table.consume(ctx, qp)
        elif what < 0.85:  # by a QP in ERR
            await table.consume(ctx, qp)
            seen["given up"] += 1

    async def commands(ctx):
        """Tokens of QPs at which nobody works; of shared rings only such as change nothing."""
        while True:
            await pause(ctx, rng, 0.98)
            qp = rng.choice([*world.rings])
            action = rng.choice([QpAction.RESET, QpAction.NONE, QpAction.ERROR, QpAction.SAVE])
            if qp not in table_of or (action == QpAction.SAVE and not swaps):
                action = QpAction.QUERY
            if qp in held:
                await ctx.tick()
                continue
            held.add(qp)
            for _ in range(12):  # what was consumed is inside
                await ctx.tick()
            if action == QpAction.SAVE:
                await swap(ctx, world.rings[qp], table_of[qp])
            else:
                await send_all(ctx, dut.control, [{"qp": qp, "action": action}])
            if action == QpAction.RESET:
                table_of[qp].forget(qp)
                seen["reset"] += 1
            held.discard(qp)

    async def swap(ctx, ring, table):
        word = await world.token(ctx, ring, QpAction.SAVE)
        index = table.at[ring.qp]
        assert (word.misrung, word.failed) == (0, 0)
        assert word.producer - word.consumed == (index is not None)
        assert index in (None, word.consumed)
        await pause(ctx, rng, rng.choice([0.5, 0.99]))
        await world.token(ctx, ring, QpAction.LOAD, word)
        seen["swapped"] += 1

    async def arrivals(ctx):
        await drop_arrivals(ctx, world)

    background = (driver, commands, arrivals)
    world.run(responder, background=background, deadline=20_000 + 10_000 * count)
    assert seen["given up"]
    assert count < 40 or (seen["reset"] > 0 and (seen["swapped"] > 0) == swaps)
    lengths = {(qp, length) for _, qp, length in world.log if qp in table_of}
    assert lengths == {(0, 64), (3, 32)}  # no more than was asked for


@pytest.mark.parametrize("action", [QpAction.RESET, QpAction.ERROR, QpAction.SAVE, QpAction.LOAD])
def test_a_ring_is_set_when_a_token_comes(action):
    """Of another QP, in any cycle around it; both are done, whichever is first."""
    rng = make_rng()
    world = World(make(64, "rq", 16, 4, shared=2, swaps=True), "rq", rng, latency=(3, 20), stall=0)
    world.asks = False
    dut = world.dut
    table = Table(world, [1, 2], 0x10_0000, 4, 6)
    other = world.add(0, 0x2_0000, 4, 6)
    firsts = set()

    async def testbench(ctx):
        await set_up(ctx, world)
        for delay in range(24):
            for _ in range(2):
                world.post(other)
            await world.ring(ctx, other)
            await table.point(ctx, 2)
            for qp in (0, 2):
                while await world.arrival(ctx) != qp:
                    pass
            word = None
            if action == QpAction.LOAD:
                word = await world.token(ctx, other, QpAction.SAVE)
            token = {"qp": 0, "action": action}
            ctx.set(dut.loaded.payload, RingState.const(dict(word or {})).as_value())
            ctx.set(dut.loaded.valid, action == QpAction.LOAD)
            ctx.set(dut.saved.ready, 1)
            items = (dut.point, table.choose(1), 12), (dut.control, token, delay)
            point, control = await together(ctx, *items)
            firsts.add(point < control)
            for _ in range(100):
                await ctx.tick()
            ctx.set(dut.loaded.valid, 0)
            kept = action in (QpAction.ERROR, QpAction.LOAD)
            assert await world.status(ctx, 0) == ({"producer": 2, "fetched": 2, "error": 0} if kept else NONE)
            for qp in (1, 2):
                await table.wait(ctx, qp)
                await table.consume(ctx, qp)
            if kept:
                for index in range(2):
                    assert await world.words(ctx, other, index) == other.slots[index]
            await send_all(ctx, dut.control, [{"qp": 0, "action": QpAction.RESET}])
            forget(other)
            while ctx.get(dut.arrived.valid):
                await world.arrival(ctx)

    world.run(testbench, deadline=60_000)
    assert firsts == {False, True}


@pytest.mark.parametrize("stall", [0, 0.9])
def test_reset_of_a_ring_that_was_set(stall):
    """In any cycle after it: when the token is taken, nothing of it is under way, and nothing of it comes. Then
    it is set again."""
    rng = make_rng()
    world = World(make(64, "rq", 16, 4, shared=2), "rq", rng, latency=(20, 20), stall=stall)
    world.asks = False
    table = Table(world, [1, 2], 0x10_0000, 4, 5)

    async def testbench(ctx):
        await set_up(ctx, world)
        for delay in range(0, 40, 9 if stall else 2):
            await table.point(ctx, 2)
            await table.point(ctx, 1)
            for _ in range(delay):
                await ctx.tick()
            await send_all(ctx, world.dut.control, [{"qp": 1, "action": QpAction.RESET}])
            reads = len(world.log)
            for _ in range(60):
                assert await world.status(ctx, 1) == NONE
            assert len(world.log) == reads
            table.forget(1)
            for qp in (1, 2):
                if table.at[qp] is None:
                    await table.point(ctx, qp)
                await table.wait(ctx, qp)
                await table.consume(ctx, qp)

    async def arrivals(ctx):
        await drop_arrivals(ctx, world)

    world.run(testbench, background=(arrivals,), deadline=60_000)


@pytest.mark.parametrize("end", ["there", "on its way", "consumed"])
def test_a_ring_that_was_set_goes_and_comes(end):
    """It is read again, if it is not consumed, whatever had come of it."""
    rng = make_rng()
    world = World(make(64, "rq", 16, 4, shared=2, swaps=True), "rq", rng, latency=(30, 30), stall=0)
    world.asks = False
    table = Table(world, [1, 2], 0x10_0000, 4, 6)

    async def testbench(ctx):
        await set_up(ctx, world)
        for _ in range(4):
            await table.point(ctx, 1)
            index = table.at[1]
            if end != "on its way":
                await table.wait(ctx, 1)
            if end == "consumed":
                await table.consume(ctx, 1)
                for _ in range(12):
                    await ctx.tick()
            word = await world.token(ctx, world.rings[1], QpAction.SAVE)
            wanted = {"producer": index + 1, "consumed": index + (end == "consumed"), "misrung": 0, "failed": 0}
            assert word == wanted
            assert await world.status(ctx, 1) == NONE
            await table.point(ctx, 2)
            await table.wait(ctx, 2)
            await table.consume(ctx, 2)
            reads = len(world.log)
            # Into another QP's place, which has the same table by then.
            await world.token(ctx, world.rings[2], QpAction.LOAD, word)
            if end == "consumed":
                await table.point(ctx, 2)
            else:
                table.at[1], table.at[2] = None, index
            await table.wait(ctx, 2)
            assert len(world.log) == reads + 1
            await table.consume(ctx, 2)

    async def arrivals(ctx):
        await drop_arrivals(ctx, world)

    world.run(testbench, background=(arrivals,))


def test_a_wqe_of_a_table_that_cannot_be_read():
    """The ring is in error, and another WQE is read all the same: it is set as if nothing had been."""
    rng = make_rng()
    world = World(make(64, "rq", 16, 4, shared=2), "rq", rng, latency=(5, 30))
    world.asks = False
    table = Table(world, [1], 0x10_0000, 4, 6)

    async def testbench(ctx):
        await set_up(ctx, world)
        for fails in (True, False, True, False):
            world.fail = lambda address, fails=fails: fails
            await table.point(ctx, 1)
            assert await world.arrival(ctx) == 1
            index = table.at[1]
            status = {"producer": index + 1, "fetched": index + (not fails), "error": fails}
            assert await world.status(ctx, 1) == status
            if not fails:
                assert await table.look(ctx, 1)
                await table.consume(ctx, 1)
            table.forget(1)

    world.run(testbench)
