"""When nothing is under way any more of what was completed."""

from streams import make_rng, simulate
from verbena.hdl.control.quiet import QUIET, REST, Quiet


async def begin(ctx, dut, rng):
    ctx.set(dut.begin, 1)
    await ctx.tick().repeat(rng.randrange(1, 4))
    ctx.set(dut.begin, 0)


def test_what_was_taken_in_so_many_cycles_that_move_is_marked_and_waited_for():
    """Behind the last ``begin``; and a loss may be told for some cycles more."""
    rng = make_rng()
    dut = Quiet()

    async def move(ctx, cycles):
        for _ in range(cycles):
            assert not ctx.get(dut.over)
            assert not ctx.get(dut.mark)
            ctx.set(dut.moves, 0)
            await ctx.tick().repeat(rng.randrange(1, 4))
            ctx.set(dut.moves, 1)
            await ctx.tick()
        ctx.set(dut.moves, 0)

    async def bench(ctx):
        for waits in (0, 1, 0, 17, 5):
            await begin(ctx, dut, rng)
            await move(ctx, rng.randrange(QUIET))
            await begin(ctx, dut, rng)
            await move(ctx, QUIET)
            assert ctx.get(dut.mark)
            ctx.set(dut.visible, 0)
            for _ in range(1 + waits):
                await ctx.tick()
                assert not ctx.get(dut.mark)
                assert not ctx.get(dut.over)
            ctx.set(dut.visible, 1)
            await ctx.tick().repeat(REST - 1)
            assert not ctx.get(dut.over)
            await ctx.tick()
            for _ in range(3):
                assert ctx.get(dut.over)
                await ctx.tick()

    simulate(dut, bench, seed=rng.seed_value)


def test_nothing_waits_for_so_many_cycles_in_a_row():
    """However little moved before; and what waits behind that is of others."""
    rng = make_rng()
    dut = Quiet()

    async def bench(ctx):
        for _ in range(5):
            await begin(ctx, dut, rng)
            for cycles in (REST - 1, rng.randrange(REST), REST - 1, REST):
                ctx.set(dut.waits, 1)
                await ctx.tick().repeat(rng.randrange(1, 4))
                ctx.set(dut.waits, 0)
                for _ in range(cycles):
                    assert not ctx.get(dut.over)
                    await ctx.tick()
            assert ctx.get(dut.over)
            ctx.set(dut.waits, 1)
            await ctx.tick().repeat(3)
            assert ctx.get(dut.over)
            assert not ctx.get(dut.mark)

    simulate(dut, bench, seed=rng.seed_value)
