"""The ack queue: of each QP the latest answer, but no NAK lost."""

import pytest
from streams import Item, collect, make_rng, simulate
from verbena.hdl.transport.responder.ack_queue import PACE, AckAction, AckQueue

QPS = 4
ACK, SEQUENCE, RNR, ACCESS = 0x05, 0x60, 0x2C, 0x62


async def put(ctx, dut, qp, psn=0, syndrome=ACK, *, msn=0, action=AckAction.ANSWER, hold=0):
    """As the acknowledger does it: the QP first, the answer 3 cycles later."""
    ctx.set(dut.answer, {"qp": qp, "psn": 0x555555})
    for _ in range(2):
        await ctx.tick()
    ctx.set(dut.answer, {"qp": qp, "psn": psn, "msn": msn, "syndrome": syndrome})
    await ctx.tick()
    ctx.set(dut.action, action)
    ctx.set(dut.hold, hold)
    ctx.set(dut.put, 1)
    await ctx.tick()
    ctx.set(dut.put, 0)


def run(script):
    dut = AckQueue(QPS)
    got = []

    async def testbench(ctx):
        await script(ctx, dut, got)

    async def take(ctx):
        async for _, _, valid, ready, payload in ctx.tick().sample(dut.o.valid, dut.o.ready, dut.o.payload):
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
        await put(ctx, dut, 2, action=AckAction.CLEAR)
        assert not ctx.get(dut.holds)
        await put(ctx, dut, 3, action=AckAction.CLEAR)
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
        await put(ctx, dut, 2, action=AckAction.CLEAR)
        await put(ctx, dut, 2, 7)
        await drain(ctx, dut)
        assert got == [(3, 1, ACK), (2, 7, ACK)]

    run(script)


@pytest.mark.parametrize("qps", [1, 4])
def test_answers_of_a_backlog_are_one_for_eight(qps):
    """A message every 14 cycles, of one QP after the other; the last PSN of each is answered."""
    messages = 64

    async def script(ctx, dut, got):
        ctx.set(dut.o.ready, 1)
        ctx.set(dut.backlog, 1)
        for number in range(messages):
            await put(ctx, dut, number % qps, number // qps)
            for _ in range(10):
                await ctx.tick()
        for _ in range(qps * (PACE + 5)):
            await ctx.tick()
        assert len(got) <= messages / 8 + qps + 1
        assert {qp: psn for qp, psn, _ in got} == dict.fromkeys(range(qps), messages // qps - 1)

    run(script)


def test_a_lone_answer_does_not_wait():
    """Nor does a NAK, nor what stands before it, nor anything without a backlog."""

    async def waits(ctx, dut, got, count):
        cycles = 0
        while len(got) < count:
            await ctx.tick()
            cycles += 1
            assert cycles < 200
        return cycles

    async def script(ctx, dut, got):
        ctx.set(dut.o.ready, 1)
        ctx.set(dut.backlog, 1)
        for _ in range(40):
            await ctx.tick()
        await put(ctx, dut, 1, 1)
        assert await waits(ctx, dut, got, 1) <= 3
        for _ in range(PACE + 2):
            await ctx.tick()
        await put(ctx, dut, 1, 2)
        assert await waits(ctx, dut, got, 2) <= 3
        await put(ctx, dut, 1, 3)
        assert PACE - 8 < await waits(ctx, dut, got, 3) <= PACE + 2
        await put(ctx, dut, 2, 4)
        await put(ctx, dut, 1, 5, SEQUENCE)
        assert await waits(ctx, dut, got, 5) <= 16
        await put(ctx, dut, 1, 6)
        await waits(ctx, dut, got, 6)
        ctx.set(dut.backlog, 0)
        for _ in range(20):
            await ctx.tick()
        for number in range(3):
            await put(ctx, dut, 1, 7 + number)
            assert await waits(ctx, dut, got, 7 + number) <= 3
        assert got[3:5] == [(2, 4, ACK), (1, 5, SEQUENCE)]

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
            ctx.set(dut.backlog, rng.random() < 0.5)
            qp = rng.randrange(QPS)
            psn[qp] = (psn[qp] + 1) % (1 << 24)
            await put(ctx, dut, qp, psn[qp], rng.choice([ACK, ACK, ACK, SEQUENCE]), msn=psn[qp] ^ 0xABCDEF)
            last[qp] = psn[qp]
            for _ in range(rng.choice([0, 0, 1, 5, 20])):
                await ctx.tick()
        ctx.set(dut.backlog, 0)
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


def test_hold():
    """An answer waits while responses are on their way, and others go on; a response answers for what came before."""

    async def script(ctx, dut, got):
        async def sends(*wanted, ready=1):
            ctx.set(dut.o.ready, ready)
            for _ in range(15):
                await ctx.tick()
            assert got == list(wanted)
            got.clear()

        async def release(psn):
            await put(ctx, dut, 2, psn, action=AckAction.RELEASE, hold=1)

        async def free(hold=0):
            await put(ctx, dut, 2, action=AckAction.HOLD, hold=hold)

        await release(5)
        await put(ctx, dut, 2, 6, hold=1)
        await put(ctx, dut, 3, 1)
        await sends((3, 1, ACK))
        await put(ctx, dut, 2, 7, hold=1)
        await free(hold=1)
        await sends()
        await free()
        await sends((2, 7, ACK))
        await free()
        await sends()
        # What waits for an earlier packet, or a NAK for it, is dropped; what is later stays.
        for psn, syndrome, kept in ((9, ACK, 0), (10, SEQUENCE, 0), (11, SEQUENCE, 1), (11, ACK, 1)):
            await release(5)
            await put(ctx, dut, 2, psn, syndrome, hold=1)
            await release(10)
            await sends()
            await free()
            await sends(*[(2, psn, syndrome)] * kept)
            await put(ctx, dut, 2, 12)
            await sends((2, 12, ACK))
        # A hold that comes while an answer stands in the order; one that was dropped and another that follows.
        for drop in (0, 1):
            await put(ctx, dut, 3, 1)
            await sends(ready=0)
            await put(ctx, dut, 2, 20)
            if drop:
                await release(21)
            await put(ctx, dut, 2, 22, hold=1)
            await sends((3, 1, ACK))
            await free()
            await sends((2, 22, ACK))
        # A clear ends a hold.
        await release(1)
        await put(ctx, dut, 2, 2, hold=1)
        await put(ctx, dut, 2, action=AckAction.CLEAR)
        await put(ctx, dut, 2, 3)
        await sends((2, 3, ACK))

    run(script)


@pytest.mark.parametrize("stall", [0.0, 0.6])
def test_no_answer_overtakes_a_response(stall):
    """Random releases, answers and ends of responses on four QPs: an answer that comes out while responses are on their
    way is from before them; and in the end the last answer is out, unless a response answered for it."""
    rng = make_rng()
    dut = AckQueue(QPS)
    got = []
    psn, pending, due = [0] * QPS, [[] for _ in range(QPS)], [None] * QPS

    async def script(ctx):
        for _ in range(500):
            qp = rng.randrange(QPS)
            draw = rng.random()
            if draw < 0.3 and len(pending[qp]) < 16:
                psn[qp] += 1
                pending[qp].append(psn[qp])
                due[qp] = None
                await put(ctx, dut, qp, psn[qp], action=AckAction.RELEASE, hold=1)
            elif draw < 0.6 and pending[qp]:
                pending[qp].pop(0)
                await put(ctx, dut, qp, action=AckAction.HOLD, hold=int(bool(pending[qp])))
            else:
                psn[qp] += 1
                due[qp] = psn[qp]
                await put(ctx, dut, qp, psn[qp], rng.choice([ACK, SEQUENCE]), hold=int(bool(pending[qp])))
            for _ in range(rng.choice([0, 0, 1, 5])):
                await ctx.tick()
        for qp in range(QPS):
            await put(ctx, dut, qp, action=AckAction.HOLD)
            pending[qp].clear()
        for _ in range(100):
            await ctx.tick()

    async def take(ctx):
        # 5 cycles pass between a look at `held` and `ready`, in which a response may be released.
        history = [[[] for _ in range(QPS)] for _ in range(6)]
        held_back = 0
        edges = aiter(ctx.tick().sample(dut.o.valid, dut.o.ready, dut.o.payload))
        while True:
            ctx.set(dut.o.ready, rng.random() >= stall)
            history = [*history[1:], [list(p) for p in pending]]
            _, _, valid, ready, payload = await anext(edges)
            held_back = held_back + 1 if valid and not ready else 0
            if valid and ready:
                got.append((payload.qp, payload.psn))
                held_back = 0
            if valid and not held_back:
                first = [p[payload.qp][0] for p in history if p[payload.qp]]
                assert not all(p[payload.qp] for p in history) or payload.psn < max(first)

    simulate(dut, script, background=(take,), seed=rng.seed_value)
    for qp in range(QPS):
        mine = [number for which, number in got if which == qp]
        assert mine == sorted(set(mine))
        if due[qp] is not None:
            assert mine[-1] == due[qp]


def test_latency():
    """1 cycle if nobody waits, 4 if somebody does, 4 more for each."""

    async def script(ctx, dut, got):
        ctx.set(dut.o.ready, 1)
        for _ in range(5):
            await ctx.tick()
        await put(ctx, dut, 1, 5)
        assert ctx.get(dut.o.valid)
        assert Item(qp=1, psn=5, msn=0, syndrome=ACK) == {
            name: ctx.get(dut.o.payload[name]) for name in ("qp", "psn", "msn", "syndrome")
        }
        ctx.set(dut.o.ready, 0)
        for qp in (2, 3):
            await put(ctx, dut, qp, 5)
        ctx.set(dut.o.ready, 1)
        times = []
        for cycle in range(20):
            if ctx.get(dut.o.valid):
                times.append(cycle)
            await ctx.tick()
        assert times == [0, 4, 8]

    run(script)


def test_arguments():
    with pytest.raises(ValueError, match="qps must be a power of two from 2 to 4096, not 1"):
        AckQueue(1)
