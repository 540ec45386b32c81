"""What a response changes, in all cases."""

from itertools import product

from streams import simulate
from verbena.hdl.transport.response_effect import ResponseEffect


def test_all():
    dut = ResponseEffect()

    async def testbench(ctx):
        for inclusive, grave, newest, moved, beyond, stop, failed, drain in product((0, 1), repeat=8):
            ctx.set(dut.meaning, {"inclusive": inclusive, "grave": grave})
            ctx.set(dut.newest, newest)
            ctx.set(dut.moved, moved)
            ctx.set(dut.beyond, beyond)
            ctx.set(dut.stop, stop)
            ctx.set(dut.at_failed, failed)
            ctx.set(dut.drain, drain)
            implied = stop and beyond and not grave and not failed
            assert ctx.get(dut.acknowledged) == (not stop)
            assert ctx.get(dut.progressed) == bool(moved or (beyond and not stop))
            assert ctx.get(dut.rested) == bool(newest and inclusive and not stop)
            assert ctx.get(dut.implied) == bool(implied)
            assert ctx.get(dut.more) == bool(implied or grave or failed or drain)

    simulate(dut, testbench)
