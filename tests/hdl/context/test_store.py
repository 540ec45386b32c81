"""The store's jobs: their cycles, their order, and what is asked of the bus."""

from itertools import pairwise

import pytest
from context_world import BASE, NAMES, RECORD, STATES
from streams import simulate
from verbena.hdl.abi.qpc import HALF_BYTES, QPC_BYTES
from verbena.hdl.abi.tables import AccessStatus
from verbena.hdl.context.layout import SlotLayout
from verbena.hdl.context.store import ContextStore

ROWS = 4


class Bench:
    """A store with a bank that answers at once, and a bus that the test moves."""

    def __init__(self, **options):
        self.dut = ContextStore(SlotLayout(RECORD, NAMES, STATES, ROWS), 8, **options)
        self.reads, self.writes, self.taken, self.saved, self.errors, self.filled = ([] for _ in range(6))
        self.cycle = 0

    async def watch(self, ctx):
        dut = self.dut
        ctx.set(dut.base, BASE)
        for port in (dut.read, dut.write, dut.write_data, dut.fill, dut.error):
            ctx.set(port.ready, 1)
        ctx.set(dut.back_ready, 1)
        steps = []
        while True:
            row = steps.pop(0) if steps else None
            ctx.set(dut.back_valid, row is not None)
            ctx.set(dut.back_row, row or 0)
            _, _, read, request, write, saves, backs, saved, error, told, filled = await ctx.tick().sample(
                dut.read.valid, dut.read.payload, dut.write.valid, dut.write.payload,
                dut.back_en, dut.saved, dut.error.valid, dut.error.payload, dut.filled,
            )  # fmt: skip
            if read:
                self.reads.append((self.cycle, request.address, request.length))
            if write:
                self.writes.append((self.cycle, saves.address, saves.length))
            if backs:
                steps = [None, None, *range(ROWS)]
            if saved:
                self.saved.append(self.cycle)
            if error:
                self.errors.append((told.qpn, told.write))
            if filled.valid:
                self.filled.append((filled.slot, filled.bad))
            self.cycle += 1

    async def give(self, ctx, **job):
        dut = self.dut
        ctx.set(dut.job.payload, {"slot": 0, "qpn": 0, "old": 0, "dirty": 0, "fetch": 1, **job})
        ctx.set(dut.job.valid, 1)
        taken = 0
        while not taken:
            _, _, taken = await ctx.tick().sample(dut.job.ready)
        ctx.set(dut.job.valid, 0)

    async def answer(self, ctx, count, status=AccessStatus.OK):
        for _ in range(count):
            ctx.set(self.dut.done.payload.status, status)
            ctx.set(self.dut.done.valid, 1)
            await ctx.tick().until(self.dut.done.ready)
        ctx.set(self.dut.done.valid, 0)

    def run(self, script):
        async def testbench(ctx):
            await wait(ctx, 70)  # the counts are cleared
            await script(ctx)

        simulate(self.dut, testbench, background=[self.watch])


async def wait(ctx, cycles):
    for _ in range(cycles):
        await ctx.tick()


def half(qpn):
    return BASE + QPC_BYTES * qpn + HALF_BYTES


def test_a_fetch_asks_for_the_lines_that_are_used():
    bench = Bench()

    async def script(ctx):
        await bench.give(ctx, slot=3, qpn=0xABCDEF)
        await wait(ctx, 20)

    bench.run(script)
    base = half(0xABCDEF)
    assert [read[1:] for read in bench.reads] == [(base + 64, 32), (base + 128, 64), (base + 320, 32)]
    assert not bench.writes


def test_cycles_of_a_job():
    """1 more than lines to fetch, and 1 more with a write-back."""
    bench = Bench()

    async def script(ctx):
        for number in range(4):
            await bench.give(ctx, slot=number, qpn=number)
        await wait(ctx, 60)
        await bench.give(ctx, slot=0, qpn=8, old=0, dirty=3)
        await bench.give(ctx, slot=1, qpn=9)
        await wait(ctx, 60)
        await bench.give(ctx, slot=2, qpn=10)
        await bench.give(ctx, slot=3, qpn=11, old=3, dirty=3)
        await wait(ctx, 60)

    bench.run(script)
    begins = [cycle for cycle, *_ in bench.reads[::3]]
    assert [after - before for before, after in pairwise(begins[:4])] == [4, 4, 4]
    assert begins[5] - begins[4] == 4
    assert begins[7] - begins[6] == 5


def test_a_fetch_waits_for_its_write_back_alone():
    bench = Bench()

    async def script(ctx):
        await bench.give(ctx, slot=1, qpn=5, old=9, dirty=1)
        await bench.give(ctx, slot=2, qpn=6)
        await bench.give(ctx, slot=3, qpn=9)
        await bench.give(ctx, slot=4, qpn=7)
        await wait(ctx, 100)
        assert [address for _, address, _ in bench.reads[::3]] == [half(5) + 64, half(6) + 64]
        await bench.answer(ctx, 1)
        await wait(ctx, 30)
        assert [address for _, address, _ in bench.reads[6::3]] == [half(9) + 64, half(7) + 64]

    bench.run(script)


@pytest.mark.parametrize("dirty", [0, 2, 3])
def test_a_close_waits_until_all_is_in_memory(dirty):
    bench = Bench()
    lines = dirty.bit_count()

    async def script(ctx):
        await bench.give(ctx, slot=1, qpn=9, old=9, dirty=dirty, fetch=0)
        await wait(ctx, 60)
        assert len(bench.writes) == lines
        if lines:
            await bench.answer(ctx, lines - 1)
            await wait(ctx, 10)
            assert not bench.saved
            await bench.answer(ctx, 1)
        await wait(ctx, 10)
        assert len(bench.saved) == 1

    bench.run(script)
    assert [address for _, address, _ in bench.writes] == [half(9) + 128, half(9) + 320][-lines:][:lines]


@pytest.mark.parametrize("fails", [0, 1])
def test_a_write_back_of_two_lines_fails_once(fails):
    bench = Bench()

    async def script(ctx):
        await bench.give(ctx, slot=1, qpn=5, old=9, dirty=3)
        await wait(ctx, 60)
        for line in range(2):
            await bench.answer(ctx, 1, AccessStatus.BUS if line == fails else AccessStatus.OK)
        await wait(ctx, 10)
        await bench.give(ctx, slot=1, qpn=6, old=5, dirty=3)
        await wait(ctx, 60)
        await bench.answer(ctx, 2)
        await wait(ctx, 10)

    bench.run(script)
    assert bench.errors == [(9, 1)]


@pytest.mark.parametrize("line", [0, 1, 2])
@pytest.mark.parametrize("data_width", [64, 512])
def test_any_line_that_is_not_read_makes_it_bad(line, data_width):
    bench = Bench(data_width=data_width)
    dut = bench.dut

    async def script(ctx):
        for number in range(2):
            await bench.give(ctx, slot=number, qpn=4 + number)
        await wait(ctx, 30)
        for number in range(2):
            for at, length in enumerate((32, 64, 32)):
                size = data_width // 8  # the rows used have 32, 64 and 32 bytes
                for place in range(0, length, size):
                    last = place + size >= length
                    error = number == 0 and at == line and last
                    ctx.set(dut.data.payload, {"count": min(size, length - place), "last": last, "error": error})
                    ctx.set(dut.data.valid, 1)
                    await ctx.tick().until(dut.data.ready)
                    ctx.set(dut.data.valid, 0)
        await wait(ctx, 10)

    bench.run(script)
    assert bench.filled == [(0, 1), (1, 0)]
    assert bench.errors == [(4, 0)]


def test_fetches_under_way():
    """No more than ``fetches``: the job behind waits until the oldest is answered."""
    bench = Bench(fetches=4)

    async def script(ctx):
        for number in range(8):
            await bench.give(ctx, slot=number, qpn=number)
        await wait(ctx, 60)

    bench.run(script)
    assert len(bench.reads) == 3 * 4


def test_wrong_arguments():
    with pytest.raises(TypeError, match="layout must be a SlotLayout, not 5"):
        ContextStore(5, 8)
    with pytest.raises(ValueError, match="qpn_bits must be 1 to 24, not 25"):
        Bench(qpn_bits=25)
    with pytest.raises(ValueError, match="data_width must be 64, 128, 256 or 512, not 96"):
        Bench(data_width=96)
