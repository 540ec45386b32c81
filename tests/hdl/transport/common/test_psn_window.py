"""Which PSNs may be answers."""

from streams import make_rng, simulate
from verbena.hdl.transport.common.psn_window import PsnWindow

PSNS = 1 << 24


def test_against_integers():
    rng = make_rng()
    dut = PsnWindow()

    async def check(ctx, first, flight, span):
        """``flight`` packets are on their way from ``first`` on; the response names the one ``span`` behind it."""
        ctx.set(dut.psn, (first + span) % PSNS)
        ctx.set(dut.first, first)
        ctx.set(dut.load, 1)
        await ctx.tick()
        ctx.set(dut.load, 0)
        ctx.set(dut.psn, rng.randrange(PSNS))
        ctx.set(dut.first, rng.randrange(PSNS))
        ctx.set(dut.unacked, first)
        ctx.set(dut.latest, (first + flight - 1) % PSNS)
        ctx.set(dut.compare, 1)
        await ctx.tick().repeat(rng.randrange(1, 3))
        ctx.set(dut.compare, 0)
        ctx.set(dut.unacked, rng.randrange(PSNS))
        await ctx.tick().repeat(rng.randrange(1, 3))
        assert ctx.get(dut.within) == (0 <= span < min(flight, 1 << 23))
        assert ctx.get(dut.none) == (flight == 0)
        if 0 <= span < 1 << 23:
            assert ctx.get(dut.newest) == (span == flight - 1)

    async def testbench(ctx):
        for _ in range(400):
            first = rng.choice([0, 1, PSNS - 1, 1 << 23, rng.randrange(PSNS)])
            flight = rng.choice([0, 1, 2, 5, 1 << 22, 1 << 23, 3 << 22, rng.randrange(3 << 22)])
            span = rng.choice([-1, -2, 0, 1, flight - 1, flight, flight + 1, rng.randrange(-(1 << 20), 3 << 22)])
            await check(ctx, first, flight, span)

    simulate(dut, testbench, seed=rng.seed_value)
