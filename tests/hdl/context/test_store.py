"""QpStore: what the owners of a queue pair's state give away comes back from host memory."""

import pytest
from amaranth.hdl import Value
from streams import changes, make_rng, receive_all, simulate, unpacked
from verbena.hdl.abi.qpc import QPC_DRIVER
from verbena.hdl.context.record import most_words
from verbena.hdl.context.record_read import READ_BYTES
from verbena.hdl.context.record_write import WRITE_BYTES
from verbena.hdl.context.save_buffer import SaveBuffer
from verbena.hdl.context.store import QpStore

BASE = 0x12_3456_0000
RECORD = 2048
LIMITS = (10, 3, 1, 90, 40, 2)
SHORT = (5, 3, 1, 6, 4, 2)
QPS = 16


class Memory:
    """The records, behind the two ports to the DMA engine."""

    def __init__(self, dut, width, rng):
        self.dut, self.size, self.rng = dut, width // 8, rng
        self.bytes = bytearray(rng.randbytes(QPS * RECORD))
        self.broken = False  # answers are errors
        self.order = []

    async def reads(self, ctx):
        port, put = self.dut.read_request, changes(ctx)
        edges = aiter(ctx.tick().sample(port.valid, Value.cast(port.payload), self.dut.read_data.ready))
        while True:
            request = None
            while request is None:
                ready = self.rng.random() < 0.5
                put(port.ready, ready)
                _, _, valid, payload, _ = await anext(edges)
                request = unpacked(port, payload) if valid and ready else None
            put(port.ready, 0)
            self.order.append("read")
            at, length = request.address - BASE, request.length
            assert at // READ_BYTES == (at + length - 1) // READ_BYTES
            assert at + length <= len(self.bytes)
            for place in range(0, length, self.size):
                last = place + self.size >= length
                ctx.set(
                    self.dut.read_data.payload,
                    {
                        "data": int.from_bytes(self.bytes[at + place : at + place + self.size], "little"),
                        "count": min(self.size, length - place),
                        "first": place == 0,
                        "last": last,
                        "error": last and self.broken,
                    },
                )
                taken = False
                while not taken:
                    valid = self.rng.random() < 0.7
                    put(self.dut.read_data.valid, valid)
                    *_, ready = await anext(edges)
                    taken = valid and ready
            put(self.dut.read_data.valid, 0)

    async def writes(self, ctx):
        dut, rng = self.dut, self.rng
        left, at, done, put = 0, 0, [], changes(ctx)
        edges = aiter(
            ctx.tick().sample(
                dut.write_request.valid,
                dut.write_request.ready,
                Value.cast(dut.write_request.payload),
                dut.write_data.valid,
                dut.write_data.ready,
                Value.cast(dut.write_data.payload),
                dut.write_done.valid,
            )
        )
        while True:
            put(dut.write_request.ready, not left and rng.random() < 0.5)
            put(dut.write_data.ready, left > 0 and rng.random() < 0.7)
            put(dut.write_done.valid, bool(done) and rng.random() < 0.3)
            put(dut.write_done.payload, {"status": 5 if self.broken else 0, "tag": 0})
            _, _, asks, asked, request, moves, moved, beat, told = await anext(edges)
            if told:
                done.pop()
            if asks and asked:
                request = unpacked(dut.write_request, request)
                at, left, first = request.address - BASE, request.length, True
                assert at % 64 == 0
                assert 8 <= left <= WRITE_BYTES
                assert at // 4096 == (at + left - 1) // 4096
                assert at % RECORD >= QPC_DRIVER
                self.order.append("write")
            if moves and moved:
                beat, count = unpacked(dut.write_data, beat), min(self.size, left)
                assert (beat.count, beat.first, beat.last) == (count, first, left == count)
                self.bytes[at : at + count] = beat.data.to_bytes(self.size, "little")[:count]
                at, left, first = at + count, left - count, False
                if not left:
                    done.append(at)


def sections(rng, limits=LIMITS, largest=False):
    return [
        [rng.getrandbits(64) for _ in range(limit if largest or limit == 1 else rng.randint(1, limit))]
        for limit in limits
    ]


async def strobe(ctx, *values):
    for signal, value in values:
        ctx.set(signal, value)
    await ctx.tick()
    ctx.set(values[0][0], 0)


async def save(ctx, dut, rng, index, words, wake):
    """A QP gives its state away."""
    await strobe(ctx, (dut.collect, 1))
    left = [list(each) for each in words]
    showing = [False] * len(left)
    while any(left):
        for number, each in enumerate(left):
            port = dut.saved[number]
            showing[number] = bool(each) and (showing[number] or rng.random() < 0.5)
            ctx.set(port.valid, showing[number])
            if showing[number]:
                last = len(each) == 1
                ctx.set(port.payload, {"data": each[0], "last": last, "wake": last and number == wake})
        sampled = await ctx.tick().sample(*(port.ready for port in dut.saved))
        for number, ready in enumerate(sampled[2:]):
            if showing[number] and ready:
                left[number].pop(0)
                showing[number] = False
    for port in dut.saved:
        ctx.set(port.valid, 0)
    await ctx.tick().repeat(2)
    assert ctx.get(dut.full)
    assert ctx.get(dut.wake) == (wake is not None)
    await strobe(ctx, (dut.write, 1), (dut.write_index, index))


async def read(ctx, dut, index, whole=1):
    await strobe(ctx, (dut.read, 1), (dut.read_index, index), (dut.whole, whole))
    await ctx.tick().until(~dut.reading)
    return ctx.get(dut.bad)


async def written(ctx, dut):
    """Until the record is there."""
    await ctx.tick().until(~dut.writing)


async def load(ctx, dut, rng, words):
    """Its owners get it back, one after the other."""
    await strobe(ctx, (dut.back, 1))
    for number, each in enumerate(words):
        assert await receive_all(ctx, dut.loaded[number], len(each), rng) == each


@pytest.mark.parametrize("turns", [6, pytest.param(12, marks=pytest.mark.slow)])
@pytest.mark.parametrize("width", [64, 512])
def test_what_goes_comes_back(width, turns):
    """One QP comes while another one goes; records of all lengths, the longest included."""
    rng = make_rng()
    dut = QpStore(LIMITS, QPS, RECORD, width)
    memory = Memory(dut, width, rng)
    away = {}

    async def testbench(ctx):
        ctx.set(dut.base, BASE)
        doorbells = {}
        for turn in range(turns):
            index = rng.randrange(QPS)
            doorbells[index] = [rng.getrandbits(16) for _ in range(2)]
            driver = index * RECORD
            memory.bytes[driver : driver + 4] = b"".join(value.to_bytes(2, "little") for value in doorbells[index])
            words = sections(rng, largest=turn == 5)
            await save(ctx, dut, rng, index, words, rng.choice([None, 0, 3]))
            others = [other for other in away if other != index]
            other = rng.choice(others) if others else None
            if other is not None:
                assert not await read(ctx, dut, other)
                await load(ctx, dut, rng, away[other])
            await written(ctx, dut)
            assert not ctx.get(dut.write_failed)
            assert ctx.get(dut.written_index) == index
            away[index] = words
            assert not await read(ctx, dut, index)
            assert ctx.get(dut.doorbells.sq_producer) == doorbells[index][0]
            assert ctx.get(dut.doorbells.rq_producer) == doorbells[index][1]
            await load(ctx, dut, rng, words)

    simulate(dut, testbench, background=[memory.reads, memory.writes], seed=rng.seed_value, deadline=100_000)


@pytest.mark.parametrize("limits", [SHORT, pytest.param(LIMITS, marks=pytest.mark.slow)])
def test_a_record_that_is_not_what_was_written(limits):
    """Any bit of it, a few, one of another QP, and random bits; the driver's part alone is its own."""
    rng = make_rng()
    dut = QpStore(limits, QPS, RECORD, 64)
    memory = Memory(dut, 64, rng)

    async def testbench(ctx):
        ctx.set(dut.base, BASE)
        for index in range(3):
            words = sections(rng, limits)
            await save(ctx, dut, rng, index, words, None)
            await written(ctx, dut)
            at, size = index * RECORD, 8 * (2 + sum(map(len, words)))
            good = bytes(memory.bytes[at : at + RECORD])
            bits = [*range(0, 128, 3), *rng.sample(range(8 * size), 8)] if not index else rng.sample(range(8 * size), 8)
            for bit in bits:
                memory.bytes[at + QPC_DRIVER + bit // 8] ^= 1 << bit % 8
                assert await read(ctx, dut, index), bit
                memory.bytes[at : at + RECORD] = good
            for _ in range(4):  # and of any few, also of neighbours in words that follow each other
                first = rng.randrange(8 * size - 65)
                others = rng.sample(range(8 * size), rng.choice([1, 2, 3]))
                for bit in {first, rng.choice([first + 63, first + 64, first + 65, *others]), *others[1:]}:
                    memory.bytes[at + QPC_DRIVER + bit // 8] ^= 1 << bit % 8
                assert await read(ctx, dut, index), (first, others)
                memory.bytes[at : at + RECORD] = good
            memory.bytes[at : at + QPC_DRIVER] = rng.randbytes(QPC_DRIVER)
            assert not await read(ctx, dut, index)
            # Of another one.
            other = QPS - 1
            memory.bytes[other * RECORD : (other + 1) * RECORD] = good
            assert await read(ctx, dut, other)
            assert not await read(ctx, dut, other, whole=0)
        for _ in range(6):
            memory.bytes[:RECORD] = rng.randbytes(RECORD)
            assert await read(ctx, dut, 0)
        memory.bytes[:RECORD] = bytes(RECORD)
        assert await read(ctx, dut, 0)

    simulate(dut, testbench, background=[memory.reads, memory.writes], seed=rng.seed_value, deadline=200_000)


def test_a_memory_that_fails():
    rng = make_rng()
    dut = QpStore(LIMITS, QPS, RECORD, 128)
    memory = Memory(dut, 128, rng)

    async def testbench(ctx):
        ctx.set(dut.base, BASE)
        words = sections(rng)
        for broken in (True, False):
            memory.broken = broken
            await save(ctx, dut, rng, 3, words, None)
            await written(ctx, dut)
            assert ctx.get(dut.write_failed) == broken
        for broken in (True, False):
            memory.broken = broken
            assert await read(ctx, dut, 3) == broken
            assert await read(ctx, dut, 3, whole=0) == broken

    simulate(dut, testbench, background=[memory.reads, memory.writes], seed=rng.seed_value, deadline=50_000)


def test_sizes():
    assert most_words(LIMITS) == 1 + sum(LIMITS) + 1
    with pytest.raises(ValueError, match="limits"):
        SaveBuffer([1] * 59, QPS)
    SaveBuffer([1] * 58, QPS)
