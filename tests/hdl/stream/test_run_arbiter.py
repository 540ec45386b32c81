"""The run arbiter: runs pass whole, in turn, and in the order in which they were begun."""

import pytest
from amaranth.back import rtlil
from streams import make_rng, receive_all, send_all, simulate
from verbena.hdl.stream.run_arbiter import RunArbiter


def runs(rng, number, count):
    """Accesses of ``count`` runs; the key says whose, which run and which access."""
    accesses = []
    for k in range(count):
        length = rng.choice([1, 1, 1, 2, 5])
        for j in range(length):
            accesses.append(
                {
                    "key": number << 24 | k << 8 | j,
                    "address": rng.getrandbits(64),
                    "length": rng.randrange(4097),
                    "span": rng.getrandbits(32),
                    "pd": rng.getrandbits(24),
                    "access": rng.randrange(32),
                    "qp": rng.randrange(4096),
                    "quiet": rng.randrange(2),
                    "discard": rng.randrange(2),
                    "clear": rng.randrange(2),
                    "fresh": rng.randrange(2),
                    "tag": number & 1,
                    "last": int(j == length - 1),
                }
            )
    return accesses


def merge(items, rng, stalls):
    """Sends ``items[k]`` to input k; what came out. ``hint`` says anything: it must not matter."""
    dut = RunArbiter(len(items))
    received = []

    def producer(number):
        async def testbench(ctx):
            await send_all(ctx, dut.i[number], items[number], rng, stalls[0])

        return testbench

    async def consumer(ctx):
        received.extend(await receive_all(ctx, dut.o, sum(map(len, items)), rng, stalls[1]))

    async def rumours(ctx):
        edges = aiter(ctx.tick())
        while True:
            ctx.set(dut.hint, rng.getrandbits(len(items)))
            await anext(edges)

    producers = [producer(number) for number in range(len(items))]
    simulate(dut, *producers, consumer, background=(rumours,), seed=rng.seed_value)
    return received


@pytest.mark.parametrize("stalls", [(0, 0), (0.3, 0.3), (0.8, 0.1), (0.1, 0.8)])
@pytest.mark.parametrize("count", [2, 3, 4])
def test_runs_pass_whole(count, stalls):
    rng = make_rng()
    sent = [runs(rng, number, 40) for number in range(count)]
    received = merge(sent, rng, stalls)
    for number in range(count):
        assert [access for access in received if access.key >> 24 == number] == sent[number]
    owner = None
    for access in received:
        assert owner in (None, access.key >> 24)
        owner = None if access.last else access.key >> 24


@pytest.mark.parametrize("count", [2, 3])
def test_runs_are_served_in_turn(count):
    rng = make_rng()
    received = merge([runs(rng, number, 20) for number in range(count)], rng, (0, 0))
    owners = [access.key >> 24 for access in received if access.last]
    assert owners in [[(first + k) % count for k in range(20 * count)] for first in range(count)]


@pytest.mark.parametrize("stall", [0.0, 0.6])
def test_order_of_taking_is_order_of_leaving(stall):
    """As on the receive side: whoever has the next packet begins its run right after the one before was taken."""
    rng = make_rng()
    dut = RunArbiter(2)
    pools = [runs(rng, number, 60) for number in range(2)]
    order, received = [], []
    total = sum(map(len, pools))

    async def producer(ctx):
        while any(pools):
            number = rng.choice([number for number in range(2) if pools[number]])
            last = False
            while not last:
                access = pools[number].pop(0)
                last = access["last"]
                order.append(access)
                await send_all(ctx, dut.i[number], [access])

    async def consumer(ctx):
        received.extend(await receive_all(ctx, dut.o, total, rng, stall))

    simulate(dut, producer, consumer, seed=rng.seed_value)
    assert received == order


def test_cycles():
    """An access every second cycle, whoever sends it, and no path from the output's ready to an input's."""
    dut = RunArbiter(2)
    out = []

    async def testbench(ctx):
        for port in dut.i:
            ctx.set(port.payload.last, 1)
            ctx.set(port.valid, 1)
        ctx.set(dut.o.ready, 1)
        for _ in range(20):
            before = [ctx.get(port.ready) for port in dut.i]
            ctx.set(dut.o.ready, 0)
            assert [ctx.get(port.ready) for port in dut.i] == before
            ctx.set(dut.o.ready, 1)
            out.append(ctx.get(dut.o.valid))
            await ctx.tick()

    simulate(dut, testbench)
    assert out == [0, 1] * 10


@pytest.mark.parametrize("told", [False, True])
def test_a_change_is_free_if_it_was_told(told):
    dut = RunArbiter(2)

    async def testbench(ctx):
        ctx.set(dut.o.ready, 1)
        for number in (1, 0, 1):
            ctx.set(dut.hint, told << number)
            await ctx.tick()
            ctx.set(dut.i[number].payload.last, 1)
            ctx.set(dut.i[number].valid, 1)
            cycles = 0
            while not ctx.get(dut.i[number].ready):
                cycles += 1
                await ctx.tick()
            assert cycles == (0 if told else 1)
            await ctx.tick()
            ctx.set(dut.i[number].valid, 0)
            await ctx.tick()

    simulate(dut, testbench)


def test_converts_and_refuses():
    rtlil.convert(RunArbiter(3))
    with pytest.raises(ValueError, match="count must be an int of at least 2, not 1"):
        RunArbiter(1)
