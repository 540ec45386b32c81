"""Runs inside the simulator: memories after synthesis against dictionaries. :mod:`test_netlist` starts it."""

import json
import os
import random
from collections import deque

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge, RisingEdge

SHAPES = json.loads(os.environ["SHAPES"])
SEED = int(os.environ["NETLIST_SEED"])
CYCLES = 3000
ROWS = 24
"""Of each memory so many are used, at both of its ends."""


@cocotb.test()
async def memories(dut):
    rng = random.Random(SEED)
    rows = {name: {} for name in SHAPES}
    wanted = {name: deque([None, None]) for name in SHAPES}
    queued = deque()
    checked = dict.fromkeys(SHAPES, 0)
    ports = {
        name: {port: getattr(dut, f"{name}_{port}") for port in ("w_en", "w_addr", "w_data", "r_addr", "r_data")}
        for name in SHAPES
    }
    stream = {
        name: getattr(dut, name)
        for name in ("i__valid", "i__ready", "i__payload", "o__valid", "o__ready", "o__payload")
    }
    dut.rst.value = 1
    for name in ("i__valid", "o__ready"):
        stream[name].value = 0
    for each in ports.values():
        for port in ("w_en", "w_addr", "w_data", "r_addr"):
            each[port].value = 0
    Clock(dut.clk, 10, "ns").start()
    for _ in range(4):
        await FallingEdge(dut.clk)
    dut.rst.value = 0
    passed = 0
    for _ in range(CYCLES):
        await FallingEdge(dut.clk)
        for name, (width, depth, lane) in SHAPES.items():
            lane = lane or width
            pins = ports[name]
            expected = wanted[name].popleft()
            if expected is not None:
                assert pins["r_data"].value.to_unsigned() == expected, name
                checked[name] += 1
            places = [*range(ROWS), *range(depth - ROWS, depth)]
            at, enable, value = rng.choice(places), rng.getrandbits(width // lane), rng.getrandbits(width)
            look = rng.choice(places)
            pins["w_addr"].value, pins["w_en"].value, pins["w_data"].value = at, enable, value
            pins["r_addr"].value = look
            wanted[name].append(None if enable and look == at else rows[name].get(look, 0))
            mask = sum(((1 << lane) - 1) << n * lane for n in range(width // lane) if enable >> n & 1)
            rows[name][at] = rows[name].get(at, 0) & ~mask | value & mask
        stream["i__valid"].value, stream["i__payload"].value = rng.random() < 0.6, rng.getrandbits(20)
        stream["o__ready"].value = rng.random() < 0.5
        await RisingEdge(dut.clk)
        if int(stream["i__valid"].value) and int(stream["i__ready"].value):
            queued.append(int(stream["i__payload"].value))
        if int(stream["o__valid"].value) and int(stream["o__ready"].value):
            assert int(stream["o__payload"].value) == queued.popleft()
            passed += 1
    assert min(checked.values()) > CYCLES // 2
    assert passed > CYCLES // 4
