"""The completer against a model, under whatever a peer, a host and the engine itself may say."""

from collections import defaultdict

import pytest
from streams import make_rng, plain, simulate
from verbena.hdl.abi.commands import QpAction
from verbena.hdl.abi.contexts import QP_CONTEXT, QpState
from verbena.hdl.abi.cqe import Syndrome, WcOpcode, WcStatus
from verbena.hdl.abi.wqe import SendOpcode
from verbena.hdl.transport.completer import Completer

QPS = 4
WINDOW = 8
PSNS = 1 << 24
INPUTS = ("control", "failed_requester", "failed_transmitter", "flush", "ack")
OUTPUTS = ("completion", "error", "ready", "reply")
NAKS = {
    0x60: WcStatus.RETRY_EXC_ERR,
    0x61: WcStatus.REM_INV_REQ_ERR,
    0x62: WcStatus.REM_ACCESS_ERR,
    0x63: WcStatus.REM_OP_ERR,
    0x64: WcStatus.REM_INV_REQ_ERR,
    0x20: WcStatus.RNR_RETRY_EXC_ERR,
    0x3F: WcStatus.RNR_RETRY_EXC_ERR,
}


class Message:
    def __init__(self, first, last, opcode, signaled):
        self.first, self.last, self.opcode, self.signaled = first, last, opcode, signaled


class Queue:
    """One send queue, by the book. PSNs here never wrap; indices neither."""

    def __init__(self, psn=0):
        self.psn = psn  # next to send
        self.acked = psn  # all before this one have arrived
        self.messages = {}  # by index; complete ones stay
        self.oldest = 0
        self.dead = False
        self.failure = None  # (index, status, syndrome)
        self.state = QpState.RTS

    @property
    def begun(self):
        return len(self.messages)


class Model:
    def __init__(self, window=WINDOW):
        self.window = window
        self.queues = [Queue() for _ in range(QPS)]
        self.out = {name: [] for name in OUTPUTS}
        self.counts = [0, 0]

    def complete(self, qp, status, syndrome, opcode=None):
        queue = self.queues[qp]
        item = {"qp": qp, "cq": 100 + qp, "wqe_index": queue.oldest % 65536, "status": status, "syndrome": syndrome}
        if opcode is not None:
            item["opcode"] = opcode
        self.out["completion"].append(item)

    def fail(self, qp, status, syndrome):
        queue = self.queues[qp]
        if queue.failure and queue.failure[0] == queue.oldest:
            _, status, syndrome = queue.failure
        self.complete(qp, status, syndrome)
        self.out["error"].append({"qp": qp, "event": 255})
        queue.oldest += 1
        queue.dead = True

    def advance(self, qp):
        """Completes what is acknowledged; True if the oldest WQE is one that failed here."""
        queue = self.queues[qp]
        while True:
            if queue.failure and queue.failure[0] == queue.oldest:
                return True
            message = queue.messages.get(queue.oldest)
            if message is None or message.last >= queue.acked:
                return False
            if message.signaled:
                opcode = WcOpcode.RDMA_WRITE if message.opcode < SendOpcode.SEND else WcOpcode.SEND
                self.complete(qp, WcStatus.SUCCESS, Syndrome.NONE, opcode)
            queue.oldest += 1

    def ack(self, qp, psn, syndrome, msn=0):
        kind = syndrome >> 5
        self.counts[0] += kind == 0
        self.counts[1] += kind in (1, 3)
        queue = self.queues[qp]
        distance = (psn - queue.acked + PSNS // 2) % PSNS - PSNS // 2
        true = queue.acked + distance
        if queue.dead or queue.state not in (QpState.RTS, QpState.SQD):
            return
        if not queue.acked <= true < queue.psn or (kind and syndrome not in NAKS and kind != 1):
            return
        before, begun = queue.oldest, queue.begun
        queue.acked = true + (kind == 0)
        if self.advance(qp) or kind:
            self.fail(qp, NAKS.get(syndrome, WcStatus.RNR_RETRY_EXC_ERR), Syndrome.REMOTE_NAK)
        elif queue.oldest != before and begun - before >= self.window // 2:
            self.out["ready"].append(qp)

    def failure(self, qp, wqe_index, status, syndrome):
        queue = self.queues[qp]
        if queue.dead or queue.state not in (QpState.RTS, QpState.SQD, QpState.ERR):
            return
        index = queue.oldest + (wqe_index - queue.oldest + 32768) % 65536 - 32768
        if index < queue.oldest or (queue.failure and queue.failure[0] <= index):
            return
        queue.failure = (index, status, syndrome)
        if index == queue.oldest and queue.state != QpState.ERR:
            self.fail(qp, status, syndrome)

    def flush(self, qp, index):
        queue = self.queues[qp]
        if queue.state != QpState.ERR:
            return
        index = queue.oldest + (index - queue.oldest + 16384) % 65536 - 16384
        if index < queue.oldest:
            return
        queue.dead = True
        while queue.oldest < index:
            if queue.failure and queue.failure[0] == queue.oldest:
                self.complete(qp, *queue.failure[1:])
            else:
                self.complete(qp, WcStatus.WR_FLUSH_ERR, Syndrome.FLUSHED)
            queue.oldest += 1

    def control(self, qp, action, psn):
        queue = self.queues[qp]
        if action == QpAction.RESET:
            self.queues[qp] = Queue()
            self.queues[qp].state = queue.state
        elif action == QpAction.START_SEND:
            queue.psn = queue.acked = psn
        elif action == QpAction.QUERY:
            self.out["reply"].append({"index": queue.oldest % 65536})


class World:
    """Drives a completer and the model with the same events, in the order in which the completer takes them."""

    def __init__(self, rng, stall=0.3, window=WINDOW):
        self.rng, self.stall = rng, stall
        self.dut = Completer(QPS, window)
        self.model = Model(window)
        self.pending = defaultdict(list)
        self.out = {name: [] for name in OUTPUTS}
        self.counts = [0, 0]
        self.cycle = 0
        self.taken = []  # (cycle, input)
        self.last_out = 0

    async def tick(self, ctx):
        dut, rng = self.dut, self.rng
        for name in INPUTS:
            port = getattr(dut, name)
            if self.pending[name] and not ctx.get(port.valid) and rng.random() >= self.stall:
                ctx.set(port.payload, self.pending[name][0])
                ctx.set(port.valid, 1)
        for name in OUTPUTS:
            ctx.set(getattr(dut, name).ready, rng.random() >= self.stall)
        names = INPUTS + OUTPUTS
        flat = [x for n in names for x in (getattr(dut, n).valid, getattr(dut, n).ready, getattr(dut, n).payload)]
        _, _, *values, acks, naks = await ctx.tick().sample(*flat, dut.count_rx_acks, dut.count_rx_naks)
        self.counts[0] += acks
        self.counts[1] += naks
        for number, name in enumerate(names):
            valid, ready, payload = values[3 * number : 3 * number + 3]
            if not (valid and ready):
                continue
            if name in OUTPUTS:
                self.out[name].append(plain(payload))
                self.last_out = self.cycle
                continue
            ctx.set(getattr(dut, name).valid, 0)
            self.taken.append((self.cycle, name))
            event = self.pending[name].pop(0)
            getattr(self.model, "failure" if name.startswith("failed") else name)(**event)
        self.cycle += 1

    async def settle(self, ctx):
        """Until all pending events are taken and nothing more comes out."""
        for _ in range(5000):
            await self.tick(ctx)
            if (
                not any(self.pending.values())
                and self.cycle > max(self.taken[-1][0] if self.taken else 0, self.last_out) + 40
            ):
                break
        else:
            raise AssertionError(f"still pending: {dict(self.pending)}")
        self.check()
        for qp, queue in enumerate(self.model.queues):
            ctx.set(self.dut.acked_qp, qp)
            await self.tick(ctx)
            assert ctx.get(self.dut.acked) == queue.oldest % 65536

    def check(self):
        for name in OUTPUTS:
            want, seen = self.model.out[name], self.out[name]
            for number, (a, b) in enumerate(zip(want, seen)):
                if name == "ready":
                    assert a == b
                    continue
                assert {k: b[k] for k in a} == a, (name, number)
                if name == "completion":
                    assert b["solicited"] == (a["status"] != 0)
                    assert b["flags"] == b["byte_length"] == b["immediate"] == 0
            assert len(want) == len(seen), name
        assert self.counts == self.model.counts

    async def state(self, ctx, qp, state):
        for word, value in enumerate(QP_CONTEXT.words(state=state, sq_cqn=100 + qp)):
            ctx.set(self.dut.attribute, {"index": qp, "word": word, "data": value})
            ctx.set(self.dut.attribute_en, 1)
            await self.tick(ctx)
        ctx.set(self.dut.attribute_en, 0)
        self.model.queues[qp].state = state

    async def start(self, ctx, qp, psn=0):
        self.pending["control"] += [{"qp": qp, "action": QpAction.RESET, "psn": 0}]
        self.pending["control"] += [{"qp": qp, "action": QpAction.START_SEND, "psn": psn}]
        await self.settle(ctx)
        await self.state(ctx, qp, QpState.RTS)

    async def sent(self, ctx, qp):
        """One packet is sent."""
        queue = self.model.queues[qp]
        ctx.set(self.dut.sent, {"qp": qp, "psn": queue.psn % PSNS})
        ctx.set(self.dut.sent_en, 1)
        queue.psn += 1
        await self.tick(ctx)
        ctx.set(self.dut.sent_en, 0)
        await self.tick(ctx)

    async def send(self, ctx, qp, packets=1, opcode=SendOpcode.SEND, signaled=1):
        """One message is sent."""
        queue = self.model.queues[qp]
        first = queue.psn
        for _ in range(packets):
            await self.sent(ctx, qp)
        port = self.dut.outstanding
        message = {
            "qp": qp,
            "wqe_index": queue.begun % 65536,
            "last_psn": (queue.psn - 1) % PSNS,
            "opcode": opcode,
            "signaled": signaled,
        }
        ctx.set(port.payload, message)
        ctx.set(port.valid, 1)
        while not ctx.get(port.ready):
            await self.tick(ctx)
        await self.tick(ctx)
        ctx.set(port.valid, 0)
        queue.messages[queue.begun] = Message(first, queue.psn - 1, opcode, signaled)
        for _ in range(4):
            await self.tick(ctx)

    def ack(self, qp, psn, syndrome=0x1F):
        self.pending["ack"].append({"qp": qp, "psn": psn % PSNS, "msn": 0, "syndrome": syndrome})

    def statuses(self, qp):
        return [(c["wqe_index"], c["status"], c["syndrome"]) for c in self.out["completion"] if c["qp"] == qp]

    def run(self, testbench, deadline=60_000):
        simulate(self.dut, testbench, seed=self.rng.seed_value, deadline=deadline)


@pytest.mark.parametrize("stall", [0, 0.5])
@pytest.mark.parametrize("run", range(2))
def test_random(stall, run):
    rng = make_rng()
    world = World(rng, stall)
    model = world.model

    async def event(ctx):
        qp = rng.randrange(QPS)
        queue = model.queues[qp]
        what = rng.choices(
            ["ack", "stray ack", "nak", "odd nak", "failure", "flush", "query", "error"], [40, 8, 1, 2, 2, 3, 2, 1]
        )[0]
        near = queue.acked - 2 + rng.randrange(queue.psn - queue.acked + 4)
        if what == "ack":
            world.ack(qp, rng.randrange(queue.acked, queue.psn) if queue.psn > queue.acked else queue.acked)
        elif what == "stray ack":
            world.ack(qp, rng.choice([near, rng.randrange(PSNS)]))
        elif what == "nak":
            world.ack(qp, near, rng.choice([*NAKS, 0x20 + rng.randrange(32)]))
        elif what == "odd nak":
            world.ack(qp, near, rng.choice([0x65, 0x7F, 0x40, 0x5F, 0x80, 0xE0]))
        elif what == "failure":
            index = rng.choice([queue.begun, queue.oldest, queue.oldest + rng.randrange(-2, 5)])
            world.pending[rng.choice(["failed_requester", "failed_transmitter"])].append(
                {"qp": qp, "wqe_index": index % 65536, "status": rng.randrange(1, 20), "syndrome": rng.randrange(20)}
            )
        elif what == "flush":
            world.pending["flush"].append({"qp": qp, "index": (queue.oldest + rng.randrange(-3, 30)) % 65536})
        elif what == "query":
            world.pending["control"].append({"qp": qp, "action": rng.choice([0, 2, 4, 5]), "psn": 7})
        else:
            await world.settle(ctx)  # or it would be open which state an event meets
            await world.state(ctx, qp, rng.choice([QpState.ERR, QpState.SQD, QpState.RTS]))

    async def testbench(ctx):
        for qp in range(QPS):
            await world.start(ctx, qp, rng.choice([0, 5, PSNS - 3, rng.randrange(PSNS)]))
        for _ in range(120):
            qp = rng.randrange(QPS)
            queue = model.queues[qp]
            if queue.dead or queue.state == QpState.ERR:
                if rng.random() < 0.5:
                    await world.start(ctx, qp, rng.choice([0, PSNS - 2, rng.randrange(PSNS)]))
            elif queue.begun < queue.oldest + WINDOW and rng.random() < 0.7:
                await world.send(ctx, qp, rng.choice([1, 1, 2, 5]), rng.randrange(4), rng.randrange(2))
            elif rng.random() < 0.3:
                await world.sent(ctx, qp)  # of a message whose end is not sent yet
            for _ in range(rng.choice([0, 1, 1, 3])):
                await event(ctx)
            if rng.random() < 0.7:
                await world.settle(ctx)
            while any(world.pending.values()):
                await world.tick(ctx)
            for _ in range(rng.choice([8, 8, 60])):  # a message must not be sent while an ACK for it is dealt with
                await world.tick(ctx)
            await world.settle(ctx)

    world.run(testbench, 200_000)
    assert len(world.out["completion"]) > 10


@pytest.mark.parametrize(("syndrome", "status"), NAKS.items())
@pytest.mark.parametrize("in_progress", [False, True])
def test_nak(syndrome, status, in_progress):
    """What precedes a NAK's PSN succeeds; then the message that holds it fails, also if its end is not yet sent."""
    world = World(make_rng())

    async def testbench(ctx):
        await world.start(ctx, 2, 0xFFFFFE)
        await world.send(ctx, 2, 3, SendOpcode.RDMA_WRITE)
        if in_progress:
            await world.sent(ctx, 2)
        else:
            await world.send(ctx, 2, 2)
            await world.send(ctx, 2)
        world.ack(2, 1, syndrome)
        world.ack(2, 2)
        await world.settle(ctx)

    world.run(testbench)
    assert world.statuses(2) == [(0, WcStatus.SUCCESS, 0), (1, status, Syndrome.REMOTE_NAK)]
    assert world.out["completion"][0]["opcode"] == WcOpcode.RDMA_WRITE
    assert world.out["error"] == [{"qp": 2, "event": 255}]
    assert world.counts == [1, 1]


def test_unknown_nak():
    """Reserved codes do nothing."""
    world = World(make_rng())

    async def testbench(ctx):
        await world.start(ctx, 1)
        await world.send(ctx, 1)
        for syndrome in (0x65, 0x7F, 0x40, 0x9F, 0xFF):
            world.ack(1, 0, syndrome)
        await world.settle(ctx)

    world.run(testbench)
    assert world.out["completion"] == []
    assert world.counts == [0, 2]


def test_ghosts():
    """An ACK for what was never sent or is acknowledged completes nothing; one in the middle, what is before it."""
    world = World(make_rng())

    async def testbench(ctx):
        await world.start(ctx, 0, 100)
        for qp_psn in (99, 100, 101, 100 + PSNS // 2 - 1, 100 + PSNS // 2):
            world.ack(0, qp_psn)
        await world.settle(ctx)
        await world.send(ctx, 0, 2)
        await world.send(ctx, 0, 3)
        for psn in (99, 100, 105, 106, 100 + PSNS // 2):
            world.ack(0, psn)
        await world.settle(ctx)
        assert world.statuses(0) == []
        world.ack(0, 103)
        await world.settle(ctx)
        assert world.statuses(0) == [(0, 0, 0)]
        await world.sent(ctx, 0)
        world.ack(0, 105)
        await world.settle(ctx)
        assert world.statuses(0) == [(0, 0, 0), (1, 0, 0)]

    world.run(testbench)


def test_local_failures():
    """A failure waits for its turn; the earliest counts; the flush covers the rest, each with its own fate."""
    world = World(make_rng())

    async def testbench(ctx):
        await world.start(ctx, 3)
        for _ in range(3):
            await world.send(ctx, 3, signaled=0)
        refused = {"qp": 3, "wqe_index": 5, "status": WcStatus.LOC_PROT_ERR, "syndrome": Syndrome.KEY}
        world.pending["failed_transmitter"] = [refused]
        await world.settle(ctx)
        malformed = {"qp": 3, "wqe_index": 2, "status": WcStatus.LOC_QP_OP_ERR, "syndrome": Syndrome.LENGTH}
        world.pending["failed_requester"] = [malformed]
        world.pending["failed_transmitter"] = [refused]
        await world.settle(ctx)
        assert world.out["completion"] == []
        world.ack(3, 2)
        await world.settle(ctx)
        assert world.statuses(3) == [(2, WcStatus.LOC_QP_OP_ERR, Syndrome.LENGTH)]
        await world.state(ctx, 3, QpState.ERR)
        world.pending["flush"] = [{"qp": 3, "index": 5}]
        await world.settle(ctx)
        world.pending["flush"] = [{"qp": 3, "index": 4}, {"qp": 3, "index": 6}]
        await world.settle(ctx)

    world.run(testbench)
    assert world.statuses(3)[1:] == [(k, WcStatus.WR_FLUSH_ERR, Syndrome.FLUSHED) for k in (3, 4, 5)]
    assert world.out["error"] == [{"qp": 3, "event": 255}]


def test_failure_kept_for_flush():
    world = World(make_rng())

    async def testbench(ctx):
        await world.start(ctx, 3)
        await world.send(ctx, 3)
        await world.state(ctx, 3, QpState.ERR)
        world.pending["failed_transmitter"] = [{"qp": 3, "wqe_index": 1, "status": 4, "syndrome": 3}]
        await world.settle(ctx)
        world.pending["flush"] = [{"qp": 3, "index": 3}]
        await world.settle(ctx)

    world.run(testbench)
    flushed = (WcStatus.WR_FLUSH_ERR, Syndrome.FLUSHED)
    assert world.statuses(3) == [(0, *flushed), (1, 4, 3), (2, *flushed)]
    assert world.out["error"] == []


def test_cycles():
    """An ACK takes 4 cycles and 3 for each message at most."""
    counts = [0, 1, 2, 5, 8]
    world = World(make_rng(1), stall=0, window=16)

    async def testbench(ctx):
        await world.start(ctx, 0)
        await world.start(ctx, 1)
        for count in counts:
            for _ in range(count + 1):
                await world.send(ctx, 0)
            queue = world.model.queues[0]
            world.ack(0, queue.acked + count - 1 if count else PSNS - 1)
            world.ack(1, 0)
            world.ack(1, 0)
            await world.settle(ctx)
            world.ack(0, queue.psn - 1)
            await world.settle(ctx)

    world.run(testbench)
    cycles = [cycle for cycle, name in world.taken if name == "ack"]
    for number, count in enumerate(counts):
        first, second, third, _ = cycles[4 * number : 4 * number + 4]
        assert second - first <= 4 + 3 * count
        assert third - second == 4


@pytest.mark.parametrize("arguments", [{"qps": 3}, {"qps": 4, "window": 12}, {"qps": 4, "window": 1 << 15}])
def test_arguments(arguments):
    with pytest.raises(ValueError, match="not "):
        Completer(**arguments)
