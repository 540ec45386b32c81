"""RNR timer codes."""

from fractions import Fraction

from streams import simulate
from verbena.hdl.transport.timers.rnr import RNR_MICROSECONDS, RNR_TICKS, RnrTicks

TICK = Fraction(4096, 1000)  # us


def test_table_doubles_every_second_code():
    """The table of the specification is a rule with two exceptions, 0 and 1."""
    assert len(RNR_MICROSECONDS) == 32
    assert RNR_MICROSECONDS[0] == 10 * 2**16
    assert RNR_MICROSECONDS[1] == 10
    for code in range(2, 32):
        assert RNR_MICROSECONDS[code] == 10 * (3 * 2 ** ((code - 3) // 2) if code % 2 else 2 ** (code // 2))
    assert [RNR_MICROSECONDS[code] for code in (12, 25, 31)] == [640, 61_440, 491_520]


def test_ticks_are_rounded_up():
    for ticks, microseconds in zip(RNR_TICKS, RNR_MICROSECONDS):
        assert (ticks - 1) * TICK < microseconds <= ticks * TICK
    assert RNR_TICKS[0] == 160_000
    assert RNR_TICKS[1] == 3


def test_lookup():
    dut = RnrTicks()

    async def testbench(ctx):
        for code, ticks in enumerate(RNR_TICKS):
            ctx.set(dut.code, code)
            assert ctx.get(dut.ticks) == ticks

    simulate(dut, testbench)
