"""A test bench that drives the registers itself, with cocotbext-axi; started by test_cocotb.py."""

import warnings

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles
from stand_in import MAGIC, R
from verbena.sim.cocotb_world import attach

with warnings.catch_warnings():
    # cocotbext-axi 0.1.28 uses names that cocotb 2 deprecates.
    warnings.simplefilter("ignore", DeprecationWarning)
    from cocotbext.axi import AxiLiteBus, AxiLiteMaster


@cocotb.test()
async def registers_by_cocotbext_axi(dut):
    Clock(dut.clk, 6400, "ps").start()
    dut.rst.value = 1
    master = AxiLiteMaster(AxiLiteBus.from_prefix(dut, "axil_"), dut.clk, dut.rst)
    await ClockCycles(dut.clk, 4)
    dut.rst.value = 0
    world = attach(dut)
    assert await master.read_dword(R.MAGIC) == MAGIC
    tap = world.tap(0x02_00_00_00_00_99)
    await master.write_qword(R.MAC, int.from_bytes(tap.mac.to_bytes(6, "big"), "little"))
    await master.write_dword(R.SEND, 64 | 1 << 16)
    await ClockCycles(dut.clk, 50)
    assert tap.receive()[:6] == tap.mac.to_bytes(6, "big")
    world.check()
