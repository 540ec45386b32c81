"""PSN arithmetic against plain integers."""

import pytest
from amaranth.hdl import Module, Signal, signed
from amaranth.sim import Simulator
from hypothesis import given, settings
from hypothesis import strategies as st
from verbena.hdl.transport.common.psn import PSN_BITS, psn_before, psn_difference, psn_next

SIZE = 1 << PSN_BITS
psns = st.one_of(st.integers(0, SIZE - 1), st.sampled_from([0, 1, SIZE // 2 - 1, SIZE // 2, SIZE // 2 + 1, SIZE - 1]))


@settings(max_examples=20, deadline=None)
@given(st.lists(st.tuples(psns, psns), min_size=1, max_size=50))
def test_comparison(pairs):
    a, b, ahead, before, following = Signal(24), Signal(24), Signal(signed(24)), Signal(), Signal(24)
    m = Module()
    m.d.comb += [ahead.eq(psn_difference(a, b)), before.eq(psn_before(a, b)), following.eq(psn_next(a))]

    async def testbench(ctx):
        for x, y in pairs:
            ctx.set(a, x)
            ctx.set(b, y)
            distance = (x - y + SIZE // 2) % SIZE - SIZE // 2
            assert ctx.get(ahead) == distance
            assert ctx.get(before) == (distance < 0)
            assert ctx.get(following) == (x + 1) % SIZE

    sim = Simulator(m)
    sim.add_testbench(testbench)
    sim.run()


def test_too_wide():
    with pytest.raises(ValueError, match="25"):
        psn_difference(Signal(25), Signal(24))
