"""CompletionWriter against a Python model of CQ rings and of their driver."""

import pytest
from amaranth.back import rtlil
from amaranth.hdl import ClockDomain, ClockSignal, DomainRenamer, Elaboratable, Module, Signal
from streams import make_rng, pause, send_all, shared, simulate
from verbena.hdl.abi.contexts import CQ_CONTEXT
from verbena.hdl.abi.cqe import CQE
from verbena.hdl.abi.eqe import EventType
from verbena.hdl.queue.completion import CompletionWriter

QPS = 64
COPIED = ("immediate", "byte_length", "status", "opcode", "flags", "wqe_index", "source_qpn", "syndrome")


class World:
    """Memory behind the writer, and its events."""

    def __init__(self, dut, rng, stall=0.3, latency=(1, 60)):
        self.dut, self.rng, self.stall, self.latency = dut, rng, stall, latency
        self.hints = 0.2
        self.memory = {}
        self.requests, self.packets, self.answers = [], [], []
        self.visible = []  # (time, address)
        self.events = []  # (time, type, number)
        self.time = 0
        self.cqes = self.overruns = 0
        self.errors = []  # QPs
        self.listening = True
        self.fail = set()  # addresses whose writes fail

    async def clock(self, ctx):
        while True:
            _, _, cqes, overruns = await ctx.tick().sample(self.dut.count_cqes, self.dut.count_cq_overruns)
            self.time += 1
            self.cqes += cqes
            self.overruns += overruns

    async def requests_in(self, ctx):
        while True:
            await pause(ctx, self.rng, self.stall)
            ctx.set(self.dut.write.ready, 1)
            _, _, valid, payload = await ctx.tick().sample(self.dut.write.valid, self.dut.write.payload)
            ctx.set(self.dut.write.ready, 0)
            if valid:
                assert payload.length == 32
                self.requests.append(payload.address)

    async def beats_in(self, ctx):
        packet = b""
        while True:
            await pause(ctx, self.rng, self.stall)
            ctx.set(self.dut.data.ready, 1)
            _, _, valid, beat = await ctx.tick().sample(self.dut.data.valid, self.dut.data.payload)
            ctx.set(self.dut.data.ready, 0)
            if valid:
                assert beat.first == (not packet)
                packet += beat.data.to_bytes(self.dut.data_width // 8, "little")[: beat.count]
                assert beat.last == (len(packet) == 32)
                assert not beat.error
                if beat.last:
                    self.packets.append(packet)
                    packet = b""

    async def done_out(self, ctx):
        due = 0
        while True:
            while not (self.requests and self.packets):
                await ctx.tick()
            address, packet = self.requests.pop(0), self.packets.pop(0)
            due = max(due, self.time + self.rng.randint(*self.latency))
            self.answers.append((due, address, packet))

    async def answer(self, ctx):
        while True:
            while not self.answers or self.answers[0][0] > self.time:
                await ctx.tick()
            _, address, packet = self.answers.pop(0)
            if address not in self.fail:
                self.memory[address] = packet
                self.visible.append((self.time, address))
            await send_all(ctx, self.dut.done, [{"status": 7 if address in self.fail else 0}])

    async def errors_in(self, ctx):
        while True:
            ready = self.rng.random() >= self.stall
            ctx.set(self.dut.error.ready, ready)
            _, _, valid, error = await ctx.tick().sample(self.dut.error.valid, self.dut.error.payload)
            if valid and ready:
                assert error.event == EventType.QP_FATAL
                self.errors.append(error.qp)

    async def events_in(self, ctx):
        while True:
            await pause(ctx, self.rng, self.stall)
            listening = self.listening
            ctx.set(self.dut.event.ready, listening)
            _, _, valid, event = await ctx.tick().sample(self.dut.event.valid, self.dut.event.payload)
            ctx.set(self.dut.event.ready, 0)
            if valid and listening:
                self.events.append((self.time, event.type, event.number))

    async def configure(self, ctx, cq, base, log_size, valid=1, reset=True):
        ctx.set(self.dut.attribute_en, 1)
        for number, word in enumerate(CQ_CONTEXT.words(base=base, log_size=log_size, valid=valid)):
            ctx.set(self.dut.attribute, {"index": cq, "word": number, "data": word})
            await ctx.tick()
        ctx.set(self.dut.attribute_en, 0)
        if reset:
            await send_all(ctx, self.dut.control, [{"cq": cq}])

    def completion(self, cq, **fields):
        rng = self.rng
        item = {name: rng.getrandbits(CQE.fields[name].width) for name in COPIED}
        item |= {"cq": cq, "qp": rng.randrange(QPS), "status": 0, "solicited": 0}
        return item | fields

    async def foretell(self, ctx):
        """Mostly nonsense."""
        while True:
            if self.rng.random() < self.hints:
                ctx.set(self.dut.hint_cq, self.rng.randrange(4))
            await ctx.tick()

    async def idle(self, ctx):
        quiet = 0
        while quiet < 3:
            _, _, idle = await ctx.tick().sample(self.dut.idle)
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
            self.events_in,
            self.errors_in,
        )
        simulate(self.dut, *testbenches, background=background, seed=self.rng.seed_value, **kwargs)


def expected(item, phase):
    return CQE.pack(phase=phase, qpn=QPS + item["qp"], **{name: item[name] for name in COPIED})


@pytest.mark.parametrize("data_width", [64, 128, 256, 512])
def test_rings(data_width):
    """Several CQs; a driver that polls the phase bit and never lets a ring overflow."""
    rng = make_rng()
    world = World(shared(CompletionWriter, data_width, 4, QPS), rng, stall=rng.choice([0, 0.3]))
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
                    await send_all(ctx, world.dut.consumer, [{"cq": cq, "index": polled[cq] + 1}])
                    polled[cq] += 1
        await world.idle(ctx)

    world.run(producer, poller)
    assert world.cqes == 4 * each
    assert world.overruns == 0
    assert not world.events


class Late(CompletionWriter):
    """Its CQ 0 begins with CQE 65,528."""

    def elaborate(self, platform):
        m = super().elaborate(platform)
        m.submodules.producers.init[0] = m.submodules.consumers.init[0] = 65_528
        return m


@pytest.mark.parametrize("log_size", [0, 2, 15])
def test_indices_wrap(log_size):
    rng = make_rng()
    world = World(Late(64, 2, QPS), rng)

    async def testbench(ctx):
        await world.configure(ctx, 0, 0x10_0000, log_size, reset=False)
        for index in range(65_528, 65_548):
            item = world.completion(0)
            await send_all(ctx, world.dut.completion, [item])
            await world.idle(ctx)
            phase = ~(index >> log_size) & 1
            assert world.memory[0x10_0000 + 32 * (index % (1 << log_size))] == expected(item, phase)
            if index + 1 & (1 << log_size) - 1 == 0:
                await send_all(ctx, world.dut.consumer, [{"cq": 0, "index": index + 1 & 0xFFFF}])

    world.run(testbench)
    assert world.overruns == 0


@pytest.mark.parametrize("log_size", [0, 2, 5])
def test_overrun(log_size):
    rng = make_rng()
    world = World(shared(CompletionWriter, 64, 4, QPS), rng)
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
        await send_all(ctx, dut.consumer, [{"cq": 1, "index": size}])  # too late
        await send_all(ctx, dut.completion, [world.completion(1, qp=7)])
        await world.idle(ctx)
        assert (world.cqes, world.overruns) == (size + 1, 4)
        assert world.errors[2:] == [7]
        await send_all(ctx, dut.control, [{"cq": 1}])
        await send_all(ctx, dut.completion, [again := world.completion(1)])
        await world.idle(ctx)
        assert world.memory[0x1000] == expected(again, 1)
        assert len(world.events) == 1
        assert len(world.errors) == 3

    world.run(testbench)


def test_arming_of_one_cq_meets_the_overrun_of_another():
    """In whichever cycle after the completion it comes: it counts."""
    rng = make_rng()
    world = World(shared(CompletionWriter, 64, 4, QPS), rng, stall=0)
    world.hints = 0
    dut = world.dut

    async def testbench(ctx):
        for cq, log_size in ((1, 0), (2, 8)):
            await world.configure(ctx, cq, 0x1_0000 * cq, log_size)
        for delay in range(12):
            await send_all(ctx, dut.control, [{"cq": 1}])
            await send_all(ctx, dut.completion, [world.completion(1)])
            await world.idle(ctx)
            ctx.set(dut.completion.payload, world.completion(1))
            ctx.set(dut.completion.valid, 1)
            ready, armed, cycles = 0, False, 0
            while not (ready and armed):
                ctx.set(dut.arm.payload, {"cq": 2, "flags": 1})
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


def test_an_arm_in_the_cycle_of_an_overrun():
    """One CQ overruns, and another one is armed some cycles after the CQE that does it: never in vain."""
    pairs = 16
    world = World(shared(CompletionWriter, 64, 2 * pairs, QPS), make_rng(), stall=0)
    dut = world.dut

    async def testbench(ctx):
        for cq in range(2 * pairs):
            await world.configure(ctx, cq, 0x1000 * (1 + cq), 0)
        for delay in range(pairs):
            full, armed = 2 * delay, 2 * delay + 1
            await send_all(ctx, dut.completion, [world.completion(full)])
            await world.idle(ctx)
            ctx.set(dut.completion.payload, world.completion(full))
            waiting = {dut.completion: 0, dut.arm: delay}
            for cycle in range(3 * pairs):
                if cycle == delay:
                    ctx.set(dut.arm.payload, {"cq": armed, "flags": 1})
                for port, begin in waiting.items():
                    ctx.set(port.valid, cycle >= begin)
                _, _, *ready = await ctx.tick().sample(*(port.ready for port in waiting))
                waiting = {
                    port: 1000 if taken and cycle >= begin else begin
                    for (port, begin), taken in zip(waiting.items(), ready, strict=True)
                }
            assert list(waiting.values()) == [1000, 1000]
            await send_all(ctx, dut.completion, [world.completion(armed)])
            await world.idle(ctx)
            told = [(EventType.CQ_ERR, full), (EventType.COMPLETION, armed)]
            assert [event[1:] for event in world.events[-2:]] == told, f"armed {delay} cycles after"

    world.run(testbench)
    assert world.overruns == pairs


def test_consumer_nonsense():
    """A consumer index that runs ahead of the producer kills the CQ and harms nobody else."""
    rng = make_rng()
    world = World(shared(CompletionWriter, 64, 2, QPS), rng)

    async def testbench(ctx):
        await world.configure(ctx, 0, 0x1000, 3)
        await send_all(ctx, world.dut.consumer, [{"cq": 0, "index": 5}])
        await send_all(ctx, world.dut.completion, [world.completion(0)])
        await world.idle(ctx)
        assert not world.memory
        assert [event[1:] for event in world.events] == [(EventType.CQ_ERR, 0)]

    world.run(testbench)


def test_invalid():
    rng = make_rng()
    world = World(shared(CompletionWriter, 64, 4, QPS), rng)

    async def testbench(ctx):
        await world.configure(ctx, 1, 0x1000, 3, valid=0)
        await world.configure(ctx, 2, 0x1000, 3)
        await send_all(ctx, world.dut.completion, [world.completion(cq, qp=cq % 5) for cq in (0, 1, 6, 0xFFE)])
        await world.idle(ctx)
        assert world.errors == [0, 1, 1, 4]
        assert not world.memory
        assert not world.events
        assert (world.cqes, world.overruns) == (0, 4)

    world.run(testbench)


def test_bus_error():
    """The CQ is dead, with one event, however many writes fail; events of CQEs before it still come."""
    rng = make_rng()
    world = World(shared(CompletionWriter, 64, 2, QPS), rng, latency=(40, 60))
    world.fail = {0x1000 + 32, 0x1000 + 64}

    async def testbench(ctx):
        await world.configure(ctx, 1, 0x1000, 2)
        world.listening = False
        await send_all(ctx, world.dut.arm, [{"cq": 1, "flags": 1}])
        await send_all(ctx, world.dut.completion, [world.completion(1) for _ in range(3)])
        for _ in range(200):
            await ctx.tick()
        world.listening = True
        await send_all(ctx, world.dut.completion, [world.completion(1)])
        await world.idle(ctx)
        assert (world.cqes, world.overruns) == (1, 1)
        assert [event[1:] for event in world.events] == [(EventType.COMPLETION, 1), (EventType.CQ_ERR, 1)]
        await send_all(ctx, world.dut.control, [{"cq": 1}])
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
    world = World(shared(CompletionWriter, 64, 2, QPS), rng)
    dut = world.dut

    async def testbench(ctx):
        await world.configure(ctx, 0, 0x1000, 15)
        await world.configure(ctx, 1, 0x20_0000, 15)
        armed = [0, 0]
        count = 0
        for _ in range(60):
            cq = rng.randrange(2)
            while rng.random() < 0.5:
                flags = rng.choice([0, 1, 2, 2, 3])
                await send_all(ctx, dut.arm, [{"cq": cq, "flags": flags}])
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
    world = World(shared(CompletionWriter, 64, 4, QPS), rng, stall=0)
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
                await send_all(ctx, dut.control, [{"cq": 3}])
            await send_all(ctx, dut.arm, [{"cq": cq, "flags": 1}])
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
    world = World(shared(CompletionWriter, 64, 2, QPS), rng, latency=(100, 100))

    async def testbench(ctx):
        await world.configure(ctx, 0, 0x1000, 4)
        await send_all(ctx, world.dut.completion, [world.completion(0) for _ in range(5)])
        await send_all(ctx, world.dut.control, [{"cq": 0}])
        assert len(world.visible) == 5

    world.run(testbench)


async def move(ctx, world, cq, base, log_size):
    """Gives a CQ another ring; what it has to say stays."""
    await send_all(ctx, world.dut.control, [{"cq": cq, "hold": 1, "keep": 1}])
    await world.configure(ctx, cq, base, log_size, reset=False)
    for _ in range(3):
        await ctx.tick()
    await send_all(ctx, world.dut.control, [{"cq": cq, "hold": 0, "keep": 1}])


def test_another_ring():
    """At any moment: what was before stands in the old ring, what comes after in the new one, from its first entry on,
    and other CQs notice nothing.
    """
    rng = make_rng()
    world = World(shared(CompletionWriter, 64, 4, QPS), rng)
    sent = {0: [], 1: [], 2: []}
    rings = {0: [(0x1000_0000, 0)], 1: [(0x10_0000, 0)], 2: [(0x2000_0000, 0)]}  # base, CQEs before it

    async def feed(ctx):
        for _ in range(300):
            await pause(ctx, rng, 0.5)
            item = world.completion(rng.choice((0, 1, 1, 2)))
            await send_all(ctx, world.dut.completion, [item])
            sent[item["cq"]].append(item)

    async def change(ctx):
        for life in range(2, 14):
            base = 0x10_0000 * life
            await send_all(ctx, world.dut.control, [{"cq": 1, "hold": 1, "keep": 1}])
            rings[1].append((base, len(sent[1])))
            assert len([at for at in world.memory if at < base]) == len(sent[1])  # all is visible
            await world.configure(ctx, 1, base, rng.randrange(8, 10), reset=False)
            for _ in range(rng.randrange(3, 30)):
                await ctx.tick()
            await send_all(ctx, world.dut.control, [{"cq": 1, "hold": 0, "keep": 1}])
            for _ in range(rng.randrange(400)):
                await ctx.tick()

    async def testbench(ctx):
        for cq, [(base, _)] in rings.items():
            await world.configure(ctx, cq, base, 10)

    async def feeder(ctx):
        while not world.time:
            await ctx.tick()
        for _ in range(40):
            await ctx.tick()
        await feed(ctx)

    async def changer(ctx):
        for _ in range(80):
            await ctx.tick()
        await change(ctx)

    async def until_idle(ctx):
        while sum(map(len, sent.values())) < 300 or len(rings[1]) < 13:
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
    world = World(shared(CompletionWriter, 64, 2, QPS), rng)

    async def testbench(ctx):
        await world.configure(ctx, 1, 0x1000, 1)
        await send_all(ctx, world.dut.arm, [{"cq": 1, "flags": 2}])
        await move(ctx, world, 1, 0x2000, 0)
        await send_all(ctx, world.dut.completion, [world.completion(1, solicited=1)])
        await world.idle(ctx)
        assert [event[1:] for event in world.events] == [(EventType.COMPLETION, 1)]
        await send_all(ctx, world.dut.completion, [world.completion(1)])
        await move(ctx, world, 1, 0x3000, 4)
        await send_all(ctx, world.dut.completion, [world.completion(1)])
        await world.idle(ctx)
        assert [event[1:] for event in world.events[1:]] == [(EventType.CQ_ERR, 1)]
        assert world.overruns == 2
        assert list(world.memory) == [0x2000]

    world.run(testbench)


@pytest.mark.parametrize(("data_width", "most"), [(64, 7), (128, 5), (256, 5), (512, 5)])
def test_rate(data_width, most):
    world = World(shared(CompletionWriter, data_width, 2, QPS), make_rng(1), stall=0, latency=(32, 32))

    async def testbench(ctx):
        await world.configure(ctx, 0, 0x1000, 10)
        start = world.time
        await send_all(ctx, world.dut.completion, [world.completion(0) for _ in range(100)])
        assert world.time - start <= 100 * most
        await world.idle(ctx)

    world.run(testbench)


@pytest.mark.parametrize(("hint", "wait"), [(0, 4), (1, 1)])
def test_latency(hint, wait):
    world = World(shared(CompletionWriter, 64, 2, QPS), make_rng(1), stall=0, latency=(32, 32))
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
        ((64, 3, 64), "cqs must be a power of two, 2 to 4096, not 3"),
        ((64, 4, 1), "qps must be a power of two, 2 to 4096, not 1"),
        ((65, 4, 4), "data_width must be 64, 128, 256 or 512, not 65"),
    ],
)
def test_wrong_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        CompletionWriter(*arguments)
    with pytest.raises(ValueError, match="writes must be 2 to 64, not 1"):
        CompletionWriter(64, 4, 4, writes=1)


def test_converts():
    rtlil.convert(CompletionWriter(64, 16, 64))


class Resettable(Elaboratable):
    """A writer in a clock domain of its own, to reset it alone: its memories keep what they hold."""

    def __init__(self, inner):
        self.inner = inner
        self.reset = Signal()

    def elaborate(self, platform):
        m = Module()
        m.domains.inner = domain = ClockDomain(local=True)
        m.d.comb += [domain.clk.eq(ClockSignal()), domain.rst.eq(self.reset)]
        m.submodules.inner = DomainRenamer("inner")(self.inner)
        return m


def test_events_of_a_former_life():
    """What waited to be told when a reset came is not told after it, and keeps nothing else from being told."""
    dut = shared(CompletionWriter, 64, 4, QPS)
    bench = Resettable(dut)
    world = World(dut, make_rng(), latency=(1, 5))

    async def one_life(ctx):
        for cq in range(4):  # all of them, before anything happens: as the command block does
            await world.configure(ctx, cq, 0x1000 * (cq + 1), 4)
        for cq in range(4):
            await send_all(ctx, dut.arm, [{"cq": cq, "flags": 1}])
            await send_all(ctx, dut.completion, [world.completion(cq)])
        for _ in range(100):
            await ctx.tick()

    async def driver(ctx):
        world.listening = False
        await one_life(ctx)
        assert ctx.get(dut.event.valid)
        ctx.set(bench.reset, 1)
        await ctx.tick()
        ctx.set(bench.reset, 0)
        world.listening = True
        await one_life(ctx)
        assert sorted((kind, cq) for _, kind, cq in world.events) == [(EventType.COMPLETION, cq) for cq in range(4)]

    simulate(
        bench,
        driver,
        background=[world.clock, world.requests_in, world.beats_in, world.done_out, world.answer, world.events_in],
        seed=world.rng.seed_value,
    )
