"""Reads of a ring against a walk over it, WQE by WQE."""

import pytest
from streams import make_rng, plain, simulate
from verbena.hdl.queue.ring_read import RingRead


def walk(issued, posted, used, area, log_size, log_stride):
    """WQEs of one read: until nothing is posted or free, or the ring, or an aligned block of 256 bytes, ends."""
    stride = 1 << log_stride
    count = 0
    while count < posted - used and used + count < area // stride:
        count += 1
        if (issued + count) % (1 << log_size) == 0 or (issued + count) * stride % 256 == 0:
            break
    return count


@pytest.mark.parametrize(("area", "strides"), [(1024, range(6, 8)), (512, range(4, 8)), (256, range(4, 8))])
def test_reads(area, strides):
    rng = make_rng()
    dut = RingRead(8, area, strides)

    async def testbench(ctx):
        for _ in range(400):
            log_size, log_stride = rng.randrange(16), rng.choice(strides)
            most = area >> log_stride
            used = rng.randint(0, most)
            posted = used + rng.choice([0, 1, 2, 5, rng.randint(0, 40), rng.randint(0, 32768)])
            consumed = rng.randrange(1 << 16)
            issued = consumed + used
            base = rng.randrange(1 << 51) << 12
            doubtful, sure = rng.random() < 0.3, rng.random() < 0.5
            item = {"qp": rng.randrange(8), "issued": issued & 0xFFFF, "posted": posted, "used": used, "base": base}
            item |= {"log_size": log_size, "log_stride": log_stride, "doubtful": doubtful, "en": 1}
            assert ctx.get(dut.clean)
            for name, value in item.items():
                ctx.set(getattr(dut, name), value)
            await ctx.tick()
            ctx.set(dut.en, 0)
            assert not ctx.get(dut.clean)
            assert ctx.get(dut.inside) == item["qp"]
            assert ctx.get(dut.doubting) == doubtful
            ctx.set(dut.sure, sure)
            await ctx.tick()
            ctx.set(dut.sure, not sure)
            count = walk(issued, posted, used, area, log_size, log_stride)
            if not count or (doubtful and not sure):
                assert ctx.get(dut.clean)
                continue
            assert ctx.get(dut.found)
            ctx.set(dut.room, 0)
            for _ in range(rng.randrange(3)):
                assert not ctx.get(dut.start)
                await ctx.tick()
            ctx.set(dut.room, 1)
            assert ctx.get(dut.start)
            word = (issued << log_stride) % area // 8
            assert plain(ctx.get(dut.flight)) == {"qp": item["qp"], "word": word, "end": (issued + count) & 0xFFFF}
            await ctx.tick()
            assert ctx.get(dut.clean)
            assert ctx.get(dut.read.valid)
            address = base + (issued % (1 << log_size) << log_stride)
            assert plain(ctx.get(dut.read.payload)) == {"address": address, "length": count << log_stride}
            more = count < min(posted - used, most - used)
            assert ctx.get(dut.repeat) == more
            assert not more or ctx.get(dut.repeat_qp) == item["qp"]
            for _ in range(rng.randrange(3)):
                await ctx.tick()
                assert ctx.get(dut.read.valid)
                assert not ctx.get(dut.repeat)
            ctx.set(dut.read.ready, 1)
            await ctx.tick()
            ctx.set(dut.read.ready, 0)
            assert not ctx.get(dut.read.valid)

    simulate(dut, testbench, seed=rng.seed_value)


def test_one_read_waits_at_the_output():
    dut = RingRead(4, 1024, range(6, 8))

    async def testbench(ctx):
        ctx.set(dut.room, 1)
        for name, value in {"posted": 1, "log_size": 4, "log_stride": 6}.items():
            ctx.set(getattr(dut, name), value)
        for issued in 0, 1:
            ctx.set(dut.issued, issued)
            ctx.set(dut.en, 1)
            await ctx.tick()
            ctx.set(dut.en, 0)
            for _ in range(4):
                await ctx.tick()
        assert not ctx.get(dut.clean)
        assert ctx.get(dut.read.payload.address) == 0
        ctx.set(dut.read.ready, 1)
        assert not ctx.get(dut.start), "no path from ready"
        await ctx.tick()
        assert ctx.get(dut.start)
        await ctx.tick()
        assert ctx.get(dut.read.payload.address) == 64
        await ctx.tick()
        assert not ctx.get(dut.read.valid)

    simulate(dut, testbench)
