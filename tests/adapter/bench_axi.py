"""An adapter whose host is cocotbext-axi, registers and memory alike; the peer's is the world's. By test_cocotb.py."""

import random
import warnings

import cocotb
from bench_common import exchange, start
from cocotb.task import bridge
from cocotb.triggers import ClockCycles
from verbena.hdl.abi import registers as reg
from verbena.hdl.abi.counters import COUNTERS
from verbena.sim.cocotb_port import AxiPort, Heap, WorldPort
from verbena.sim.pair import End, connect
from verbena.sw.port import provide

with warnings.catch_warnings():
    # cocotbext-axi 0.1.28 uses names that cocotb 2 deprecates.
    warnings.simplefilter("ignore", DeprecationWarning)
    from cocotbext.axi import AxiBus, AxiLiteBus, AxiLiteMaster, AxiRam

RAM = 1 << 26


async def host(dut):
    """World, port and memory of the adapter that cocotb sees."""
    master = AxiLiteMaster(AxiLiteBus.from_prefix(dut, "axil_"), dut.clk, dut.rst)
    ram = AxiRam(AxiBus.from_prefix(dut, "axi_"), dut.clk, dut.rst, size=RAM)
    for interface in (master.write_if, master.read_if, ram.write_if, ram.read_if):
        interface.log.setLevel("WARNING")
    world = await start(dut)
    return world, AxiPort(dut, world, "axi0", master, Heap(ram, RAM))


@cocotb.test()
async def registers_and_data(dut):
    world, port = await host(dut)
    assert await port.read(reg.REGISTERS["magic"].offset) == reg.MAGIC
    assert await port.read(reg.REGISTERS["version"].offset) == reg.VERSION
    rng = random.Random(cocotb.RANDOM_SEED)
    words = {reg.MAILBOX + 4 * i: rng.randrange(1 << 32) for i in range(8)}
    for offset, value in words.items():
        await port.write(offset, value)
    for offset, value in words.items():
        assert await port.read(offset) == value
    # Nothing is there, beyond the last QP, the last CQ and the last counter: accepted, without any effect.
    capabilities = await port.read(reg.REGISTERS["capabilities"].offset)
    qps, cqs = 1 << (capabilities & 15), 1 << (capabilities >> 4 & 15)
    for offset in (reg.QP_PAGES + qps * reg.PAGE, reg.CQ_PAGES + cqs * reg.PAGE, reg.COUNTERS + 8 * len(COUNTERS)):
        await port.write(offset, 0xFFFF)
        assert await port.read(offset) == 0
    await ClockCycles(dut.clk, 1000)
    assert await port.read(reg.REGISTERS["status"].offset) & 1, "a doorbell of nobody woke the engine"
    assert {offset: await port.read(offset) for offset in words} == words

    provide("axi0", lambda: port)
    provide("cocotb1", lambda: WorldPort(dut, world, 1, "cocotb1"))

    def program():
        with End("axi0", 16384, depth=16) as a, End("cocotb1", 16384, depth=16) as b:
            connect(a, b, psn=5)
            for near, far in ((a, b), (b, a)):
                exchange(world, near, far, rng)
            assert a.context.query_counters()["bus_errors"] == 0

    await bridge(program)()
    world.check()
