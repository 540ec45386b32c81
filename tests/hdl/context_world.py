"""Contexts in host memory: the table, a bus with jitter that does its worst, and who uses the contexts that come."""

from collections import Counter, deque

from amaranth.hdl import Signal
from amaranth.lib import data
from streams import make_rng, plain
from verbena.hdl.abi.qpc import QPC_BYTES, ContextRecord, Owned
from verbena.hdl.abi.record import Field
from verbena.hdl.abi.tables import AccessStatus

__all__ = ["BASE", "NAMES", "RECORD", "STATES", "World"]

BASE = 0xFF_1234_5000
FIRST, SECOND, THIRD = (
    data.StructLayout({"psn": 24, "place": data.StructLayout({"address": 64, "left": 31})}),
    data.StructLayout({"value": 33, "active": 1}),
    data.StructLayout({"count": 40, "more": 5}),
)
STATES = {"first": FIRST, "second": SECOND, "third": THIRD}
NAMES = ("state", "pd", "rq_base")


def _of(part):
    return lambda name, width: Owned(name, width, part=part)


_a, _f, _s, _t = map(_of, ("attributes", "first", "second", "third"))

RECORD = ContextRecord(
    "small",
    1,
    {"attributes": "a", "first": "b", "second": "c", "third": "d"},
    {
        1: [[_a("state", 4), _a("ignored", 9), Field("_", 3), _a("pd", 24)], [], [_a("rq_base", 64)]],
        2: [
            [_f("first_psn", 24), _s("second_active", 1)],
            [_f("first_place_address", 64)],
            [],
            [_s("second_value", 33)],
            [],
            [],
            [],
            [_f("first_place_left", 31)],
        ],
        5: [[_t("third_more", 5)], [], [_t("third_count", 40)]],
    },
    "Two parts in a line, a line with gaps, a line that is short.",
)


class World:
    """``qpns``: those that have a record. ``unread``, ``unwritten``: those whose record the bus does not read or write.

    The bus does its worst: a write reaches memory when it is answered, and a read sees memory when it is asked for, or
    when it is answered.
    """

    def __init__(self, dut, qpns, *, latency=20, answer=20, stall=0.3, hold=20, seed=None, reset=None):
        self.dut, self.qpns = dut, list(qpns)
        self.rng = make_rng(seed)
        self.latency, self.answer, self.stall, self.hold = latency, answer, stall, hold
        self.reset = reset if reset is not None else Signal()
        self.unread, self.unwritten = set(), set()
        self.memory = {}
        self.model = {}  # QPN -> the values of all states
        self.reads, self.writes = Counter(), Counter()  # lines, of each QPN
        self.fetching, self.saving = deque(), deque()
        self.errors, self.failed = Counter(), Counter()  # (QPN, write): told, and made by the bus
        self.pinned = Counter()
        self.sent, self.taken = deque(), []
        self.most_reads = self.misses = self.life = self.cycle = 0
        for qpn in self.qpns:
            self.create(qpn)

    # -- The table.

    def create(self, qpn):
        """A record of random bits, also where nothing stands."""
        self.memory[qpn] = bytearray(self.rng.randbytes(RECORD.size))
        self.model[qpn] = self.kept(qpn)

    def kept(self, qpn):
        fields = RECORD.unpack(bytes(self.memory[qpn]))
        return {name: value for name, value in fields.items() if name.partition("_")[0] in STATES}

    def attributes(self, qpn):
        fields = RECORD.unpack(bytes(self.memory[qpn]))
        return {name: fields[name] & ~(0xFFF if name == "rq_base" else 0) for name in NAMES}

    def place(self, address):
        qpn, offset = divmod(address - BASE, QPC_BYTES)
        assert qpn in self.memory, f"QPN {qpn:#x} has no record"
        offset -= RECORD.size
        assert offset in (64, 128, 320), "a line of the responder's half"
        return qpn, offset

    @staticmethod
    def flat(states):
        """{name of the field: value} of states as they come out."""
        found = {}
        for part, state in states.items():
            stack = [(part, state)]
            while stack:
                path, value = stack.pop()
                if isinstance(value, dict):
                    stack += [(f"{path}_{name}", inner) for name, inner in value.items()]
                else:
                    found[path] = value
        return found

    # -- The bus.

    async def bus_reads(self, ctx):
        """In order; the bytes as they are when the read comes, or when it is answered."""
        read, out, rng = self.dut.read, self.dut.data, self.rng
        width = out.payload.data.shape().width // 8
        beats, ready, life = deque(), 0, 0
        while True:
            if life != self.life:
                beats.clear()
                self.fetching.clear()
                life = self.life
            if not beats and self.fetching and self.fetching[0][0] <= self.cycle:
                _, qpn, offset, length, content = self.fetching.popleft()
                content = bytes(self.memory[qpn][offset : offset + length]) if content is None else content
                error = qpn in self.unread
                for at in range(0, length, width):
                    part = content[at : at + width]
                    beat = {"data": int.from_bytes(part, "little"), "count": len(part), "first": at == 0}
                    beats.append(beat | {"last": at + width >= length, "error": error and at + width >= length})
            sending = bool(beats) and rng.random() > self.stall / 2
            ctx.set(out.valid, sending)
            if sending:
                ctx.set(out.payload, beats[0])
            _, _, valid, request, taken = await ctx.tick().sample(read.valid, read.payload, out.ready)
            if life != self.life:
                continue
            if sending and taken:
                beats.popleft()
            if valid and ready:
                qpn, offset = self.place(request.address)
                content = bytes(self.memory[qpn][offset : offset + request.length]) if rng.random() < 0.5 else None
                due = self.cycle + rng.randint(self.latency // 2, self.latency)
                self.fetching.append((due, qpn, offset, request.length, content))
                self.reads[qpn] += 1
                self.most_reads = max(self.most_reads, len(self.fetching))
            ready = rng.random() > self.stall
            ctx.set(read.ready, ready)

    async def bus_writes(self, ctx):
        """In order; the bytes reach memory with the answer."""
        write, beats, done, rng = self.dut.write_request, self.dut.write_data, self.dut.done, self.rng
        waiting, content, life = deque(), bytearray(), 0
        ready = takes = 0
        while True:
            if life != self.life:
                waiting.clear()
                self.saving.clear()
                content.clear()
                life = self.life
            due = bool(self.saving) and self.saving[0][0] <= self.cycle
            status = AccessStatus.OK
            if due and self.saving[0][1] in self.unwritten:
                status = AccessStatus.BUS
            ctx.set(done.valid, due)
            ctx.set(done.payload.status, status)
            _, _, valid, request, sends, beat, answered = await ctx.tick().sample(
                write.valid, write.payload, beats.valid, beats.payload, done.ready
            )
            if life != self.life:
                continue
            if due and answered:
                _, qpn, offset, block = self.saving.popleft()
                if status == AccessStatus.OK:
                    self.memory[qpn][offset : offset + len(block)] = block
            if valid and ready:
                assert request.length % 8 == 0
                assert 8 <= request.length <= 64
                waiting.append((*self.place(request.address), request.length))
                self.writes[waiting[-1][0]] += 1
            if sends and takes:
                assert waiting, "beats move behind their request"
                qpn, offset, length = waiting[0]
                assert beat.first == (not content)
                content += beat.data.to_bytes(len(Signal.like(beats.payload.data)) // 8, "little")[: beat.count]
                assert beat.last == (len(content) >= length)
                if beat.last:
                    assert len(content) == length
                    self.saving.append(
                        (self.cycle + rng.randint(self.answer // 2, self.answer), qpn, offset, bytes(content))
                    )
                    waiting.popleft()
                    content.clear()
            ready, takes = rng.random() > self.stall, rng.random() > self.stall
            # Beats move only after the request has.
            ctx.set(write.ready, ready)
            ctx.set(beats.ready, takes and bool(waiting))
            takes = takes and bool(waiting)

    async def clock(self, ctx):
        error = self.dut.error
        ready = 0
        while True:
            _, _, valid, told, missed = await ctx.tick().sample(error.valid, error.payload, self.dut.count_miss)
            self.cycle += 1
            self.misses += missed
            if valid and ready:
                self.errors[told.qpn, told.write] += 1
            ready = self.rng.random() > self.stall
            ctx.set(error.ready, ready)

    # -- Who uses them.

    async def produce(self, ctx, items):
        port, rng, life = self.dut.i, self.rng, self.life
        for qpn, number in items:
            while rng.random() < self.stall:
                await ctx.tick()
            ctx.set(port.payload, {"qpn": qpn, "item": number})
            ctx.set(port.valid, 1)
            taken = 0
            while not taken and life == self.life:
                _, _, taken = await ctx.tick().sample(port.ready)
            ctx.set(port.valid, 0)
            if life != self.life:
                return
            self.sent.append((qpn, number))

    def unpins(self, slot, qpn):
        self.release.append((self.cycle + self.rng.randint(0, self.hold), slot, qpn))

    async def releases(self, ctx):
        """At most one a cycle, in any order; also in the very cycle of the item's taking, which ``consume`` does."""
        dut = self.dut
        self.release, self.now = [], None
        while True:
            due = [entry for entry in self.release if entry[0] <= self.cycle]
            ctx.set(dut.unpin_en, bool(due))
            if due:
                entry = self.rng.choice(due)
                self.release.remove(entry)
                ctx.set(dut.unpin, entry[1])
                self.pinned[entry[2]] -= 1
            await ctx.tick()

    async def consume(self, ctx, count):
        """Takes items, compares what comes with them, and writes back."""
        dut, rng, life = self.dut, self.rng, self.life
        taken = 0
        while taken < count:
            while rng.random() < self.stall or not (ctx.get(dut.o.valid) and ctx.get(dut.settled)):
                await ctx.tick()
                if life != self.life:
                    return
            got = plain(ctx.get(dut.o.payload))
            qpn = got["qpn"]
            values = {part: {} for part in STATES if rng.random() < 0.5}
            self.check(got)
            ctx.set(dut.o.ready, 1)
            for part, shape in STATES.items():
                port = getattr(dut.write, part)
                bits = rng.getrandbits(data.Layout.cast(shape).size)
                ctx.set(port.en, part in values)
                ctx.set(port.data, shape.from_bits(bits))
                if part in values and got["known"] and not got["bad"]:
                    self.model[qpn].update(self.flat({part: plain(shape.from_bits(bits))}))
            if got["known"]:
                self.pinned[qpn] += 1
            self.taken.append((self.cycle, qpn))
            await ctx.tick()
            if life != self.life:
                return
            if got["known"]:
                self.unpins(got["slot"], qpn)
            ctx.set(dut.o.ready, 0)
            for part in STATES:
                ctx.set(getattr(dut.write, part).en, 0)
            taken += 1

    def check(self, got):
        qpn = got["qpn"]
        assert (qpn, got["item"]) == self.sent[0]
        self.sent.popleft()
        assert got["known"] == (qpn in self.memory)
        assert got["bad"] == (qpn in self.unread)
        if got["known"] and not got["bad"] and qpn not in self.unwritten:
            assert self.flat(got["states"]) == self.model[qpn], f"QPN {qpn:#x}"
            assert dict(got["attributes"]) == self.attributes(qpn), f"QPN {qpn:#x}"

    @property
    def background(self):
        return [self.bus_reads, self.bus_writes, self.clock, self.releases]
