"""Runs inside the simulator: memories after synthesis against dictionaries, and a queue that is reset now and then.
:mod:`test_netlist` starts it.
"""

import json
import os
import random
from collections import deque

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge, RisingEdge

SHAPES = json.loads(os.environ["SHAPES"])
SEED = int(os.environ["NETLIST_SEED"])
ROUNDS = 4
CYCLES = 800
"""Between two resets."""

ROWS = 24
"""Of each memory so many are used, at both of its ends."""


class Bench:
    """What must be in memories and queue."""

    def __init__(self, dut, rng):
        self.dut = dut
        self.rng = rng
        self.rows = {name: {} for name in SHAPES}
        self.checked = dict.fromkeys(SHAPES, 0)
        self.passed = 0
        self.ports = {
            name: {port: getattr(dut, f"{name}_{port}") for port in ("w_en", "w_addr", "w_data", "r_addr", "r_data")}
            for name in SHAPES
        }

    async def reset(self):
        """Empties the queue; memories stay as they are."""
        dut = self.dut
        await FallingEdge(dut.clk)
        dut.rst.value = 1
        dut.i__valid.value = dut.o__ready.value = 0
        for pins in self.ports.values():
            for port in ("w_en", "w_addr", "w_data", "r_addr"):
                pins[port].value = 0
        for _ in range(4):
            await FallingEdge(dut.clk)
        dut.rst.value = 0
        assert not int(dut.o__valid.value)
        self.queued = deque()
        self.wanted = {name: deque([None, None]) for name in SHAPES}

    async def cycle(self):
        dut, rng = self.dut, self.rng
        await FallingEdge(dut.clk)
        for name in SHAPES:
            self._memory(name)
        dut.i__valid.value, dut.i__payload.value = rng.random() < 0.6, rng.getrandbits(20)
        dut.o__ready.value = rng.random() < 0.5
        await RisingEdge(dut.clk)
        if int(dut.i__valid.value) and int(dut.i__ready.value):
            self.queued.append(int(dut.i__payload.value))
        if int(dut.o__valid.value) and int(dut.o__ready.value):
            assert int(dut.o__payload.value) == self.queued.popleft()
            self.passed += 1

    def _memory(self, name):
        rng, rows, pins = self.rng, self.rows[name], self.ports[name]
        width, depth, lane = SHAPES[name]
        lane = lane or width
        expected = self.wanted[name].popleft()
        if expected is not None:
            assert pins["r_data"].value.to_unsigned() == expected, name
            self.checked[name] += 1
        places = [*range(ROWS), *range(depth - ROWS, depth)]
        at, enable, value = rng.choice(places), rng.getrandbits(width // lane), rng.getrandbits(width)
        look = rng.choice(places)
        pins["w_addr"].value, pins["w_en"].value, pins["w_data"].value = at, enable, value
        pins["r_addr"].value = look
        self.wanted[name].append(None if enable and look == at else rows.get(look, 0))
        mask = sum(((1 << lane) - 1) << n * lane for n in range(width // lane) if enable >> n & 1)
        rows[at] = rows.get(at, 0) & ~mask | value & mask


@cocotb.test()
async def memories(dut):
    rng = random.Random(SEED)
    bench = Bench(dut, rng)
    Clock(dut.clk, 10, "ns").start()
    for _ in range(ROUNDS):
        await bench.reset()
        for _ in range(CYCLES):
            await bench.cycle()
    assert min(bench.checked.values()) > ROUNDS * CYCLES // 2
    assert bench.passed > ROUNDS * CYCLES // 4
