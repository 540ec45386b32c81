"""Counters: nothing is lost, however fast it comes."""

import pytest
from amaranth.back import rtlil
from streams import make_rng, receive_all, send_all, simulate
from verbena.hdl.abi.counters import COUNTERS, Counter
from verbena.hdl.control.counters import Counters

FEW = {
    c.name: c
    for c in [Counter("a", ""), Counter("b", "", 26), Counter("c", "", 13), Counter("d", ""), Counter("e", "")]
}


async def read(ctx, dut, word, rng=None):
    async def answer():
        return (await receive_all(ctx, dut.data, 1, rng))[0]

    ctx.set(dut.addr.payload, word)
    ctx.set(dut.addr.valid, 1)
    value = await answer()
    ctx.set(dut.addr.valid, 0)
    return value


async def read64(ctx, dut, index, rng=None):
    """As a driver does it."""
    while True:
        high = await read(ctx, dut, 2 * index + 1, rng)
        low = await read(ctx, dut, 2 * index, rng)
        if await read(ctx, dut, 2 * index + 1, rng) == high:
            return high << 32 | low


class Source:
    """Strobes each counter with a probability of its own, with random increments or the largest."""

    def __init__(self, dut, rng, *, full=False):
        self.dut, self.rng = dut, rng
        self.sums = dict.fromkeys(dut.counters, 0)
        self.rates = {name: 1 if full else rng.choice([0, 0.1, 0.9, 1]) for name in dut.counters}
        self.full = full
        self.running = True

    async def run(self, ctx):
        while self.running:
            for name, counter in self.dut.counters.items():
                most = (1 << counter.width) - 1
                value = 0
                if self.rng.random() < self.rates[name]:
                    value = most if self.full or self.rng.random() < 0.5 else self.rng.randint(1, most)
                ctx.set(getattr(self.dut, f"count_{name}"), value)
                self.sums[name] += value
            await ctx.tick()
        for name in self.dut.counters:
            ctx.set(getattr(self.dut, f"count_{name}"), 0)


@pytest.mark.parametrize("counters", [COUNTERS, FEW])
@pytest.mark.parametrize("full", [False, True])
def test_exact(counters, full):
    rng = make_rng()
    dut = Counters(counters)
    source = Source(dut, rng, full=full)

    async def testbench(ctx):
        for _ in range(rng.randrange(300, 400)):
            await ctx.tick()
        source.running = False
        for _ in range(dut.period + 6):
            await ctx.tick()
        for index, name in enumerate(counters):
            assert await read64(ctx, dut, index, rng) == source.sums[name]
        assert await read(ctx, dut, 2 * len(counters)) == 0
        assert await read(ctx, dut, 255) == 0

    simulate(dut, testbench, source.run, seed=rng.seed_value)


def test_carry_while_read():
    """Values read while a counter runs through 2^32 lie between what was true before and after, and only grow."""
    rng = make_rng()
    dut = Counters(FEW)
    source = Source(dut, rng, full=True)

    async def testbench(ctx):
        value = 0
        while value < 5 << 32:
            before, old = source.sums["b"], value
            value = await read64(ctx, dut, 1)
            assert old <= value <= source.sums["b"]
            assert value >= before - (dut.period + 5) * ((1 << 26) - 1)
        source.running = False

    simulate(dut, testbench, source.run, seed=rng.seed_value)


def test_latency():
    dut = Counters()

    async def testbench(ctx):
        rng = make_rng()
        for _ in range(20):
            for _ in range(rng.randrange(40)):
                await ctx.tick()
            ctx.set(dut.addr.payload, rng.randrange(2 * dut.period))
            ctx.set(dut.addr.valid, 1)
            ctx.set(dut.data.ready, 1)
            cycles = 0
            while not ctx.get(dut.data.valid):
                await ctx.tick()
                cycles += 1
            assert cycles <= dut.period + 4
            await ctx.tick()
            ctx.set(dut.addr.valid, 0)

    simulate(dut, testbench)


def test_stream_of_addresses():
    rng = make_rng()
    dut = Counters(FEW)
    words = [rng.randrange(16) for _ in range(50)]

    async def strobe(ctx):
        for _ in range(9):
            ctx.set(dut.count_d, 1)
            await ctx.tick()
        ctx.set(dut.count_d, 0)
        for _ in range(12):
            await ctx.tick()
        await send_all(ctx, dut.addr, words, rng)

    async def sink(ctx):
        assert await receive_all(ctx, dut.data, len(words), rng) == [9 if word == 6 else 0 for word in words]

    simulate(dut, strobe, sink, seed=rng.seed_value)


def test_wrong_arguments():
    with pytest.raises(ValueError, match="counters must be 5 to 64, not 1"):
        Counters({"a": Counter("a", "")})
    with pytest.raises(ValueError, match="width of counter 'w' must be 1 to 26, not 27"):
        Counters(FEW | {"w": Counter("w", "", 27)})


def test_converts():
    rtlil.convert(Counters())
