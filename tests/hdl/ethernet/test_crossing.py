"""Counts and events between clocks of any ratio."""

import pytest
from clocks import simulate_clocks
from streams import make_rng
from verbena.hdl.ethernet.crossing import EventCrossing, GrayCrossing

CLOCKS = [(8, 8.001), (8, 8), (3.1, 40), (40, 3.1), (8, 6.4)]


@pytest.mark.parametrize("periods", CLOCKS)
def test_count(periods):
    """What is seen is a value that was there, and it does not go back."""
    rng = make_rng()
    dut = GrayCrossing(5, i_domain="a", o_domain="b")
    count, seen = [0], []

    async def writer(ctx):
        for _ in range(300):
            if rng.random() < 0.5:
                count[0] += 1
                ctx.set(dut.i, count[0] % 32)
            await ctx.tick("a")
        await ctx.delay(300e-9)

    async def reader(ctx):
        async for *_, value in ctx.tick("b").sample(dut.o):
            seen.append((value, count[0]))

    simulate_clocks(dut, {"a": (periods[0], 0.3), "b": (periods[1], 1.1)}, writer, background=[reader])
    last = 0
    for value, sent in seen:
        now = sent - (sent - value) % 32
        assert last <= now
        last = now
    assert last == count[0]


@pytest.mark.parametrize("periods", CLOCKS)
def test_events(periods):
    rng = make_rng()
    dut = EventCrossing(i_domain="a", o_domain="b")
    sent, got = [0], [0]

    async def writer(ctx):
        # As many as are allowed at once, and then as long as they take.
        for _ in range(20):
            for _ in range(rng.randrange(1, 30)):
                one = rng.random() < 0.5 and sent[0] - got[0] < 12
                sent[0] += one
                ctx.set(dut.i, one)
                await ctx.tick("a")
            ctx.set(dut.i, 0)
            await ctx.delay(rng.randrange(200) * 1e-9)
        await ctx.delay(1e-6)

    async def reader(ctx):
        async for *_, one in ctx.tick("b").sample(dut.o):
            got[0] += one

    simulate_clocks(dut, {"a": (periods[0], 0.3), "b": (periods[1], 1.1)}, writer, background=[reader])
    assert got == sent
    assert sent[0] > 40


@pytest.mark.parametrize("periods", CLOCKS)
def test_events_of_a_cycle_stay_together(periods):
    rng = make_rng()
    dut = EventCrossing(5, i_domain="a", o_domain="b")
    sent, got = [], []

    async def writer(ctx):
        for _ in range(40):
            for _ in range(rng.randrange(1, 30)):
                some = rng.getrandbits(5) if rng.random() < 0.5 and len(sent) - len(got) < 12 else 0
                if some:
                    sent.append(some)
                ctx.set(dut.i, some)
                await ctx.tick("a")
            ctx.set(dut.i, 0)
            await ctx.delay(rng.randrange(200) * 1e-9)
        await ctx.delay(1e-6)

    async def reader(ctx):
        async for *_, some in ctx.tick("b").sample(dut.o):
            if some:
                got.append(some)

    simulate_clocks(dut, {"a": (periods[0], 0.3), "b": (periods[1], 1.1)}, writer, background=[reader])
    assert got == sent
    assert len(sent) > 40
