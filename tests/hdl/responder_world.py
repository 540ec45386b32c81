"""A responder behind its lookup, with its rings, its rules, and what comes out of it."""

from receive_world import MASK24, UC, Ring, Rules, attributes, check_job, check_run, write_attributes
from received import ReceivedRequests
from streams import changes, collect, make_rng, plain, receive_all, send_all, shared, simulate
from verbena.hdl.abi.commands import QpAction
from verbena.hdl.abi.contexts import QP_CONTEXT, QpState
from verbena.hdl.stream.transfer import Passage
from verbena.hdl.transport.receive.layouts import Work

__all__ = ["QPS", "World", "flushed", "runs_of"]

QPS = 4


def runs_of(accesses):
    runs = [[]]
    for access in accesses:
        runs[-1].append(access)
        if access.last:
            runs.append([])
    assert runs.pop() == []
    return runs


class World:
    """A responder, its rings, and what came out of it."""

    def __init__(self, seed=None, *, stall=0.0, strides=(5,) * QPS, values=None, atomics=True, swaps=False):
        self.rng = make_rng(seed)
        self.stall = stall
        self.swaps = swaps
        self.words, self.words_wait, self.hold_jobs = [], False, False
        values = values or [{}] * QPS
        self.values = [attributes(**{"log_rq_stride": strides[qp]} | values[qp]) for qp in range(QPS)]
        self.make(strides, atomics)
        self.known = [[0] * len(QP_CONTEXT.words()) for _ in range(QPS)]
        self.accesses, self.jobs, self.passed = [], [], []
        self.under_way, self.keep_jobs = [], False  # QPs whose jobs are not done with; none is for now
        self.expected = []  # (qp, run, job)
        self.entries = []  # (qp, entry)
        self.wanted_entries = []
        self.dropped = {"sequence": 0, "duplicate": 0, "busy": 0}
        self.sent = 0  # packets
        self.cycles, self.waits = [], []  # when each packet was taken, and after how many cycles
        self.served = [0] * QPS
        self.lagging = [0] * QPS  # entries that the dut is told of only after a recall
        self.recalls = []
        self.recallable = True
        self.background = []  # further testbenches
        self.room, self.crowded = True, 0  # room for another, and cycles until the dut finds it

    def make(self, strides, atomics):
        """What is tested, the rings, and the rules."""
        self.dut = shared(ReceivedRequests, QPS, 2 * QPS, atomics, swaps=self.swaps)
        self.ring = Ring(self.dut, self.rng, strides, stall=self.stall)
        self.rules = [Rules(qp, self.ring, self.values[qp], atomics=atomics) for qp in range(QPS)]

    def recall(self, qp, psn):
        """Whether the READ/atomic responder has given up by now what is behind."""
        if not self.recallable or self.rng.random() < self.stall:
            return False
        self.recalls.append((qp, psn))
        self.lagging[qp] = 0
        return True

    async def control(self, ctx, qp, action, psn=0):
        await send_all(ctx, self.dut.control, [{"qp": qp, "action": action, "psn": psn}])

    async def attribute(self, ctx, qp, whole=True, **values):
        """Writes all words, or those that change."""
        self.values[qp].update(values)
        if whole:
            self.known[qp] = [None] * len(self.known[qp])
        await write_attributes(ctx, self.dut, qp, self.known[qp], **self.values[qp])

    async def connect(self, ctx, qp, psn=0):
        """RESET, and the way to RTS."""
        await self.attribute(ctx, qp, whole=False, state=QpState.RESET)
        await self.control(ctx, qp, QpAction.RESET)
        self.expected.append((qp, None, {"token": 1} | self.rules[qp].lapse()))
        await self.reset_ring(ctx, qp)
        await self.control(ctx, qp, QpAction.START_RECEIVE, psn)
        await self.attribute(ctx, qp, whole=False, state=QpState.RTS)
        self.rules[qp].restart(psn)
        self.served[qp] = 0

    async def reset_ring(self, ctx, qp):
        self.ring.reset(qp)

    async def save(self, ctx, qp):
        """The words that it gives away."""
        await self.control(ctx, qp, QpAction.SAVE)
        self.expected.append((qp, None, {"token": 1, "passage": Passage.SAVE}))
        while not (self.words and self.words[-1].last):
            await ctx.tick()
        words = [word.data for word in self.words]
        assert len(words) == 4
        self.words.clear()
        return words

    async def load(self, ctx, qp, words):
        await self.control(ctx, qp, QpAction.LOAD)
        await send_all(ctx, self.dut.loaded, words, self.rng, self.stall)
        self.expected.append((qp, None, {"token": 1, "passage": Passage.LOAD}))

    async def packet(self, ctx, qp, opcode, length=0, *, psn=None, accept=1, wait=True, other=False, **more):
        """Sends a packet, by default with the PSN expected, and asks the rules. The opcode is that of the QP's
        transport, or, with ``other``, of the other one."""
        rules = self.rules[qp]
        packet = {
            "opcode": opcode + UC * (rules.unreliable != other),
            "psn": rules.epsn if psn is None else psn & MASK24,
            "length": length,
            "ack_request": 1,
            "solicited": 0,
            "immediate": 0,
            "address": 0,
            "rkey": 0,
            "dma_length": 0,
            "swap": 0,
            "compare": 0,
        }
        packet.update(more)
        if psn is not None and accept and not rules.dead and not rules.unreliable:
            distance = (packet["psn"] - rules.epsn + (1 << 23)) % (1 << 24) - (1 << 23)
            self.dropped["sequence"] += distance > 0
            self.dropped["duplicate"] += distance < 0
        rules.served, rules.room, rules.busy = self.served[qp], self.room, False
        entries = len(rules.entries)
        run, job = rules.packet(packet, accept)
        self.dropped["busy"] += rules.busy
        self.dropped["sequence"] += rules.lost
        self.expected.append((qp, run, job))
        self.wanted_entries += [(qp, entry) for entry in rules.entries[entries:]]
        fields = {name: packet.pop(name) for name in ("swap", "compare")} | {"transport": packet}
        await send_all(ctx, self.dut.request, [fields | {"qp": qp, "accept": accept}], self.rng, self.stall)
        self.sent += 1
        while wait and len(self.cycles) < self.sent:
            await ctx.tick()
        return job

    def check(self):
        runs = runs_of(self.accesses)
        assert len(runs) == len(self.jobs) == len(self.expected)
        passed = iter(self.passed)
        for run, job, (qp, wanted_run, wanted_job) in zip(runs, self.jobs, self.expected):
            if job.silent and job.token:  # a token that has passed the jobs of others
                assert next(passed) == {"qp": qp, "passage": wanted_job["passage"]}
                wanted_job = wanted_job | {"silent": 1}
            check_job(job, wanted_job, qp)
            if wanted_run is None:
                (access,) = run
                assert (access.length, access["clear"], access.discard) == (0, "token" in wanted_job, 0)
                assert not access.fresh
                assert access.qp == qp
            else:
                check_run(run, wanted_run, qp, self.values[qp]["pd"])
        assert next(passed, None) is None
        assert self.entries == self.wanted_entries

    def simulate(self, script, **kwargs):
        """Runs ``script(ctx)`` after all QPs were connected, then compares."""
        dut = self.dut
        counted = dict.fromkeys(self.dropped, 0)

        async def run(ctx):
            for qp in range(QPS):
                await self.attribute(ctx, qp, whole=False)
            await script(ctx)
            while len(self.jobs) < len(self.expected):
                await ctx.tick()
            for _ in range(20):
                await ctx.tick()

        async def count(ctx):
            cycle = waits = 0
            request = dut.block.request
            async for _, _, sequence, duplicate, busy, work, valid, ready in ctx.tick().sample(
                dut.count_drop_sequence,
                dut.count_drop_duplicate,
                dut.count_drop_busy,
                request.payload.work,
                request.valid,
                request.ready,
            ):
                valid = valid and work == Work.PACKET
                counted["sequence"] += sequence
                counted["duplicate"] += duplicate
                counted["busy"] += busy
                if valid and ready:
                    self.cycles.append(cycle)
                    self.waits.append(waits)
                waits = waits + 1 if valid and not ready else 0
                cycle += 1

        async def response_rings(ctx):
            """What is to be answered, and how far that is: 1 cycle later."""
            put = changes(ctx)
            recalled = False
            edges = aiter(
                ctx.tick().sample(
                    dut.entry.valid, dut.entry.ready, dut.entry.payload, dut.served_qp, dut.recall_en, dut.recall
                )
            )
            while True:
                put(dut.entry.ready, self.rng.random() >= self.stall)
                put(dut.room, self.room and not self.crowded)
                self.crowded -= self.crowded > 0
                _, _, valid, ready, row, qp, recalls, recall = await anext(edges)
                recalled = recalls and not recalled and self.recall(recall.qp, recall.psn)
                put(dut.recalled, recalled)
                put(dut.served, (self.served[qp] - self.lagging[qp]) % 256)
                if valid and ready:
                    self.entries.append((row.qp, plain(row.entry) | {"kind": row.entry.kind.value}))

        async def accesses(ctx):
            await collect(ctx, dut.access, self.accesses, self.rng, self.stall)

        async def jobs(ctx):
            while True:
                if self.hold_jobs:
                    await ctx.tick()
                else:
                    self.jobs += await receive_all(ctx, dut.job, 1, self.rng, self.stall)

        async def words(ctx):
            while True:
                if self.words_wait:
                    await ctx.tick()
                else:
                    self.words += await receive_all(ctx, dut.saved, 1, self.rng, self.stall)

        async def passing(ctx):
            """No token passes a job of its own QP."""
            while True:
                (token,) = await receive_all(ctx, dut.passing, 1, self.rng, self.stall)
                assert token.qp not in self.under_way
                self.passed.append({"qp": token.qp, "passage": token.passage})

        async def acknowledged(ctx):
            """Jobs are done with in their order, each when it likes."""
            put = changes(ctx)
            job, patience = dut.job.payload, 0
            async for _, _, valid, ready, qp, silent, token in ctx.tick().sample(
                dut.job.valid, dut.job.ready, job.qp, job.silent, job.token
            ):
                done = bool(self.under_way) and patience == 0 and not self.keep_jobs
                if done:
                    self.under_way.pop(0)
                    patience = self.rng.choice([0, 5, 60])
                put(dut.job_done, done)
                patience -= patience > 0
                if valid and ready and not (silent and token):
                    self.under_way.append(qp)

        background = [accesses, jobs, self.ring.run, count, response_rings]
        background += [words, passing, acknowledged] * self.swaps
        background += self.background
        simulate(dut, run, background=background, seed=self.rng.seed_value, **kwargs)
        self.check()
        assert counted == self.dropped


def flushed(world, qp, index):
    world.expected.append((qp, None, {"complete": 1, "status": 5, "cause": 20, "wqe_index": index}))
