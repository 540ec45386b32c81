"""Reads of a ring against a walk over it, WQE by WQE."""

import pytest
from streams import make_rng, plain, simulate
from verbena.hdl.queue.ring_read import RingRead


def walk(issued, posted, used, size, log_size, log_stride):
    """WQEs of one read: until nothing is posted, or the ring, or a piece of ``size`` bytes, ends."""
    stride = 1 << log_stride
    count = 0
    while count < posted - used:
        count += 1
        if (issued + count) % (1 << log_size) == 0 or (issued + count) * stride % size == 0:
            break
    return count


@pytest.mark.parametrize(
    ("blocks", "size", "quota", "strides"),
    [(8, 256, 3, range(6, 8)), (64, 128, 10, range(4, 8)), (16, 256, 8, range(4, 8))],
)
def test_reads(blocks, size, quota, strides):
    rng = make_rng()
    dut = RingRead(8, blocks, size, quota, strides)
    seen = {"take": 0, "give": 0, "waits": 0, "continues": 0, "beyond": 0}

    async def testbench(ctx):
        for _ in range(600):
            log_size, log_stride = rng.randrange(16), rng.choice(strides)
            per = size >> log_stride
            used = rng.choice([0, rng.randint(0, quota * per)])
            posted = used + rng.choice([0, 1, 2, 5, rng.randint(0, 40), rng.randint(0, 32768)])
            issued = rng.choice([rng.randrange(1 << 16), rng.randrange(1 << 12) * per])
            consumed = issued - used
            # Blocks of pieces from the first that is not consumed; of one that is partly, though nothing is used.
            held = -(-issued // per) - consumed // per if used else (issued % per != 0 and rng.randrange(2))
            held, any_ = int(held), rng.random() < 0.7
            waiting, granted, may_wait = rng.random() < 0.4, rng.random() < 0.3, rng.random() < 0.5
            more_ = rng.random() < 0.8
            tail, offer = rng.randrange(blocks), rng.randrange(blocks)
            base = rng.randrange(1 << 51) << 12
            doubtful, sure = rng.random() < 0.3, rng.random() < 0.5
            item = {"qp": rng.randrange(8), "issued": issued & 0xFFFF, "posted": posted - used, "used": used}
            item |= {"log_size": log_size, "log_stride": log_stride, "doubtful": doubtful, "en": 1}
            item |= {"holds": held > 0, "tail": tail, "granted": granted}
            assert ctx.get(dut.clean)
            for name, value in item.items():
                ctx.set(getattr(dut, name), value)
            await ctx.tick()
            ctx.set(dut.en, 0)
            assert not ctx.get(dut.clean)
            assert ctx.get(dut.deciding)
            assert ctx.get(dut.inside) == item["qp"]
            assert ctx.get(dut.doubting) == doubtful
            for name, value in {
                "sure": sure, "any": any_, "offer": offer, "waiting": waiting, "may_wait": may_wait, "more": more_
            }.items():  # fmt: skip
                ctx.set(getattr(dut, name), value)
            ctx.set(dut.base, base)
            counts = not doubtful or sure
            count = walk(issued, posted, used, size, log_size, log_stride) if counts else 0
            needs = not held or issued % per == 0
            allowed = any_ and (granted or not waiting) and (not held or (more_ and held < quota))
            takes = bool(count and needs and allowed)
            await ctx.tick()
            for name, value in {"sure": not sure, "any": not any_, "more": not more_, "waiting": not waiting}.items():
                ctx.set(getattr(dut, name), value)
            assert ctx.get(dut.take) == takes
            assert ctx.get(dut.waits) == bool(count and not held and not allowed and (may_wait or granted))
            assert ctx.get(dut.give) == (not doubtful and posted == used == 0 and held > 0)
            if ctx.get(dut.take) or ctx.get(dut.give):
                assert ctx.get(dut.first) == (not held)
                assert not held or ctx.get(dut.behind) == tail
                assert (ctx.get(dut.index), ctx.get(dut.stride)) == (item["issued"], log_stride)
            for name in "take", "give", "waits":
                seen[name] += ctx.get(getattr(dut, name))
            seen["continues"] += count > 0 and not needs
            seen["beyond"] += bool(count and held and needs and any_ and not waiting and held >= quota)
            finds = count and (not needs or takes)
            assert ctx.get(dut.found) == bool(finds)
            assert ctx.get(dut.clean) == (not finds)
            for room in [rng.randrange(2) for _ in range(rng.randrange(3))] if finds else [0]:
                ctx.set(dut.room, room)
                ctx.set(dut.hold, room)
                assert not ctx.get(dut.start)
                await ctx.tick()
                for name in "take", "waits", "give":
                    assert not ctx.get(getattr(dut, name))
            if not finds:
                continue
            ctx.set(dut.room, 1)
            ctx.set(dut.hold, 0)
            assert ctx.get(dut.start)
            word = ((offer if needs else tail) * size + (issued << log_stride) % size) // 8
            assert plain(ctx.get(dut.flight)) == {"qp": item["qp"], "word": word, "end": (issued + count) & 0xFFFF}
            await ctx.tick()
            assert ctx.get(dut.clean)
            assert ctx.get(dut.read.valid)
            address = base + (issued % (1 << log_size) << log_stride)
            assert plain(ctx.get(dut.read.payload)) == {"address": address, "length": count << log_stride}
            more = count < posted - used
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
    assert min(seen.values()) > 0, seen


def test_one_read_waits_at_the_output():
    dut = RingRead(4, 8, 256, 4, range(6, 8))

    async def testbench(ctx):
        ctx.set(dut.room, 1)
        ctx.set(dut.any, 1)
        ctx.set(dut.more, 1)
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
