"""The order of steps by which a ring is stopped and set."""

import pytest
from streams import make_rng, plain, simulate
from verbena.hdl.abi.commands import QpAction
from verbena.hdl.queue.ring_halt import CALM, RingHalt


@pytest.mark.parametrize("count", [60, pytest.param(150, marks=pytest.mark.slow)])
def test_steps(count):
    """Random neighbours: indices are set only when the ring's reads are back, and it may be."""
    rng = make_rng()
    dut = RingHalt(8)
    done = {"reset": 0, "rewind": 0}

    async def testbench(ctx):
        for _ in range(count):
            resets, rewinds = rng.choice([(1, 0), (0, 1), (1, 1)])
            reset_qp, qp, index = rng.randrange(8), rng.randrange(8), rng.randrange(1 << 16)
            ctx.set(dut.control.payload, {"qp": reset_qp, "action": QpAction.RESET})
            ctx.set(dut.control.valid, resets)
            ctx.set(dut.rewind.payload, {"qp": qp, "index": index})
            ctx.set(dut.rewind.valid, rewinds)
            assert not ctx.get(dut.halting)
            await ctx.tick()
            if not rewinds:
                assert not ctx.get(dut.halting)
                await ctx.tick()
            while resets or rewinds:
                now_rewinds = bool(rewinds)
                assert ctx.get(dut.qp) == (qp if rewinds else reset_qp)
                left, past = rng.choice([0, rng.randrange(16)]), []  # reads of the ring
                time, may, over = 0, False, False
                edges = aiter(ctx.tick())
                while True:
                    assert ctx.get(dut.halting)
                    assert ctx.get(dut.ignore_consumed)
                    # A turn that was looked up in the cycle of the request is decided in the next one.
                    clean = time == 0 or (time > 1 and rng.random() < 0.5)
                    past.append(left)
                    if over:
                        clean = rng.random() < 0.5
                    elif not clean:
                        left += rng.random() < 0.3
                    could, may, hold = may, rng.random() < 0.5, rng.random() < 0.3
                    ctx.set(dut.clean, clean)
                    ctx.set(dut.reading, past[max(0, time - 2)] > 0)
                    ctx.set(dut.may, may)
                    ctx.set(dut.hold, hold)
                    set_ = ctx.get(dut.set)
                    assert not ctx.get(dut.drop)
                    assert not ctx.get(dut.rewind.ready)
                    assert not (resets and ctx.get(dut.control.ready))
                    if set_:
                        assert could
                        assert not hold
                        assert ctx.get(dut.armed)
                        assert ctx.get(dut.setting)
                        assert left == 0
                        assert ctx.get(dut.index) == (index if now_rewinds else 0)
                    assert ctx.get(dut.reset) == (set_ and not now_rewinds)
                    over = over or (clean and time > 0)
                    left -= left > 0 and rng.random() < 0.4
                    await anext(edges)
                    time += 1
                    if set_:
                        break
                assert ctx.get(dut.halting)
                assert ctx.get(dut.ignore_consumed)
                assert ctx.get(dut.drop)
                assert not ctx.get(dut.set)
                assert not ctx.get(dut.setting)
                assert ctx.get(dut.qp) == (qp if now_rewinds else reset_qp)
                assert ctx.get(dut.rewind.ready) == now_rewinds
                assert ctx.get(dut.control.ready) == (not now_rewinds)
                await ctx.tick()
                assert not ctx.get(dut.drop)
                assert not ctx.get(dut.halting)
                if now_rewinds:
                    ctx.set(dut.rewind.valid, 0)
                    for _ in range(rng.randrange(4)):
                        assert ctx.get(dut.rewound.valid)
                        assert ctx.get(dut.ignore_consumed)
                        await ctx.tick()
                    assert plain(ctx.get(dut.rewound.payload)) == {"qp": qp, "index": index}
                    ctx.set(dut.rewound.ready, 1)
                    await ctx.tick()
                    ctx.set(dut.rewound.ready, 0)
                    rewinds = 0
                    done["rewind"] += 1
                else:
                    assert not ctx.get(dut.control.ready)
                    assert ctx.get(dut.idle)
                    ctx.set(dut.control.valid, 0)
                    resets = 0
                    done["reset"] += 1
                assert not ctx.get(dut.ignore_consumed)
                assert not ctx.get(dut.rewound.valid)
                if resets:
                    await ctx.tick()
            ctx.set(dut.control.payload, {"qp": 0, "action": QpAction.ERROR})
            ctx.set(dut.control.valid, 1)
            assert not ctx.get(dut.control.ready)
            await ctx.tick()
            assert ctx.get(dut.control.ready)
            await ctx.tick()
            ctx.set(dut.control.valid, 0)
            assert not ctx.get(dut.control.ready)

    simulate(dut, testbench, seed=rng.seed_value)
    assert min(done.values()) > 2 * count // 15


@pytest.mark.parametrize("count", [80, pytest.param(200, marks=pytest.mark.slow)])
def test_room_is_made(count):
    """A ring in use at any time goes on as if nothing had been; otherwise its index is set when all its reads are back,
    and its news has had time to come.
    """
    rng = make_rng()
    dut = RingHalt(8)
    ends = {"set": 0, "given up": 0}

    async def testbench(ctx):
        for _ in range(count):
            qp, index = rng.randrange(8), rng.randrange(1 << 16)
            assert ctx.get(dut.idle)
            ctx.set(dut.evict_qp, qp)
            ctx.set(dut.evict_index, index)
            ctx.set(dut.evict, 1)
            await ctx.tick()
            ctx.set(dut.evict, 0)
            used_at, time, heard = rng.choice([None, None, rng.randrange(30)]), 0, 0
            left, past, may = rng.choice([0, rng.randrange(17)]), [], False
            while ctx.get(dut.halting):
                if ctx.get(dut.drop):
                    await ctx.tick()
                    assert not ctx.get(dut.halting)
                    break
                assert ctx.get(dut.evicting)
                assert not ctx.get(dut.ignore_consumed)
                assert (ctx.get(dut.qp), ctx.get(dut.index)) == (qp, index)
                in_use, stalled = time == used_at, rng.random() < 0.3
                could = may
                clean, may, hold, pop = (rng.random() < 0.5 for _ in range(4))
                ctx.set(dut.hold, hold)
                past.append(left)
                ctx.set(dut.reading, past[max(0, time - 2)] > 0)
                for name, value in {"in_use": in_use, "stalled": stalled, "clean": clean, "may": may}.items():
                    ctx.set(getattr(dut, name), value)
                heard += not stalled
                if ctx.get(dut.set):
                    assert not ctx.get(dut.reset)
                    assert could
                    assert not hold
                    assert not in_use
                    assert left == 0
                    assert heard >= CALM
                    ends["set"] += 1
                assert not ctx.get(dut.rewound.valid)
                left -= left > 0 and pop
                await ctx.tick()
                ends["given up"] += in_use
                assert not (in_use and ctx.get(dut.halting))
                time += 1
            ctx.set(dut.in_use, 0)

    simulate(dut, testbench, seed=rng.seed_value)
    assert min(ends.values()) > count // 10, ends


def test_who_goes_back_goes_first():
    dut = RingHalt(8)

    async def testbench(ctx):
        ctx.set(dut.rewind.payload, {"qp": 3, "index": 77})
        ctx.set(dut.rewind.valid, 1)
        ctx.set(dut.evict_qp, 5)
        ctx.set(dut.evict, 1)
        assert not ctx.get(dut.idle)
        await ctx.tick()
        assert (ctx.get(dut.qp), ctx.get(dut.index), ctx.get(dut.evicting)) == (3, 77, 0)

    simulate(dut, testbench)
