"""Prefetcher, requester, transmitter, completer and timers together, before a network that loses packets: every WQE has
one fate, in order, the peer takes each packet once, and nobody waits for ever. One QP is UC."""

from collections import deque

import pytest
from amaranth.hdl import Elaboratable, Module, Value
from amaranth.lib import wiring
from at_once import AtOnce
from receive_world import FIRST_QPN
from send_peer import Peer, ResponseReceiver, UnreliablePeer
from send_queue import ATOMICS, ONE_SIDED, Wqe, packets_of, psns_of
from streams import make_rng, shared, simulate, unpacked
from verbena.hdl.abi.commands import QpAction
from verbena.hdl.abi.contexts import QP_CONTEXT, QpState, QpType
from verbena.hdl.abi.cqe import Syndrome, WcStatus
from verbena.hdl.abi.eqe import EventType
from verbena.hdl.abi.tables import AccessStatus
from verbena.hdl.abi.wqe import SendFlag, SendOpcode
from verbena.hdl.queue.wqe_fetcher import RingPrefetcher
from verbena.hdl.stream.arbiter import StreamArbiter
from verbena.hdl.stream.ready import ReadyQueue
from verbena.hdl.transport.completer.completer import Completer
from verbena.hdl.transport.requester.requester import Requester
from verbena.hdl.transport.timers.timers import Timers
from verbena.hdl.transport.tx.transmitter import Transmitter
from verbena.hdl.transport.tx.tx_descriptor_fifo import TxDescriptorFifo

QPS = 4
MTU = 256
LOG_SIZE = 5
RING = 4096
PSNS = 1 << 24
BASE = 0x10_0000


class Bench(Elaboratable):
    def __init__(self, window):
        self.fetcher = RingPrefetcher.send(64, QPS)
        self.requester = Requester(QPS, window)
        self.transmitter = Transmitter(QPS)
        self.completer = Completer(QPS, window)
        self.timers = Timers(QPS)
        self.arbiter = StreamArbiter(range(QPS), 3)
        self.tables = [self.fetcher, self.requester, self.transmitter, self.completer, self.timers]

    def elaborate(self, platform):
        m = Module()
        for name in ("fetcher", "requester", "transmitter", "completer", "timers", "arbiter"):
            m.submodules[name] = getattr(self, name)
        f, r, t, c, timers = self.tables
        m.submodules.queue = queue = ReadyQueue(QPS)
        m.submodules.headers = headers = TxDescriptorFifo(32, 1 << 14, 1 << 14, 8)
        for source, sink in [
            (r.again, self.arbiter.i[0]),
            (c.ready, self.arbiter.i[1]),
            (self.arbiter.o, queue.i),
            (queue.o, r.ready),
            (r.consumed, f.consumed),
            (r.wanted, f.wanted),
            (r.rewind, f.rewind),
            (f.rewound, r.rewound),
            (r.packet, headers.i),
            (headers.o, t.packet),
            (r.inline, t.inline),
            (r.outstanding, c.outstanding),
            (r.failed, c.failed_requester),
            (t.failed, c.failed_transmitter),
            (t.departed, c.departed),
            (r.flush, c.flush),
            (c.retry, r.retry),
            (timers.fired, c.fired),
        ]:
            wiring.connect(m, source, sink)
        m.d.comb += [
            self.arbiter.i[2].valid.eq(f.arrived.valid),
            self.arbiter.i[2].payload.eq(f.arrived.payload),
            f.arrived.ready.eq(self.arbiter.i[2].ready),
            t.answered.ready.eq(1),
        ]
        pairs = [(r, "status_qp", f), (f, "status", r), (r, "word_addr", f), (f, "word", r)]
        pairs += [(f, "places", r), (r, "reading", f), (r, "reading_qp", f)]
        pairs += [(c, "progress", r), (c, "watch", timers), (headers, "next", t), (headers, "next_qp", t)]
        pairs += [(r, name, block) for name in ("sent", "sent_en") for block in (c, timers)]
        for source, name, sink in pairs:
            m.d.comb += Value.cast(getattr(sink, name)).eq(Value.cast(getattr(source, name)))
        for told in (r.progress_qp, timers.watch_qp):
            m.d.comb += told.eq(c.context_qp)
        for told in (r.progress_en, timers.watch_en):
            m.d.comb += told.eq(c.context_en)
        return m


class World:
    """Host, access check, DMA, command block and network of a bench. Everything takes its time."""

    def __init__(self, rng, *, window, stall, local=0.0, **peer):
        self.rng, self.stall, self.local = rng, stall, local
        self.bench = shared(Bench, window)
        self.rings = [[] for _ in range(QPS)]
        self.memory = bytearray(QPS * RING)
        self.psn = [rng.choice([PSNS - 5, rng.randrange(PSNS)]) for _ in range(QPS)]
        self.unreliable = rng.randrange(QPS)  # the QP that is UC
        self.peers = [Peer(rng, psn, MTU, **peer) for psn in self.psn]
        self.peers[self.unreliable] = UnreliablePeer()
        self.response_receivers = [ResponseReceiver(qp, MTU) for qp in range(QPS)]
        self.answers = deque()  # (cycle, qp, answer)
        b = self.bench
        self.jobs, self.done, self.verdicts, self.payload, self.data, self.bells = (deque() for _ in range(6))
        self.inputs = [
            (b.completer.job, self.jobs),
            (b.completer.done, self.done),
            (b.transmitter.verdict, self.verdicts),
            (b.transmitter.payload, self.payload),
            (b.fetcher.data, self.data),
            (b.fetcher.doorbell, self.bells),
        ]
        self.outputs = [
            (b.requester.access, self.access),
            (b.requester.reads, lambda item: item.again or self.response_receivers[item.qp].begin(item.target)),
            (b.fetcher.read, self.read),
            (b.transmitter.header, self.send),
            (b.transmitter.o, lambda item: None),
            (b.completer.completion, self.complete),
            (b.completer.error, self.fail),
        ]
        self.length, self.poisoned = 0, set()
        self.state = [QpState.RESET] * QPS
        self.completions = [[] for _ in range(QPS)]
        self.errors = deque()
        self.drained = []
        self.counts = {"count_retries": 0, "count_implied_naks": 0}
        self.cycle = 0
        self.offered = set()  # numbers of the inputs that are valid
        self.put = self.edge = None  # of the simulation that runs

    def post(self, qp, *wqes):
        for wqe in wqes:
            place = qp * RING + len(self.rings[qp]) * 64 % (64 << LOG_SIZE)
            self.memory[place : place + 64] = wqe.pack(64)
            self.rings[qp].append(wqe)
        self.bells.append({"qp": qp, "index": len(self.rings[qp])})

    def read(self, request):
        start = request.address - BASE
        content = self.memory[start : start + request.length]
        for at in range(0, request.length, 8):
            last = at + 8 == request.length
            value = int.from_bytes(content[at : at + 8], "little")
            self.data.append({"data": value, "count": 8, "first": at == 0, "last": last})

    def access(self, access):
        """The access check and the DMA reader."""
        self.length += access.length
        if not access.last:
            return
        length, self.length = self.length, 0
        status = AccessStatus.OK
        if access.clear:
            self.poisoned.discard(access.qp)
        elif access.qp in self.poisoned:
            status = AccessStatus.POISONED
        elif length and self.rng.random() < self.local:
            status = AccessStatus.KEY
            self.poisoned.add(access.qp)
        self.verdicts.append({"status": status})
        if status != AccessStatus.OK:
            self.payload.append({"first": 1, "last": 1, "error": 1})
            return
        for start in range(0, length, 8):
            last = start + 8 >= length
            self.payload.append({"count": min(8, length - start), "first": start == 0, "last": last})

    def send(self, header):
        transport = header.transport
        qp = transport.dest_qpn - 0x100
        peer = self.peers[qp]
        assert transport.opcode >> 5 == (qp == self.unreliable)
        peer.arrive(transport, transport.opcode in (2, 3, 4, 5, 8, 9, 10, 11, 0x0C, 0x13, 0x14))
        while peer.answers:
            # All QPs share the way back, in order.
            soonest = self.answers[-1][0] if self.answers else 0
            self.answers.append((max(soonest, self.cycle + 10 + self.rng.randrange(60)), qp, peer.answers.popleft()))

    def complete(self, item):
        if item.qp == self.unreliable and item.status == WcStatus.SUCCESS:
            packets = sum(psns_of(wqe, MTU) for wqe in self.rings[item.qp][: item.wqe_index + 1])
            assert len(self.peers[item.qp].accepted) >= packets, "complete before it has departed"
        self.completions[item.qp].append((item.wqe_index, item.status, item.syndrome))

    def fail(self, item):
        if item.event == EventType.SQ_DRAINED:
            self.drained.append(item.qp)
        else:
            self.errors.append(item.qp)

    def seen(self):
        """What is looked at in each cycle; payloads as numbers, because few are taken."""
        ports = [port for port, _ in self.inputs + self.outputs]
        flat = [x for port in ports for x in (port.valid, port.ready, Value.cast(port.payload))]
        return flat + [getattr(self.bench.completer, name) for name in self.counts]

    async def tick(self, ctx):
        while self.answers and self.answers[0][0] <= self.cycle:
            _, qp, answer = self.answers.popleft()
            self.jobs.append(self.response_receivers[qp].job(answer))
            self.done.append({"status": AccessStatus.OK, "tag": 1})
        if self.put is None:
            self.put, self.edge = AtOnce(ctx), ctx.tick().sample(*self.seen())
        put = self.put
        for number, (port, items) in enumerate(self.inputs):
            if items and number not in self.offered and self.rng.random() >= self.stall:
                put(port.payload, items[0])
                put(port.valid, 1)
                self.offered.add(number)
        for port, _ in self.outputs:
            put(port.ready, self.rng.random() >= self.stall)
        put.set()
        _, _, *values = await self.edge
        ports = self.inputs + self.outputs
        for name, value in zip(self.counts, values[3 * len(ports) :]):
            self.counts[name] += value
        for number, (port, what) in enumerate(ports):
            valid, ready, payload = values[3 * number : 3 * number + 3]
            if valid and ready and number < len(self.inputs):
                what.popleft()
                put(port.valid, 0)
                self.offered.discard(number)
            elif valid and ready:
                what(unpacked(port, payload))
        self.cycle += 1

    async def attributes(self, ctx, qp, state):
        words = QP_CONTEXT.words(
            state=state,
            type=QpType.UC if qp == self.unreliable else QpType.RC,
            path_mtu=1,
            sq_base=BASE + qp * RING,
            log_sq_size=LOG_SIZE,
            log_sq_stride=6,
            pd=1,
            sq_cqn=qp,
            qpn=FIRST_QPN + qp,
            dest_qpn=0x100 + qp,
            timeout=0 if qp == self.unreliable else 10,
            retry_count=7,
            rnr_retry=7,
            max_rd_atomic=qp + 1,
        )
        for word, value in reversed(list(enumerate(words))):
            for block in self.bench.tables:
                ctx.set(block.attribute, {"index": qp, "word": word, "data": value})
                ctx.set(block.attribute_en, 1)
            await self.tick(ctx)
        for block in self.bench.tables:
            ctx.set(block.attribute_en, 0)
        self.state[qp] = state

    async def control(self, ctx, block, qp, action, psn=0):
        ctx.set(block.control.payload, {"qp": qp, "action": action, "psn": psn})
        ctx.set(block.control.valid, 1)
        taken = False
        while not taken:
            taken = ctx.get(block.control.ready)
            await self.tick(ctx)
        ctx.set(block.control.valid, 0)

    async def start(self, ctx):
        ctx.set(self.bench.timers.tick, 1)
        for qp in range(QPS):
            for block in (self.bench.requester, self.bench.completer):
                await self.control(ctx, block, qp, QpAction.START_SEND, self.psn[qp])
            await self.attributes(ctx, qp, QpState.RTS)

    async def until(self, ctx, condition, limit):
        for _ in range(limit):
            if condition():
                return
            await self.tick(ctx)
            while self.errors:
                qp = self.errors.popleft()
                await self.attributes(ctx, qp, QpState.ERR)
                await self.control(ctx, self.bench.requester, qp, QpAction.ERROR)
        raise AssertionError(f"still waiting: {self.completions} of {[len(r) for r in self.rings]}")

    def check_peer(self, qp):
        """What the peer took is what the ring holds, once and in order."""
        expected, psn = [], self.psn[qp]
        for wqe in self.rings[qp]:
            for packet in packets_of(wqe, MTU, psn, unreliable=qp == self.unreliable):
                length = packet.get("dma_length", 0) if wqe.opcode == SendOpcode.RDMA_READ else 0
                expected.append((packet["opcode"], packet["psn"], packet["length"], length))
            psn = (psn + psns_of(wqe, MTU)) % PSNS
        assert self.peers[qp].accepted == expected[: len(self.peers[qp].accepted)]
        return len(self.peers[qp].accepted) == len(expected)


def random_wqe(rng, signaled, unreliable):
    opcode = rng.choice([*list(SendOpcode)[:4], *([] if unreliable else ONE_SIDED)])
    wqe = Wqe(opcode, flags=SendFlag.SIGNALED if signaled else 0, remote_address=0x5000, rkey=9)
    if rng.random() < 0.1:
        wqe.flags |= SendFlag.FENCE
    if opcode in ATOMICS:
        wqe.sges, wqe.compare_add, wqe.swap = [(0x100, 8, 7)], 1, 2
    elif opcode != SendOpcode.RDMA_READ and rng.random() < 0.2:
        wqe.data = rng.randbytes(rng.randrange(33))
    else:
        for _ in range(rng.randrange(3)):
            wqe.sges.append((rng.randrange(1 << 40), rng.choice([0, 8, 8, 100, 256, rng.randrange(900)]), 7))
    return wqe


COUNTS = [5, pytest.param(12, marks=pytest.mark.slow)]


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize(
    ("window", "stall", "loss", "rnr"),
    [(4, 0.2, 0, 0), (2, 0.3, 0.08, 0), (64, 0, 0.12, 0.1)],
)
def test_all_succeed(window, stall, loss, rnr, count):
    rng = make_rng()
    world = World(rng, window=window, stall=stall, loss=loss, rnr=rnr)
    rings = [
        [random_wqe(rng, k % 3 == 0 or k == count - 1, qp == world.unreliable) for k in range(count)]
        for qp in range(QPS)
    ]
    signaled = [[k for k, wqe in enumerate(ring) if wqe.flags & SendFlag.SIGNALED] for ring in rings]

    async def testbench(ctx):
        await world.start(ctx)
        for qp in range(QPS):
            world.post(qp, *rings[qp])
        await world.until(ctx, lambda: all(len(c) == len(s) for c, s in zip(world.completions, signaled)), 40_000)
        for _ in range(60):
            await world.tick(ctx)

    simulate(world.bench, testbench, seed=rng.seed_value, deadline=45_000)
    for qp in range(QPS):
        assert world.completions[qp] == [(k, WcStatus.SUCCESS, Syndrome.NONE) for k in signaled[qp]]
        assert world.check_peer(qp)
    assert world.counts["count_retries"] > 0 or not loss


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize(("local", "remote"), [(0.08, 0), (0.04, 0.06)])
def test_failures(local, remote, count):
    """After a failure each WQE still completes exactly once, in order: successes, one error, flushed ones."""
    rng = make_rng()
    world = World(rng, window=4, stall=0.2, loss=0.02, local=local, remote=remote)

    async def testbench(ctx):
        await world.start(ctx)
        for qp in range(QPS):
            world.post(qp, *[random_wqe(rng, 1, qp == world.unreliable) for _ in range(count)])
        await world.until(ctx, over, 40_000)
        for _ in range(60):
            await world.tick(ctx)

    def over():
        """A failure of the last WQE is told after its completion."""
        done = all(len(c) == count for c in world.completions)
        return done and all((c[-1][1] == WcStatus.SUCCESS) == (s == QpState.RTS) for c, s in zip(*told))

    told = world.completions, world.state
    simulate(world.bench, testbench, seed=rng.seed_value, deadline=45_000)
    for qp in range(QPS):
        world.check_peer(qp)
        assert [k for k, _, _ in world.completions[qp]] == list(range(count))
        bad = [status for _, status, _ in world.completions[qp] if status != WcStatus.SUCCESS]
        assert all(status == WcStatus.SUCCESS for _, status, _ in world.completions[qp][: count - len(bad)])
        if bad:
            assert bad[0] in (WcStatus.LOC_PROT_ERR, WcStatus.REM_ACCESS_ERR)
            assert set(bad[1:]) <= {WcStatus.WR_FLUSH_ERR, WcStatus.LOC_PROT_ERR}


@pytest.mark.parametrize("count", COUNTS)
def test_drain(count):
    """Into SQD with losses about: it is said once that the queue has drained, and after RESUME the rest goes out."""
    rng = make_rng()
    world = World(rng, window=4, stall=0.1, loss=0.05)

    async def testbench(ctx):
        await world.start(ctx)
        for qp in range(QPS):
            world.post(qp, *[random_wqe(rng, 1, qp == world.unreliable) for _ in range(count)])
        await world.until(ctx, lambda: all(len(c) >= 2 for c in world.completions), 20_000)
        for qp in range(QPS):
            await world.attributes(ctx, qp, QpState.SQD)
            for block in (world.bench.completer, world.bench.requester):
                await world.control(ctx, block, qp, QpAction.DRAIN)
        await world.until(ctx, lambda: len(world.drained) == QPS, 20_000)
        before = [len(peer.accepted) for peer in world.peers]
        for _ in range(300):
            await world.tick(ctx)
        assert sorted(world.drained) == list(range(QPS))
        assert before == [len(peer.accepted) for peer in world.peers]
        for qp in range(QPS):
            await world.attributes(ctx, qp, QpState.RTS)
            for block in (world.bench.completer, world.bench.requester):
                await world.control(ctx, block, qp, QpAction.RESUME)
        await world.until(ctx, lambda: all(len(c) == count for c in world.completions), 30_000)

    simulate(world.bench, testbench, seed=rng.seed_value, deadline=60_000)
    assert sorted(world.drained) == list(range(QPS))
    assert all(world.check_peer(qp) for qp in range(QPS))
