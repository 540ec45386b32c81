"""The ack queue: of each QP the latest answer, but no NAK lost."""

import pytest
from streams import Item, collect, make_rng, simulate
from verbena.hdl.transport.ack_queue import AckQueue

QPS = 4
ACK, SEQUENCE, RNR, ACCESS = 0x1F, 0x60, 0x2C, 0x62


async def put(ctx, dut, qp, psn, syndrome=ACK, *, msn=0, clear=0):
    """As the acknowledger does it: the QP first, the answer 2 cycles later."""
    ctx.set(dut.answer, {"qp": qp, "psn": psn, "msn": msn, "syndrome": syndrome})
    for _ in range(2):
        await ctx.tick()
    ctx.set(dut.clear, clear)
    ctx.set(dut.put, 1)
    await ctx.tick()
    ctx.set(dut.put, 0)


def run(script):
    dut = AckQueue(QPS)
    got = []

    async def testbench(ctx):
        await script(ctx, dut, got)

    async def take(ctx):
        while True:
            _, _, valid, ready, payload = await ctx.tick().sample(dut.o.valid, dut.o.ready, dut.o.payload)
            if valid and ready:
                got.append((payload.qp, payload.psn, payload.syndrome))

    simulate(dut, testbench, background=(take,))
    return got


async def drain(ctx, dut, cycles=40):
    ctx.set(dut.o.ready, 1)
    for _ in range(cycles):
        await ctx.tick()
    ctx.set(dut.o.ready, 0)


def test_the_latest_answer_wins_and_a_nak_is_not_lost():
    sequences = {
        ((5, ACK), (6, ACK), (7, ACK)): (7, ACK),
        ((5, ACK), (6, SEQUENCE)): (6, SEQUENCE),
        ((6, SEQUENCE), (5, ACK)): (6, SEQUENCE),  # a duplicate
        ((6, RNR), (5, ACK), (5, ACK)): (6, RNR),
        ((6, SEQUENCE), (6, ACK)): (6, ACK),  # it came after all
        ((6, SEQUENCE), (7, ACK)): (7, ACK),
        ((6, RNR), (6, ACK), (5, ACK)): (5, ACK),
        ((6, RNR), (6, ACCESS)): (6, ACCESS),
        ((0, SEQUENCE), ((1 << 24) - 1, ACK)): (0, SEQUENCE),
        (((1 << 24) - 1, RNR), (0, ACK)): (0, ACK),
    }

    async def script(ctx, dut, got):
        # Another QP's answer occupies the output.
        for answers, wanted in sequences.items():
            got.clear()
            await put(ctx, dut, 3, 1)
            for _ in range(10):
                await ctx.tick()
            for psn, syndrome in answers:
                await put(ctx, dut, 2, psn, syndrome)
            await drain(ctx, dut)
            assert got == [(3, 1, ACK), (2, *wanted)]
            # What was sent holds nothing back.
            got.clear()
            await put(ctx, dut, 2, (1 << 24) - 9, ACK)
            await drain(ctx, dut)
            assert got == [(2, (1 << 24) - 9, ACK)]

    run(script)


def test_clear():
    async def script(ctx, dut, got):
        await put(ctx, dut, 3, 1)
        for _ in range(10):
            await ctx.tick()
        await put(ctx, dut, 2, 8, SEQUENCE)
        await put(ctx, dut, 2, 0, clear=1)
        assert not ctx.get(dut.holds)
        await put(ctx, dut, 3, 0, clear=1)
        assert ctx.get(dut.holds)
        await drain(ctx, dut)
        assert not ctx.get(dut.holds)
        assert got == [(3, 1, ACK)]
        got.clear()
        # A new life, also while the old life's place in the order is still there; and no NAK of the old one.
        await put(ctx, dut, 3, 1)
        for _ in range(10):
            await ctx.tick()
        await put(ctx, dut, 2, 8, SEQUENCE)
        await put(ctx, dut, 2, 0, clear=1)
        await put(ctx, dut, 2, 7)
        await drain(ctx, dut)
        assert got == [(3, 1, ACK), (2, 7, ACK)]

    run(script)


@pytest.mark.parametrize("stall", [0.0, 0.5, 0.9])
def test_nothing_is_lost(stall):
    """With answers that only grow: what comes out of a QP grows, and the last that went in comes out."""
    rng = make_rng()
    dut = AckQueue(QPS)
    got = []
    last = {}

    async def script(ctx):
        psn = [0xFFFFF0] * QPS
        for _ in range(400):
            qp = rng.randrange(QPS)
            psn[qp] = (psn[qp] + 1) % (1 << 24)
            await put(ctx, dut, qp, psn[qp], rng.choice([ACK, ACK, ACK, SEQUENCE]), msn=psn[qp] ^ 0xABCDEF)
            last[qp] = psn[qp]
            for _ in range(rng.choice([0, 0, 1, 5, 20])):
                await ctx.tick()
        for _ in range(300):
            await ctx.tick()

    async def take(ctx):
        await collect(ctx, dut.o, got, rng, stall)

    simulate(dut, script, background=(take,), seed=rng.seed_value)
    for qp in range(QPS):
        mine = [ack for ack in got if ack.qp == qp]
        order = [(ack.psn - 0xFFFFF0) % (1 << 24) for ack in mine]
        assert order == sorted(set(order))
        assert mine[-1].psn == last[qp]
        assert all(ack.msn == ack.psn ^ 0xABCDEF for ack in mine)


def test_latency():
    async def script(ctx, dut, got):
        ctx.set(dut.o.ready, 1)
        await put(ctx, dut, 1, 5)
        cycles = 1
        while not ctx.get(dut.o.valid):
            await ctx.tick()
            cycles += 1
        assert cycles == 5
        assert Item(qp=1, psn=5, msn=0, syndrome=ACK) == {
            name: ctx.get(dut.o.payload[name]) for name in ("qp", "psn", "msn", "syndrome")
        }

    run(script)


def test_arguments():
    with pytest.raises(ValueError, match="qps must be a power of two from 2 to 4096, not 1"):
        AckQueue(1)
