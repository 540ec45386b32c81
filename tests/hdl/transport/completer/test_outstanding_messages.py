"""The oldest message of each queue, against a list."""

from completer_world import READS
from streams import make_rng, plain, simulate
from verbena.hdl.abi.wqe import SendOpcode
from verbena.hdl.transport.completer.outstanding_messages import OutstandingMessages

QPS, WINDOW, PSNS = 4, 8, 1 << 24


async def tell(ctx, dut, qp, index, last, opcode, signaled):
    message = {"qp": qp, "wqe_index": index, "last_psn": last, "opcode": opcode, "signaled": signaled}
    ctx.set(dut.outstanding.payload, message)
    ctx.set(dut.outstanding.valid, 1)
    while not (await ctx.tick().sample(dut.outstanding.ready))[2]:
        pass
    ctx.set(dut.outstanding.valid, 0)


async def clear(ctx, dut, qp):
    ctx.set(dut.qp, qp)
    ctx.set(dut.clear, 1)
    await ctx.tick()
    ctx.set(dut.clear, 0)
    await ctx.tick()


def test_messages():
    rng = make_rng()
    dut = OutstandingMessages(QPS, WINDOW)
    messages = [[] for _ in range(QPS)]

    async def testbench(ctx):
        for qp in range(QPS):
            await clear(ctx, dut, qp)
        for _ in range(300):
            qp = rng.randrange(QPS)
            queue = messages[qp]
            if rng.random() < 0.5:
                last = ((queue[-1][0] if queue else PSNS - 20) + rng.choice([1, 2, 9, 1 << 20])) % PSNS
                queue.append((last, rng.randrange(7), rng.randrange(2)))
                await tell(ctx, dut, qp, len(queue) - 1, *queue[-1])
                await ctx.tick().repeat(3)
            qp = rng.randrange(QPS)
            queue = messages[qp]
            index = rng.randrange(max(0, len(queue) - WINDOW), len(queue) + 1)
            ctx.set(dut.qp, qp)
            ctx.set(dut.seek, index)
            ctx.set(dut.oldest, index)
            near = queue[index][0] if index < len(queue) else 5
            reach = rng.choice([-(1 << 22), -1, 0, 1, 2, (1 << 23) - 1, rng.randrange(-(1 << 22), 1 << 23)])
            data = rng.randrange(2)
            ctx.set(dut.target, (near + reach) % PSNS)
            ctx.set(dut.data, data)
            await ctx.tick().repeat(4)
            seen = plain(ctx.get(dut.message))
            if index == len(queue):
                assert not seen["complete"]
                assert not seen["stop"]
                continue
            opcode = queue[index][1]
            assert (seen["last_psn"], seen["opcode"], seen["signaled"]) == queue[index]
            assert seen["is_read"] == (opcode in READS)
            assert seen["stop"] == (opcode in READS and not data)
            assert seen["complete"] == (not seen["stop"] and reach > 0)

    simulate(dut, testbench, seed=rng.seed_value)


def test_pace():
    """One message every 2 cycles; ``seek`` is answered after 2."""
    dut = OutstandingMessages(QPS, WINDOW)

    async def testbench(ctx):
        await clear(ctx, dut, 1)
        ctx.set(dut.outstanding.valid, 1)
        taken = []
        for cycle in range(8):
            message = {"qp": 1, "wqe_index": len(taken), "last_psn": len(taken), "opcode": SendOpcode.SEND}
            ctx.set(dut.outstanding.payload, message)
            if (await ctx.tick().sample(dut.outstanding.ready))[2]:
                taken.append(cycle)
        assert taken == [0, 2, 4, 6]
        ctx.set(dut.outstanding.valid, 0)
        ctx.set(dut.qp, 1)
        for index in range(4):
            ctx.set(dut.seek, index)
            ctx.set(dut.oldest, index)
            await ctx.tick().repeat(2)
            assert ctx.get(dut.message).last_psn == index

    simulate(dut, testbench)


def test_latest():
    rng = make_rng()
    dut = OutstandingMessages(QPS, WINDOW)
    latest = [0] * QPS

    async def testbench(ctx):
        for _ in range(200):
            qp = rng.randrange(QPS)
            psn = rng.choice([0, 1, PSNS - 1, rng.randrange(PSNS)])
            other = rng.randrange(QPS)
            if rng.random() < 0.3:
                ctx.set(dut.qp, qp)
                ctx.set(dut.first_psn, psn)
                ctx.set(dut.restart, 1)
                if other != qp and rng.random() < 0.5:  # somebody else sends meanwhile
                    ctx.set(dut.sent, {"qp": other, "psn": 77})
                    ctx.set(dut.sent_en, 1)
                    assert not ctx.get(dut.restarted)
                    await ctx.tick()
                    ctx.set(dut.sent_en, 0)
                    latest[other] = 77
                assert ctx.get(dut.restarted)
                await ctx.tick()
                ctx.set(dut.restart, 0)
                latest[qp] = (psn - 1) % PSNS
            else:
                ctx.set(dut.sent, {"qp": qp, "psn": psn})
                ctx.set(dut.sent_en, 1)
                await ctx.tick()
                ctx.set(dut.sent_en, 0)
                latest[qp] = psn
            ctx.set(dut.qp, other)
            await ctx.tick().repeat(3)
            assert ctx.get(dut.latest) == latest[other]

    simulate(dut, testbench, seed=rng.seed_value)
