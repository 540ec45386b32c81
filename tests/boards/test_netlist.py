"""What synthesis makes of memories and registers does what their description says."""

import json

import pytest
from amaranth.hdl import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from streams import make_rng
from verbena.boards.netlist import CELLS, to_netlist
from verbena.boards.tools import BuildError
from verbena.hdl.stream.fifo import Queue
from verbena.hdl.stream.ram import Ram
from verilated import run_bench

SHAPES = {"wide": (64, 512, 8), "narrow": (9, 2048, None), "pair": (36, 100, 9), "bits": (4, 4096, None)}
"""Width, rows and granularity of block RAM."""


class Memories(wiring.Component):
    """Block RAM of several shapes, read in each cycle, and LUT RAM."""

    def __init__(self):
        members = {"i": In(stream.Signature(20)), "o": Out(stream.Signature(20))}
        self.rams = {name: Ram(width, depth, granularity=lane) for name, (width, depth, lane) in SHAPES.items()}
        for name, ram in self.rams.items():
            members |= {f"{name}_{port}": member for port, member in ram.signature.members.items() if port != "r_en"}
        super().__init__(members)

    def elaborate(self, platform):
        m = Module()
        m.submodules.queue = queue = Queue(20, 16)
        wiring.connect(m, wiring.flipped(self.i), queue.i)
        wiring.connect(m, queue.o, wiring.flipped(self.o))
        for name, ram in self.rams.items():
            m.submodules[name] = ram
            for port, member in ram.signature.members.items():
                if port == "r_en":
                    continue
                inner, outer = getattr(ram, port), getattr(self, f"{name}_{port}")
                m.d.comb += inner.eq(outer) if member.flow == In else outer.eq(inner)
        return m


@pytest.mark.slow
def test_memories(tmp_path, monkeypatch):
    text = to_netlist(Memories(), "top")
    assert "DP16KD" in text
    assert "TRELLIS_DPR16X4" in text
    # The registers behind block RAM are in the block RAM.
    assert "OUTREG" in text
    seed = make_rng().seed_value
    run_bench("netlist_bench", text, tmp_path, monkeypatch, CELLS, NETLIST_SEED=seed, SHAPES=json.dumps(SHAPES))


def test_what_yosys_says(monkeypatch):
    monkeypatch.setenv("YOSYS", "false")
    with pytest.raises(BuildError, match="false failed: no message"):
        to_netlist(Queue(8, 4), "top")
