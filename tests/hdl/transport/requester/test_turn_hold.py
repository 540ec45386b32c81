"""Which turns are held, by what came before."""

import pytest
from streams import simulate
from verbena.hdl.transport.requester.turn_hold import TurnHold


def run(testbench):
    dut = TurnHold(8)

    async def bench(ctx):
        await testbench(ctx, dut)

    simulate(dut, bench)


async def strobe(ctx, signal):
    ctx.set(signal, 1)
    await ctx.tick()
    ctx.set(signal, 0)


async def turn(ctx, dut, qp):
    """Is the turn of ``qp`` held, in the cycle after it has come?"""
    ctx.set(dut.here, 0)
    await ctx.tick()
    ctx.set(dut.here, 1)
    ctx.set(dut.qp, qp)
    await ctx.tick()
    return ctx.get(dut.held)


async def put_off(ctx, dut, qp):
    """What :func:`turn` says of a turn that is put off."""
    held = await turn(ctx, dut, qp)
    await strobe(ctx, dut.put_off)
    return held


async def send(ctx, dut, qp):
    """What :func:`turn` says of a turn that comes."""
    held = await turn(ctx, dut, qp)
    await strobe(ctx, dut.comes)
    return held


@pytest.mark.parametrize(("length", "cycles"), [(1023, 0), (1024, 4), (4096, 4)])
def test_a_large_packet_is_counted_four_cycles_later(length, cycles):
    async def testbench(ctx, dut):
        ctx.set(dut.length, length)
        await strobe(ctx, dut.left)
        for _ in range(cycles):
            assert (ctx.get(dut.held), ctx.get(dut.counted)) == (1, 0)
            await ctx.tick()
        assert (ctx.get(dut.held), ctx.get(dut.counted)) == (0, 1)

    run(testbench)


def test_hold_holds_at_once():
    async def testbench(ctx, dut):
        for hold in (1, 0):
            ctx.set(dut.hold, hold)
            assert ctx.get(dut.held) == hold

    run(testbench)


@pytest.mark.parametrize(("end", "next_ones"), [(send, {3, 4}), (put_off, {3})])
def test_who_is_put_off_first_is_the_next_one(end, next_ones):
    """Others are held until it has come; one that is put off meanwhile changes nothing."""

    async def testbench(ctx, dut):
        assert not await put_off(ctx, dut, 3)
        for qp in (4, 0, 7):
            assert await put_off(ctx, dut, qp)
        assert not await end(ctx, dut, 3)
        for qp in (4, 3):
            assert await turn(ctx, dut, qp) == (qp not in next_ones)

    run(testbench)


def test_who_has_sent_does_not_follow_itself():
    async def testbench(ctx, dut):
        await put_off(ctx, dut, 3)
        await send(ctx, dut, 3)
        await put_off(ctx, dut, 3)
        assert not await put_off(ctx, dut, 4)
        assert await turn(ctx, dut, 3)
        assert not await turn(ctx, dut, 4)

    run(testbench)


def test_who_is_alone_follows_itself():
    async def testbench(ctx, dut):
        for _ in range(2):
            await send(ctx, dut, 3)
            for _ in range(2):
                assert not await put_off(ctx, dut, 3)
            assert await turn(ctx, dut, 4)
            assert not await turn(ctx, dut, 3)

    run(testbench)


def test_in_its_first_cycle_nobody_is_known():
    async def testbench(ctx, dut):
        await put_off(ctx, dut, 3)
        ctx.set(dut.here, 0)
        await ctx.tick()
        ctx.set(dut.here, 1)
        assert ctx.get(dut.held)
        await ctx.tick()
        assert not ctx.get(dut.held)

    run(testbench)


def test_a_turn_of_another_does_not_end_it():
    async def testbench(ctx, dut):
        await put_off(ctx, dut, 3)
        assert await send(ctx, dut, 5)
        assert await turn(ctx, dut, 5)
        assert not await turn(ctx, dut, 3)

    run(testbench)
