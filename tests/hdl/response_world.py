"""READs and atomics in Python, what must come of each response, and a bench for a response receiver."""

import random

from receive_world import attributes, write_attributes
from received import ReceivedResponses
from streams import collect, pause, send_all, shared, simulate
from verbena.hdl.abi.commands import QpAction
from verbena.hdl.abi.cqe import Syndrome, WcStatus
from verbena.hdl.abi.wqe import SEND_WQE, SGE, send_sges
from verbena.hdl.transport.common.layouts import ResponseJobKind
from verbena.hdl.transport.completer.response_receiver import NO_AETH
from verbena.hdl.transport.receive.layouts import Work

QPS = 4
MASK24 = (1 << 24) - 1
FIRST, MIDDLE, LAST, ONLY, ACKNOWLEDGE, ATOMIC = range(0x0D, 0x13)
ACK, DATA, SKIPPED, NOTHING, TOKEN, FAILED, DEPARTED, LOCAL, PASSED = ResponseJobKind


class Message:
    """A READ or atomic: its PSNs, and the places of its bytes."""

    def __init__(self, rng, psn, index, mtu, stride, *, atomic=False, length=None, entries=None, readable=True):
        self.psn, self.index, self.mtu, self.stride, self.atomic = psn, index, mtu, stride, atomic
        self.length = 8 if atomic else length
        self.readable = readable
        most = send_sges(64 << stride)
        if entries is None:
            entries, rest = [], self.length
            for _ in range(0 if atomic else rng.randrange(most)):
                size = min(rest, rng.choice([0, 0, 1, 3, 7, 100, mtu, mtu + 1, rest // 2]))
                entries.append(size)
                rest -= size
            entries.append(rest)
        self.entries = [(rng.getrandbits(64), size, rng.getrandbits(32)) for size in entries]
        self.packets = max(1, -(-self.length // mtu))
        self.place = 0  # bytes that have come
        self.came = 0  # packets that have come
        self.resumed = 0  # packet from which on it was asked for again

    @property
    def fitting(self):
        """Opcodes that the next response may have. Where a READ was asked for again, it may begin anew."""
        if self.atomic:
            return [ATOMIC]
        last = self.came == self.packets - 1
        begins, goes_on = [ONLY if last else FIRST], [LAST if last else MIDDLE]
        if not self.came:
            return begins
        return begins + goes_on if self.came == self.resumed else goes_on

    @property
    def target(self):
        address, length, key = self.entries[0]
        return {
            "psn": self.psn,
            "wqe_index": self.index,
            "length": self.length,
            "address": address,
            "entry_length": length,
            "lkey": key,
            "stride": self.stride,
            "atomic": self.atomic,
            "second": dict(zip(("address", "length", "lkey"), [*self.entries, (0, 0, 0)][1])),
            "sge_count": len(self.entries),
        }

    def wqe(self, rng):
        """In memory; what lies behind the entries is left over from earlier ones."""
        size = 64 << self.stride
        head = SEND_WQE.pack(opcode=5 if self.atomic else 4, sge_count=len(self.entries), length=self.length)[:32]
        body = b"".join(SGE.pack(address=a, length=n, lkey=k) for a, n, k in self.entries)
        return (head + body + rng.randbytes(size))[:size]

    def cut(self, size):
        """Accesses (key, address, length) of the next ``size`` bytes, and how many of them have no place."""
        accesses, start = [], 0
        for number, (address, length, key) in enumerate(self.entries):
            begin, end = max(start, self.place), min(start + length, self.place + size)
            if begin < end:
                if number > 1 and not self.readable:
                    return accesses, size - sum(n for *_, n in accesses)
                accesses.append((key, (address + begin - start) % (1 << 64), end - begin))
            start += length
        return accesses, size - sum(n for *_, n in accesses)


class Model:
    """What a queue pair's response receiver must say to each response: the rules, one packet at a time."""

    def __init__(self, qp):
        self.qp = qp
        self.waiting = []  # messages told and not finished
        self.expected = []  # (job, moves, discarded)

    def say(self, kind, moves=(), discarded=0, **more):
        self.expected.append(({"qp": self.qp, "kind": kind} | more, list(moves), discarded))

    def respond(self, opcode, psn, length, accept, syndrome, msn):
        message = self.waiting[0] if self.waiting else None
        common = {"psn": psn, "msn": msn}
        if accept and opcode == ACKNOWLEDGE:
            self.say(ACK, syndrome=syndrome, **common)
            return
        distance = (psn - message.psn - message.came) & MASK24 if message else 0
        if not accept or not message or distance >= 1 << 23:
            self.say(NOTHING, discarded=length, **common)
        elif distance:
            self.say(SKIPPED, discarded=length, **common)
        elif opcode not in message.fitting:
            self.fail(message, common, WcStatus.BAD_RESP_ERR, Syndrome.OPCODE, discarded=length)
        elif opcode != MIDDLE and syndrome >= 32:
            self.fail(message, common, WcStatus.BAD_RESP_ERR, Syndrome.REMOTE_NAK, discarded=length)
        elif length != min(message.length - message.place, message.mtu):
            self.fail(message, common, WcStatus.BAD_RESP_ERR, Syndrome.LENGTH, discarded=length)
        else:
            moves, missing = message.cut(length)
            if missing and message.readable:
                self.fail(message, common, WcStatus.LOC_LEN_ERR, Syndrome.LENGTH, moves, missing)
            elif missing:
                self.fail(message, common, WcStatus.GENERAL_ERR, Syndrome.RING_BUS, moves, missing)
            else:
                syndrome = NO_AETH if opcode == MIDDLE else syndrome
                self.say(DATA, moves, wqe_index=message.index, syndrome=syndrome, **common)
                message.place += length
                message.came += 1
                if message.came == message.packets:
                    self.waiting.pop(0)

    def fail(self, message, common, status, syndrome, moves=(), discarded=0):
        more = {"status": status, "syndrome": syndrome, "wqe_index": message.index}
        self.say(FAILED, moves, discarded, **more, **common)

    def reset(self):
        self.waiting = []
        self.say(TOKEN)


class World:
    """Feeds events to a response receiver, each as soon as those before it that it depends on are over, and keeps what
    comes out. Send rings lie in ``memory``. ``more`` are further testbenches; events of other streams are over when
    these say so."""

    more = ()

    def __init__(self, rng, values, *, data_width=64, stall=0.0, latency=4):
        self.rng, self.values, self.stall, self.latency = rng, values, stall, latency
        self.data_width = data_width
        self.dut = shared(ReceivedResponses, QPS, data_width)
        self.events = []  # (stream, payload, numbers of events that must be over, action when it begins)
        self.over = []
        self.accesses, self.jobs, self.reads = [], [], []
        self.memory, self.broken = {}, set()
        self.cycles = []  # number of a response or token, and how long the block took for it

    def add(self, port, payload, after=(), action=None):
        self.events.append((port, payload, tuple(after), action))
        return len(self.events) - 1

    def wqe_address(self, qp, index):
        values = self.values[qp]
        return values["sq_base"] + (index % (1 << values["log_sq_size"]) << values["log_sq_stride"])

    def store(self, qp, message):
        address = self.wqe_address(qp, message.index)
        data = message.wqe(self.rng)
        (self.broken.discard if message.readable else self.broken.add)(address)
        for offset in range(0, len(data), 8):
            self.memory[address + offset] = int.from_bytes(data[offset : offset + 8], "little")

    def run(self, deadline=100_000):
        dut, rng = self.dut, self.rng
        self.over = [False] * len(self.events)
        ready_to_go = []
        passing = {"response": [], "control": []}

        async def prepare(ctx):
            for qp, values in enumerate(self.values):
                await write_attributes(ctx, dut, qp, **values)
            ready_to_go.append(True)
            while not all(self.over) or len(self.jobs) < self.total:
                await ctx.tick()

        def feeder(name):
            async def feed(ctx):
                port = getattr(dut, name)
                while not ready_to_go:
                    await ctx.tick()
                for number, (where, payload, after, action) in enumerate(self.events):
                    if where != name:
                        continue
                    while not all(self.over[k] for k in after):
                        await ctx.tick()
                    if action:
                        action()
                    await pause(ctx, rng, self.stall)
                    ctx.set(port.payload, payload)
                    ctx.set(port.valid, 1)
                    taken = False
                    while not taken:
                        _, _, taken = await ctx.tick().sample(port.ready)
                    ctx.set(port.valid, 0)
                    if name == "reads":
                        self.over[number] = True
                    else:
                        passing[name].append(number)
                async for _ in ctx.tick():
                    pass

            return feed

        async def ring(ctx):
            lanes = self.data_width // 64
            while True:
                requests = []
                while not requests:
                    _, _, valid, payload = await ctx.tick().sample(dut.read.valid, dut.read.payload)
                    if valid and rng.random() >= self.stall:
                        requests.append((payload.address, payload.length))
                        ctx.set(dut.read.ready, 1)
                        await ctx.tick()
                        ctx.set(dut.read.ready, 0)
                ((address, length),) = requests
                self.reads.append((address, length))
                for _ in range(self.latency):
                    await ctx.tick()
                beats = []
                for offset in range(0, length, 8 * lanes):
                    words = [self.memory[address + offset + 8 * k] for k in range(lanes)]
                    last = offset + 8 * lanes == length
                    beats.append(
                        {
                            "data": sum(word << 64 * k for k, word in enumerate(words)),
                            "count": 8 * lanes,
                            "first": offset == 0,
                            "last": last,
                            "error": last and address in self.broken,
                        }
                    )
                await send_all(ctx, dut.data, beats, rng, self.stall)

        async def noise(ctx):
            """Words of contexts are written again, as they are."""
            while not ready_to_go:
                await ctx.tick()
            while True:
                await ctx.tick()
                if self.stall and rng.random() < 0.02:
                    await write_attributes(ctx, dut, qp := rng.randrange(QPS), **self.values[qp])

        async def count(ctx):
            """What has passed the lookup is over when the block has taken it."""
            port, cycles = dut.block.response, 0
            async for _, _, valid, ready, work in ctx.tick().sample(port.valid, port.ready, port.payload.work):
                cycles = cycles + 1 if valid else 0
                if valid and ready:
                    number = passing["response" if work == Work.PACKET else "control"].pop(0)
                    self.over[number] = True
                    self.cycles.append((number, cycles))
                    cycles = 0

        async def access(ctx):
            await collect(ctx, dut.access, self.accesses, rng, self.stall)

        async def job(ctx):
            await collect(ctx, dut.job, self.jobs, rng, self.stall)

        feeders = [feeder(name) for name in ("response", "reads", "control")]
        self.total = sum(where in passing for where, *_ in self.events)
        background = (*feeders, ring, noise, count, access, job, *self.more)
        simulate(dut, prepare, background=background, seed=rng.seed_value, deadline=deadline)
        runs = [[]]
        for item in self.accesses:
            runs[-1].append(item)
            if item.last:
                runs.append([])
        assert runs.pop() == [], "an unfinished run"
        assert len(runs) == len(self.jobs)
        return list(zip(runs, self.jobs))


def check(got, models, values):
    """Runs and jobs of each QP are what its model says."""
    for qp, model in enumerate(models):
        mine = [(run, job) for run, job in got if job.qp == qp]
        assert len(mine) == len(model.expected)
        for (run, job), (wanted, moves, discarded) in zip(mine, model.expected):
            if job.kind == PASSED:
                assert wanted == {"qp": qp, "kind": TOKEN}
                wanted = {"qp": qp}
            assert {name: job[name] for name in wanted} == wanted
            assert {(access.qp, access.tag, access.access) for access in run} == {(qp, 1, 1)}
            assert all(access["clear"] == (job.kind in (TOKEN, PASSED)) for access in run)
            placed = [access for access in run if access.length and not access.discard]
            assert [(access.key, access.address, access.length) for access in placed] == moves
            assert all(access.pd == values[qp]["pd"] for access in placed)
            assert [access.length for access in run if access.discard] == ([discarded] if discarded else [])
            assert not discarded or run[-1].discard
            assert len(run) == max(1, len(moves) + bool(discarded))


def response(qp, opcode, psn, length, accept=1, syndrome=0x1F, msn=0):
    transport = {"opcode": opcode, "psn": psn, "length": length, "syndrome": syndrome, "msn": msn}
    return {"transport": transport, "qp": qp, "accept": accept}


def sends(rng, qp, log_stride=7, **values):
    return attributes(
        pd=0xABC00 + qp,
        sq_base=rng.getrandbits(51) << 12,
        log_sq_stride=log_stride,
        **values,
    )


class Script:
    """Random life of one queue pair, as events of a world."""

    def __init__(self, world, qp, rng):
        self.world, self.qp, self.rng = world, qp, rng
        self.values = world.values[qp]
        self.mtu = 128 << self.values["path_mtu"]
        self.stride = self.values["log_sq_stride"] - 6
        self.limit = min(16, 1 << self.values["log_sq_size"])
        self.model = Model(qp)
        self.psn = (1 << 24) - rng.randrange(1, 30)
        self.index = 65536 - rng.randrange(1, 10)
        self.life = []  # events since RESET
        self.tellings = []
        self.history = []  # responses since RESET: (event, nothing was waited for, told and unfinished before it)
        self.told = 0
        self.finished = 0
        self.barrier = []

    def tell(self):
        rng = self.rng
        atomic = rng.random() < 0.25
        length = rng.choice([0, 1, 8, 8, 9, self.mtu, self.mtu - 1, self.mtu + 1, rng.randrange(4 * self.mtu)])
        message = Message(
            rng, self.psn, self.index, self.mtu, self.stride, atomic=atomic, length=length,
            readable=rng.random() < 0.97,
        )  # fmt: skip
        if not atomic and rng.random() < 0.05:  # shorter than the message
            address, size, key = message.entries.pop()
            message.entries.append((address, size // 2, key))
        after = list(self.barrier)
        for event, idle, finished in self.history:
            if idle or self.told + 1 - finished > self.limit:
                after.append(event)
        payload = {"qp": self.qp, "target": message.target}
        self.tellings.append(
            self.world.add("reads", payload, after, lambda: self.world.store(self.qp, message)),
        )
        self.model.waiting.append(message)
        self.psn = (self.psn + message.packets) & MASK24
        self.index = (self.index + 1) % 65536
        self.told += 1

    def resume(self):
        """The oldest READ is asked for again, from where the requester believes that it stands."""
        message = self.model.waiting[0]
        message.resumed = self.rng.choice([message.came, message.came, message.came - 1, 1])
        target = {"psn": (message.psn + message.resumed) & MASK24, "wqe_index": 77, "length": 5}
        after = self.barrier + [event for event, *_ in self.history[-1:]]
        payload = {"qp": self.qp, "again": 1, "target": target}
        self.tellings.append(self.world.add("reads", payload, after))

    def answer(self):
        rng, model = self.rng, self.model
        message = model.waiting[0] if model.waiting else None
        psn = (message.psn + message.came) & MASK24 if message else self.psn
        length = min(message.length - message.place, self.mtu) if message else 8
        opcode = rng.choice(message.fitting if message else [FIRST, MIDDLE, LAST, ONLY])
        accept = 1
        match rng.choices(
            ["next", "again", "early", "length", "opcode", "ack", "refused"], [70, 6, 6, 1, 1, 10, 4]
        )[0]:  # fmt: skip
            case "again":
                psn = (psn - rng.choice([1, 2, 20, (1 << 23)])) & MASK24
            case "early":
                psn = (psn + rng.choice([1, 2, 20, (1 << 23) - 1])) & MASK24
            case "length":
                length = rng.choice([0, length + 1, max(0, length - 1), self.mtu, 8])
            case "opcode":
                opcode = rng.choice([FIRST, MIDDLE, LAST, ONLY, ATOMIC])
            case "ack":
                opcode, psn, length = ACKNOWLEDGE, rng.getrandbits(24), 0
            case "refused":
                opcode, accept = rng.choice([opcode, ACKNOWLEDGE]), 0
        # Of an ACK any syndrome passes.
        syndrome = rng.getrandbits(8 if opcode in (ACKNOWLEDGE, MIDDLE) or rng.random() < 0.02 else 5)
        msn = rng.getrandbits(24)
        payload = response(self.qp, opcode, psn, length, accept, syndrome, msn)
        event = self.world.add("response", payload, self.barrier + self.tellings[-1:])
        self.history.append((event, message is None, self.finished))
        before = len(model.waiting)
        model.respond(opcode, psn, length, accept, syndrome, msn)
        self.finished += before - len(model.waiting)

    def reset(self):
        after = self.tellings[-1:] + [event for event, *_ in self.history[-1:]] + self.barrier
        self.barrier = [self.world.add("control", {"qp": self.qp, "action": QpAction.RESET}, after)]
        self.model.reset()
        self.tellings, self.history = [], []
        self.told = self.finished = self.index = 0
        self.psn = self.rng.getrandbits(24)

    def step(self):
        failed = self.model.expected and self.model.expected[-1][0]["kind"] == FAILED
        if self.rng.random() < (0.2 if failed else 0.003):
            self.reset()
        elif len(self.model.waiting) < self.limit and self.rng.random() < 0.35:
            self.tell()
        elif self.model.waiting and self.model.waiting[0].came and self.rng.random() < 0.3:
            self.resume()
        else:
            self.answer()


def message(psn=5, length=8, entries=None, index=3, **more):
    return Message(random.Random(2), psn, index, 256, 1, length=length, entries=entries or [length], **more)
