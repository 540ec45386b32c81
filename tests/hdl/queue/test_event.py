"""EventWriter against a Python model of the event ring and its driver."""

import pytest
from amaranth.back import rtlil
from streams import make_rng, pause, received, send_all, simulate
from verbena.hdl.abi.eqe import EQE
from verbena.hdl.queue.event import EventWriter


class World:
    def __init__(self, dut, rng, stall=0.3, latency=(1, 60)):
        self.dut, self.rng, self.stall, self.latency = dut, rng, stall, latency
        self.memory = {}
        self.requests, self.packets = [], []
        self.time = self.count = self.visible = self.good = 0

    async def clock(self, ctx):
        async for _, _, count in ctx.tick().sample(self.dut.count_events):
            self.time += 1
            self.count += count

    async def requests_in(self, ctx):
        async for request in received(ctx, self.dut.write, self.rng, self.stall):
            assert request.length == 16
            self.requests.append((self.time + self.rng.randint(*self.latency), request.address))

    async def beats_in(self, ctx):
        packet = b""
        async for beat in received(ctx, self.dut.data, self.rng, self.stall):
            assert beat.first == (not packet)
            packet += beat.data.to_bytes(self.dut.data_width // 8, "little")[: beat.count]
            assert beat.last == (len(packet) == 16)
            if beat.last:
                self.packets.append(packet)
                packet = b""

    async def answer(self, ctx):
        while True:
            while not (self.requests and self.packets) or self.requests[0][0] > self.time:
                await ctx.tick()
            self.memory[self.requests.pop(0)[1]] = self.packets.pop(0)
            self.visible += 1
            status = self.rng.choice([0, 0, 7])
            self.good += status == 0
            await send_all(ctx, self.dut.done, [{"status": status}])

    async def create(self, ctx, base, log_size):
        ctx.set(self.dut.eq_base, base)
        ctx.set(self.dut.eq_log_size, log_size)
        ctx.set(self.dut.eq_consumer, 0)
        ctx.set(self.dut.eq_reset, 1)
        await ctx.tick()
        ctx.set(self.dut.eq_reset, 0)

    def events(self, count):
        return [{"type": self.rng.randrange(256), "number": self.rng.getrandbits(24)} for _ in range(count)]

    async def poll(self, ctx, base, log_size, events, total=None):
        """The driver: wakes up by the interrupt, reads by the phase bit, frees at random."""
        index = 0
        while index < (total or len(events)):
            while not ctx.get(self.dut.interrupt):
                await ctx.tick()
            assert self.visible > 0
            while index < len(events):
                found = self.memory.get(base + 16 * (index % (1 << log_size)), bytes(16))
                phase = ~(index >> log_size) & 1
                if found[15] >> 7 != phase:
                    break
                assert found == EQE.pack(phase=phase, **events[index])
                index += 1
                await pause(ctx, self.rng, 0.5)
            ctx.set(self.dut.eq_consumer, index & 0xFFFF)
            await ctx.tick()
            await ctx.tick()

    def run(self, *testbenches, **kwargs):
        background = (self.clock, self.requests_in, self.beats_in, self.answer)
        simulate(self.dut, *testbenches, background=background, seed=self.rng.seed_value, **kwargs)


@pytest.mark.parametrize("log_size", [0, 1, 3, 12])
@pytest.mark.parametrize("data_width", [64, 128, 512])
def test_ring(data_width, log_size):
    rng = make_rng()
    world = World(EventWriter(data_width), rng)
    base = rng.choice([0x1000, 0xFFFF_FFFF_FFF0_0000])
    events = world.events(50)

    async def source(ctx):
        await send_all(ctx, world.dut.event, events, rng)

    async def driver(ctx):
        for _ in range(30):  # nothing is written while there is no ring
            await ctx.tick()
        assert not world.requests
        await world.create(ctx, base, log_size)
        await world.poll(ctx, base, log_size, events)
        for _ in range(3):
            await ctx.tick()
        assert not ctx.get(world.dut.interrupt)
        assert ctx.get(world.dut.idle)

    world.run(source, driver)
    assert (world.visible, world.count) == (50, world.good)


def test_full_ring_holds():
    rng = make_rng()
    world = World(EventWriter(64), rng)
    events = world.events(9)

    async def source(ctx):
        await send_all(ctx, world.dut.event, events, rng)

    async def driver(ctx):
        await world.create(ctx, 0x1000, 2)
        for _ in range(400):
            await ctx.tick()
        assert (world.visible, world.count) == (4, world.good)
        assert ctx.get(world.dut.event.valid)
        assert not ctx.get(world.dut.event.ready)
        assert ctx.get(world.dut.idle)  # it is the driver's turn
        await world.poll(ctx, 0x1000, 2, events)

    world.run(source, driver)


@pytest.mark.parametrize("log_size", [0, 2, 15])
def test_indices_wrap(log_size):
    rng = make_rng()
    world = World(EventWriter(64), rng)
    events = world.events(20)
    first = 65_528
    base = 0x10_0000

    async def testbench(ctx):
        dut = world.dut
        await world.create(ctx, base, log_size)
        for _ in range(4):
            await ctx.tick()
        ctx.set(dut._producer, first)
        ctx.set(dut._written, first)
        ctx.set(dut.eq_consumer, first)
        await ctx.tick()
        await ctx.tick()
        for index, event in enumerate(events, first):
            assert not ctx.get(dut.interrupt)
            await send_all(ctx, dut.event, [event])
            while not ctx.get(dut.interrupt):
                await ctx.tick()
            phase = ~(index >> log_size) & 1
            assert world.memory[base + 16 * (index % (1 << log_size))] == EQE.pack(phase=phase, **event)
            ctx.set(dut.eq_consumer, (index + 1) & 0xFFFF)
            await ctx.tick()
            await ctx.tick()

    world.run(testbench)


def test_reset_in_flight():
    """EQEs on their way to the old ring land there, and the new ring begins with index 0 and phase 1."""
    rng = make_rng()
    world = World(EventWriter(64), rng, latency=(80, 80))
    old, new = world.events(6), world.events(5)

    async def testbench(ctx):
        await world.create(ctx, 0x1000, 3)
        await send_all(ctx, world.dut.event, old[:4])
        assert world.visible == 0
        for _ in range(6):
            await ctx.tick()
        await world.create(ctx, 0x2000, 3)
        for _ in range(100):
            await ctx.tick()
            assert not ctx.get(world.dut.interrupt)
        assert world.visible == 4
        await send_all(ctx, world.dut.event, new)
        await world.poll(ctx, 0x2000, 3, new)
        assert [world.memory[0x1000 + 16 * n] for n in range(4)] == [EQE.pack(phase=1, **event) for event in old[:4]]

    world.run(testbench)


def test_many_in_flight():
    """More events than may be in flight, with a memory that takes its time."""
    world = World(EventWriter(64), make_rng(), stall=0, latency=(150, 150))
    events = world.events(40)

    async def testbench(ctx):
        await world.create(ctx, 0x1000, 6)
        await send_all(ctx, world.dut.event, events)
        while world.visible < 40:
            assert not ctx.get(world.dut.idle)
            await ctx.tick()
        for _ in range(5):
            await ctx.tick()
        assert ctx.get(world.dut.idle)
        await world.create(ctx, 0x2000, 6)
        await send_all(ctx, world.dut.event, events[:1])
        await world.poll(ctx, 0x2000, 6, events[:1])

    world.run(testbench)


def test_rate():
    world = World(EventWriter(64), make_rng(1), stall=0, latency=(32, 32))

    async def testbench(ctx):
        await world.create(ctx, 0x1000, 10)
        await ctx.tick()
        await ctx.tick()
        start = world.time
        await send_all(ctx, world.dut.event, world.events(50))
        assert world.time - start <= 50 * 3 + 3

    world.run(testbench)


def test_wrong_arguments():
    with pytest.raises(ValueError, match="data_width must be 64, 128, 256 or 512, not 8"):
        EventWriter(8)


def test_converts():
    rtlil.convert(EventWriter(64))
