"""RingCalls: nobody who calls is forgotten."""

import pytest
from streams import make_rng, shared, simulate
from verbena.hdl.queue.ring_calls import RingCalls

RINGS = 8
STROBES = ("repeat", "heard", "rung", "back", "missed")


async def settle(ctx, dut, cycles=4):
    await ctx.tick().repeat(cycles)


async def next_one(ctx, dut):
    for _ in range(8):
        if ctx.get(dut.o.valid):
            break
        await ctx.tick()
    assert ctx.get(dut.o.valid)
    ring = ctx.get(dut.o.payload)
    ctx.set(dut.o.ready, 1)
    await ctx.tick()
    ctx.set(dut.o.ready, 0)
    return ring


def test_latency():
    """A strobe is a turn two cycles later."""
    dut = shared(RingCalls, RINGS)

    async def testbench(ctx):
        await settle(ctx, dut, 2 * RINGS)
        for name in STROBES:
            ctx.set(getattr(dut, name), 1)
            ctx.set(getattr(dut, f"{name}_qp"), 5)
            await ctx.tick()
            ctx.set(getattr(dut, name), 0)
            late = 1 + (name in ("back", "missed"))  # these wait in a register
            for _ in range(late):
                assert not ctx.get(dut.o.valid)
                await ctx.tick()
            assert await next_one(ctx, dut) == 5

    simulate(dut, testbench)


def test_all_at_once():
    """Each of six callers of one cycle comes, in their order; those that must not speak then are told so."""
    dut = shared(RingCalls, RINGS)

    async def testbench(ctx):
        await settle(ctx, dut, 2 * RINGS)
        ctx.set(dut.wanted.valid, 1)
        ctx.set(dut.wanted.payload, 1)
        for number, name in enumerate(("repeat", "back", "missed")):
            ctx.set(getattr(dut, name), 1)
            ctx.set(getattr(dut, f"{name}_qp"), (0, 4, 5)[number])
        assert not ctx.get(dut.may_hear)
        assert not ctx.get(dut.may_ring)
        await ctx.tick()
        for signal in (dut.repeat, dut.back, dut.missed, dut.wanted.valid):
            ctx.set(signal, 0)
        assert not ctx.get(dut.may_hear)  # the one that is wanted goes first
        await ctx.tick()
        ctx.set(dut.heard, 1)
        ctx.set(dut.heard_qp, 2)
        assert ctx.get(dut.may_hear)
        assert not ctx.get(dut.may_ring)
        await ctx.tick()
        ctx.set(dut.heard, 0)
        ctx.set(dut.rung, 1)
        ctx.set(dut.rung_qp, 3)
        assert ctx.get(dut.may_ring)
        await ctx.tick()
        ctx.set(dut.rung, 0)
        assert [await next_one(ctx, dut) for _ in range(6)] == [0, 1, 2, 3, 4, 5]
        await settle(ctx, dut)
        assert not ctx.get(dut.o.valid)

    simulate(dut, testbench)


def test_who_stands_still_is_made_up_for_later():
    dut = shared(RingCalls, RINGS)

    async def testbench(ctx):
        await settle(ctx, dut, 2 * RINGS)
        ctx.set(dut.still, 1)
        ctx.set(dut.missed, 1)
        ctx.set(dut.missed_qp, 6)
        await ctx.tick()
        ctx.set(dut.missed, 0)
        for _ in range(10):
            assert ctx.get(dut.misses)
            assert not ctx.get(dut.o.valid)
            await ctx.tick()
        ctx.set(dut.still, 0)
        assert await next_one(ctx, dut) == 6
        assert not ctx.get(dut.misses)

    simulate(dut, testbench)


@pytest.mark.parametrize("end", ["decided", "stopped"])
def test_who_is_wanted_is_asked_for_until_its_turn(end):
    """Another one's turn does not end it, nor one of its own that began before it was wanted; and meanwhile nobody
    else is heard."""
    dut = shared(RingCalls, RINGS, on_demand=True)

    async def testbench(ctx):
        async def turn(ring):
            ctx.set(getattr(dut, end), 1)
            ctx.set(getattr(dut, f"{end}_qp"), ring)
            await ctx.tick()
            ctx.set(getattr(dut, end), 0)

        async def want(ring):
            assert ctx.get(dut.wanted.ready)
            ctx.set(dut.wanted.valid, 1)
            ctx.set(dut.wanted.payload, ring)
            await ctx.tick()
            ctx.set(dut.wanted.valid, 0)

        await settle(ctx, dut, 2 * RINGS)
        await want(3)
        assert ctx.get(dut.asked)
        assert ctx.get(dut.asked_qp) == 3
        assert not ctx.get(dut.wanted.ready)
        await turn(3)  # it has no place yet: not the turn that was asked for
        assert ctx.get(dut.asked)
        assert await next_one(ctx, dut) == 3
        await turn(4)
        assert ctx.get(dut.asked)
        await turn(3)
        assert not ctx.get(dut.asked)
        # The turn of the one before ends in the cycle in which the next one is wanted.
        ctx.set(getattr(dut, end), 1)
        ctx.set(getattr(dut, f"{end}_qp"), 3)
        await want(3)
        ctx.set(getattr(dut, end), 0)
        assert ctx.get(dut.asked)

    simulate(dut, testbench)


def test_any_order():
    """What was called for after a ring's last turn has another one, whatever came together."""
    rng = make_rng()
    dut = shared(RingCalls, RINGS)

    async def testbench(ctx):
        await settle(ctx, dut, 2 * RINGS)
        owed = set()
        for cycle in range(4000):
            busy = cycle < 3900
            calls = {}
            ctx.set(dut.repeat, busy and rng.random() < 0.1)
            ctx.set(dut.repeat_qp, rng.randrange(RINGS))
            if ctx.get(dut.repeat):
                calls["repeat"] = ctx.get(dut.repeat_qp)
            ctx.set(dut.wanted.valid, busy and rng.random() < 0.1)
            ctx.set(dut.wanted.payload, rng.randrange(RINGS))
            if ctx.get(dut.wanted.valid) and ctx.get(dut.wanted.ready):
                calls["wanted"] = ctx.get(dut.wanted.payload)
            ctx.set(dut.still, busy and rng.random() < 0.3)
            for name, may in (
                ("heard", ctx.get(dut.may_hear)),
                ("rung", None),
                ("back", not ctx.get(dut.returns)),
                ("missed", not ctx.get(dut.misses)),
            ):
                may = ctx.get(dut.may_ring) if name == "rung" else may
                speaks = busy and may and rng.random() < 0.1
                ctx.set(getattr(dut, name), speaks)
                ctx.set(getattr(dut, f"{name}_qp"), rng.randrange(RINGS))
                if speaks:
                    calls[name] = ctx.get(getattr(dut, f"{name}_qp"))
            ctx.set(dut.o.ready, rng.random() < 0.5)
            if ctx.get(dut.o.valid) and ctx.get(dut.o.ready):
                owed.discard(ctx.get(dut.o.payload))
            owed |= set(calls.values())
            await ctx.tick()
        assert not owed

    simulate(dut, testbench, seed=rng.seed_value)
