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
            producer = consumed + rng.randint(0, size)
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
            verdicts.add(expected)

            ctx.set(dut.doorbell.payload, {"qp": qp, "index": index & 0xFFFF})
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
            assert ctx.get(dut.claim) == (index - consumed) & 0xFFFF
            ctx.set(dut.claimed, (producer - consumed) & 0xFFFF)
            ctx.set(dut.state, state)
            ctx.set(dut.log_size, log_size)
            ctx.set(dut.log_stride, log_stride)
            ctx.set(dut.hold_accept, 1)
            ctx.set(dut.hold_reject, 1)
            await ctx.tick()
            for _ in range(rng.randrange(3)):
                if expected != "ignored":
                    assert (ctx.get(dut.accept), ctx.get(dut.reject)) == (
                        expected == "accepted",
                        expected == "rejected",
                    )
                    assert not ctx.get(dut.doorbell.ready)
                    await ctx.tick()
            assert (ctx.get(dut.accept), ctx.get(dut.reject)) == (expected == "accepted", expected == "rejected")
            assert ctx.get(dut.index) == index & 0xFFFF
            ctx.set(dut.hold_accept, 0)
            ctx.set(dut.hold_reject, 0)
            await ctx.tick()
            ctx.set(dut.open, 0)
            assert not ctx.get(dut.accept)
            assert not ctx.get(dut.reject)

    simulate(dut, testbench, seed=rng.seed_value)
    assert len(verdicts) == 3
