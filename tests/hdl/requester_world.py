"""A requester between models of what surrounds it: prefetcher, ready queue, completer, and takers that stall."""

from collections import defaultdict, deque
from functools import partial

from amaranth.hdl import Cat, Elaboratable, Module, Value
from amaranth.lib import memory
from at_once import AtOnce
from send_queue import ONE_SIDED
from streams import shared, simulate, unpacked
from verbena.hdl.abi.commands import QpAction
from verbena.hdl.abi.contexts import QP_CONTEXT, QpState, QpType
from verbena.hdl.queue.ring import BATCH
from verbena.hdl.stream.ready import ReadyQueue
from verbena.hdl.transport.common.layouts import PayloadSource, Progress, TxDescriptorKind
from verbena.hdl.transport.requester.requester import Requester

__all__ = ["AREA", "PSNS", "QPS", "World"]

QPS = 8
AREA = 1024
BLOCKS = AREA // BATCH
"""Of fetched WQEs a QP, which it has in turn."""
STREAMS = ("packet", "access", "inline", "outstanding", "reads", "consumed", "rewind", "failed", "flush", "reply")
KEY_STREAMS = ("operation", "local", "resumed")
PSNS = 1 << 24


class Bench(Elaboratable):
    """A requester with a ready queue, and memories where a test puts what its neighbours would."""

    def __init__(self, window=64, data_width=64, swaps=False, uc=True, ud=True, keys=False):
        self.dut = Requester(QPS, window, data_width, QPS * BLOCKS, uc=uc, ud=ud, swaps=swaps, keys=keys)
        self.queue = ReadyQueue(QPS)
        self.words = memory.Memory(shape=64, depth=QPS * AREA // 8, init=[])
        self.status = memory.Memory(shape=33, depth=QPS, init=[])
        self.places = memory.Memory(shape=self.dut.places.shape(), depth=QPS, init=[])

    def elaborate(self, platform):
        m = Module()
        m.submodules.dut = dut = self.dut
        m.submodules.queue = queue = self.queue
        m.submodules.words, m.submodules.status, m.submodules.places = self.words, self.status, self.places
        words, status, places = (part.read_port() for part in (self.words, self.status, self.places))
        m.d.comb += [
            dut.ready.payload.eq(queue.o.payload),
            dut.ready.valid.eq(queue.o.valid),
            queue.o.ready.eq(dut.ready.ready),
            words.addr.eq(dut.word_addr),
            places.addr.eq(dut.status_qp),
            dut.wanted.ready.eq(1),
            status.addr.eq(dut.status_qp),
            dut.status.as_value().eq(status.data),
        ]
        m.d.sync += [dut.word.eq(words.data), dut.places.eq(places.data)]
        return m


class World:
    """Runs a bench cycle by cycle. ``log`` keeps (cycle, stream, payload) of everything taken from the requester.

    A QP has the slot of its number. With ``swaps`` it may move to another one (:mod:`requester_swapper`). With ``keys``
    a test gives the results of operations itself. ``alone``: as of :func:`queue_world.make`.
    """

    def __init__(
        self, rng, *, stall=0.3, window=64, data_width=64, swaps=False, uc=True, ud=True, keys=False, alone=False
    ):
        self.rng, self.stall = rng, stall
        self.bench = (Bench if alone else partial(shared, Bench))(window, data_width, swaps, uc, ud, keys)
        self.dut = self.bench.dut
        self.streams = STREAMS + (KEY_STREAMS if keys else ())
        self.cycle = 0
        self.log = []
        self.to_schedule = deque()  # QPs to add to the ready queue
        self.news = deque()  # of the completer: (QP, progress, whether the QP is put on the ready queue)
        self.told = 0  # cycle from which on more may be told
        self.late = []  # words that are in the area a cycle after the status says so
        self.stride = [64] * QPS
        self.rings = defaultdict(list)  # WQEs posted
        self.fetched = [0] * QPS
        self.consumed = [0] * QPS
        self.errors = [0] * QPS
        self.progress = [dict.fromkeys((name for name, _ in Progress), 0) for _ in range(QPS)]
        self.rewinds = deque()  # (when done, qp, index)
        self.rewind_cycles = range(60)
        self.retries = deque()  # QPs
        self.turns = []  # (cycle, qp)
        self.stalls = 0
        self.sent = []
        self.starts = []  # the PSN before a QP's first one that was not told yet
        self.words = {}  # of each QP, its attributes
        self.renew = 0  # how often, of all cycles, one of them is written once more, as it is
        self.slot, self.owner = list(range(QPS)), list(range(QPS))  # of each QP, and of each slot
        self.away = set()  # QPs of which nothing begins
        self.said = set()  # QPs that are away, or going, and of which a retry was said before
        self.busy = False  # a QP goes or comes: no command runs
        self.known = [None] * QPS  # progress that was told
        self.told_anew = None  # news of a QP that comes back
        self.latest = [None] * QPS  # PSN that was told as sent
        self.each_cycle = lambda ctx: None
        self.put = self.edge = None  # of the simulation that runs

    def of(self, name, qp=None):
        return [item for _, stream, item in self.log if stream == name and (qp is None or item["qp"] == qp)]

    def status(self, ctx, qp):
        status = len(self.rings[qp]) % 65536 | self.fetched[qp] % 65536 << 16 | self.errors[qp] << 32
        slot = self.slot[qp]
        ctx.set(self.bench.status.data[slot], status)
        first = self.consumed[qp] * self.stride[qp] // BATCH
        blocks = [BLOCKS * slot + (first + (first ^ parity) % 2) % BLOCKS for parity in range(2)]
        ctx.set(self.bench.places.data[slot], blocks)

    def post(self, ctx, qp, *wqes):
        self.rings[qp] += wqes
        self.fetch(ctx, qp)

    def fetch(self, ctx, qp):
        """What the prefetcher may have read by now."""
        if qp in self.away:
            return
        stride = self.stride[qp]
        while self.fetched[qp] < len(self.rings[qp]) and self.fetched[qp] - self.consumed[qp] < AREA // stride:
            entry = self.rings[qp][self.fetched[qp]]
            content = entry.pack(stride)
            base = (self.slot[qp] * AREA + self.fetched[qp] * stride % AREA) // 8
            self.late += [
                (base + word, int.from_bytes(content[word * 8 : word * 8 + 8], "little")) for word in range(stride // 8)
            ]
            self.fetched[qp] += 1
            if qp not in self.to_schedule:
                self.to_schedule.append(qp)
        self.status(ctx, qp)

    def advance(self, ctx, qp, *, schedule=True, **fields):
        """The completer has news, and puts the QP on the ready queue."""
        progress = self.progress[qp]
        progress |= fields
        self.news.append((qp, progress | {"oldest": progress["oldest"] % 65536}, schedule))

    def ack(self, ctx, qp, psn):
        """All up to ``psn`` is acknowledged; READs and atomics, too."""
        outs = self.of("outstanding", qp)
        progress = dict(self.progress[qp]) | {"unacked": (psn + 1) % PSNS}
        oldest = progress["oldest"]
        while oldest < len(outs) and (psn - outs[oldest]["last_psn"]) % PSNS < PSNS // 2:
            progress["first"] = (outs[oldest]["last_psn"] + 1) % PSNS
            progress["reads"] = (progress["reads"] + (outs[oldest]["opcode"] in ONE_SIDED)) % 256
            oldest += 1
        self.advance(ctx, qp, **progress | {"oldest": oldest})

    def rewound(self, ctx, qp, index):
        """What the prefetcher does: it forgets what it has fetched, and begins at ``index`` again."""
        self.consumed[qp] = self.fetched[qp] = self.unwrap(index, len(self.rings[qp]))
        first = self.slot[qp] * AREA // 8
        self.write(ctx, [(first + word, 0xDEAD_BEEF_DEAD_BEEF) for word in range(AREA // 8)])
        self.status(ctx, qp)

    def write(self, ctx, words):
        """All (place, word) at once, into the area."""
        if words:
            rows = Cat(self.bench.words.data[place] for place, _ in words)
            ctx.set(rows, sum(word << 64 * number for number, (_, word) in enumerate(words)))

    @staticmethod
    def unwrap(index, near):
        return near - (near - index) % 65536

    def seen(self):
        """What is looked at in each cycle; payloads as numbers, because few are taken."""
        dut, queue = self.dut, self.bench.queue
        ports = [getattr(dut, name) for name in self.streams]
        flat = [x for port in ports for x in (port.valid, port.ready, Value.cast(port.payload))]
        extra = [queue.o.valid, queue.o.ready, queue.o.payload, dut.count_stall_window, dut.sent_en, dut.sent]
        extra += [dut.rewound.valid, dut.rewound.ready, dut.retry.valid, dut.retry.ready]
        return flat + extra + [dut.wanted.valid, dut.wanted.payload]

    async def tick(self, ctx, changing=False):
        dut, queue = self.dut, self.bench.queue
        if self.put is None:
            self.put, self.edge = AtOnce(ctx), ctx.tick().sample(*self.seen())
        put = self.put
        if self.renew and self.words and not changing:
            qp = self.rng.choice(list(self.words))
            word, value = self.rng.choice(list(enumerate(self.words[qp])))
            ctx.set(dut.attribute, {"index": self.slot[qp], "word": word, "data": value})
            ctx.set(dut.attribute_en, self.rng.random() < self.renew)
        news = next((item for item in self.news if item[0] not in self.away or item is self.told_anew), None)
        put(dut.progress_en, news is not None and self.told <= self.cycle)
        if news is not None and self.told <= self.cycle:
            self.news.remove(news)
            if news is self.told_anew:
                self.told_anew = None
            qp, progress, schedule = news
            self.known[qp] = progress
            self.told = self.cycle + 4  # the completer takes more
            put(dut.progress_qp, self.slot[qp])
            put(dut.progress, progress)
            if schedule:
                self.to_schedule.append(qp)
        for name in self.streams:
            put(getattr(dut, name).ready, self.rng.random() >= self.stall)
        schedule = not ctx.get(dut.again.valid) and self.to_schedule
        turn = self.slot[self.to_schedule[0]] if schedule else ctx.get(dut.again.payload)
        put(queue.i.valid, bool(schedule) or ctx.get(dut.again.valid))
        put(queue.i.payload, turn)
        put(dut.again.ready, 1)
        if self.rewinds and self.rewinds[0][0] <= self.cycle and not ctx.get(dut.rewound.valid):
            _, back, index = self.rewinds[0]
            self.rewound(ctx, back, index)
            ctx.set(dut.rewound.payload, {"qp": self.slot[back], "index": index})
            ctx.set(dut.rewound.valid, 1)
        retry = next((qp for qp in self.retries if qp not in self.away or qp in self.said), None)
        put(dut.retry.valid, retry is not None)
        if retry is not None:
            put(dut.retry.payload, self.slot[retry])
        if schedule:
            self.to_schedule.popleft()
        late, self.late = self.late, []
        put.set()
        _, _, *values = await self.edge
        self.write(ctx, late)
        for number, name in enumerate(self.streams):
            valid, ready, payload = values[3 * number : 3 * number + 3]
            if valid and ready:
                item = unpacked(getattr(dut, name), payload)
                if name == "resumed":
                    self.to_schedule.append(self.owner[item])
                elif name not in ("inline", "reply"):
                    assert self.owner[item.qp] is not None, f"{name} of an empty slot"
                    item["qp"] = self.owner[item.qp]
                self.log.append((self.cycle, name, item))
                if name == "consumed" and not any(qp == item.qp for _, qp, _ in self.rewinds):
                    assert item.index == (self.consumed[item.qp] + 1) % 65536 or self.of("flush") or self.flushing
                    self.consumed[item.qp] += (item.index - self.consumed[item.qp]) % 65536
                    self.fetch(ctx, item.qp)
                if name == "rewind":
                    self.rewinds.append((self.cycle + self.rng.choice(self.rewind_cycles), item.qp, item.index))
        valid, ready, turn, stalled, sent_en, sent, back_valid, back_ready, *rest = values[3 * len(self.streams) :]
        retry_valid, retry_ready, wanted, wanted_slot = rest
        assert not wanted or self.owner[wanted_slot] is not None
        if retry_valid and retry_ready:
            self.retries.remove(retry)
            self.said.discard(retry)
        if back_valid and back_ready:
            _, back, _ = self.rewinds.popleft()
            ctx.set(dut.rewound.valid, 0)
            self.fetch(ctx, back)
        if valid and ready:
            self.turns.append((self.cycle, turn))
        if sent_en:
            told = (self.owner[sent.qp], sent.psn)
            self.latest[told[0]] = sent.psn
            if told in self.starts:
                self.starts.remove(told)
            else:
                self.sent.append(told)
        self.stalls += stalled
        self.cycle += 1
        self.each_cycle(ctx)

    flushing = False

    async def control(self, ctx, qp, action, psn=0):
        port = self.dut.control
        while self.busy:
            await self.tick(ctx)
        if action == QpAction.START_SEND:
            self.starts.append((qp, (psn - 1) % (1 << 24)))
        ctx.set(port.payload, {"qp": self.slot[qp], "action": action, "psn": psn})
        ctx.set(port.valid, 1)
        taken = False
        while not taken:
            taken = ctx.get(port.ready)
            await self.tick(ctx)
        ctx.set(port.valid, 0)

    async def attributes(self, ctx, qp, **fields):
        while self.busy:
            await self.tick(ctx)
        self.words.pop(qp, None)
        for word, value in enumerate(QP_CONTEXT.words(**fields)):
            ctx.set(self.dut.attribute, {"index": self.slot[qp], "word": word, "data": value})
            ctx.set(self.dut.attribute_en, 1)
            await self.tick(ctx, changing=True)
        ctx.set(self.dut.attribute_en, 0)
        self.words[qp] = QP_CONTEXT.words(**fields)

    async def set_up(self, ctx, qp, *, psn=0, mtu=1, stride=64, state=QpState.RTS, **fields):
        self.stride[qp] = stride
        await self.control(ctx, qp, QpAction.START_SEND, psn)
        self.advance(ctx, qp, schedule=False, **dict.fromkeys(self.progress[qp], 0) | {"unacked": psn, "first": psn})
        log_stride = stride.bit_length() - 1
        self.context = {"type": QpType.RC, "path_mtu": mtu, "log_sq_stride": log_stride, "pd": 0xABC00 + qp}
        self.context |= {"max_rd_atomic": 4} | fields
        await self.attributes(ctx, qp, state=state, **self.context)

    async def until(self, ctx, condition, limit=3000):
        for _ in range(limit):
            if condition():
                return
            await self.tick(ctx)
        raise AssertionError(f"still waiting after {limit} cycles; log ends {self.log[-5:]}")

    async def settle(self, ctx, cycles=60):
        for _ in range(cycles):
            await self.tick(ctx)

    def packets(self):
        """All packets in order, with their accesses (as pieces) and inline data."""
        runs, run = [], []
        for item in self.of("access"):
            run.append(item)
            if item["last"]:
                runs.append(run)
                run = []
        assert not run
        payloads, payload = [], b""
        for _, name, beat in self.log:
            if name == "inline":
                assert (beat["first"], beat["error"]) == (payload == b"", 0)
                assert beat["last"] or beat["count"] == self.dut.data_width // 8
                payload += beat["data"].to_bytes(self.dut.data_width // 8, "little")[: beat["count"]]
                if beat["last"]:
                    payloads.append(payload)
                    payload = b""
        assert payload == b""
        headers = self.of("packet")
        assert len(headers) == len(runs)
        payloads = iter(payloads)
        packets = []
        for header, run in zip(headers, runs):
            assert all(
                access["qp"] == header["qp"] and access["clear"] == (header["kind"] != TxDescriptorKind.REQUEST)
                for access in run
            )
            assert not any(access["discard"] or access["access"] for access in run)
            packets.append((header, run, next(payloads) if header["source"] == PayloadSource.INLINE else None))
        assert list(payloads) == []
        return packets

    def run(self, testbench, deadline=20_000, background=()):
        self.put = None
        simulate(self.bench, testbench, background=background, seed=self.rng.seed_value, deadline=deadline)
        assert self.starts == []
