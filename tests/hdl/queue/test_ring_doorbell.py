"""Doorbells against the rule, written with unbounded integers."""

import pytest
from streams import make_rng, simulate
from verbena.hdl.abi.contexts import QpState
from verbena.hdl.queue.ring_doorbell import RingDoorbell


@pytest.mark.parametrize("rewinds", [False, True])
def test_verdict(rewinds):
    rng = make_rng()
    dut = RingDoorbell(8, range(6, 8), rewinds)
    verdicts = set()

    async def testbench(ctx):
        for _ in range(600):
            qp, log_size, log_stride = rng.randrange(8), rng.randrange(16), rng.choice([6, 7, 6, 7, 5, 8])
            size = 1 << log_size
            consumed = rng.randrange(1 << 20)
            producer = consumed + rng.choice([0, rng.randint(0, size)])
            start = producer if rewinds else consumed
            index = start + rng.choice([-1, 0, 1, size - 1, size, size + 1, rng.randint(-size, 2 * size)])
            state = rng.choice([QpState.RTS, QpState.RTS, QpState.RTS, QpState.RESET])
            ahead = (index - start) & 0xFFFF
            expected = "ignored"
            if state != QpState.RESET:
                if log_stride not in (6, 7) or size < ahead < 1 << 15:
                    expected = "rejected"
                elif ahead <= size and index > producer:
                    expected = "accepted"
            push, mine = rng.choice([(1, 1), (1, 1), (1, 0), (0, 1)])
            pushed = expected == "accepted" and push and mine and consumed == producer and index == producer + 1
            verdicts.add("pushed" if pushed else expected)

            ctx.set(dut.doorbell.payload, {"qp": qp, "index": index & 0xFFFF, "push": push})
            ctx.set(dut.doorbell.valid, 1)
            assert ctx.get(dut.idle)
            assert not ctx.get(dut.take)
            ctx.set(dut.open, 1)
            assert ctx.get(dut.take)
            await ctx.tick()
            ctx.set(dut.doorbell.valid, 0)
            assert ctx.get(dut.qp) == qp
            ctx.set(dut.consumed, consumed & 0xFFFF)
            ctx.set(dut.producer, producer & 0xFFFF)
            await ctx.tick()
            ctx.set(dut.state, state)
            ctx.set(dut.log_size, log_size)
            ctx.set(dut.log_stride, log_stride)
            ctx.set(dut.mine, mine)
            ctx.set(dut.hold_accept, 1)
            ctx.set(dut.hold_reject, 1)
            await ctx.tick()
            assert ctx.get(dut.pushed) == pushed
            assert not pushed or ctx.get(dut.stride) == log_stride
            for _ in range(rng.randrange(3)):
                if expected != "ignored" and not pushed:
                    assert not ctx.get(dut.heard)
                    assert (ctx.get(dut.accept), ctx.get(dut.reject)) == (
                        expected == "accepted",
                        expected == "rejected",
                    )
                    assert not ctx.get(dut.doorbell.ready)
                    await ctx.tick()
            assert (ctx.get(dut.accept), ctx.get(dut.reject)) == (expected == "accepted", expected == "rejected")
            assert ctx.get(dut.index) == index & 0xFFFF
            ctx.set(dut.hold_accept, rng.randrange(2) if pushed else 0)
            ctx.set(dut.hold_reject, 0)
            # What was ignored has been heard in the first of these cycles.
            assert expected == "ignored" or ctx.get(dut.heard) == push
            assert expected == "ignored" or ctx.get(dut.fell_back) == (push and expected == "accepted" and not pushed)
            await ctx.tick()
            if pushed:
                for _ in range(rng.randrange(3)):
                    assert (ctx.get(dut.pushed), ctx.get(dut.qp), ctx.get(dut.index)) == (1, qp, index & 0xFFFF)
                    assert not ctx.get(dut.idle)
                    assert not ctx.get(dut.accept)
                    assert not ctx.get(dut.heard)
                    await ctx.tick()
                ctx.set(dut.copied, 1)
                await ctx.tick()
                ctx.set(dut.copied, 0)
            assert not ctx.get(dut.pushed)
            ctx.set(dut.open, 0)
            assert not ctx.get(dut.accept)
            assert not ctx.get(dut.reject)

    simulate(dut, testbench, seed=rng.seed_value)
    assert len(verdicts) == 4
