"""Requester, transmitter and completer together: every WQE has one fate, in order, and nobody waits for ever."""

from collections import deque

import pytest
from amaranth.hdl import Elaboratable, Module
from amaranth.lib import memory, wiring
from send_queue import Wqe, packets_of
from streams import make_rng, simulate
from verbena.hdl.abi.commands import QpAction
from verbena.hdl.abi.contexts import QP_CONTEXT, QpState, QpType
from verbena.hdl.abi.cqe import Syndrome, WcStatus
from verbena.hdl.abi.tables import AccessStatus
from verbena.hdl.abi.wqe import SendFlag, SendOpcode
from verbena.hdl.stream.arbiter import StreamArbiter
from verbena.hdl.stream.fifo import Queue
from verbena.hdl.stream.ready import ReadyQueue
from verbena.hdl.transport.completer import Completer
from verbena.hdl.transport.layouts import RequestHeader
from verbena.hdl.transport.requester import Requester
from verbena.hdl.transport.transmitter import Transmitter

QPS = 4
AREA = 1024
MTU = 256


class Bench(Elaboratable):
    def __init__(self, window):
        self.requester = Requester(QPS, window, 64, AREA)
        self.transmitter = Transmitter(QPS, 64)
        self.completer = Completer(QPS, window)
        self.arbiter = StreamArbiter(range(QPS), 3)
        self.words = memory.Memory(shape=64, depth=QPS * AREA // 8, init=[])
        self.status = memory.Memory(shape=33, depth=QPS, init=[])

    def elaborate(self, platform):
        m = Module()
        m.submodules.requester, m.submodules.transmitter = r, t = self.requester, self.transmitter
        m.submodules.completer, m.submodules.arbiter = c, arbiter = self.completer, self.arbiter
        m.submodules.queue = queue = ReadyQueue(QPS)
        m.submodules.headers = headers = Queue(RequestHeader, 16)
        m.submodules.words, m.submodules.status = self.words, self.status
        words, status = self.words.read_port(), self.status.read_port()
        for source, sink in [
            (r.again, arbiter.i[0]),
            (c.ready, arbiter.i[1]),
            (arbiter.o, queue.i),
            (queue.o, r.ready),
            (r.packet, headers.i),
            (headers.o, t.packet),
            (r.inline, t.inline),
            (r.outstanding, c.outstanding),
            (r.failed, c.failed_requester),
            (t.failed, c.failed_transmitter),
            (r.flush, c.flush),
        ]:
            wiring.connect(m, source, sink)
        m.d.comb += [
            words.addr.eq(r.word_addr.qp * (AREA // 8) + r.word_addr.word),
            status.addr.eq(r.status_qp),
            r.status.as_value().eq(status.data),
            c.acked_qp.eq(r.acked_qp),
            r.acked.eq(c.acked),
            c.sent.eq(r.sent),
            c.sent_en.eq(r.sent_en),
        ]
        m.d.sync += r.word.eq(words.data)
        return m


class World:
    """Host, access check, DMA reader, wire and peer of a bench."""

    def __init__(self, rng, *, window, stall, refuse=0.0, nak=0.0):
        self.rng, self.stall, self.refuse, self.nak = rng, stall, refuse, nak
        self.bench = Bench(window)
        self.rings = [[] for _ in range(QPS)]
        self.fetched, self.consumed = [0] * QPS, [0] * QPS
        self.psn = [rng.randrange(1 << 24) for _ in range(QPS)]
        self.kicks, self.verdicts, self.payload, self.acks = deque(), deque(), deque(), deque()
        self.run_length, self.poisoned = 0, set()
        self.state = [QpState.RESET] * QPS
        self.arrived = [[] for _ in range(QPS)]  # headers at the peer
        self.refused = set()  # (qp, psn) that the peer refuses
        self.completions = [[] for _ in range(QPS)]
        self.tokens = deque()
        self.unacked = {}  # PSNs that the peer might have acknowledged, and did not
        self.cycle = 0

    def post(self, ctx, qp, *wqes):
        self.rings[qp] += wqes
        self.fetch(ctx, qp)

    def fetch(self, ctx, qp):
        while self.fetched[qp] < len(self.rings[qp]) and self.fetched[qp] - self.consumed[qp] < AREA // 64:
            content = self.rings[qp][self.fetched[qp]].pack(64)
            base = (qp * AREA + self.fetched[qp] * 64 % AREA) // 8
            for word in range(8):
                ctx.set(self.bench.words.data[base + word], int.from_bytes(content[word * 8 : word * 8 + 8], "little"))
            self.fetched[qp] += 1
            self.kicks.append(qp)
        ctx.set(self.bench.status.data[qp], len(self.rings[qp]) | self.fetched[qp] << 16)

    async def attributes(self, ctx, qp, state):
        words = QP_CONTEXT.words(
            state=state, type=QpType.RC, path_mtu=1, log_sq_stride=6, pd=1, sq_cqn=qp, dest_qpn=0x100 + qp
        )
        for word, value in reversed(list(enumerate(words))):
            for block in (self.bench.requester, self.bench.transmitter, self.bench.completer):
                ctx.set(block.attribute, {"index": qp, "word": word, "data": value})
                ctx.set(block.attribute_en, 1)
            await self.tick(ctx)
        for block in (self.bench.requester, self.bench.transmitter, self.bench.completer):
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

    def offer(self, ctx, port, items):
        """Puts the first of ``items`` on ``port``, sooner or later."""
        if items and not ctx.get(port.valid) and self.rng.random() >= self.stall:
            ctx.set(port.payload, items[0])
            ctx.set(port.valid, 1)

    async def tick(self, ctx):
        b, rng = self.bench, self.rng
        due = [ack for cycle, ack in self.acks if cycle <= self.cycle][:1]
        self.offer(ctx, b.arbiter.i[2], self.kicks)
        self.offer(ctx, b.transmitter.verdict, self.verdicts)
        self.offer(ctx, b.transmitter.payload, self.payload)
        self.offer(ctx, b.completer.ack, due)
        inputs = {
            b.arbiter.i[2]: self.kicks,
            b.transmitter.verdict: self.verdicts,
            b.transmitter.payload: self.payload,
            b.completer.ack: self.acks,
        }
        r, t, c = b.requester, b.transmitter, b.completer
        outputs = [r.access, r.consumed, t.header, t.o, c.completion, c.error]
        for port in outputs:
            ctx.set(port.ready, rng.random() >= self.stall)
        ports = [*inputs, *outputs]
        flat = [x for port in ports for x in (port.valid, port.ready, port.payload)]
        _, _, *values = await ctx.tick().sample(*flat)
        taken = {
            number: values[3 * number + 2]
            for number in range(len(ports))
            if values[3 * number] and values[3 * number + 1]
        }
        for number, (port, items) in enumerate(inputs.items()):
            if number in taken:
                items.popleft()
                ctx.set(port.valid, 0)
        first = len(inputs)
        if first in taken:
            self.access(taken[first])
        if first + 1 in taken:
            qp = taken[first + 1].qp
            self.consumed[qp] = max(self.consumed[qp], taken[first + 1].index)
            self.fetch(ctx, qp)
        if first + 2 in taken:
            self.arrive(taken[first + 2].transport)
        if first + 4 in taken:
            done = taken[first + 4]
            self.completions[done.qp].append((done.wqe_index, done.status, done.syndrome))
        if first + 5 in taken:
            self.tokens.append(taken[first + 5].qp)
        self.cycle += 1

    def access(self, access):
        """The access check and the DMA reader."""
        self.run_length += access.length
        if not access.last:
            return
        length, self.run_length = self.run_length, 0
        status = AccessStatus.OK
        if access.qp in self.poisoned:
            status = AccessStatus.POISONED
        elif length and self.rng.random() < self.refuse:
            status = AccessStatus.KEY
            self.poisoned.add(access.qp)
        self.verdicts.append({"status": status})
        if status != AccessStatus.OK:
            self.payload.append({"first": 1, "last": 1, "error": 1})
            return
        for start in range(0, length, 8):
            last = start + 8 >= length
            self.payload.append({"count": min(8, length - start), "first": start == 0, "last": last})

    def arrive(self, transport):
        """The peer: acknowledges some packets, the last of each message, and all before; refuses a few for good."""
        rng = self.rng
        qp = transport.dest_qpn - 0x100
        self.arrived[qp].append((transport.opcode, transport.psn, transport.length))
        if any(key[0] == qp for key in self.refused):
            return
        when = max([self.cycle + 20 + rng.randrange(100)] + [cycle for cycle, _ in self.acks])
        syndrome = 0x1F
        if rng.random() < self.nak:
            syndrome = rng.choice([0x61, 0x62, 0x63])
            self.refused.add((qp, transport.psn))
        elif not (transport.ack_request and rng.random() < 0.7) and rng.random() < 0.9:
            self.unacked[qp] = transport.psn
            return
        self.unacked.pop(qp, None)
        self.acks.append((when, {"qp": qp, "psn": transport.psn, "syndrome": syndrome}))

    async def start(self, ctx):
        for qp in range(QPS):
            for block in (self.bench.requester, self.bench.completer):
                await self.control(ctx, block, qp, QpAction.START_SEND, self.psn[qp])
            await self.attributes(ctx, qp, QpState.RTS)

    async def until(self, ctx, condition, limit):
        quiet = 0
        for _ in range(limit):
            if condition():
                return
            before = (len(self.acks), len(self.verdicts), len(self.payload), sum(map(len, self.arrived)))
            await self.tick(ctx)
            after = (len(self.acks), len(self.verdicts), len(self.payload), sum(map(len, self.arrived)))
            quiet = quiet + 1 if before == after else 0
            if quiet > 150 and self.unacked:  # the peer's delayed ACK
                qp, psn = self.unacked.popitem()
                self.acks.append((self.cycle, {"qp": qp, "psn": psn, "syndrome": 0x1F}))
            while self.tokens:
                qp = self.tokens.popleft()
                await self.attributes(ctx, qp, QpState.ERR)
                await self.control(ctx, self.bench.requester, qp, QpAction.ERROR)
        raise AssertionError(f"still waiting: {self.completions} of {[len(r) for r in self.rings]}")


def random_wqe(rng, signaled):
    wqe = Wqe(rng.choice(list(SendOpcode)[:4]), flags=SendFlag.SIGNALED if signaled else 0)
    if rng.random() < 0.2:
        wqe.data = rng.randbytes(rng.randrange(33))
    else:
        for _ in range(rng.randrange(3)):
            wqe.sges.append((rng.randrange(1 << 40), rng.choice([0, 8, 8, 100, 256, rng.randrange(700)]), 7))
    return wqe


@pytest.mark.parametrize(("window", "stall"), [(2, 0.4), (4, 0), (8, 0.2)])
def test_all_succeed(window, stall):
    rng = make_rng()
    world = World(rng, window=window, stall=stall)
    rings = [[random_wqe(rng, k % 3 == 0 or k == 19) for k in range(20)] for _ in range(QPS)]
    signaled = [[k for k, wqe in enumerate(ring) if wqe.flags] for ring in rings]

    async def testbench(ctx):
        await world.start(ctx)
        for qp in range(QPS):
            world.post(ctx, qp, *rings[qp])
        await world.until(ctx, lambda: all(len(c) == len(s) for c, s in zip(world.completions, signaled)), 15_000)

    simulate(world.bench, testbench, seed=rng.seed_value, deadline=20_000)
    for qp in range(QPS):
        assert world.completions[qp] == [(k, WcStatus.SUCCESS, Syndrome.NONE) for k in signaled[qp]]
        expected = []
        for wqe in rings[qp]:
            packets = packets_of(wqe, MTU, (world.psn[qp] + len(expected)) % (1 << 24))
            expected += [(p["opcode"], p["psn"], p["length"]) for p in packets]
        assert world.arrived[qp] == expected


@pytest.mark.parametrize(("refuse", "nak"), [(0.05, 0), (0, 0.05), (0.03, 0.03)])
def test_failures(refuse, nak):
    """After a failure each WQE still completes exactly once, in order: successes, one error, flushed ones."""
    rng = make_rng()
    world = World(rng, window=4, stall=0.2, refuse=refuse, nak=nak)

    async def testbench(ctx):
        await world.start(ctx)
        for qp in range(QPS):
            world.post(ctx, qp, *[random_wqe(rng, 1) for _ in range(24)])
        await world.until(ctx, lambda: all(len(c) == 24 for c in world.completions), 15_000)
        for _ in range(200):
            await world.tick(ctx)

    simulate(world.bench, testbench, seed=rng.seed_value, deadline=20_000)
    for qp in range(QPS):
        assert [k for k, _, _ in world.completions[qp]] == list(range(24))
        bad = [status for _, status, _ in world.completions[qp] if status != WcStatus.SUCCESS]
        assert all(status == WcStatus.SUCCESS for _, status, _ in world.completions[qp][: 24 - len(bad)])
        if bad:
            assert bad[0] in (
                WcStatus.LOC_PROT_ERR,
                WcStatus.REM_INV_REQ_ERR,
                WcStatus.REM_ACCESS_ERR,
                WcStatus.REM_OP_ERR,
            )
            assert set(bad[1:]) <= {WcStatus.WR_FLUSH_ERR, WcStatus.LOC_PROT_ERR}
            assert world.state[qp] == QpState.ERR
