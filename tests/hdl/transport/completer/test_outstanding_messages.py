"""The oldest message of each queue, against a list."""

import pytest
from completer_world import READS
from conflict_ram import tear
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
    while not (await ctx.tick().sample(dut.cleared))[2]:
        pass
    ctx.set(dut.clear, 0)


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
    """One message a cycle; ``seek`` is answered after 2."""
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
        assert taken == list(range(8))
        ctx.set(dut.outstanding.valid, 0)
        ctx.set(dut.qp, 1)
        for index in range(8):
            ctx.set(dut.seek, index)
            ctx.set(dut.oldest, index)
            await ctx.tick().repeat(2)
            assert ctx.get(dut.message).last_psn == index

    simulate(dut, testbench)


def test_forgets():
    """Messages that were told in an earlier life are none; other QPs' stay, and nothing is taken meanwhile."""
    dut = OutstandingMessages(QPS, WINDOW)

    async def complete(ctx, qp, index):
        ctx.set(dut.qp, qp)
        ctx.set(dut.seek, index)
        ctx.set(dut.oldest, index)
        await ctx.tick().repeat(3)
        return ctx.get(dut.message).complete

    async def testbench(ctx):
        ctx.set(dut.target, 100)
        for qp in (1, 2):
            for index in range(WINDOW):
                await tell(ctx, dut, qp, index, index, SendOpcode.SEND, 1)
        for qp in (1, 2):
            assert [await complete(ctx, qp, index) for index in range(WINDOW + 1)] == [1] * WINDOW + [0]
        ctx.set(dut.outstanding.payload, {"qp": 1, "wqe_index": 0, "last_psn": 1})
        ctx.set(dut.outstanding.valid, 1)
        ctx.set(dut.qp, 1)
        ctx.set(dut.clear, 1)
        for cycle in range(WINDOW):
            _, _, cleared, ready = await ctx.tick().sample(dut.cleared, dut.outstanding.ready)
            assert (cleared, ready) == (cycle == WINDOW - 1, 0)
        ctx.set(dut.clear, 0)
        await ctx.tick()
        ctx.set(dut.outstanding.valid, 0)
        assert [await complete(ctx, 1, index) for index in range(WINDOW)] == [1] + [0] * (WINDOW - 1)
        assert all([await complete(ctx, 2, index) for index in range(WINDOW)])

    simulate(dut, testbench)


@pytest.mark.parametrize("delay", range(6))
def test_an_entry_that_is_just_written(delay, monkeypatch):
    """Looked at while it is told, a message is none, or all of it is there; 4 cycles later it is there."""
    tear(monkeypatch)
    dut = OutstandingMessages(QPS, WINDOW)

    async def testbench(ctx):
        await clear(ctx, dut, 1)
        ctx.set(dut.qp, 1)
        ctx.set(dut.target, 0x10)
        ctx.set(dut.outstanding.payload, {"qp": 1, "wqe_index": 0, "last_psn": 0xF, "opcode": SendOpcode.SEND})
        seen = []
        for cycle in range(12):
            ctx.set(dut.outstanding.valid, cycle == 3)
            ctx.set(dut.seek, 0 if cycle >= delay else 1)
            await ctx.tick()
            message = ctx.get(dut.message)
            seen.append(message.complete)
            assert not message.stop
            assert not message.complete or cycle >= delay + 2
        assert seen.index(1) == max(6, delay + 2)
        assert all(seen[seen.index(1) :])

    simulate(dut, testbench)
