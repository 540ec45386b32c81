"""Runs inside the simulator: cocotbext-axi drives an SDRAM controller through an ECP5's pin registers, and the chips
keep their data sheet's times to the nanosecond. :mod:`test_sdram_pins` starts it.
"""

import logging
import os
import random
import warnings

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles, RisingEdge, Timer, with_timeout
from sdram_chip import SdramModel
from sdram_top import BASE, CHIP, CLOCK

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # cocotbext-axi on cocotb 2
    from cocotbext.axi import AxiBus, AxiMaster

PERIOD = 1e9 / CLOCK
ACCESS, HOLD = 6.0, 2.5
"""Nanoseconds from the chip's edge to a word, and from the next one to its end (tAC, tOH)."""

PINS = 3.0
"""From the FPGA's register to the chip, clock and data alike, and back."""


async def chips(dut, rng):
    model = SdramModel(CHIP, CLOCK, rng)

    async def drive(word):
        """Called at the edge before the one at which the word is to be sampled."""
        await Timer(ACCESS + 2 * PINS, "ns")
        dut.dq_i.value = word
        await Timer(PERIOD + HOLD - ACCESS, "ns")
        dut.dq_i.value = rng.getrandbits(CHIP.width)

    while True:
        await RisingEdge(dut.clock)
        command = sum((1 - int(pin.value)) << n for n, pin in enumerate((dut.ras_n, dut.cas_n, dut.we_n)))
        data = int(dut.dq_o.value) if dut.dq_oe.value == 1 else None
        model.edge(command, int(dut.bank.value), int(dut.address.value), data)
        word = model.drives.get(model.now)
        if word is not None:
            cocotb.start_soon(drive(word))


@cocotb.test()
async def reads_and_writes(dut):
    seed = int(os.environ["SDRAM_SEED"])
    rng = random.Random(seed)
    random.seed(seed)
    logging.getLogger(f"cocotb.{dut._name}").setLevel(logging.WARNING)
    dut.dq_i.value = 0
    cocotb.start_soon(Clock(dut.clk, round(PERIOD), "ns").start())
    dut.rst.value = 1
    manager = AxiMaster(AxiBus.from_prefix(dut, "axi_"), dut.clk, dut.rst)
    await ClockCycles(dut.clk, 4)
    cocotb.start_soon(chips(dut, rng))
    await ClockCycles(dut.clk, 2)
    dut.rst.value = 0
    size = 6000
    start = BASE + CHIP.size - size
    expected = bytearray(rng.randbytes(size))
    await with_timeout(manager.write(start, bytes(expected)), 400, "us")
    for _ in range(60):
        length = rng.choice([1, 2, 3, 8, 40, 700])
        at = rng.randrange(size - length)
        if rng.random() < 0.5:
            expected[at : at + length] = rng.randbytes(length)
            await with_timeout(manager.write(start + at, bytes(expected[at : at + length])), 100, "us")
        else:
            got = await with_timeout(manager.read(start + at, length), 100, "us")
            assert got.data == bytes(expected[at : at + length])
    got = await with_timeout(manager.read(start, size), 400, "us")
    assert got.data == bytes(expected)
