"""How many cycles in which completions move must pass."""

from streams import make_rng, simulate
from verbena.hdl.control.quiet import QUIET, REST, Quiet


def test_so_many_cycles_that_move_behind_the_last_begin():
    rng = make_rng()
    dut = Quiet()

    async def bench(ctx):
        for _ in range(5):
            ctx.set(dut.begin, 1)
            await ctx.tick().repeat(rng.randrange(1, 4))
            ctx.set(dut.begin, 0)
            moved = rng.randrange(QUIET)
            for again in (moved, QUIET):
                for _ in range(again):
                    assert not ctx.get(dut.over)
                    ctx.set(dut.moves, 0)
                    await ctx.tick().repeat(rng.randrange(1, 4))
                    ctx.set(dut.moves, 1)
                    await ctx.tick()
                if again == moved:
                    ctx.set(dut.begin, 1)
                    await ctx.tick()
                    ctx.set(dut.begin, 0)
            assert ctx.get(dut.over)
            await ctx.tick().repeat(3)
            assert ctx.get(dut.over)

    simulate(dut, bench, seed=rng.seed_value)


def test_nothing_waits_for_so_many_cycles_in_a_row():
    """However little moved before; and what waits behind that is of others."""
    rng = make_rng()
    dut = Quiet()

    async def bench(ctx):
        for _ in range(5):
            ctx.set(dut.begin, 1)
            await ctx.tick().repeat(rng.randrange(1, 4))
            ctx.set(dut.begin, 0)
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

    simulate(dut, bench, seed=rng.seed_value)
