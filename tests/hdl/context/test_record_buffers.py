"""SaveBuffer and LoadBuffer: a record, word by word, against what it should be."""

import pytest
from record_checksum import remainder
from streams import make_rng, pause, receive_all, send_all, shared, simulate
from verbena.hdl.context.load_buffer import LoadBuffer
from verbena.hdl.context.record import HEADER_WORDS, most_words
from verbena.hdl.context.save_buffer import SaveBuffer

LIMITS = (4, 1, 20, 2)
QPS = 16
WIDTHS = (3, 1, 5, 2, 5)
"""Bits of the header's fields: as many as the limits need, and their sum with header and checksum."""


def record(index, sections, counts=None, words=None, checksum=0):
    """The words of a QP's record; ``counts`` and ``words`` are what the header says, and ``checksum`` is wrong by."""
    counts = [len(section) for section in sections] if counts is None else counts
    words = HEADER_WORDS + sum(map(len, sections)) + 1 if words is None else words
    bits, place = 0, 0
    for field, width in zip([*counts, words], WIDTHS, strict=True):
        assert field < 1 << width
        bits |= field << place
        place += width
    items = [bits, *(word for section in sections for word in section)]
    low = (QPS - 1).bit_length()
    total = index | 0x5645_5242_454E_4121 >> low << low
    for item in items:
        total = remainder(total << 64 ^ item)
    return [*items, total ^ checksum]


def random_sections(rng, least=1, largest=False):
    return [[rng.getrandbits(64) for _ in range(limit if largest else rng.randint(least, limit))] for limit in LIMITS]


async def strobe(ctx, signal):
    ctx.set(signal, 1)
    await ctx.tick()
    ctx.set(signal, 0)


def test_what_a_buffer_gives():
    """Header, sections, checksum; what came before ``begin`` is forgotten, and nothing goes before it shall."""
    rng = make_rng()
    dut = shared(SaveBuffer, LIMITS, QPS)

    async def give(ctx, number, words, wake):
        items = [{"data": word, "last": 0, "wake": 0} for word in words]
        items[-1] = {"data": words[-1], "last": 1, "wake": wake}
        await send_all(ctx, dut.saved[number], items, rng)

    async def testbench(ctx):
        for turn in range(8):
            await strobe(ctx, dut.begin)
            if rng.random() < 0.5:  # another QP had begun
                await give(ctx, rng.randrange(len(LIMITS)), [5], 1)
                await strobe(ctx, dut.begin)
            sections, waking = random_sections(rng, largest=turn == 3), rng.choice([None, *range(len(LIMITS))])
            order = rng.sample(range(len(LIMITS)), len(LIMITS))
            for number in order:
                assert not ctx.get(dut.full)
                await give(ctx, number, sections[number], number == waking)
            assert not ctx.get(dut.full)
            await ctx.tick().repeat(2)
            assert ctx.get(dut.full)
            assert ctx.get(dut.wake) == (waking is not None)
            index = rng.randrange(QPS)
            expected = record(index, sections)
            assert ctx.get(dut.words) == len(expected)
            assert not ctx.get(dut.o.valid)
            assert not ctx.get(dut.busy)
            ctx.set(dut.index, index)
            await strobe(ctx, dut.go)
            assert await receive_all(ctx, dut.o, len(expected) - 1, rng) == expected[:-1]
            assert ctx.get(dut.busy)
            assert await receive_all(ctx, dut.o, 1, rng) == expected[-1:]
            assert not ctx.get(dut.busy)
            assert ctx.get(dut.full)

    simulate(dut, testbench, seed=rng.seed_value)


def test_sections_that_come_side_by_side():
    """A word is taken each cycle, as long as anybody has one."""
    rng = make_rng()
    dut = shared(SaveBuffer, LIMITS, QPS)
    sections = random_sections(rng, largest=True)

    async def testbench(ctx):
        await strobe(ctx, dut.begin)
        left = [list(section) for section in sections]
        for _ in range(sum(LIMITS)):
            for port, words in zip(dut.saved, left, strict=True):
                ctx.set(port.valid, bool(words))
                ctx.set(port.payload, {"data": words[0] if words else 0, "last": len(words) == 1})
            taken = (await ctx.tick().sample(*(port.ready for port in dut.saved)))[2:]
            moved = [words.pop(0) for ready, words in zip(taken, left, strict=True) if ready and words]
            assert len(moved) == 1
        for port in dut.saved:
            ctx.set(port.valid, 0)
        await ctx.tick().repeat(2)
        assert ctx.get(dut.full)
        await strobe(ctx, dut.go)
        expected = record(0, sections)
        assert await receive_all(ctx, dut.o, len(expected)) == expected

    simulate(dut, testbench, seed=rng.seed_value)


def test_how_fast_a_record_goes():
    """A word each cycle, but for 2 behind the header and 2 before the checksum."""
    rng = make_rng()
    dut = shared(SaveBuffer, LIMITS, QPS)
    sections = random_sections(rng, largest=True)

    async def testbench(ctx):
        await strobe(ctx, dut.begin)
        for port, words in zip(dut.saved, sections, strict=True):
            await send_all(ctx, port, [{"data": word, "last": at == len(words) - 1} for at, word in enumerate(words)])
        await ctx.tick().repeat(2)
        assert ctx.get(dut.full)
        ctx.set(dut.o.ready, 1)
        await strobe(ctx, dut.go)
        valid = []
        while ctx.get(dut.busy):
            valid.append(ctx.get(dut.o.valid))
            await ctx.tick()
        assert valid == [1] * HEADER_WORDS + [0] * 2 + [1] * sum(LIMITS) + [0, 0, 1]

    simulate(dut, testbench, seed=rng.seed_value)


async def bring(ctx, dut, rng, index, words):
    """Record ``words`` come, and random ones behind them. Whether they are bad; None: it has no end."""
    ctx.set(dut.index, index)
    await strobe(ctx, dut.begin)
    assert not ctx.get(dut.known)
    header_in = None
    for number, word in enumerate([*words, *(rng.getrandbits(64) for _ in range(8))]):
        await pause(ctx, rng, 0.2)
        ctx.set(dut.i.payload, word)
        ctx.set(dut.i.valid, 1)
        assert ctx.get(dut.i.ready)
        await ctx.tick()
        ctx.set(dut.i.valid, 0)
        assert ctx.get(dut.known) == (header_in is not None)  # a cycle late
        header_in = number if number >= HEADER_WORDS - 1 else None
        if ctx.get(dut.known):
            assert ctx.get(dut.words) <= most_words(LIMITS)
    await ctx.tick().repeat(len(LIMITS) + 2)
    return ctx.get(dut.bad) if ctx.get(dut.full) else None


def test_what_a_buffer_takes():
    """Sections come out one after the other, each at its port, however long they are."""
    rng = make_rng()
    dut = shared(LoadBuffer, LIMITS, QPS)

    async def testbench(ctx):
        for turn in range(8):
            index, sections = rng.randrange(QPS), random_sections(rng, least=0, largest=turn == 3)
            if turn == 5:
                sections[0], sections[-1] = [], []
            words = record(index, sections)
            assert await bring(ctx, dut, rng, index, words) == 0
            assert ctx.get(dut.words) == len(words)
            await strobe(ctx, dut.back)
            for number, section in enumerate(sections):
                for other, port in enumerate(dut.loaded):
                    assert other <= number or not section or not ctx.get(port.valid)
                assert await receive_all(ctx, dut.loaded[number], len(section), rng) == section
            for _ in range(12):
                assert not any(ctx.get(port.valid) for port in dut.loaded)
                await ctx.tick()

    simulate(dut, testbench, seed=rng.seed_value)


def test_a_record_comes_while_the_one_before_is_given_back():
    """It may begin in the next cycle; good or bad, it changes nothing of what goes."""
    rng = make_rng()
    dut = shared(LoadBuffer, LIMITS, QPS)
    records = []
    for turn in range(8):
        sections = random_sections(rng, largest=turn % 4 == 1)
        records.append((rng.randrange(QPS), sections, rng.random() < 0.3 and turn != 7))
    gone = []

    async def comes(ctx):
        for number, (index, sections, bad) in enumerate(records):
            assert await bring(ctx, dut, rng, index, record(index, sections, checksum=int(bad))) == bad
            if bad:
                continue
            while len(gone) < sum(not bad for *_, bad in records[:number]):
                await ctx.tick()
            await strobe(ctx, dut.back)

    async def goes(ctx):
        for _, sections, bad in records:
            if not bad:
                for number, section in enumerate(sections):
                    assert await receive_all(ctx, dut.loaded[number], len(section), rng) == section
                gone.append(sections)

    simulate(dut, comes, goes, seed=rng.seed_value)
    assert len(gone) > 3


def test_how_fast_words_come_back():
    """One each cycle, once the first is there."""
    rng = make_rng()
    dut = shared(LoadBuffer, LIMITS, QPS)

    async def testbench(ctx):
        sections = random_sections(rng, largest=True)
        assert await bring(ctx, dut, rng, 3, record(3, sections)) == 0
        for port in dut.loaded:
            ctx.set(port.ready, 1)
        await strobe(ctx, dut.back)
        got = []
        for _ in range(sum(LIMITS) + 8):
            for number, port in enumerate(dut.loaded):
                if ctx.get(port.valid):
                    got.append((number, ctx.get(port.payload)))
            await ctx.tick()
        assert got == [(number, word) for number, section in enumerate(sections) for word in section]

    simulate(dut, testbench, seed=rng.seed_value)


@pytest.mark.parametrize("kind", ["too long", "too many", "sum", "less", "none", "checksum", "index", "huge"])
def test_records_that_are_bad(kind):
    """Whatever the checksum says; and one that is good is taken behind them."""
    rng = make_rng()
    dut = shared(LoadBuffer, LIMITS, QPS)

    async def testbench(ctx):
        for _ in range(4):
            sections = random_sections(rng, largest=kind == "too many")
            counts = [len(section) for section in sections]
            index, whole = rng.randrange(QPS), HEADER_WORDS + sum(counts) + 1
            if kind == "too long":  # one section takes words of another one
                sections[0] = [1, 2, 3, 4, 5]
                words = record(index, sections)
            elif kind == "too many":
                words = record(index, [*sections[:2], [*sections[2], 1, 2], sections[3]])
            elif kind == "sum":
                counts[2] += 1 if counts[2] == 1 else -1
                words = record(index, sections, counts=counts)
            elif kind == "less":
                words = record(index, sections[:-1], counts=counts, words=whole - counts[-1])
            elif kind == "none":
                words = record(index, sections, words=rng.randrange(HEADER_WORDS + 1))
            elif kind == "checksum":
                words = record(index, sections, checksum=1 << rng.randrange(64))
            elif kind == "index":
                words = record(index ^ 1 << rng.randrange(4), sections)
            else:
                *counts, whole = ((1 << width) - 1 for width in WIDTHS)
                words = record(index, sections, counts=counts, words=whole)
                words += [rng.getrandbits(64) for _ in range(most_words(LIMITS))]
            assert await bring(ctx, dut, rng, index, words) == 1
            sections = random_sections(rng)
            assert await bring(ctx, dut, rng, index, record(index, sections)) == 0

    simulate(dut, testbench, seed=rng.seed_value)
