"""Simulation with several clocks, for the tests of this folder."""

from amaranth.hdl import ClockDomain, Module
from amaranth.sim import Simulator

__all__ = ["simulate_clocks"]


def simulate_clocks(dut, clocks, *testbenches, background=(), deadline=1e-3):
    """Runs ``dut`` until all ``testbenches`` have returned; ``AssertionError`` after ``deadline`` seconds.

    ``clocks`` is a dictionary from domain to ``(period in ns, phase in ns)``.
    """
    m = Module()
    for name in clocks:
        setattr(m.domains, name, ClockDomain(name))
    m.submodules.dut = dut
    sim = Simulator(m)
    for name, (period, phase) in clocks.items():
        sim.add_clock(period * 1e-9, phase=phase * 1e-9, domain=name)

    async def watchdog(ctx):
        await ctx.delay(deadline)
        raise AssertionError(f"still running after {deadline} s")

    for testbench in testbenches:
        sim.add_testbench(testbench)
    for testbench in (*background, watchdog):
        sim.add_testbench(testbench, background=True)
    sim.run()
