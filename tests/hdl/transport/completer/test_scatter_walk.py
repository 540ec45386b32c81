"""The walk over entries: accesses of each packet against a list of bytes."""

import pytest
from amaranth.back import rtlil
from streams import collect, make_rng, simulate
from verbena.hdl.transport.completer.scatter_walk import ScatterWalk


def joined(places):
    """Accesses from (key, address) of every byte."""
    run = []
    for key, address in places:
        if run and run[-1][0] == key and (run[-1][1] + run[-1][2]) % (1 << 64) == address:
            run[-1][2] += 1
        else:
            run.append([key, address, 1])
    return run


def walk(entries, packets, rng, stall=0.0):
    """Gives packets (length, discard) to a walk that begins in ``entries[0]``: runs, ``short`` and cycles of each."""
    dut = ScatterWalk()
    portions, shorts = [], []

    async def script(ctx):
        address, left, key = entries[0]
        place = {"address": address, "left": left, "key": key, "sge": 1}
        for length, discard in packets:
            ctx.set(dut.length, length)
            ctx.set(dut.start, place)
            ctx.set(dut.load, 1)
            await ctx.tick()
            ctx.set(dut.load, 0)
            ctx.set(dut.discard, discard)
            ctx.set(dut.go, 1)
            await ctx.tick()
            ctx.set(dut.go, 0)
            ctx.set(dut.discard, 0)
            done, cycles = 0, 1
            edges = aiter(ctx.tick().sample(dut.done, dut.short))
            while not done:
                _, _, done, short = await anext(edges)
                cycles += 1
            shorts.append((short, cycles))
            if short:
                break
            if not discard:
                place = ctx.get(dut.place)
            ctx.set(dut.length, rng.randrange(4097))

    async def memory(ctx):
        while True:
            _, _, want, number = await ctx.tick().sample(dut.want, dut.place.sge)
            while want and rng.random() < stall:
                await ctx.tick()
            if want and number >= len(entries):
                ctx.set(dut.exhausted, 1)
                await ctx.tick()
                ctx.set(dut.exhausted, 0)
            elif want:
                address, length, key = entries[number]
                ctx.set(dut.word, address)
                ctx.set(dut.take_address, 1)
                await ctx.tick()
                ctx.set(dut.take_address, 0)
                ctx.set(dut.word, length | key << 32)
                ctx.set(dut.take_size, 1)
                await ctx.tick()
                ctx.set(dut.take_size, 0)

    async def portion(ctx):
        await collect(ctx, dut.portion, portions, rng, stall)

    simulate(dut, script, background=(memory, portion), seed=rng.seed_value)
    runs = [[]]
    for item in portions:
        runs[-1].append(item)
        if item.last:
            runs.append([])
    assert runs.pop() == []
    return runs, shorts


@pytest.mark.parametrize("stall", [0.0, 0.5])
def test_random(stall):
    rng = make_rng()
    for _ in range(12):
        sizes = [rng.choice([0, 0, 1, 5, 300, 4096, 9000]) for _ in range(rng.randint(1, 8))]
        entries = [(rng.getrandbits(64), size, rng.getrandbits(32)) for size in sizes]
        places = [(key, (address + k) % (1 << 64)) for address, size, key in entries for k in range(size)]
        packets = [(rng.choice([0, 1, 256, 4096, rng.randrange(4097)]), rng.random() < 0.2) for _ in range(10)]
        runs, shorts = walk(entries, packets, rng, stall)
        assert len(runs) == len(shorts)
        for run, (short, _), (length, discard) in zip(runs, shorts, packets[: len(runs)]):
            taken = 0 if discard else min(length, len(places))
            moves = [[item.key, item.address, item.length] for item in run if item.length and not item.discard]
            assert moves == joined(places[:taken])
            assert sum(item.length for item in run) == length
            assert [item.length for item in run if item.discard] == ([length - taken] if length > taken else [])
            assert short == (length > taken and not discard)
            places = places[taken:]


def test_cycles():
    """Valid in the cycle after ``go``; an entry more takes 2 cycles, an empty one 1, and here 3 each for its words."""
    rng = make_rng(1)
    entries = [(0, 10, 1), (100, 10, 2), (200, 0, 3), (300, 10, 4)]
    _, shorts = walk(entries, [(5, 0), (0, 0), (9, 1), (5, 0), (5, 0), (6, 0)], rng)
    assert [cycles for _, cycles in shorts] == [2, 2, 2, 2, 6, 11]


def test_an_entry_of_the_largest_length():
    runs, _ = walk([((1 << 64) - 10, 0xFFFF_FFFF, 7)], [(4096, 0), (1, 0)], make_rng(1))
    assert [(item.address, item.length) for (item,) in runs] == [((1 << 64) - 10, 4096), (4086, 1)]


def test_converts():
    rtlil.convert(ScatterWalk())
