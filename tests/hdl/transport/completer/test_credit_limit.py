"""Credit codes against the table of the specification."""

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from completer_world import CREDITS
from streams import simulate
from verbena.hdl.transport.completer.credit_limit import credit_count


class Top(wiring.Component):
    code: In(5)
    count: Out(16)

    def elaborate(self, platform):
        m = Module()
        count = Signal(16)
        m.d.comb += [count.eq(credit_count(self.code)), self.count.eq(count)]
        return m


def test_all_codes():
    assert len(CREDITS) == 31
    dut = Top()

    async def testbench(ctx):
        for code, count in enumerate(CREDITS):
            ctx.set(dut.code, code)
            assert ctx.get(dut.count) == count

    simulate(dut, testbench)


def test_width():
    assert len(credit_count(Signal(5))) == 16
