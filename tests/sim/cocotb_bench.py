"""A test bench on the stand-in: runs inside of the simulation, started by test_cocotb.py."""

import os

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles, RisingEdge
from stand_in import MAGIC, R
from verbena.sim.cocotb_world import attach
from verbena.sw import host_memory


async def start(dut):
    Clock(dut.clk, 6400, "ps").start()
    dut.rst.value = 1
    await ClockCycles(dut.clk, 4)
    dut.rst.value = 0
    await ClockCycles(dut.clk, 4)
    return attach(dut)


@cocotb.test()
async def registers_memory_and_wire(dut):
    world = await start(dut)
    assert await world.read32(R.MAGIC) == MAGIC
    address = host_memory.alloc(8192, 4096)
    host_memory.write(address, bytes(range(256)))
    source, target = host_memory.bus_pages(address, 8192)
    for i, value in enumerate((source & 0xFFFFFFFF, source >> 32, target & 0xFFFFFFFF, target >> 32)):
        await world.write32(R.SOURCE + 4 * i, value)
    await world.write32(R.COPY, 32)
    await RisingEdge(dut.interrupt)
    assert host_memory.read(address + 4096, 256) == bytes(range(256))
    assert await world.read32(R.ACKNOWLEDGE) == world.adapters[0].memory["read_latency"] == 128

    # The second adapter is an engine of its own, clocked along.
    mac = int.from_bytes(world.adapters[1].mac.to_bytes(6, "big"), "little")
    await world.write32(R.MAC, mac & 0xFFFFFFFF)
    await world.write32(R.MAC + 4, mac >> 32)
    await world.write32(R.SEND, 100 | 3 << 16)
    await ClockCycles(dut.clk, 200)
    assert await world.read32(R.RECEIVED, adapter=1) == 3
    assert await world.read32(R.BYTES, adapter=1) == 300
    world.check()


@cocotb.test()
async def cocotb_clock(dut):
    """How many cycles a second of a clock that cocotb drives, with the world moving along."""
    import time

    await start(dut)
    before = time.perf_counter()
    await ClockCycles(dut.clk, int(os.environ.get("CYCLES", 20000)))
    print(f"{int(os.environ.get('CYCLES', 20000)) / (time.perf_counter() - before):,.0f} cycles/s under cocotb")
