"""A responder whose QPs share receive queues: the rings behind those of the QPs, the tables of WQEs, and the rules.

What is taken of a shared ring is overwritten there at once: who needs it once more must find it in the table.
"""

from amaranth.hdl import Value
from receive_world import Ring, Rules
from received import ReceivedRequests
from responder_world import QPS, World
from streams import collect, shared, unpacked
from verbena.hdl.abi.commands import QpAction
from verbena.hdl.abi.contexts import QP_CONTEXT, QpState
from verbena.hdl.abi.eqe import EventType
from verbena.hdl.abi.wqe import SRQ_WQE

__all__ = ["SRQS", "SharedRing", "SharedRules", "SharedWorld"]

SRQS = 2
LIMIT, ERROR = EventType.SRQ_LIMIT_REACHED, EventType.SRQ_ERR
NO_CREDITS = 31


class SharedRing(Ring):
    """Rings from number ``QPS`` on are those of SRQs; that of a QP with an SRQ stands at a WQE of its table, or
    nowhere."""

    def __init__(self, dut, rng, strides, srqn, **kwargs):
        super().__init__(dut, rng, strides, **kwargs)
        self.srqn = srqn  # of each QP; None: it has a ring of its own
        self.tables = [{} for _ in range(SRQS)]
        self.at = [None] * QPS
        self.points = []
        self.unreadable = 0  # tables cannot be read

    def post_shared(self, srqn, entries):
        """Posts a WQE to an SRQ; its number in the table."""
        assert len(entries) < 1 << (self.strides[QPS + srqn] - 4)
        table = self.tables[srqn]
        number = self.rng.choice([n for n in range(64) if n not in table])
        table[number] = list(entries)
        self.posted[QPS + srqn].append(number)
        return number

    def free(self, srqn):
        """Posted, and not taken."""
        return len(self.posted[QPS + srqn]) - self.consumed[QPS + srqn]

    def reset(self, ring):
        super().reset(ring)
        if ring < QPS:
            self.at[ring] = None

    def forget(self, ring):
        """There was no room for what was fetched of it."""
        self.fetched[ring] = self.consumed[ring]
        self.words[ring] = [self.rng.getrandbits(64) for _ in self.words[ring]]

    def producer(self, ring):
        if ring < QPS and self.srqn[ring] is not None:
            return self.fetched[ring] if self.at[ring] is None else self.at[ring] + 1
        return super().producer(ring)

    def content(self, ring, index):
        if ring < QPS and self.srqn[ring] is None:
            return super().content(ring, index)
        srqn = self.srqn[ring] if ring < QPS else ring - QPS
        number = index if ring < QPS else self.posted[ring][index]
        at = SRQ_WQE.fields["id"].offset
        header = [self.rng.getrandbits(64) & ~(0xFFFF << at) | number << at, self.rng.getrandbits(64)]
        entries = self.tables[srqn][number]
        return header + [word for address, length, key in entries for word in (address, length | key << 32)]

    def consume(self, ring, index):
        if ring < QPS and self.srqn[ring] is not None:
            assert index == self.at[ring] + 1
            self.at[ring] = None
            self.consumed[ring] = self.fetched[ring] = index
            self.words[ring] = [self.rng.getrandbits(64) for _ in self.words[ring]]
        else:
            super().consume(ring, index)

    async def set(self, ctx):
        """Background testbench: a QP's ring is set to a WQE; that is done when it is taken."""
        point = self.dut.point
        edges = aiter(ctx.tick().sample(point.valid, Value.cast(point.payload)))
        while True:
            _, _, valid, bits = await anext(edges)
            if not valid or self.rng.random() < self.stall:
                continue
            item = unpacked(point, bits)
            assert self.at[item.qp] is None, "what was consumed must be told before"
            self.points.append((item.qp, item.index))
            self.at[item.qp] = self.fetched[item.qp] = self.consumed[item.qp] = item.index
            self.errors[item.qp] = self.unreadable
            ctx.set(point.ready, 1)
            await anext(edges)
            ctx.set(point.ready, 0)


class SharedRules(Rules):
    """Of a QP whose receive WQEs come from SRQ ``srqn``. ``world`` knows of all SRQs, how far they are."""

    def __init__(self, qp, ring, values, world, **kwargs):
        self.world = world
        super().__init__(qp, ring, values, **kwargs)

    @property
    def srqn(self):
        return self.values["srqn"]

    def restart(self, epsn):
        super().restart(epsn)
        self.held, self.found = None, False

    def credits(self):
        return NO_CREDITS

    def _head(self):
        """The WQE that is taken next, or None."""
        posted = self.ring.posted[QPS + self.srqn]
        head = self.world.heads[self.srqn]
        return posted[head] if head < len(posted) else None

    def _take(self):
        srqn = self.srqn
        number = self._head()
        self.world.heads[srqn] += 1
        left = len(self.ring.posted[QPS + srqn]) - self.world.heads[srqn]
        if left < self.world.limits[srqn]:
            self.world.wanted_events.append((LIMIT, srqn))
            self.world.limits[srqn] = 0
        return number

    def _left(self):
        """Bytes that fit the entry that the message has come to."""
        left = -self.message.received
        for _, size, _ in self.message.entries:
            left += size
            if left >= 0:
                return left
        return 0

    def _find_wqe(self, discard, write, goes_on, length):
        if self.held is not None:
            # Of UC also one that an earlier message has left. A WRITE need not read it.
            if write or (goes_on and self._left() >= length):
                return None
            broken = self.ring.errors[self.qp] and self.ring.fetched[self.qp] == self.held
            if not self.found:
                self.found, broken = True, self.ring.unreadable
                self.world.wanted_points.append((self.qp, self.held))
            if not broken:
                return None
            self.fresh = int(self.unreliable)
            job = self._fatal(0x63, 1, complete=1, status=2, cause=22) | self._wqe()
            self._use()
            return discard, job
        ring, head = QPS + self.srqn, self.world.heads[self.srqn]
        if self.ring.errors[ring] and self.ring.fetched[ring] == head:
            self.fresh = int(self.unreliable)
            self.world.wanted_events.append((ERROR, self.srqn))
            return discard, self._fatal(0x63, 1)
        return self._no_wqe(discard) if self._head() is None else None

    def _entries(self):
        number = self._head() if self.held is None else self.held
        return self.ring.tables[self.srqn][number]

    def _wqe(self):
        number = self._head() if self.held is None else self.held
        return {} if number is None else {"wqe_index": number}

    def _hold(self):
        if self.held is None:
            self.held = self._take()

    def _use(self):
        number = self._take() if self.held is None else self.held
        self.held, self.found = None, False
        self.world.completed.append((self.srqn, number))

    def flush(self):
        """The job that completes what the QP has."""
        if self.held is None:
            return {}
        job = {"complete": 1, "status": 5} | self._wqe()
        self._use()
        return job

    lapse = flush


class SharedWorld(World):
    """``srqn`` : of each QP, None if it has a ring of its own. ``shared_strides`` : of the SRQs."""

    def __init__(self, srqn=(0,) * QPS, *, shared_strides=(6, 7), values=None, **kwargs):
        self.srqn, self.shared_strides = srqn, shared_strides
        self.heads, self.limits = [0] * SRQS, [0] * SRQS
        self.events, self.wanted_events, self.wanted_points = [], [], []
        self.completed = []  # (SRQ, number): they may be posted again, once the host knows
        values = [dict(of_qp) for of_qp in values or [{}] * QPS]
        for of_qp, number in zip(values, srqn):
            if number is not None:
                of_qp |= {"srq": 1, "srqn": number, "log_rq_stride": shared_strides[number]}
        super().__init__(values=values, **kwargs)

    def make(self, strides, atomics):
        self.dut = shared(ReceivedRequests, QPS, 16, atomics, swaps=self.swaps, srqs=SRQS)
        strides = [strides[qp] if n is None else self.shared_strides[n] for qp, n in enumerate(self.srqn)]
        self.ring = SharedRing(self.dut, self.rng, [*strides, *self.shared_strides], self.srqn, stall=self.stall)
        self.rules = [
            Rules(qp, self.ring, values)
            if self.srqn[qp] is None
            else SharedRules(qp, self.ring, values, self, atomics=atomics)
            for qp, values in enumerate(self.values)
        ]

    def forget_completed(self):
        for srqn, number in self.completed:
            del self.ring.tables[srqn][number]
        self.completed.clear()

    async def packet(self, ctx, qp, *args, wait=True, **more):
        job = await super().packet(ctx, qp, *args, wait=wait, **more)
        if wait:
            self.forget_completed()
        return job

    async def reset_ring(self, ctx, qp):
        """Once the token has passed the responder: it may tell what was consumed."""
        await self.settle(ctx, 0)
        self.ring.reset(qp)

    async def write(self, ctx, srqn, words):
        """(number, data), one a cycle."""
        ctx.set(self.dut.attribute_en, 1)
        for number, word in words:
            ctx.set(self.dut.attribute, {"index": QPS + srqn, "word": number, "data": word})
            await ctx.tick()
        ctx.set(self.dut.attribute_en, 0)

    async def create(self, ctx, srqn, limit=0):
        """As the command block does; the ring is empty."""
        words = QP_CONTEXT.words(state=QpState.RTS, srq_limit=limit, log_rq_size=5)
        self.forget_completed()
        await self.write(ctx, srqn, [(0, 0)])
        self.ring.reset(QPS + srqn)
        self.ring.tables[srqn] = {}
        await self.write(ctx, srqn, list(enumerate(words))[::-1])
        self.heads[srqn], self.limits[srqn] = 0, limit

    async def limit(self, ctx, srqn, limit):
        """MODIFY_SRQ."""
        field = QP_CONTEXT.fields["srq_limit"]
        await self.write(ctx, srqn, [(field.word, limit << field.offset % 32)])
        self.limits[srqn] = limit

    async def settle(self, ctx, cycles=60):
        """Until all that is expected has come; and then nothing comes."""
        while len(self.jobs) < len(self.expected):
            await ctx.tick()
        for _ in range(cycles):
            await ctx.tick()
        assert len(self.jobs) == len(self.expected)

    async def fail(self, ctx, qp):
        """The QP, which has an SRQ, goes to ERR: what it has completes, and it says that it takes no more."""
        await self.attribute(ctx, qp, whole=False, state=QpState.ERR)
        flush = self.rules[qp].flush()
        if flush:
            self.expected.append((qp, None, flush | {"cause": 20}))
        self.expected.append((qp, None, {"last": 1, "event": EventType.QP_LAST_WQE_REACHED}))
        await self.control(ctx, qp, QpAction.ERROR)
        await self.settle(ctx)
        self.forget_completed()

    def simulate(self, script, **kwargs):
        async def events(ctx):
            await collect(ctx, self.dut.event, self.events, self.rng, self.stall)

        async def create_all(ctx):
            for srqn in range(SRQS):
                await self.create(ctx, srqn)
            await script(ctx)

        self.background = [self.ring.set, events]
        super().simulate(create_all, **kwargs)
        assert [(event.type, event.number) for event in self.events] == self.wanted_events
        assert self.ring.points == self.wanted_points
        assert [self.ring.consumed[QPS + srqn] for srqn in range(SRQS)] == self.heads
