"""SectionReader: the words of sections, from wherever they stand, against a list."""

from itertools import accumulate

import pytest
from amaranth.hdl import Module
from amaranth.lib import wiring
from conflict_ram import ConflictRam
from streams import make_rng, pause, receive_all, simulate
from verbena.hdl.context.section_reader import SectionReader

LIMITS = (4, 1, 20, 2)


class Bench(wiring.Component):
    """A reader and the RAM that it reads."""

    def __init__(self, apart):
        self.reader = SectionReader(LIMITS, apart=apart)
        self.ram = ConflictRam(64, sum(LIMITS))
        super().__init__({})

    def elaborate(self, platform):
        m = Module()
        m.submodules.reader, m.submodules.ram = self.reader, self.ram
        m.d.comb += [self.ram.r_addr.eq(self.reader.r_addr), self.reader.r_data.eq(self.ram.r_data)]
        return m


async def fill(ctx, dut, sections):
    """Puts them where the reader looks for them."""
    lengths = LIMITS if dut.reader.apart else list(map(len, sections))
    for start, section in zip(accumulate([0, *lengths]), sections, strict=False):
        for at, word in enumerate(section):
            ctx.set(dut.ram.w_addr, start + at)
            ctx.set(dut.ram.w_data, word)
            ctx.set(dut.ram.w_en, 1)
            await ctx.tick()
    ctx.set(dut.ram.w_en, 0)
    ctx.set(dut.reader.counts, {f"section_{number}": len(words) for number, words in enumerate(sections)})


async def start(ctx, dut):
    ctx.set(dut.reader.go, 1)
    await ctx.tick()
    ctx.set(dut.reader.go, 0)


@pytest.mark.parametrize("apart", [False, True])
def test_sections_of_any_length(apart):
    """In order, each with its number, whatever who takes them does; ``busy`` until the last one has gone."""
    rng = make_rng()
    dut = Bench(apart)
    shapes = [LIMITS, (0, 0, 0, 0), (0, 1, 0, 2), (1, 0, 20, 0), (4, 0, 0, 0)]
    shapes += [tuple(rng.randint(0, limit) for limit in LIMITS) for _ in range(10)]

    async def testbench(ctx):
        for shape in shapes:
            sections = [[rng.getrandbits(64) for _ in range(count)] for count in shape]
            await fill(ctx, dut, sections)
            assert not ctx.get(dut.reader.busy)
            await start(ctx, dut)
            expected = [{"word": word, "section": n} for n, section in enumerate(sections) for word in section]
            for item in expected:
                assert ctx.get(dut.reader.busy)
                await pause(ctx, rng, 0.3)
                assert await receive_all(ctx, dut.reader.o, 1) == [item]
            await ctx.tick().repeat(len(LIMITS) - len(expected) if len(expected) < len(LIMITS) else 1)
            assert not ctx.get(dut.reader.busy)
            assert not ctx.get(dut.reader.o.valid)

    simulate(dut, testbench, seed=rng.seed_value)


@pytest.mark.parametrize(
    ("shape", "cycles"), [(LIMITS, 4 + 27), ((0, 1, 20, 2), 4 + 1 + 23), ((0, 0, 0, 2), 4 + 3 + 2)]
)
def test_a_word_comes_each_cycle(shape, cycles):
    """The first one 4 cycles after ``go``; a section without words takes one."""
    dut = Bench(True)

    async def testbench(ctx):
        await fill(ctx, dut, [[7] * count for count in shape])
        ctx.set(dut.reader.o.ready, 1)
        await start(ctx, dut)
        taken, cycle = [], 1
        while ctx.get(dut.reader.busy):
            if ctx.get(dut.reader.o.valid):
                taken.append(cycle)
            await ctx.tick()
            cycle += 1
        assert len(taken) == sum(shape)
        assert taken[-1] == cycles - 1

    simulate(dut, testbench)
