"""CompletionWriter against a Python model of CQ rings and of their driver."""

from functools import partial

import pytest
from amaranth.back import rtlil
from amaranth.hdl import ResetInserter, Signal, Value
from streams import changes, make_rng, pause, receive_all, received, send_all, shared, simulate, unpacked
from verbena.hdl.abi.contexts import CQ_CONTEXT
from verbena.hdl.abi.cqc import ARMS_BITS, CQ_RECORD, CQC_BYTES, CQC_DRIVER, CQC_SAVED
from verbena.hdl.abi.cqe import CQE
from verbena.hdl.abi.eqe import EventType
from verbena.hdl.queue.completion import CompletionWriter

QPS = 64
UNIT = 8
"""Cycles of a unit of time."""
TABLE, LOG_TABLE = 0x4_0000_0000, 6
COPIED = ("immediate", "byte_length", "status", "opcode", "flags", "wqe_index", "qpn", "source_qpn", "syndrome")
SOURCE = {"ip": 32, "traffic_class": 8, "hop_limit": 8}


class World:
    """Memory behind the writer with its table of CQs, the driver's part of that, and events."""

    def __init__(self, dut, rng, stall=0.3, latency=(1, 60)):
        self.dut, self.rng, self.stall, self.latency = dut, rng, stall, latency
        self.hints = 0.2
        self.memory = {}
        self.records = {cq: bytearray(CQC_BYTES) for cq in range(1 << LOG_TABLE)}
        self.told = {cq: {"consumer": 0, "arms": 0, "solicited_arms": 0, "consumer_ring": 0} for cq in self.records}
        self.requests, self.packets, self.answers = [], [], []
        self.visible = []  # (time, address)
        self.events = []  # (time, type, number)
        self.vectors = []  # of the same events
        self.time = 0
        self.cqes = self.overruns = self.fetches = 0
        self.errors = []  # QPs
        self.listening = True
        self.fail = set()  # addresses whose accesses fail

    async def clock(self, ctx):
        counters = (self.dut.count_cqes, self.dut.count_cq_overruns, self.dut.count_cq_fetches)
        ctx.set(self.dut.base, TABLE)
        ctx.set(self.dut.log_size, LOG_TABLE)
        async for _, _, cqes, overruns, fetches in ctx.tick().sample(*counters):
            self.time += 1
            if self.dut.moderation:
                ctx.set(self.dut.unit, self.time % UNIT == 0)
            self.cqes += cqes
            self.overruns += overruns
            self.fetches += fetches

    async def requests_in(self, ctx):
        async for request in received(ctx, self.dut.write, self.rng, self.stall):
            assert request.length == (CQC_SAVED if self.of_record(request.address) is not None else CQE.size)
            self.requests.append((request.address, request.length))

    async def beats_in(self, ctx):
        packet = b""
        async for beat in received(ctx, self.dut.data, self.rng, self.stall):
            assert beat.first == (not packet)
            packet += beat.data.to_bytes(self.dut.data_width // 8, "little")[: beat.count]
            assert not beat.error
            if beat.last:
                self.packets.append(packet)
                packet = b""

    async def done_out(self, ctx):
        due = 0
        edges = aiter(ctx.tick())
        while True:
            while not (self.requests and self.packets):
                await anext(edges)
            (address, length), packet = self.requests.pop(0), self.packets.pop(0)
            assert len(packet) == length
            due = max(due, self.time + self.rng.randint(*self.latency))
            self.answers.append((due, address, packet))

    async def answer(self, ctx):
        while True:
            edges = aiter(ctx.tick())
            while not self.answers or self.answers[0][0] > self.time:
                await anext(edges)
            _, address, packet = self.answers.pop(0)
            if address not in self.fail:
                self.visible.append((self.time, address))
                if (cq := self.of_record(address)) is None:
                    self.memory[address] = packet
                else:
                    self.records[cq][: len(packet)] = packet
            await send_all(ctx, self.dut.done, [{"status": 7 if address in self.fail else 0}])

    async def reads(self, ctx):
        """One record at a time, as it is at some moment of the read."""
        dut, size = self.dut, self.dut.data_width // 8
        while True:
            (request,) = await receive_all(ctx, dut.fetch, 1, self.rng if self.stall else None, self.stall)
            address, length = request["address"], request["length"]
            assert length == CQC_BYTES
            cq = self.of_record(address)
            delay = self.rng.randint(*self.latency)
            moment = self.rng.randint(0, delay)
            for _ in range(moment):
                await ctx.tick()
            record = bytes(self.records[cq])
            for _ in range(delay - moment):
                await ctx.tick()
            beats = [
                {
                    "data": int.from_bytes(record[at : at + size], "little"),
                    "count": size,
                    "first": at == 0,
                    "last": at == CQC_BYTES - size,
                    "error": at == CQC_BYTES - size and address in self.fail,
                }
                for at in range(0, CQC_BYTES, size)
            ]
            await send_all(ctx, dut.fetched, beats, self.rng if self.stall else None, self.stall)

    @staticmethod
    def of_record(address):
        cq, rest = divmod(address - TABLE, CQC_BYTES)
        return cq if 0 <= cq < 1 << LOG_TABLE and rest == 0 else None

    def write_record(self, cq, **fields):
        """What the engine may have left of a CQ."""
        told = self.told[cq]
        told |= {name: fields.pop(name) for name in list(fields) if name in told}
        self.records[cq][:] = CQ_RECORD.pack(**fields, **told)

    def tell(self, cq, **fields):
        """The driver's word."""
        self.told[cq] |= fields
        self.records[cq][CQC_DRIVER : CQC_DRIVER + 8] = CQ_RECORD.pack(**self.told[cq])[CQC_DRIVER : CQC_DRIVER + 8]

    def count_arms(self, cq, flags):
        """One arm more, for the next completion (bit 0 of ``flags``), for the next solicited one (bit 1)."""
        told = self.told[cq]
        for bit, name in enumerate(("arms", "solicited_arms")):
            if flags >> bit & 1:
                self.tell(cq, **{name: (told[name] + 1) % (1 << ARMS_BITS)})
        return {"cq": cq, "arms": told["arms"], "solicited_arms": told["solicited_arms"]}

    async def arm(self, ctx, cq, flags):
        await send_all(ctx, self.dut.arm, [self.count_arms(cq, flags)])

    async def consume(self, ctx, cq, index):
        self.tell(cq, consumer=index)
        await send_all(ctx, self.dut.consumer, [{"cq": cq, "index": index}])
        await ctx.tick().repeat(2)  # it counts from the third cycle on

    async def errors_in(self, ctx):
        port, put = self.dut.error, changes(ctx)
        edges = aiter(ctx.tick().sample(port.valid, Value.cast(port.payload)))
        while True:
            ready = self.rng.random() >= self.stall
            put(port.ready, ready)
            _, _, valid, bits = await anext(edges)
            if valid and ready:
                error = unpacked(port, bits)
                assert error.event == EventType.QP_FATAL
                self.errors.append(error.qp)

    async def events_in(self, ctx, vector=0):
        port, put = self.dut.event[vector], changes(ctx)
        edges = aiter(ctx.tick().sample(port.valid, Value.cast(port.payload)))
        while True:
            while self.stall and self.rng.random() < self.stall:
                put(port.ready, 0)
                await anext(edges)
            listening = self.listening
            put(port.ready, listening)
            _, _, valid, bits = await anext(edges)
            if valid and listening:
                event = unpacked(port, bits)
                self.events.append((self.time, event.type, event.number))
                self.vectors.append(vector)

    async def control(self, ctx, **control):
        """Returns ``control_bad``."""
        ctx.set(self.dut.control.payload, control)
        ctx.set(self.dut.control.valid, 1)
        ready = bad = 0
        while not ready:
            _, _, ready, bad = await ctx.tick().sample(self.dut.control.ready, self.dut.control_bad)
        ctx.set(self.dut.control.valid, 0)
        return bad

    async def attributes(self, ctx, cq, base, log_size, valid=1, **events):
        ctx.set(self.dut.attribute_en, 1)
        for number, word in enumerate(CQ_CONTEXT.words(base=base, log_size=log_size, valid=valid, **events)):
            ctx.set(self.dut.attribute, {"index": cq, "word": number, "data": word})
            await ctx.tick()
        ctx.set(self.dut.attribute_en, 0)
        for _ in range(3):
            await ctx.tick()

    async def configure(self, ctx, cq, base, log_size, valid=1, **events):
        """A CQ is made, as the command block does it."""
        self.tell(cq, consumer=0, arms=0, solicited_arms=0, consumer_ring=0)
        assert not await self.control(ctx, cq=cq, hold=1)
        await self.attributes(ctx, cq, base, log_size, valid, **events)
        await self.control(ctx, cq=cq)

    async def moderate(self, ctx, cq, base, log_size, **events):
        """Its moderation changes, and nothing else."""
        assert not await self.control(ctx, cq=cq, hold=1, keep=1, stay=1)
        await self.attributes(ctx, cq, base, log_size, **events)
        await self.control(ctx, cq=cq, keep=1, stay=1)

    async def move(self, ctx, cq, base, log_size, pause=0):
        """It gets another ring; what it has to say stays."""
        assert not await self.control(ctx, cq=cq, hold=1, keep=1)
        await self.attributes(ctx, cq, base, log_size)
        for _ in range(pause):
            await ctx.tick()
        await self.control(ctx, cq=cq, keep=1)
        self.tell(cq, consumer=0, consumer_ring=self.told[cq]["consumer_ring"] ^ 1)

    def completion(self, cq, **fields):
        rng = self.rng
        item = {name: rng.getrandbits(CQE.fields[name].width) for name in COPIED}
        item["source"] = {name: rng.getrandbits(width) for name, width in SOURCE.items()}
        item |= {"cq": cq, "qp": rng.randrange(QPS), "status": 0, "solicited": 0}
        return item | fields

    async def foretell(self, ctx):
        """Mostly nonsense."""
        edges = aiter(ctx.tick())
        while True:
            if self.rng.random() < self.hints:
                ctx.set(self.dut.hint_cq, self.rng.randrange(4))
            await anext(edges)

    async def quiet(self, ctx):
        """All CQEs are visible; an event may wait for more of them."""
        for _ in range(3):
            while self.requests or self.packets or self.answers or ctx.get(self.dut.completion.valid):
                await ctx.tick()
            for _ in range(20):
                await ctx.tick()

    async def idle(self, ctx):
        quiet = 0
        edges = aiter(ctx.tick().sample(self.dut.idle))
        while quiet < 3:
            _, _, idle = await anext(edges)
            quiet = quiet + 1 if idle else 0
        assert not self.requests + self.packets + self.answers

    def run(self, *testbenches, **kwargs):
        background = (
            self.foretell,
            self.clock,
            self.requests_in,
            self.beats_in,
            self.done_out,
            self.answer,
            self.reads,
            *(partial(self.events_in, vector=vector) for vector in range(self.dut.queues)),
            self.errors_in,
        )
        simulate(self.dut, *testbenches, background=background, seed=self.rng.seed_value, **kwargs)


def expected(item, phase):
    source = item.get("source") or dict.fromkeys(SOURCE, 0)
    where = {"source_ip": source["ip"], "traffic_class": source["traffic_class"], "hop_limit": source["hop_limit"]}
    return CQE.pack(phase=phase, **where, **{name: item[name] for name in COPIED})


@pytest.mark.parametrize("data_width", [64, 128, 256, 512])
def test_rings(data_width):
    """Several CQs; a driver that polls the phase bit and never lets a ring overflow."""
    rng = make_rng()
    world = World(shared(CompletionWriter, data_width, 4), rng, stall=rng.choice([0, 0.3]))
    sizes = [0, 1, 3, 12]
    bases = [0x1000, 0xFFFF_FFFF_FFFF_F000 - 0x1000, 0x7FFF_F000, 0x10_0000]
    each = 20
    sent = [[] for _ in sizes]
    polled = [0] * 4

    async def producer(ctx):
        for cq, log_size in enumerate(sizes):
            await world.configure(ctx, cq, bases[cq], log_size)
        while min(map(len, sent)) < each:
            cq = rng.randrange(4)
            if len(sent[cq]) < each and len(sent[cq]) - polled[cq] < 1 << sizes[cq]:
                item = world.completion(cq)
                sent[cq].append(item)
                await send_all(ctx, world.dut.completion, [item])
            await pause(ctx, rng, 0.2)

    async def poller(ctx):
        while min(polled) < each:
            await ctx.tick()
            for cq, log_size in enumerate(sizes):
                place = polled[cq] % (1 << log_size)
                phase = ~(polled[cq] >> log_size) & 1
                found = world.memory.get(bases[cq] + 32 * place, bytes(32))
                if found[31] >> 7 == phase and polled[cq] < len(sent[cq]):
                    assert found == expected(sent[cq][polled[cq]], phase)
                    await world.consume(ctx, cq, polled[cq] + 1)
                    polled[cq] += 1
        await world.idle(ctx)

    world.run(producer, poller)
    assert world.cqes == 4 * each
    assert world.overruns == 0
    assert not world.events


@pytest.mark.parametrize("data_width", [64, 512])
def test_what_was_taken_before_a_mark_is_in_memory(data_width):
    """However many follow; and without any it is at once."""
    rng = make_rng()
    world = World(shared(CompletionWriter, data_width, 4), rng, stall=rng.choice([0, 0.3]))
    dut, sent, waited = world.dut, [], []

    async def mark(ctx):
        ctx.set(dut.mark, 1)
        await ctx.tick()
        ctx.set(dut.mark, 0)
        cycles = 0
        while not ctx.get(dut.visible):
            await ctx.tick()
            cycles += 1
        return cycles

    async def producer(ctx):
        await world.configure(ctx, 0, 0x1000, 8)
        for _ in range(60):
            await send_all(ctx, dut.completion, [world.completion(0)])
            sent.append(None)
            await pause(ctx, rng, 0.2)
        await world.quiet(ctx)
        assert await mark(ctx) == 0

    async def marker(ctx):
        while len(sent) < 60:
            before = len(sent)
            waited.append(await mark(ctx))
            assert len(world.visible) >= before
            await ctx.tick().repeat(rng.randrange(1, 40))

    world.run(producer, marker)
    assert max(waited) > 1


@pytest.mark.parametrize("data_width", [64, 512])
def test_a_completion_waits_until_it_is_in_memory(data_width):
    """Who is told that none waits finds all that was taken before."""
    rng = make_rng()
    world = World(shared(CompletionWriter, data_width, 4), rng, stall=rng.choice([0, 0.3]))
    dut, sent = world.dut, []

    async def producer(ctx):
        await world.configure(ctx, 0, 0x1000, 8)
        for _ in range(60):
            await send_all(ctx, dut.completion, [world.completion(0)])
            sent.append(None)
            await pause(ctx, rng, 0.9)
        await world.quiet(ctx)

    async def listener(ctx):
        rests = 0
        while len(sent) < 60:
            taken = len(sent)
            if not ctx.get(dut.waits):
                assert len(world.visible) >= taken
                rests += 1
            await ctx.tick()
        assert rests > 0

    world.run(producer, listener)


@pytest.mark.parametrize("log_size", [0, 2, 15])
def test_indices_wrap(log_size):
    rng = make_rng()
    world = World(shared(CompletionWriter, 64, 2), rng)

    async def testbench(ctx):
        world.write_record(0, base=0x10_0000, log_size=log_size, valid=1, producer=65_528, consumer=65_528)
        for index in range(65_528, 65_548):
            item = world.completion(0)
            await send_all(ctx, world.dut.completion, [item])
            await world.idle(ctx)
            phase = ~(index >> log_size) & 1
            assert world.memory[0x10_0000 + 32 * (index % (1 << log_size))] == expected(item, phase)
            if index + 1 & (1 << log_size) - 1 == 0:
                await world.consume(ctx, 0, index + 1 & 0xFFFF)

    world.run(testbench)
    assert world.overruns == 0


@pytest.mark.parametrize("log_size", [0, 2, 5])
def test_overrun(log_size):
    rng = make_rng()
    world = World(shared(CompletionWriter, 64, 4), rng)
    dut = world.dut
    size = 1 << log_size

    async def testbench(ctx):
        await world.configure(ctx, 1, 0x1000, log_size)
        await world.configure(ctx, 2, 0x8000, 4)
        items = [world.completion(1) for _ in range(size + 3)]
        items[-2]["status"] = 5
        await send_all(ctx, dut.completion, items)
        await send_all(ctx, dut.completion, [world.completion(2)])
        await world.idle(ctx)
        assert (world.cqes, world.overruns) == (size + 1, 3)
        assert world.errors == [items[-3]["qp"], items[-1]["qp"]]
        assert [event[1:] for event in world.events] == [(EventType.CQ_ERR, 1)]
        assert sorted(world.memory) == [*(0x1000 + 32 * n for n in range(size)), 0x8000]
        await world.consume(ctx, 1, size)  # too late
        await send_all(ctx, dut.completion, [world.completion(1, qp=7)])
        await world.idle(ctx)
        assert (world.cqes, world.overruns) == (size + 1, 4)
        assert world.errors[2:] == [7]
        await world.configure(ctx, 1, 0x1000, log_size)
        await send_all(ctx, dut.completion, [again := world.completion(1)])
        await world.idle(ctx)
        assert world.memory[0x1000] == expected(again, 1)
        assert len(world.events) == 1
        assert len(world.errors) == 3

    world.run(testbench)


def test_arming_of_one_cq_meets_the_overrun_of_another():
    """In whichever cycle after the completion it comes: it counts."""
    rng = make_rng()
    world = World(shared(CompletionWriter, 64, 4), rng, stall=0)
    world.hints = 0
    dut = world.dut

    async def testbench(ctx):
        for cq, log_size in ((1, 0), (2, 8)):
            await world.configure(ctx, cq, 0x1_0000 * cq, log_size)
        for delay in range(12):
            await world.configure(ctx, 1, 0x1_0000, 0)
            arm = world.count_arms(2, 1)
            await send_all(ctx, dut.completion, [world.completion(1)])
            await world.idle(ctx)
            ctx.set(dut.completion.payload, world.completion(1))
            ctx.set(dut.completion.valid, 1)
            ready, armed, cycles = 0, False, 0
            while not (ready and armed):
                ctx.set(dut.arm.payload, arm)
                ctx.set(dut.arm.valid, cycles >= delay and not armed)
                _, _, taken, arming, heard = await ctx.tick().sample(dut.completion.ready, dut.arm.valid, dut.arm.ready)
                armed |= bool(arming and heard)
                cycles += 1
                if taken:
                    ready = 1
                    ctx.set(dut.completion.valid, 0)
            ctx.set(dut.arm.valid, 0)
            await world.idle(ctx)
            world.events.clear()
            await send_all(ctx, dut.completion, [world.completion(2)])
            await world.idle(ctx)
            assert [event[1:] for event in world.events] == [(EventType.COMPLETION, 2)]
        assert world.overruns == 12

    world.run(testbench)


@pytest.mark.parametrize("first", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_an_arm_in_the_cycle_of_an_overrun(first):
    """One CQ overruns, and another one is armed some cycles after the CQE that does it: never in vain."""
    pairs = 16
    world = World(shared(CompletionWriter, 64, 2 * pairs), make_rng(), stall=0)
    dut = world.dut

    async def testbench(ctx):
        for cq in range(2 * pairs):
            await world.configure(ctx, cq, 0x1000 * (1 + cq), 0)
        for delay in range(first, pairs, 2):
            full, armed = 2 * delay, 2 * delay + 1
            await send_all(ctx, dut.completion, [world.completion(full)])
            await world.idle(ctx)
            ctx.set(dut.completion.payload, world.completion(full))
            waiting = {dut.completion: 0, dut.arm: delay}
            for cycle in range(3 * pairs):
                if cycle == delay:
                    ctx.set(dut.arm.payload, world.count_arms(armed, 1))
                for port, begin in waiting.items():
                    ctx.set(port.valid, cycle >= begin)
                _, _, *ready = await ctx.tick().sample(*(port.ready for port in waiting))
                waiting = {
                    port: 1000 if taken and cycle >= begin else begin
                    for (port, begin), taken in zip(waiting.items(), ready, strict=True)
                }
                if list(waiting.values()) == [1000, 1000]:
                    break
            else:
                pytest.fail(f"{waiting} were not taken")
            for port in waiting:
                ctx.set(port.valid, 0)
            await world.idle(ctx)
            await send_all(ctx, dut.completion, [world.completion(armed)])
            await world.idle(ctx)
            told = [(EventType.CQ_ERR, full), (EventType.COMPLETION, armed)]
            assert [event[1:] for event in world.events[-2:]] == told, f"armed {delay} cycles after"

    world.run(testbench)
    assert world.overruns == pairs // 2


def test_consumer_nonsense():
    """A consumer index that runs ahead of the producer kills the CQ and harms nobody else."""
    rng = make_rng()
    world = World(shared(CompletionWriter, 64, 2), rng)

    async def testbench(ctx):
        await world.configure(ctx, 0, 0x1000, 3)
        await world.consume(ctx, 0, 5)
        await send_all(ctx, world.dut.completion, [world.completion(0)])
        await world.idle(ctx)
        assert not world.memory
        assert [event[1:] for event in world.events] == [(EventType.CQ_ERR, 0)]

    world.run(testbench)


def test_invalid():
    rng = make_rng()
    world = World(shared(CompletionWriter, 64, 4), rng)

    async def testbench(ctx):
        await world.configure(ctx, 1, 0x1000, 3, valid=0)
        await world.configure(ctx, 2, 0x1000, 3)
        await send_all(ctx, world.dut.completion, [world.completion(cq, qp=cq % 5) for cq in (0, 1, 66, 0xFFE)])
        await world.idle(ctx)
        assert world.errors == [0, 1, 1, 4]
        assert not world.memory
        assert not world.events
        assert (world.cqes, world.overruns) == (0, 4)

    world.run(testbench)


def test_bus_error():
    """The CQ is dead, with one event, however many writes fail; events of CQEs before it still come."""
    rng = make_rng()
    world = World(shared(CompletionWriter, 64, 2), rng, latency=(40, 60))
    world.fail = {0x1000 + 32, 0x1000 + 64}

    async def testbench(ctx):
        await world.configure(ctx, 1, 0x1000, 2)
        world.listening = False
        await world.arm(ctx, 1, 1)
        await send_all(ctx, world.dut.completion, [world.completion(1) for _ in range(3)])
        for _ in range(200):
            await ctx.tick()
        world.listening = True
        await send_all(ctx, world.dut.completion, [world.completion(1)])
        await world.idle(ctx)
        assert (world.cqes, world.overruns) == (1, 1)
        assert [event[1:] for event in world.events] == [(EventType.COMPLETION, 1), (EventType.CQ_ERR, 1)]
        await world.configure(ctx, 1, 0x1000, 2)
        world.latency = (80, 80)
        for _ in range(3):
            await send_all(ctx, world.dut.completion, [world.completion(1)])
            for _ in range(20):  # the first failure's event is out when the second comes
                await ctx.tick()
        await world.idle(ctx)
        assert [event[1:] for event in world.events[2:]] == [(EventType.CQ_ERR, 1)]

    world.run(testbench)


def test_arm():
    """An event for the first CQE that fulfils what was asked for, and none before it is asked for."""
    rng = make_rng()
    world = World(shared(CompletionWriter, 64, 2), rng)
    dut = world.dut

    async def testbench(ctx):
        await world.configure(ctx, 0, 0x1000, 15)
        await world.configure(ctx, 1, 0x20_0000, 15)
        armed = [0, 0]
        count = 0
        for _ in range(35):
            cq = rng.randrange(2)
            while rng.random() < 0.5:
                flags = rng.choice([0, 1, 2, 2, 3])
                await world.arm(ctx, cq, flags)
                armed[cq] |= flags
            cq = rng.randrange(2)
            item = world.completion(cq, solicited=rng.randrange(2), status=rng.choice([0, 0, 5]))
            await send_all(ctx, dut.completion, [item])
            await world.idle(ctx)
            if armed[cq] & 1 or (armed[cq] & 2 and (item["solicited"] or item["status"])):
                armed[cq] = 0
                count += 1
                assert world.events[-1][1:] == (EventType.COMPLETION, cq)
                assert world.events[-1][0] > world.visible[-1][0]
            assert len(world.events) == count

    world.run(testbench)


def test_event_ring_stuck():
    """Nobody takes events: CQEs and dones go on, each CQ's event waits, once, and resets do not confuse that."""
    rng = make_rng()
    world = World(shared(CompletionWriter, 64, 4), rng, stall=0)
    dut = world.dut
    world.listening = False

    async def settled(ctx, cqes):
        while world.cqes < cqes:
            await ctx.tick()
        for _ in range(10):
            await ctx.tick()

    async def testbench(ctx):
        for cq in range(4):
            await world.configure(ctx, cq, 0x1_0000 * cq + 0x1000, 8)
        for cqes, cq in enumerate([3] * 9 + [0] * 9 + [2] * 9 + [1] * 9, 1):
            if cq == 3:
                await world.configure(ctx, 3, 0x3_1000, 8)
            await world.arm(ctx, cq, 1)
            await send_all(ctx, dut.completion, [world.completion(cq)])
            await settled(ctx, cqes)
        world.listening = True
        await world.idle(ctx)
        taken = [number for _, _, number in world.events]
        assert taken == [3, 3, 0, 2, 1]  # the first one stood at the output already

    world.run(testbench)


def test_reset_waits_for_writes():
    """Once the token is taken, nothing is written to the old ring any more."""
    rng = make_rng()
    world = World(shared(CompletionWriter, 64, 2), rng, latency=(100, 100))

    async def testbench(ctx):
        await world.configure(ctx, 0, 0x1000, 4)
        await send_all(ctx, world.dut.completion, [world.completion(0) for _ in range(5)])
        await world.control(ctx, cq=0, hold=1)
        assert len(world.visible) == 5

    world.run(testbench)


@pytest.mark.parametrize("rings_after", [4, pytest.param(8, marks=pytest.mark.slow)])
def test_another_ring(rings_after):
    """At any moment: what was before stands in the old ring, what comes after in the new one, from its first entry on,
    and other CQs notice nothing.
    """
    rng = make_rng()
    world = World(shared(CompletionWriter, 64, 4), rng)
    sent = {0: [], 1: [], 2: []}
    rings = {0: [(0x1000_0000, 0)], 1: [(0x10_0000, 0)], 2: [(0x2000_0000, 0)]}  # base, CQEs before it

    async def feed(ctx):
        for _ in range(300 * rings_after // 8):
            await pause(ctx, rng, 0.5)
            item = world.completion(rng.choice((0, 1, 1, 2)))
            await send_all(ctx, world.dut.completion, [item])
            sent[item["cq"]].append(item)

    async def change(ctx):
        for life in range(2, 2 + rings_after):
            base = 0x10_0000 * life
            await world.control(ctx, cq=1, hold=1, keep=1)
            rings[1].append((base, len(sent[1])))
            assert len([at for at in world.memory if at < base]) == len(sent[1])  # all is visible
            await world.attributes(ctx, 1, base, rng.randrange(8, 10))
            for _ in range(rng.randrange(30)):
                await ctx.tick()
            await world.control(ctx, cq=1, keep=1)
            for _ in range(rng.randrange(400)):
                await ctx.tick()

    made = []

    async def testbench(ctx):
        for cq, [(base, _)] in rings.items():
            await world.configure(ctx, cq, base, 10)
            made.append(cq)

    async def feeder(ctx):
        while len(made) < 3:
            await ctx.tick()
        await feed(ctx)

    async def changer(ctx):
        while len(made) < 3:
            await ctx.tick()
        await change(ctx)

    async def until_idle(ctx):
        while sum(map(len, sent.values())) < 200 * rings_after // 8 or len(rings[1]) <= rings_after:
            await ctx.tick()
        await world.idle(ctx)

    world.run(testbench, feeder, changer, until_idle, deadline=60_000)
    wanted = {}
    for cq, items in sent.items():
        for number, item in enumerate(items):
            base, start = next(ring for ring in reversed(rings[cq]) if ring[1] <= number)
            wanted[base + 32 * (number - start)] = expected(item, 1)
    assert world.memory == wanted
    assert not world.events
    assert world.overruns == 0


def test_what_a_queue_has_to_say_outlives_its_ring():
    rng = make_rng()
    world = World(shared(CompletionWriter, 64, 2), rng)

    async def testbench(ctx):
        await world.configure(ctx, 1, 0x1000, 1)
        await world.arm(ctx, 1, 2)
        await world.move(ctx, 1, 0x2000, 0)
        await send_all(ctx, world.dut.completion, [world.completion(1, solicited=1)])
        await world.idle(ctx)
        assert [event[1:] for event in world.events] == [(EventType.COMPLETION, 1)]
        await send_all(ctx, world.dut.completion, [world.completion(1)])
        await world.move(ctx, 1, 0x3000, 4)
        await send_all(ctx, world.dut.completion, [world.completion(1)])
        await world.idle(ctx)
        assert [event[1:] for event in world.events[1:]] == [(EventType.CQ_ERR, 1)]
        assert world.overruns == 2
        assert list(world.memory) == [0x2000]

    world.run(testbench)


@pytest.mark.parametrize(("data_width", "most"), [(64, 7), (128, 5), (256, 5), (512, 5)])
def test_rate(data_width, most):
    world = World(shared(CompletionWriter, data_width, 2), make_rng(1), stall=0, latency=(32, 32))

    async def testbench(ctx):
        await world.configure(ctx, 0, 0x1000, 10)
        start = world.time
        await send_all(ctx, world.dut.completion, [world.completion(0) for _ in range(100)])
        assert world.time - start <= 100 * most
        await world.idle(ctx)

    world.run(testbench)


@pytest.mark.parametrize(("hint", "wait"), [(0, 4), (1, 2)])
def test_latency(hint, wait):
    world = World(shared(CompletionWriter, 64, 2), make_rng(1), stall=0, latency=(32, 32))
    world.hints = 0
    dut = world.dut

    async def testbench(ctx):
        await world.configure(ctx, 1, 0x1000, 3)
        ctx.set(dut.hint_cq, hint)
        for _ in range(5):
            await ctx.tick()
        ctx.set(dut.completion.payload, world.completion(1))
        ctx.set(dut.completion.valid, 1)
        for cycle in range(wait + 1):
            assert ctx.get(dut.write.valid) == (cycle == wait)
            await ctx.tick()
        while not ctx.get(dut.completion.ready):
            await ctx.tick()
        await ctx.tick()
        ctx.set(dut.completion.valid, 0)
        await world.idle(ctx)

    world.run(testbench)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((64, 3), "cqs must be a power of two, 2 to 4096, not 3"),
        ((65, 4), "data_width must be 64, 128, 256 or 512, not 65"),
    ],
)
def test_wrong_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        CompletionWriter(*arguments)
    with pytest.raises(ValueError, match="writes must be 2 to 64, not 1"):
        CompletionWriter(64, 4, writes=1)


def test_converts():
    rtlil.convert(CompletionWriter(64, 16))


def test_events_of_a_former_life():
    """What waited to be told when a reset came is not told after it, and keeps nothing else from being told."""
    dut, reset = CompletionWriter(64, 4), Signal()
    world = World(dut, make_rng(), latency=(1, 5))

    async def one_life(ctx):
        for cq in range(4):  # all of them, before anything happens: as the command block does
            await world.configure(ctx, cq, 0x1000 * (cq + 1), 4)
        for cq in range(4):
            await world.arm(ctx, cq, 1)
            await send_all(ctx, dut.completion, [world.completion(cq)])
        for _ in range(100):
            await ctx.tick()

    async def driver(ctx):
        world.listening = False
        await one_life(ctx)
        assert ctx.get(dut.event[0].valid)
        ctx.set(reset, 1)
        await ctx.tick()
        ctx.set(reset, 0)
        world.listening = True
        await one_life(ctx)
        assert sorted((kind, cq) for _, kind, cq in world.events) == [(EventType.COMPLETION, cq) for cq in range(4)]

    simulate(
        ResetInserter(reset)(dut),
        driver,
        background=[
            world.clock,
            world.requests_in,
            world.beats_in,
            world.done_out,
            world.answer,
            world.events_in,
            world.reads,
        ],
        seed=world.rng.seed_value,
    )


@pytest.mark.parametrize("each", [3, pytest.param(5, marks=pytest.mark.slow)])
@pytest.mark.parametrize("data_width", [64, 128, 256, 512])
def test_more_queues_than_slots(data_width, each):
    """Twelve CQs in two or four slots, a driver that polls and arms, rings that change: all CQEs in their order and
    place, an event for each first CQE after an arm, and none else.
    """
    rng = make_rng()
    world = World(shared(CompletionWriter, data_width, 4), rng, stall=rng.choice([0, 0.3]))
    dut = world.dut
    numbers = rng.sample(range(1 << LOG_TABLE), 12)
    size = {cq: rng.randrange(5) for cq in numbers}
    base = {cq: 0x1_0000 * (1 + cq) for cq in numbers}
    sent = {cq: [] for cq in numbers}  # since its ring is there
    polled, count = dict.fromkeys(numbers, 0), dict.fromkeys(numbers, 0)

    def complete(cq):
        """CQEs that the driver sees."""
        while polled[cq] < len(sent[cq]):
            place, phase = polled[cq] % (1 << size[cq]), ~(polled[cq] >> size[cq]) & 1
            found = world.memory.get(base[cq] + 32 * place, bytes(32))
            if found[31] >> 7 != phase:
                break
            assert found == expected(sent[cq][polled[cq]], phase)
            polled[cq] += 1
            yield polled[cq]

    async def testbench(ctx):
        wanted = []
        for cq in numbers:
            await world.configure(ctx, cq, base[cq], size[cq])
        armed = dict.fromkeys(numbers, False)
        while min(count.values()) < each:
            cq = rng.choice(numbers)
            if rng.random() < 0.3 and not armed[cq]:
                await world.idle(ctx)  # who waits to be told already is told once
                await world.arm(ctx, cq, 1)
                armed[cq] = True
            if count[cq] < each and len(sent[cq]) - polled[cq] < 1 << size[cq]:
                item = world.completion(cq)
                sent[cq].append(item)
                count[cq] += 1
                await send_all(ctx, dut.completion, [item])
                if armed[cq]:
                    wanted.append(cq)
                    armed[cq] = False
            cq = rng.choice(numbers)
            for index in complete(cq):
                await world.consume(ctx, cq, index)
            if rng.random() < 0.05:
                await world.idle(ctx)
                list(complete(cq))
                assert polled[cq] == len(sent[cq])
                base[cq] += 0x100_0000
                sent[cq], polled[cq] = [], 0
                await world.move(ctx, cq, base[cq], size[cq])
        await world.idle(ctx)
        for cq in numbers:
            list(complete(cq))
            assert polled[cq] == len(sent[cq])
        assert sorted(number for _, _, number in world.events) == sorted(wanted)
        assert {kind for _, kind, _ in world.events} <= {EventType.COMPLETION}
        assert (world.cqes, world.overruns) == (12 * each, 0)
        assert world.fetches > 6 * each

    world.run(testbench, deadline=400_000)


@pytest.mark.parametrize("first", [0, *(pytest.param(first, marks=pytest.mark.slow) for first in (1, 2))])
def test_doorbells_in_any_cycle_of_a_miss(first):
    """A CQ is armed, and some of its ring taken, while it gets its slot back: neither is lost."""
    world = World(shared(CompletionWriter, 64, 2), make_rng(), stall=0, latency=(8, 8))
    dut = world.dut

    async def testbench(ctx):
        for cq in (1, 3):
            await world.configure(ctx, cq, 0x1_0000 * cq, 1)
        index = 0
        for number, delay in enumerate(range(first, 60, 3)):
            for cq in (1, 3):
                await send_all(ctx, dut.completion, [world.completion(cq)])
            await world.idle(ctx)
            await world.consume(ctx, 3, number + 1)
            fetches, events = world.fetches, len(world.events)
            ctx.set(dut.completion.payload, world.completion(1))
            waiting = {dut.completion: 0, dut.arm: delay, dut.consumer: delay + delay % 3}
            for cycle in range(delay + 80):
                if cycle == delay:
                    world.tell(1, consumer=index + 1)
                    ctx.set(dut.arm.payload, world.count_arms(1, 1))
                    ctx.set(dut.consumer.payload, {"cq": 1, "index": index + 1})
                for port, begin in waiting.items():
                    ctx.set(port.valid, cycle >= begin)
                _, _, *ready = await ctx.tick().sample(*(port.ready for port in waiting))
                for (port, begin), taken in zip(list(waiting.items()), ready, strict=True):
                    if taken and cycle >= begin:
                        waiting[port] = 1000
                if set(waiting.values()) == {1000}:
                    break
            else:
                pytest.fail(f"{waiting} were not taken")
            for port in waiting:
                ctx.set(port.valid, 0)
            await world.idle(ctx)
            await send_all(ctx, dut.completion, [world.completion(1)])  # there is room, now that one is taken
            await world.idle(ctx)
            assert world.fetches > fetches
            assert [event[1:] for event in world.events[events:]] == [(EventType.COMPLETION, 1)], delay
            index += 3
            await world.consume(ctx, 1, index)

    world.run(testbench, deadline=100_000)
    assert world.overruns == 0


def test_a_miss_waits_for_what_is_to_be_said():
    """A CQ keeps its slot as long as its event waits for its turn; who needs the slot waits."""
    world = World(shared(CompletionWriter, 64, 2), make_rng(), stall=0)
    dut = world.dut

    async def testbench(ctx):
        for cq in (0, 1, 2):
            await world.configure(ctx, cq, 0x1_0000 * (cq + 1), 3)
        world.listening = False
        for cq in (1, 2):
            await world.arm(ctx, cq, 1)
            await send_all(ctx, dut.completion, [world.completion(cq)])
        for _ in range(200):
            await ctx.tick()
        ctx.set(dut.completion.payload, world.completion(0))
        ctx.set(dut.completion.valid, 1)
        edges = aiter(ctx.tick().sample(dut.completion.ready))
        for _ in range(300):
            _, _, ready = await anext(edges)
            assert not ready
        world.listening = True
        await ctx.tick().until(dut.completion.ready)
        ctx.set(dut.completion.valid, 0)
        await world.idle(ctx)
        assert [number for _, _, number in world.events] == [1, 2]
        assert world.cqes == 3

    world.run(testbench)


def test_a_record_that_cannot_be_read():
    """Its completions are dropped, and its QPs hear of it; a command fails; others go on, and it works once it can."""
    world = World(shared(CompletionWriter, 64, 2), make_rng())
    dut = world.dut

    async def testbench(ctx):
        await world.configure(ctx, 0, 0x1_0000, 3)
        await world.configure(ctx, 2, 0x2_0000, 3)
        await world.configure(ctx, 4, 0x3_0000, 3)
        world.fail = {TABLE + CQC_BYTES * 2}
        await send_all(
            ctx, dut.completion, [world.completion(2, qp=7), world.completion(0), world.completion(2, qp=9, status=5)]
        )
        await world.idle(ctx)
        assert (world.errors, world.cqes, world.overruns) == ([7], 1, 2)
        assert await world.control(ctx, cq=2, hold=1)
        await send_all(ctx, dut.completion, [world.completion(0)])
        await world.idle(ctx)
        assert world.cqes == 2
        world.fail = set()
        await send_all(ctx, dut.completion, [world.completion(2)])
        await world.idle(ctx)
        assert sorted(world.memory) == [0x1_0000, 0x1_0020, 0x2_0000]
        assert not world.events

    world.run(testbench)


def test_a_record_that_cannot_be_written():
    """CQ_ERR tells of it, once the ring of events takes it."""
    world = World(shared(CompletionWriter, 64, 2), make_rng())
    dut = world.dut

    async def testbench(ctx):
        await world.configure(ctx, 0, 0x1_0000, 3)
        await world.configure(ctx, 1, 0x3_0000, 3)
        world.fail = {TABLE}
        world.listening = False
        await world.arm(ctx, 1, 1)
        await send_all(ctx, dut.completion, [world.completion(1), world.completion(2)])
        for _ in range(300):
            await ctx.tick()
        world.listening = True
        await world.idle(ctx)
        assert [event[1:] for event in world.events] == [(EventType.COMPLETION, 1), (EventType.CQ_ERR, 0)]
        assert world.overruns == 1  # CQ 2 was never made

    world.run(testbench)


def test_a_slot_is_lost_before_the_driver_knows_of_the_new_ring():
    """The consumer index in the record is that of the ring before: it does not count."""
    world = World(shared(CompletionWriter, 64, 2), make_rng())
    dut = world.dut

    async def testbench(ctx):
        for cq in (1, 3):
            await world.configure(ctx, cq, 0x1_0000 * cq, 2)
        await send_all(ctx, dut.completion, [world.completion(1) for _ in range(3)])
        await world.idle(ctx)
        await world.consume(ctx, 1, 3)
        await world.control(ctx, cq=1, hold=1, keep=1)
        await world.attributes(ctx, 1, 0x9_0000, 2)
        await world.control(ctx, cq=1, keep=1)
        await send_all(ctx, dut.completion, [world.completion(cq) for cq in (3, 1, 1, 3)])
        await world.idle(ctx)
        world.tell(1, consumer=0, consumer_ring=1)
        await send_all(ctx, dut.completion, [world.completion(cq) for cq in (1, 3, 1)])
        await world.idle(ctx)
        assert [at for at in world.memory if at >= 0x9_0000] == [0x9_0000 + 32 * n for n in range(4)]
        await world.consume(ctx, 1, 4)
        await send_all(ctx, dut.completion, [world.completion(1)])
        await world.idle(ctx)
        assert not world.overruns
        assert not world.events

    world.run(testbench)


def test_what_is_left_in_the_table():
    """A CQ that has given its slot up: what the engine knows of it, in its bytes; the driver's are left alone."""
    world = World(shared(CompletionWriter, 64, 2), make_rng())
    dut = world.dut

    async def testbench(ctx):
        await world.configure(ctx, 1, 0x7_0000, 2)
        await world.arm(ctx, 1, 3)
        await send_all(ctx, dut.completion, [world.completion(1)] * 3)
        await world.idle(ctx)
        await world.arm(ctx, 1, 2)
        await world.move(ctx, 1, 0x9_0000, 5)
        await send_all(ctx, dut.completion, [world.completion(1)] * 2)
        await world.configure(ctx, 3, 0x8_0000, 0)
        told = {"consumer": 0, "arms": 1, "solicited_arms": 2, "consumer_ring": 1}
        left = {"base": 0x9_0000, "log_size": 5, "valid": 1, "producer": 2, "ring": 1, "dead": 0}
        left |= {"arms_seen": 1, "solicited_arms_seen": 1, "cq_count": 0, "cq_period": 0, "comp_vector": 0}
        while world.records[1][10] == 0:
            await ctx.tick()
        assert CQ_RECORD.unpack(bytes(world.records[1])) == left | told

    world.run(testbench)


@pytest.mark.parametrize(("data_width", "most"), [(64, 28), (512, 19)])
def test_cycles_of_a_miss(data_width, most):
    """Besides the memory's: a completion of a CQ without a slot, nothing in flight."""
    world = World(shared(CompletionWriter, data_width, 2), make_rng(1), stall=0, latency=(32, 32))
    world.hints = 0

    async def testbench(ctx):
        for cq in (1, 3):
            await world.configure(ctx, cq, 0x1_0000 * cq, 4)
        await world.idle(ctx)
        start = world.time
        await send_all(ctx, world.dut.completion, [world.completion(1)])
        print(world.time - start - 32)
        assert world.time - start - 32 <= most

    world.run(testbench)


def moderated(cqs=4, **kwargs):
    """A writer with moderation and two event queues."""
    return World(shared(CompletionWriter, 64, cqs, moderation=True, queues=2), make_rng(), **kwargs)


def test_events_of_bursts():
    """One for each ``cq_count`` CQEs, if it is asked for again at once; the last CQE of a burst has its own in time."""
    world = moderated(stall=0)
    dut = world.dut

    async def testbench(ctx):
        await world.configure(ctx, 1, 0x1_0000, 8, cq_count=4, cq_period=100, comp_vector=1)
        for burst in (8, 9, 3, 1):
            world.events.clear()
            for number in range(burst):
                await world.arm(ctx, 1, 1)
                await send_all(ctx, dut.completion, [world.completion(1)])
                await world.quiet(ctx)
                assert len(world.events) == (number + 1) // 4
            last = world.time
            assert ctx.get(dut.moderates) == (burst % 4 != 0)
            while ctx.get(dut.moderates):
                assert not ctx.get(dut.idle)
                await ctx.tick()
            await world.idle(ctx)
            assert len(world.events) == -(-burst // 4)
            assert world.time - last <= 100 * UNIT + 20
            assert burst % 4 == 0 or world.time - last >= 90 * UNIT - 100 * burst
        assert set(world.vectors) == {1}

    world.run(testbench)


def test_an_event_counts_from_its_arm():
    """CQEs before it do not count; a second arm meanwhile is answered by the same event."""
    world = moderated()
    dut = world.dut

    async def testbench(ctx):
        await world.configure(ctx, 2, 0x1_0000, 8, cq_count=3, cq_period=4000)
        await send_all(ctx, dut.completion, [world.completion(2)] * 4)
        await world.idle(ctx)
        assert not ctx.get(dut.moderates)
        await world.arm(ctx, 2, 1)
        for _ in range(2):
            await send_all(ctx, dut.completion, [world.completion(2)])
            await world.quiet(ctx)
            await world.arm(ctx, 2, 1)
        assert world.events == []
        await send_all(ctx, dut.completion, [world.completion(2)])
        await world.idle(ctx)
        assert [event[1:] for event in world.events] == [(EventType.COMPLETION, 2)]
        # The last CQE has fulfilled the last arm.
        await send_all(ctx, dut.completion, [world.completion(2)] * 3)
        await world.idle(ctx)
        assert len(world.events) == 1

    world.run(testbench)


def test_solicited_events():
    """The first solicited CQE begins, and those behind it count, whatever they are."""
    world = moderated()
    dut = world.dut

    async def testbench(ctx):
        await world.configure(ctx, 2, 0x1_0000, 8, cq_count=3, cq_period=4000)
        await world.arm(ctx, 2, 2)
        await send_all(ctx, dut.completion, [world.completion(2)] * 5)
        await world.idle(ctx)
        await send_all(ctx, dut.completion, [world.completion(2, solicited=1), world.completion(2)])
        await world.quiet(ctx)
        assert ctx.get(dut.moderates)
        assert not world.events
        await send_all(ctx, dut.completion, [world.completion(2, status=5)])
        await world.idle(ctx)
        assert [event[1:] for event in world.events] == [(EventType.COMPLETION, 2)]

    world.run(testbench)


@pytest.mark.parametrize("held", [False, True])
def test_an_error_is_said_at_once(held):
    """And brings the completion event with it, if that waits."""
    world = moderated()
    dut = world.dut

    async def testbench(ctx):
        await world.configure(ctx, 2, 0x1_0000, 1, cq_count=100, cq_period=4000, comp_vector=1)
        if held:
            await world.arm(ctx, 2, 1)
        await send_all(ctx, dut.completion, [world.completion(2)] * 2)
        await world.quiet(ctx)
        assert not world.events
        await send_all(ctx, dut.completion, [world.completion(2, status=5)])
        await world.idle(ctx)
        said = [(vector, kind) for vector, (_, kind, _) in zip(world.vectors, world.events)]
        assert said == [(1, EventType.COMPLETION)] * held + [(0, EventType.CQ_ERR)]

    world.run(testbench)


def test_who_gives_up_its_slot_has_its_event():
    """And its moderation when it comes back, with no command in between."""
    world = moderated(cqs=2)
    dut = world.dut

    async def testbench(ctx):
        for cq in (1, 3):
            events = {"cq_count": 2 + cq, "cq_period": 4000 + cq, "comp_vector": cq // 2}
            await world.configure(ctx, cq, 0x1_0000 * cq, 5, **events)
        for _ in range(3):
            for cq in (1, 3):
                await world.arm(ctx, cq, 1)
                await send_all(ctx, dut.completion, [world.completion(cq)] * (1 + cq))
                await world.quiet(ctx)
                assert world.events == []
                await send_all(ctx, dut.completion, [world.completion(4 - cq)])
                await world.quiet(ctx)
                ((_, kind, number),) = world.events
                assert (kind, number, world.vectors) == (EventType.COMPLETION, cq, [cq // 2])
                world.events.clear()
                world.vectors.clear()
        record = CQ_RECORD.unpack(bytes(world.records[3]))
        assert {name: record[name] for name in ("cq_count", "cq_period", "comp_vector")} == {
            "cq_count": 5,
            "cq_period": 4003,
            "comp_vector": 1,
        }

    world.run(testbench)


def test_moderation_changes():
    """What waits comes at once; ring, arms and later events stay, of a CQ with a slot and of one without."""
    world = moderated(cqs=2)
    dut = world.dut

    async def testbench(ctx):
        await world.configure(ctx, 1, 0x1_0000, 5)
        await world.configure(ctx, 3, 0x2_0000, 5)
        for turn, limits in enumerate([(5, 4000), (2, 4000), (0, 0)], 1):
            await world.moderate(ctx, 1, 0x1_0000, 5, cq_count=limits[0], cq_period=limits[1])
            await send_all(ctx, dut.completion, [world.completion(3)])
            await world.arm(ctx, 1, 1)
            await send_all(ctx, dut.completion, [world.completion(1)])
            await world.quiet(ctx)
            assert len(world.events) == (turn == 3)
            await world.moderate(ctx, 1, 0x1_0000, 5, cq_count=3, cq_period=50)
            await world.idle(ctx)
            assert len(world.events) == 1
            world.events.clear()
        await world.arm(ctx, 1, 1)
        await world.moderate(ctx, 1, 0x1_0000, 5, cq_count=1, cq_period=50)
        await send_all(ctx, dut.completion, [world.completion(1)])
        await world.idle(ctx)
        assert len(world.events) == 1
        assert sorted(at for at in world.memory if at < 0x2_0000) == [0x1_0000 + 32 * n for n in range(4)]

    world.run(testbench)


@pytest.mark.parametrize("keep", [False, True])
def test_a_command_while_an_event_waits(keep):
    """A new life hears nothing of it; with another ring it comes at once. Its successor is moderated anew."""
    world = moderated()
    dut = world.dut

    async def testbench(ctx):
        limits = {"cq_count": 3, "cq_period": 4000}
        await world.configure(ctx, 2, 0x1_0000, 5, **limits)
        await world.arm(ctx, 2, 1)
        await send_all(ctx, dut.completion, [world.completion(2)])
        await world.quiet(ctx)
        assert ctx.get(dut.moderates)
        if keep:
            await world.control(ctx, cq=2, hold=1, keep=1)
            await world.attributes(ctx, 2, 0x3_0000, 5, **limits)
            await world.control(ctx, cq=2, keep=1)
        else:
            await world.configure(ctx, 2, 0x3_0000, 5, **limits)
        await world.idle(ctx)
        assert len(world.events) == keep
        world.events.clear()
        await world.arm(ctx, 2, 1)
        await send_all(ctx, dut.completion, [world.completion(2)] * 2)
        await world.quiet(ctx)
        assert not world.events
        await send_all(ctx, dut.completion, [world.completion(2)])
        await world.idle(ctx)
        assert len(world.events) == 1

    world.run(testbench)
