"""What a RingPrefetcher is tested with: a Python model of rings, host memory and consumers."""

from functools import partial

from amaranth.hdl import Value
from amaranth.lib import data, memory
from streams import changes, pause, plain, send_all, shared, simulate, unpacked
from verbena.hdl.abi.contexts import QP_CONTEXT, QpState
from verbena.hdl.abi.wqe import PUSH_MAX
from verbena.hdl.queue.ring_indices import RingIndices
from verbena.hdl.queue.ring_swap import RingState
from verbena.hdl.queue.wqe_fetcher import RingPrefetcher
from verbena.hdl.stream.ready import ReadyQueue

__all__ = ["Late", "Ring", "World", "make"]


class LateIndices(RingIndices):
    """Indices that begin at ``first``."""

    first = 0

    def _row(self, m, name, shape, reads):
        m.submodules[f"{name}_rows"] = rows = memory.Memory(
            shape=shape, depth=self.qps, init=[self.first if shape == 16 else 0] * self.qps
        )
        return rows.write_port(), [rows.read_port(domain="comb") for _ in range(reads)]


class Heard(RingPrefetcher):
    """A prefetcher, and in it the set in which its user keeps who has arrived: it takes each at once."""

    def elaborate(self, platform):
        self._arrivals = ReadyQueue(self.rings)
        return super().elaborate(platform)


class Late(Heard):
    """A prefetcher whose indices begin at ``first``, to see them wrap."""

    first = 0

    def elaborate(self, platform):
        self._indices = LateIndices(self.rings, lands=self.sends, swaps=self.swaps or self.shared > 0)
        self._indices.first = self.first
        return super().elaborate(platform)


class Ring:
    """One ring: the driver's side, and what is known of the engine's."""

    def __init__(self, qp, base, log_size, log_stride, first=0):
        self.qp, self.base, self.log_size, self.log_stride = qp, base, log_size, log_stride
        self.posted = self.freed = self.seen = first
        self.slots = {}

    @property
    def size(self):
        return 1 << self.log_size

    @property
    def words(self):
        return (1 << self.log_stride) // 8


class World:
    """Host memory with all rings, the driver that fills them and the consumer that empties them."""

    def __init__(self, dut, kind, rng, latency=(1, 200), stall=0.3):
        self.dut, self.kind, self.rng, self.stall = dut, kind, rng, stall
        self.latency = latency
        self.memory = {}
        self.rings = {}
        self.reads = []  # (time of the answer, address, length, words)
        self.log = []  # (time, qp) of reads
        self.arrivals = []  # (time, qp)
        self.last_beats = []
        self.time = 0
        self.fail = lambda address: False
        self.resets = 0
        self.once = False  # no ring goes back: nothing is read twice
        self.blocked = False  # the bus takes no read
        self.asks = True  # the consumer asks for what it misses
        self.may_push = 0.0  # how often the newest WQE is pushed with its doorbell
        self.pushes = self.push_fetches = 0
        self.waited = 0  # cycles in which the memory's data waited
        self.attributes = {}  # words by QP, once they are all written

    def add(self, qp, base, log_size, log_stride):
        first = self.dut.first if isinstance(self.dut, Late) else 0
        ring = self.rings[qp] = Ring(qp, base, log_size, log_stride, first)
        return ring

    async def configure(self, ctx, ring, state=QpState.RTS):
        k = self.kind
        fields = {
            f"{k}_base": ring.base,
            f"log_{k}_size": ring.log_size,
            f"log_{k}_stride": ring.log_stride,
            "state": state,
        }
        words = QP_CONTEXT.words(**fields)
        ctx.set(self.dut.attribute_en, 1)
        for number, word in enumerate(words):
            ctx.set(self.dut.attribute, {"index": ring.qp, "word": number, "data": word})
            await ctx.tick()
        ctx.set(self.dut.attribute_en, 0)
        self.attributes[ring.qp] = words

    async def renew(self, ctx):
        """Writes attributes once more as they are, one here and one there, or all of a QP, once all QPs have them."""
        while True:
            await pause(ctx, self.rng, 0.8)
            await ctx.tick()
            if len(self.attributes) < len(self.rings):
                continue
            qp, words = self.rng.choice(list(self.attributes.items()))
            some = list(enumerate(words))
            ctx.set(self.dut.attribute_en, 1)
            for number, word in some if self.rng.random() < 0.1 else [self.rng.choice(some)]:
                ctx.set(self.dut.attribute, {"index": qp, "word": number, "data": word})
                await ctx.tick()
            ctx.set(self.dut.attribute_en, 0)

    def post(self, ring):
        assert ring.posted - ring.freed < ring.size
        index = ring.posted
        masks = 0, 0xFFFFFFFF, 0xFFFFFFFF00000000, (1 << 64) - 1
        words = [self.rng.getrandbits(64) & self.rng.choice(masks) for _ in range(ring.words)]
        ring.slots[index] = words
        start = ring.base + (index % ring.size << ring.log_stride)
        if self.may_push:  # of a large one only that much
            words[PUSH_MAX // 8 :] = [0] * len(words[PUSH_MAX // 8 :])
        for n, word in enumerate(words):
            self.memory[start + 8 * n] = word
        ring.posted += 1

    async def ring(self, ctx, ring, index=None):
        item = {"qp": ring.qp, "index": (ring.posted if index is None else index) & 0xFFFF}
        words = ring.slots.get(ring.posted - 1)
        if index is None and words and self.rng.random() < self.may_push:
            item["push"] = 1
            await self.push(ctx, ring, words)
        await send_all(ctx, self.dut.doorbell, [item])

    async def push(self, ctx, ring, words):
        """Writes what is not zero, and word 0, as much as can be pushed; now and then another page comes between."""
        for n, word in enumerate(
            part for whole in words[: PUSH_MAX // 8] for part in (whole & 0xFFFFFFFF, whole >> 32)
        ):
            if word or n == 0:
                await send_all(ctx, self.dut.push, [{"qp": ring.qp, "word": n, "data": word}])
            if self.rng.random() < 0.01:
                other = {"qp": self.rng.choice(list(self.rings)), "data": self.rng.getrandbits(32)}
                if other["qp"] != ring.qp:
                    await send_all(ctx, self.dut.push, [other | {"word": self.rng.choice([0, 1, 5])}])

    async def clock(self, ctx):
        if not hasattr(self.dut, "push"):
            async for _ in ctx.tick():
                self.time += 1
        async for *_, pushed, fetched in ctx.tick().sample(self.dut.count_pushes, self.dut.count_push_fetches):
            self.time += 1
            self.pushes += pushed
            self.push_fetches += fetched

    async def memory_requests(self, ctx):
        due = 0
        read, put = self.dut.read, changes(ctx)
        edges = aiter(ctx.tick().sample(read.valid, Value.cast(read.payload)))
        while True:
            while self.blocked or (self.stall and self.rng.random() < self.stall):
                put(read.ready, 0)
                await anext(edges)
            put(read.ready, 1)
            _, _, valid, bits = await anext(edges)
            if valid:
                request = unpacked(read, bits)
                ring = next(
                    r for r in self.rings.values() if r.base <= request.address < r.base + (r.size << r.log_stride)
                )
                stride = 1 << ring.log_stride
                offset = request.address - ring.base
                assert offset % stride == 0
                assert request.length % stride == 0
                assert 0 < request.length <= self.dut.size
                assert offset + request.length <= ring.size * stride
                slot, count = offset // stride, request.length // stride
                first = ring.seen + (slot - ring.seen) % ring.size
                assert not self.once or first + count <= ring.posted
                due = max(due + 1, self.time + self.rng.randint(*self.latency))
                words = [self.memory[request.address + n] for n in range(0, request.length, 8)]
                self.reads.append((due, request.address, request.length, words))
                self.log.append((self.time, ring.qp, request.length))

    async def memory_answers(self, ctx):
        dut, lanes = self.dut, self.dut.data_width // 64
        edges = aiter(ctx.tick().sample(dut.data.ready, dut.arrived.valid))
        while True:
            if not self.reads or self.reads[0][0] > self.time:
                await anext(edges)
                continue
            _, address, _, words = self.reads.pop(0)
            for n in range(0, len(words), lanes):
                while self.stall and self.rng.random() < self.stall:
                    await anext(edges)
                part = words[n : n + lanes]
                last = n + lanes >= len(words)
                value = sum(word << 64 * lane for lane, word in enumerate(part))
                value |= self.rng.getrandbits(64 * (lanes - len(part)) or 1) << 64 * len(part) if part[lanes:] else 0
                ctx.set(dut.data.valid, 1)
                ctx.set(
                    dut.data.payload,
                    {
                        "data": value,
                        "count": 8 * len(part),
                        "first": n == 0,
                        "last": last,
                        "error": last and self.fail(address),
                    },
                )
                ready = False
                while not ready:
                    _, _, ready, told = await anext(edges)
                    assert ready or told  # it waits only for whoever takes `arrived`
                    self.waited += not ready
                ctx.set(dut.data.valid, 0)
            self.last_beats.append(self.time)

    async def arrival(self, ctx):
        """QP of the next arrival."""
        await pause(ctx, self.rng, self.stall)
        ctx.set(self.dut.arrived.ready, 1)
        valid = False
        while not valid:
            _, _, valid, qp = await ctx.tick().sample(self.dut.arrived.valid, self.dut.arrived.payload)
        ctx.set(self.dut.arrived.ready, 0)
        self.arrivals.append((self.time, qp))
        return qp

    def look_at(self, ctx, ring):
        """Rings of QPs and shared ones have different ports."""
        shared = ring >= self.dut.qps
        ctx.set(self.dut.status_qp, 0 if shared else ring)
        if self.dut.shared:
            ctx.set(self.dut.shared_ring, ring)
            ctx.set(self.dut.shared_ring_en, shared)

    async def status(self, ctx, qp):
        self.look_at(ctx, qp)
        await ctx.tick()
        return plain(ctx.get(self.dut.status))

    async def words(self, ctx, ring, index):
        """The WQE as the consumer reads it: one address a cycle, not in the first in which it is known to be there."""
        self.look_at(ctx, ring.qp)
        for _ in range(2):
            await ctx.tick()
        offset = index << ring.log_stride
        block = ctx.get(self.dut.places[offset // self.dut.size % 2])
        offset %= self.dut.size
        result = []
        for n in range(ring.words + 2):
            if n >= 2:
                result.append(ctx.get(self.dut.word))
            if n < ring.words:
                ctx.set(self.dut.word_addr, {"block": block, "word": offset // 8 + n})
            await ctx.tick()
        return result

    def far(self, ring, consumed):
        """The next WQE is more than a block behind the first that is not consumed: nobody says where it stands."""
        first, next_ = (index * 8 * ring.words // self.dut.size for index in (consumed, ring.seen))
        return next_ > first + 1

    async def consume(self, ctx, qp):
        """Checks whatever can be read, and says how much it was."""
        ring = self.rings[qp]
        status = await self.status(ctx, qp)
        assert not status.error
        count = (status.fetched - ring.seen) & 0xFFFF
        assert ring.seen + count <= ring.posted
        for n in range(count):
            # Of a large one that was pushed, what lies behind stays as it was.
            most = PUSH_MAX // 8 if self.may_push else ring.words
            assert (await self.words(ctx, ring, ring.seen))[:most] == ring.slots.pop(ring.seen)[:most]
            ring.seen += 1
            if self.rng.random() < 0.5 or n == count - 1 or self.far(ring, ring.freed):
                await send_all(ctx, self.dut.consumed, [{"qp": qp, "index": ring.seen & 0xFFFF}])
                ring.freed = ring.seen
        return count

    async def token(self, ctx, ring, action, word=None):
        """SAVE or LOAD, until it is taken, and its word has gone or come."""
        dut, rng = self.dut, self.rng
        ctx.set(dut.control.payload, {"qp": ring.qp, "action": action})
        ctx.set(dut.control.valid, 1)
        taken, found = False, None
        port = dut.saved if word is None else dut.loaded
        if word is not None:
            ctx.set(port.payload, RingState.const(dict(word)).as_value())
        while not taken or found is None:
            moves = found is None and rng.random() < 0.3
            ctx.set(port.ready if word is None else port.valid, moves)
            _, _, ready, valid, accepts, payload = await ctx.tick().sample(
                dut.control.ready, port.valid, port.ready, port.payload
            )
            if ready:
                taken = True
                ctx.set(dut.control.valid, 0)
            if moves and valid and accepts:
                if word is None:
                    assert payload.last
                    found = plain(data.Const(RingState, payload.data & (1 << RingState.size) - 1))
                else:
                    found = word
        ctx.set(port.ready if word is None else port.valid, 0)
        return found

    async def wants(self, ctx):
        """The consumer asks for what is posted and has not come; now and then for what is on its way."""
        while True:
            await pause(ctx, self.rng, 0.95)
            await ctx.tick()
            missing = [ring.qp for ring in self.rings.values() if ring.posted > ring.seen]
            if missing and self.asks:
                await send_all(ctx, self.dut.wanted, [self.rng.choice(missing)])

    def run(self, *testbenches, background=(), **kwargs):
        background = (self.clock, self.memory_requests, self.memory_answers, self.wants, *background)
        simulate(self.dut, *testbenches, background=background, seed=self.rng.seed_value, **kwargs)


def make(width, kind, blocks=16, qps=4, cls=Heard, *, quota=4, alone=False, **options):
    """``alone``: for this test only, since it changes what the block is."""
    call = cls.send if kind == "sq" else cls.receive
    return (call if alone else partial(shared, call))(width, qps, blocks, quota=quota, **options)
