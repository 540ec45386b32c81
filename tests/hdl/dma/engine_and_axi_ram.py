"""Runs inside the simulator: the whole DMA engine against cocotbext-axi's AxiRam. :mod:`test_engine` starts it."""

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

from dma_top import LARGEST, engine
from runs import beats_of, packets_of, piece, random_run, within

WIDTH = int(os.environ["DMA_WIDTH"])
MEMORY = 1 << 20
DUT = engine(WIDTH)
INPUTS = ["small__request", "large__request", "transmit_piece", "operands"]
INPUTS += ["cqe__request", "cqe__data", "eqe__request", "eqe__data", "receive_piece", "receive_payload"]


def layout_of(name):
    """Layout of the payload of the port ``name``; ``small__data`` is one of an interface."""
    port = DUT
    for part in name.split("__"):
        port = getattr(port, part)
    return port.payload.shape()


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

    async def structures(name):
        requests = []
        for _ in range(20):
            length = 8 * rng.randrange(1, 40)
            requests.append(within(rng.randrange((half - length) // 8) * 8, length, LARGEST[name]))
        send = Port(dut, f"{name}__request", rng, stall)
        receive = Port(dut, f"{name}__data", rng, 0)
        cocotb.start_soon(send.send([{"address": a, "length": n} for a, n in requests]))
        beats = await receive.receive(sum(-(-n // (WIDTH // 8)) for _, n in requests))
        assert packets_of(beats, WIDTH) == [(image[a : a + n], 0) for a, n in requests]

    async def transmits():
        """Payload and atomics, whose pieces come by one stream."""
        runs, packets, operands, values = [], [], [], []
        for _ in range(40):
            run = random_run(rng, most=2000)
            for p in run:
                p["address"] %= half - 2048
                p["tag"] = 0
            data = b"".join(image[p["address"] : p["address"] + p["length"]] for p in run)
            runs.append(run)
            if data:
                packets.append((data, 0))
            if rng.random() < 0.7:
                address = half + 8192 * 60 + 8 * rng.randrange(4)
                value = int.from_bytes(expected[address : address + 8], "little")
                swap, add = rng.getrandbits(64), rng.randrange(2)
                compare = rng.choice([value, rng.getrandbits(64)])
                if add or compare == value:
                    new = (value + swap) % (1 << 64) if add else swap
                    expected[address : address + 8] = new.to_bytes(8, "little")
                runs.append([piece(address, 8, tag=1, last=1)])
                operands.append({"swap": swap, "compare": compare, "add": add})
                values.append(value)
        cocotb.start_soon(Port(dut, "transmit_piece", rng, stall).send([p for run in runs for p in run]))
        cocotb.start_soon(Port(dut, "operands", rng, stall).send(operands))
        results = cocotb.start_soon(Port(dut, "result", rng, stall).receive(len(values)))
        words = cocotb.start_soon(Port(dut, "atomic_payload", rng, stall).receive(len(values)))
        count = sum(-(-len(data) // (WIDTH // 8)) for data, _ in packets)
        beats = await Port(dut, "transmit_payload", rng, stall).receive(count)
        assert packets_of(beats, WIDTH) == packets
        assert [(result["value"], result["ok"]) for result in await results] == [(value, 1) for value in values]
        assert packets_of(await words, WIDTH) == [(value.to_bytes(8, "big"), 0) for value in values]

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
        cocotb.start_soon(Port(dut, "receive_piece", rng, stall).send([p for run in runs for p in run]))
        cocotb.start_soon(Port(dut, "receive_payload", rng, stall).send(beats))
        dones = await Port(dut, "done", rng, stall).receive(len(runs))
        assert [(d["status"], d["tag"]) for d in dones] == statuses

    async def completions(name, base):
        requests, beats = [], []
        for number in range(60):
            length = rng.choice([16, 32, 64, 8])
            data = rng.randbytes(length)
            address = base + 64 * number
            requests.append({"address": address, "length": length})
            expected[address : address + length] = data
            beats += beats_of(data, WIDTH)
        cocotb.start_soon(Port(dut, f"{name}__request", rng, stall).send(requests))
        cocotb.start_soon(Port(dut, f"{name}__data", rng, stall).send(beats))
        dones = await Port(dut, f"{name}__done", rng, 0).receive(len(requests))
        assert {d["status"] for d in dones} == {0}

    jobs = [structures("small"), structures("large"), transmits(), writes()]
    jobs += [completions("cqe", half + 8192 * 50), completions("eqe", half + 8192 * 55)]
    for task in [cocotb.start_soon(job) for job in jobs]:
        await with_timeout(task, 2, "ms")
    assert ram.read(0, MEMORY) == bytes(expected), "memory differs"
