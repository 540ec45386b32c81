"""A model of send queues' fates, and a bench that drives a completer and the model with the same events."""

from collections import defaultdict
from copy import copy
from functools import partial

from amaranth.hdl import Value
from at_once import AtOnce
from streams import plain, shared, simulate, unpacked
from verbena.hdl.abi.commands import QpAction
from verbena.hdl.abi.contexts import QP_CONTEXT, QpState
from verbena.hdl.abi.cqe import Syndrome, WcOpcode, WcStatus
from verbena.hdl.abi.tables import AccessStatus
from verbena.hdl.abi.wqe import SendOpcode
from verbena.hdl.transport.common.layouts import Progress, Watch
from verbena.hdl.transport.common.layouts import ResponseJobKind as Kind
from verbena.hdl.transport.completer.completer import Completer

QPS = 4
WINDOW = 8
PSNS = 1 << 24
INPUTS = ("control", "failed_requester", "failed_transmitter", "flush", "fired", "departed", "job", "done")
OUTPUTS = ("completion", "error", "ready", "retry", "reply")
COUNTS = ("rx_acks", "rx_naks", "retries", "implied_naks", "drop_response")
FATAL = {
    0x61: WcStatus.REM_INV_REQ_ERR,
    0x62: WcStatus.REM_ACCESS_ERR,
    0x63: WcStatus.REM_OP_ERR,
    0x64: WcStatus.REM_INV_REQ_ERR,
}
OPCODES = {
    SendOpcode.RDMA_WRITE: (WcOpcode.RDMA_WRITE, 0),
    SendOpcode.RDMA_WRITE_WITH_IMM: (WcOpcode.RDMA_WRITE, 0),
    SendOpcode.SEND: (WcOpcode.SEND, 0),
    SendOpcode.SEND_WITH_IMM: (WcOpcode.SEND, 0),
    SendOpcode.RDMA_READ: (WcOpcode.RDMA_READ, 0),
    SendOpcode.ATOMIC_CMP_AND_SWP: (WcOpcode.COMP_SWAP, 8),
    SendOpcode.ATOMIC_FETCH_AND_ADD: (WcOpcode.FETCH_ADD, 8),
}
READS = (SendOpcode.RDMA_READ, SendOpcode.ATOMIC_CMP_AND_SWP, SendOpcode.ATOMIC_FETCH_AND_ADD)
CREDITS = [0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096]
CREDITS += [6144, 8192, 12288, 16384, 24576, 32768]


class Message:
    def __init__(self, first, last, opcode, signaled):
        self.first, self.last, self.opcode, self.signaled = first, last, opcode, signaled
        self.missing = first  # READs and atomics: the first response that has not come

    @property
    def lacking(self):
        """Packets that only the message's own data acknowledges."""
        return self.opcode in READS and self.missing <= self.last


class Queue:
    """One send queue, by the book. PSNs here never wrap; indices neither."""

    def __init__(self):
        self.psn = 0  # next to send
        self.acked = 0  # all before this one have arrived
        self.messages = {}  # by index; complete ones stay
        self.oldest = 0
        self.first = 0  # first PSN of the oldest one
        self.reads = 0
        self.dead = False
        self.failure = None  # (index, status, syndrome)
        self.state = QpState.RTS
        self.limit, self.limited = 0, 0
        self.waiting = None  # code of the RNR timer
        self.retrying = False
        self.retries = self.rnr_retries = 0
        self.generation = 0
        self.drain = None
        self.retry_count, self.rnr_retry = 3, 3
        self.unreliable = False  # of UC: what departs is complete, and nobody answers

    @property
    def begun(self):
        return len(self.messages)

    @property
    def ended(self):
        """First PSN of the message that is being sent, or of the next one."""
        return self.messages[self.begun - 1].last + 1 if self.messages else self.first

    @property
    def alive(self):
        return not self.dead and self.state in (QpState.RTS, QpState.SQD)

    def progress(self):
        return {
            "oldest": self.oldest % 65536,
            "unacked": self.acked % PSNS,
            "first": self.first % PSNS,
            "reads": self.reads % 256,
            "limit": self.limit if self.limited else None,  # any
            "limited": self.limited,
            "waiting": self.waiting is not None or self.dead,
        }


class Model:
    def __init__(self):
        self.queues = [Queue() for _ in range(QPS)]
        self.out = {name: [] for name in OUTPUTS}
        self.counts = dict.fromkeys(COUNTS, 0)
        self.tokens = 0
        self.moving = None  # the queue that SAVE took last, or that LOAD brings next

    # -- What becomes of the oldest WQE.

    def complete(self, qp, status, syndrome, signaled=True, opcode=None):
        queue = self.queues[qp]
        if signaled:
            item = {"qp": qp, "qpn": 0x765400 + qp, "cq": 100 + qp, "wqe_index": queue.oldest % 65536}
            item |= {"status": status, "syndrome": syndrome}
            if opcode is not None:
                item["opcode"], item["byte_length"] = OPCODES[opcode]
            self.out["completion"].append(item)
        queue.oldest += 1

    def fail(self, qp, status, syndrome):
        self.complete(qp, status, syndrome)
        self.out["error"].append({"qp": qp, "event": 254})
        self.queues[qp].dead = True
        self.queues[qp].failure = None

    def fails_here(self, qp):
        queue = self.queues[qp]
        if queue.failure and queue.failure[0] == queue.oldest:
            self.fail(qp, *queue.failure[1:])
            return True
        return False

    def go_back(self, qp):
        self.out["retry"].append(qp)
        self.counts["retries"] += 1
        self.queues[qp].generation += 1

    def lost(self, qp, syndrome):
        """Something is lost; True if that was one time too many."""
        queue = self.queues[qp]
        if queue.retries == queue.retry_count:
            self.fail(qp, WcStatus.RETRY_EXC_ERR, syndrome)
        else:
            queue.retries += 1
            self.go_back(qp)

    # -- Events.

    def job(self, job, status):
        kind, qp, syndrome = job["kind"], job["qp"], job["syndrome"]
        queue = self.queues[qp]
        group = syndrome >> 5
        if kind == Kind.TOKEN:
            self.tokens += 1
            return
        if kind == Kind.ACK:
            self.counts["rx_acks"] += group == 0
            self.counts["rx_naks"] += group in (1, 3)
        known = (
            kind in (Kind.SKIPPED, Kind.FAILED)
            or (kind == Kind.DATA and status != AccessStatus.POISONED)
            or (kind == Kind.ACK and (group in (0, 1) or syndrome == 0x60 or syndrome in FATAL))
            or kind == Kind.DEPARTED
        )
        psn = queue.acked + (job["psn"] - queue.acked) % PSNS
        if not (known and queue.alive and psn < queue.psn and psn - queue.acked < PSNS // 2):
            self.counts["drop_response"] += kind != Kind.DEPARTED
            return

        good = kind == Kind.DATA and status == 0
        ack = kind == Kind.ACK and group == 0
        # So says the peer, or the engine's own transmitter: all before this.
        arrived = psn + 1 if good or ack or kind == Kind.DEPARTED else psn
        if good:
            for message in queue.messages.values():
                if message.opcode in READS and message.first <= psn <= message.last:
                    message.missing = psn + 1
        elif kind == Kind.DATA:
            cause = WcStatus.GENERAL_ERR if status == 7 else WcStatus.LOC_PROT_ERR
            self.record(queue, job["wqe_index"], cause, status)
        elif kind == Kind.FAILED:
            self.record(queue, job["wqe_index"], job["status"], syndrome)
        pending = [queue.messages[k] for k in range(queue.oldest, queue.begun)]
        known = min([arrived, *(m.missing for m in pending if m.lacking)])  # so do we
        implied = known < arrived and (kind == Kind.SKIPPED or ack)
        if known > queue.acked:
            queue.acked = known
            queue.generation += 1
            queue.retries = queue.rnr_retries = 0
            queue.retrying = False
        if arrived == known == queue.psn and (good or ack or kind == Kind.DEPARTED):
            queue.waiting = None
        if ack:
            queue.limited = syndrome != 31
            queue.limit = (job["msn"] + CREDITS[syndrome]) % 65536 if queue.limited else 0
        for message in pending:
            if self.fails_here(qp):
                return
            if message.last >= known or message.lacking:
                break
            self.complete(qp, WcStatus.SUCCESS, Syndrome.NONE, message.signaled, message.opcode)
            queue.first = message.last + 1
            queue.reads += message.opcode in READS
        if self.fails_here(qp):
            return
        self.counts["implied_naks"] += implied
        before = len(self.out["retry"])
        if kind == Kind.ACK and syndrome in FATAL:
            self.fail(qp, FATAL[syndrome], Syndrome.REMOTE_NAK)
        elif queue.waiting is None and kind == Kind.ACK and syndrome == 0x60:
            self.lost(qp, Syndrome.REMOTE_NAK)
            queue.retrying = True
        elif queue.waiting is None and implied and not queue.retrying:
            if queue.retries:  # a timeout has counted
                self.go_back(qp)
            else:
                self.lost(qp, Syndrome.NONE)
            queue.retrying = True
        elif queue.waiting is None and kind == Kind.ACK and group == 1:
            if queue.rnr_retry != 7 and queue.rnr_retries == queue.rnr_retry:
                self.fail(qp, WcStatus.RNR_RETRY_EXC_ERR, Syndrome.REMOTE_NAK)
            else:
                queue.rnr_retries += 1
                queue.waiting = syndrome & 31
                queue.generation += 1
        if not queue.dead:
            if len(self.out["retry"]) == before:
                self.out["ready"].append(qp)
            self.drained(qp)

    def departed(self, qp, psn):
        self.job({"kind": Kind.DEPARTED, "qp": qp, "psn": psn, "syndrome": 0}, 0)

    def fired(self, qp, generation):
        queue = self.queues[qp]
        if not queue.alive or generation != queue.generation % 16:
            return
        if queue.waiting is not None:
            queue.waiting = None
            queue.retrying = False
            self.go_back(qp)
        elif queue.acked < queue.psn:
            queue.retrying = False
            self.lost(qp, Syndrome.NONE)

    def record(self, queue, wqe_index, status, syndrome):
        index = queue.oldest + (wqe_index - queue.oldest + 32768) % 65536 - 32768
        if index >= queue.oldest and (not queue.failure or index < queue.failure[0]):
            queue.failure = (index, status, syndrome)
        return index

    def failure(self, qp, wqe_index, status, syndrome):
        queue = self.queues[qp]
        if queue.dead or queue.state not in (QpState.RTS, QpState.SQD, QpState.ERR):
            return
        index = self.record(queue, wqe_index, status, syndrome)
        if queue.state == QpState.ERR:
            return
        if index < queue.oldest:
            if queue.waiting is None:
                self.go_back(qp)
            self.drained(qp)
        elif not self.fails_here(qp):
            self.drained(qp)

    failed_requester = failed_transmitter = failure

    def flush(self, qp, index, drain=0):
        queue = self.queues[qp]
        if drain:
            if not queue.dead and queue.state == QpState.SQD:
                queue.drain = queue.oldest + (index - queue.oldest + 32768) % 65536 - 32768
                self.drained(qp)
            return
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

    def drained(self, qp):
        queue = self.queues[qp]
        if queue.drain == queue.oldest and queue.state == QpState.SQD:
            queue.drain = None
            self.out["error"].append({"qp": qp, "event": 5})

    def control(self, qp, action, psn):
        queue = self.queues[qp]
        if action == QpAction.RESET:
            new = self.queues[qp] = Queue()
            new.state, new.generation = queue.state, queue.generation + 1
            new.retry_count, new.rnr_retry = queue.retry_count, queue.rnr_retry
        elif action == QpAction.START_SEND:
            queue.psn = queue.acked = queue.first = psn
            queue.drain = None
        elif action == QpAction.RESUME:
            queue.drain = None
        elif action == QpAction.QUERY:
            self.out["reply"].append({"index": queue.oldest % 65536})
        elif action == QpAction.SAVE:
            self.moving = queue
            left = self.queues[qp] = copy(queue)
            left.dead, left.generation, left.left = True, queue.generation + 1, True
        elif action == QpAction.LOAD:
            self.moving.generation = queue.generation + 1
            self.queues[qp] = self.moving


class World:
    """Drives a completer and the model with the same events, in the order in which the completer takes them.

    ``renew`` is how often, of all cycles, a word of some QP's attributes is written once more, as it is; ``alone``:
    with a completer of its own, for a test that patches what it is made of; ``options`` are the completer's.
    """

    def __init__(self, rng, stall=0.3, window=WINDOW, renew=0, *, alone=False, **options):
        self.rng, self.stall, self.renew = rng, stall, renew
        self.changing = False  # attributes are being written
        self.changed = 0  # until this cycle
        self.dut = (Completer if alone else partial(shared, Completer))(QPS, window, **options)
        self.model = Model()
        self.pending = defaultdict(list)
        self.out = {name: [] for name in OUTPUTS}
        self.counts = dict.fromkeys(COUNTS, 0)
        self.tokens = 0
        self.cycle = 0
        self.taken = []  # (cycle, input)
        self.given = []  # (cycle, output)
        self.put = self.edge = None  # of the simulation that runs
        self.offered = set()  # inputs that are valid
        self.blind = 0  # rows are not looked at before this cycle
        # As was told.
        self.progress = [dict.fromkeys((name for name, _ in Progress), 0) for _ in range(QPS)]
        self.watch = [dict.fromkeys((name for name, _ in Watch), 0) for _ in range(QPS)]
        self.history = [[] for _ in range(QPS)]  # rows that may be seen, oldest first

    def seen(self):
        """What is looked at in each cycle; structs as numbers, because few are taken."""
        dut = self.dut
        ports = [getattr(dut, name) for name in INPUTS + OUTPUTS]
        told = [dut.context_en, dut.context_qp, Value.cast(dut.progress), Value.cast(dut.watch), dut.token_done]
        flat = [x for port in ports for x in (port.valid, port.ready, Value.cast(port.payload))]
        return told + flat + [getattr(dut, f"count_{name}") for name in COUNTS]

    def begin(self, ctx):
        if self.put is None:
            self.put, self.edge = AtOnce(ctx), ctx.tick().sample(*self.seen())
        return self.put

    def withdraw(self, name):
        """What is offered there, and not taken."""
        self.put(getattr(self.dut, name).valid, 0)
        self.offered.discard(name)
        return self.pending.pop(name)

    async def tick(self, ctx):
        dut, rng, put = self.dut, self.rng, self.begin(ctx)
        for name in INPUTS:
            port = getattr(dut, name)
            if self.pending[name] and name not in self.offered and rng.random() >= self.stall:
                put(port.payload, self.pending[name][0])
                put(port.valid, 1)
                self.offered.add(name)
        for name in OUTPUTS:
            put(getattr(dut, name).ready, rng.random() >= self.stall)
        put.set()
        if self.renew and not self.changing:
            qp = rng.randrange(QPS)
            word, value = rng.choice(list(enumerate(self.attributes(qp, self.model.queues[qp].state))))
            ctx.set(dut.attribute, {"index": qp, "word": word, "data": value})
            ctx.set(dut.attribute_en, rng.random() < self.renew)
        names = INPUTS + OUTPUTS
        _, _, en, of, progress, watch, token, *values = await self.edge
        for name, value in zip(COUNTS, values[3 * len(names) :]):
            self.counts[name] += value
        self.tokens += token
        if en:
            self.progress[of], self.watch[of] = (
                plain(dut.progress.shape().from_bits(progress)),
                plain(dut.watch.shape().from_bits(watch)),
            )
            self.see(of, self.progress[of], self.watch[of])
        ports = {n: values[3 * k : 3 * k + 3] for k, n in enumerate(names)}
        moved = {n for n, (valid, ready, _) in ports.items() if valid and ready}
        assert ("job" in moved) == ("done" in moved)
        for name in names:
            if name not in moved:
                continue
            if name in OUTPUTS:
                self.out[name].append(unpacked(getattr(dut, name), ports[name][2]))
                self.given.append((self.cycle, name))
                continue
            put(getattr(dut, name).valid, 0)
            self.offered.discard(name)
            self.taken.append((self.cycle, name))
            event = self.pending[name].pop(0)
            if name == "job":
                self.model.job(event, unpacked(dut.done, ports["done"][2])["status"])
            elif name != "done":
                getattr(self.model, name)(**event)
            if name != "done":
                self.note(event["qp"])
        self.cycle += 1

    def see(self, qp, progress, watch):
        """What is told was right once, is never again an older one, and never parts of two."""
        queue = self.model.queues[qp]
        assert progress["unacked"] == watch["unacked"]
        saves = self.pending["control"] and self.pending["control"][0]["action"] == QpAction.SAVE
        if saves or getattr(queue, "left", False):  # a dead row, but no failure
            assert progress["waiting"] >= watch["waiting"]
        else:
            assert progress["waiting"] == watch["waiting"] | watch["dead"]  # nothing is sent behind what has failed
        history = self.history[qp]
        if queue.dead or self.pending["control"]:  # tokens change a row before they are taken
            self.blind = self.cycle + 30
            history.clear()
        self.note(qp)
        if self.cycle < self.blind:
            return
        for number, (row, generation) in enumerate(history):
            if generation == watch["generation"] and all(row[k] in (v, None) for k, v in progress.items()):
                del history[:number]
                return
        raise AssertionError((qp, progress, watch, history))

    def note(self, qp):
        queue = self.model.queues[qp]
        self.history[qp].append((queue.progress(), queue.generation % 16))

    async def settle(self, ctx):
        """Until all pending events are taken and nothing more comes out."""
        for _ in range(5000):
            await self.tick(ctx)
            last = max([self.changed, *(cycle for cycle, _ in (*self.taken[-1:], *self.given[-1:]))])
            if not any(self.pending.values()) and self.cycle > last + (60 if self.renew else 25):
                break
        else:
            raise AssertionError(f"still pending: {dict(self.pending)}")
        self.check()
        for qp, queue in enumerate(self.model.queues):
            progress, watch = self.progress[qp], self.watch[qp]
            assert watch["dead"] == queue.dead
            assert progress["oldest"] == queue.oldest % 65536
            if not queue.dead:
                assert all(v in (progress[k], None) for k, v in queue.progress().items()), (qp, progress)
                assert watch["generation"] == queue.generation % 16
                assert queue.waiting in (None, watch["rnr_timer"])

    def check(self):
        for name in OUTPUTS:
            want, seen = self.model.out[name], self.out[name]
            if name == "retry":  # a set: two of a QP may have become one
                for qp in range(QPS):
                    assert bool(want.count(qp)) <= seen.count(qp) <= want.count(qp), (qp, want, seen)
                continue
            for number, (a, b) in enumerate(zip(want, seen)):
                if name == "ready":
                    assert a == b, number
                    continue
                assert {k: b[k] for k in a} == a, (name, number)
                if name == "completion":
                    assert b["solicited"] == (a["status"] != 0)
                    assert b["flags"] == b["immediate"] == 0
            assert len(want) == len(seen), (name, want, seen)
        assert self.counts == self.model.counts, (self.counts, self.model.counts)
        assert self.tokens == self.model.tokens

    async def state(self, ctx, qp, state):
        self.changing = True
        for word, value in enumerate(self.attributes(qp, state)):
            ctx.set(self.dut.attribute, {"index": qp, "word": word, "data": value})
            ctx.set(self.dut.attribute_en, 1)
            await self.tick(ctx)
        ctx.set(self.dut.attribute_en, 0)
        self.changing = False
        self.changed = self.cycle
        self.model.queues[qp].state = state

    def attributes(self, qp, state):
        queue = self.model.queues[qp]
        fields = {"retry_count": queue.retry_count, "rnr_retry": queue.rnr_retry}
        return QP_CONTEXT.words(state=state, sq_cqn=100 + qp, qpn=0x765400 + qp, **fields)

    def control(self, qp, action, psn=0):
        self.pending["control"].append({"qp": qp, "action": action, "psn": psn})

    async def start(self, ctx, qp, psn=0, **attributes):
        self.control(qp, QpAction.RESET)
        self.control(qp, QpAction.START_SEND, psn)
        await self.tell(ctx, qp, psn - 1)
        await self.settle(ctx)
        for name, value in attributes.items():
            setattr(self.model.queues[qp], name, value)
        await self.state(ctx, qp, QpState.RTS)

    async def sent(self, ctx, qp, packets=1):
        """Something is sent: one packet, or a READ request that stands for several."""
        queue = self.model.queues[qp]
        queue.psn += packets
        await self.tell(ctx, qp, queue.psn - 1)

    async def tell(self, ctx, qp, psn):
        """That this packet is the last one sent."""
        ctx.set(self.dut.sent, {"qp": qp, "psn": psn % PSNS})
        ctx.set(self.dut.sent_en, 1)
        await self.tick(ctx)
        ctx.set(self.dut.sent_en, 0)
        await self.tick(ctx)

    async def send(self, ctx, qp, packets=1, opcode=SendOpcode.SEND, signaled=1):
        """One message is sent, or the rest of it."""
        queue = self.model.queues[qp]
        first = queue.ended
        if opcode in READS:
            await self.sent(ctx, qp, packets)
        else:
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

    def respond(self, qp, kind, psn=0, syndrome=0x1F, verdict=0, **fields):
        job = {"qp": qp, "kind": kind, "psn": psn % PSNS, "msn": 0, "syndrome": syndrome, "status": 0, "wqe_index": 0}
        self.pending["job"].append(job | fields)
        self.pending["done"].append({"status": verdict, "tag": 1})

    def ack(self, qp, psn, syndrome=0x1F, msn=0):
        self.respond(qp, Kind.ACK, psn, syndrome, msn=msn)

    def depart(self, qp, psn):
        self.pending["departed"].append({"qp": qp, "psn": psn % PSNS})

    def fire(self, qp, late=0):
        self.pending["fired"].append({"qp": qp, "generation": (self.model.queues[qp].generation - late) % 16})

    def statuses(self, qp):
        return [(c["wqe_index"], c["status"], c["syndrome"]) for c in self.out["completion"] if c["qp"] == qp]

    def run(self, testbench, deadline=60_000):
        self.put = None
        simulate(self.dut, testbench, seed=self.rng.seed_value, deadline=deadline)
