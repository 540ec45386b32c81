"""Runs inside the simulator: the whole DMA engine against cocotbext-axi's AxiRam. :mod:`test_axi` starts it."""

import itertools
import logging
import os
import random
import warnings

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles, RisingEdge, with_timeout

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # cocotbext-axi on cocotb 2
    from cocotbext.axi import AxiBus, AxiRam

from dma_top import DmaTop
from runs import beats_of, packets_of, random_run, within

WIDTH = int(os.environ["DMA_WIDTH"])
MEMORY = 1 << 20
DUT = DmaTop(WIDTH)
INPUTS = ["read_request__0", "read_request__1", "read_piece"]
INPUTS += ["write_request", "write_data", "write_piece", "write_payload"]


def layout_of(name):
    """Layout of the payload of the port ``name``; ``read_data__0`` is the first of an array."""
    name, _, index = name.partition("__")
    port = getattr(DUT, name)
    return (port[int(index)] if index else port).payload.shape()


class Port:
    """A stream of the top."""

    def __init__(self, dut, name, rng, stall):
        self.layout = layout_of(name)
        self.clock = dut.clk
        self.valid, self.ready = getattr(dut, f"{name}__valid"), getattr(dut, f"{name}__ready")
        self.payload = getattr(dut, f"{name}__payload")
        self.rng, self.stall = rng, stall

    async def rest(self):
        while self.rng.random() < self.stall:
            await RisingEdge(self.clock)

    async def send(self, items):
        self.valid.value = 0
        for item in items:
            await self.rest()
            self.payload.value = self.layout.const(item).as_bits()
            self.valid.value = 1
            while True:
                await RisingEdge(self.clock)
                if self.ready.value == 1:
                    break
            self.valid.value = 0

    async def receive(self, count):
        items = []
        while len(items) < count:
            self.ready.value = 0
            await self.rest()
            self.ready.value = 1
            while True:
                await RisingEdge(self.clock)
                if self.valid.value == 1:
                    break
            value = self.layout.from_bits(int(self.payload.value))
            items.append({name: value[name] for name, _ in self.layout})
        self.ready.value = 0
        return items


def pauses(rng, share):
    return (rng.random() < share for _ in itertools.count())


@cocotb.test()
async def everything_at_once(dut):
    rng = random.Random(int(os.environ["DMA_SEED"]))
    stall = float(os.environ["DMA_STALL"])
    for name in INPUTS:
        Port(dut, name, rng, 0).valid.value = 0
    cocotb.start_soon(Clock(dut.clk, 10, "ns").start())
    logging.getLogger(f"cocotb.{dut._name}").setLevel(logging.WARNING)
    dut.rst.value = 1
    ram = AxiRam(AxiBus.from_prefix(dut, "axi_"), dut.clk, dut.rst, size=MEMORY)
    for channel in (ram.write_if.aw_channel, ram.write_if.w_channel, ram.write_if.b_channel):
        channel.set_pause_generator(pauses(rng, stall))
    for channel in (ram.read_if.ar_channel, ram.read_if.r_channel):
        channel.set_pause_generator(pauses(rng, stall))
    await ClockCycles(dut.clk, 4)
    dut.rst.value = 0
    await ClockCycles(dut.clk, 4)

    # The lower half is read, the upper half is written, each byte once at most.
    image = rng.randbytes(MEMORY)
    ram.write(0, image)
    expected = bytearray(image)
    half = MEMORY // 2

    async def structures(number):
        requests = []
        for _ in range(20):
            length = 8 * rng.randrange(1, 40)
            block = DUT.readers[number].burst * WIDTH // 8
            requests.append(within(rng.randrange((half - length) // 8) * 8, length, block))
        send = Port(dut, f"read_request__{number}", rng, stall)
        receive = Port(dut, f"read_data__{number}", rng, stall)
        cocotb.start_soon(send.send([{"address": a, "length": n} for a, n in requests]))
        beats = await receive.receive(sum(-(-n // (WIDTH // 8)) for _, n in requests))
        assert packets_of(beats, WIDTH) == [(image[a : a + n], 0) for a, n in requests]

    async def reads():
        runs, packets = [], []
        for _ in range(40):
            run = random_run(rng, most=2000)
            for p in run:
                p["address"] %= half - 2048
            data = b"".join(image[p["address"] : p["address"] + p["length"]] for p in run)
            runs.append(run)
            if data:
                packets.append((data, 0))
        cocotb.start_soon(Port(dut, "read_piece", rng, stall).send([p for run in runs for p in run]))
        beats = await Port(dut, "read_payload", rng, stall).receive(sum(-(-len(d) // (WIDTH // 8)) for d, _ in packets))
        assert packets_of(beats, WIDTH) == packets

    async def writes():
        runs, beats, statuses = [], [], []
        for number in range(40):
            run = random_run(rng, most=1500, discards=True)
            data = rng.randbytes(sum(p["length"] for p in run))
            beats += beats_of(data, WIDTH)
            place = half + 8192 * number + rng.randrange(30)
            for p in run:
                p["address"] = place
                if not p["discard"]:
                    expected[place : place + p["length"]] = data[: p["length"]]
                data = data[p["length"] :]
                place += p["length"] + rng.randrange(9)
            runs.append(run)
            statuses.append((run[-1]["status"], run[-1]["tag"]))
        cocotb.start_soon(Port(dut, "write_piece", rng, stall).send([p for run in runs for p in run]))
        cocotb.start_soon(Port(dut, "write_payload", rng, stall).send(beats))
        dones = await Port(dut, "write_done", rng, stall).receive(len(runs))
        assert [(d["status"], d["tag"]) for d in dones] == statuses

    async def completions():
        requests, beats = [], []
        base = half + 8192 * 50
        for number in range(60):
            length = rng.choice([16, 32, 64, 8])
            data = rng.randbytes(length)
            address = base + 64 * number
            requests.append({"address": address, "length": length})
            expected[address : address + length] = data
            beats += beats_of(data, WIDTH)
        cocotb.start_soon(Port(dut, "write_request", rng, stall).send(requests))
        cocotb.start_soon(Port(dut, "write_data", rng, stall).send(beats))
        dones = await Port(dut, "write_answer", rng, stall).receive(len(requests))
        assert {d["status"] for d in dones} == {0}

    tasks = [cocotb.start_soon(job) for job in (structures(0), structures(1), reads(), writes(), completions())]
    for task in tasks:
        await with_timeout(task, 2, "ms")
    assert ram.read(0, MEMORY) == bytes(expected), "memory differs"
