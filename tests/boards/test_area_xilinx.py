"""The count of an UltraScale+'s cells, on designs small enough to count by hand."""

import json

import pytest
from amaranth.hdl import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from verbena.boards import area_xilinx
from verbena.boards.area_xilinx import count, measure
from verbena.hdl.stream.ram import Ram
from verbena.hdl.stream.slice import Slice


class Core(wiring.Component):
    """A register of 32 bits, and 36 Kib of memory."""

    def __init__(self):
        self.ram = Ram(72, 512)
        ports = {"i": In(stream.Signature(32)), "o": Out(stream.Signature(32))}
        super().__init__(ports | {f"ram_{name}": port for name, port in self.ram.signature.members.items()})

    def elaborate(self, platform):
        m = Module()
        m.submodules.register = register = Slice(32)
        m.submodules.ram = ram = self.ram
        wiring.connect(m, wiring.flipped(self.i), register.i)
        wiring.connect(m, register.o, wiring.flipped(self.o))
        for name, port in ram.signature.members.items():
            inner, outer = getattr(ram, name), getattr(self, f"ram_{name}")
            m.d.comb += inner.eq(outer) if port.flow == In else outer.eq(inner)
        return m


@pytest.mark.slow
def test_a_small_design():
    counts = measure(Core())
    assert (counts["bram36"], counts["bram18"], counts["dsp"], counts["lutram"]) == (1, 0, 0, 0)
    # The register's state, twice, and at most the memory's second cycle.
    assert 32 * 2 < counts["ff"] < 32 * 2 + 72 + 8
    # Those of the handshake.
    assert 0 < counts["lut"] < 16


def test_sizes():
    counts = count({"LUT6": 3, "LUT2": 1, "RAM32M16": 2, "SRL16E": 1, "FDRE": 5, "FDSE": 1, "RAMB18E2": 4, "CARRY4": 7})
    assert (counts["lut"], counts["lutram"], counts["ff"], counts["bram18"]) == (3 + 1 + 16 + 1, 17, 6, 4)
    assert (counts["carry4"], counts["carry8"]) == (7, 0)


def test_a_cell_that_nobody_knows():
    with pytest.raises(ValueError, match="2 cells ODD"):
        count({"ODD": 2})


def test_a_tool_that_fails(monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("YOSYS", "false")
    monkeypatch.setattr(area_xilinx, "Rnic", lambda config: Slice(config.data_width))
    assert area_xilinx.main(["--output", str(tmp_path / "area.json")]) == 1
    assert "false failed: no message" in capsys.readouterr().err


def test_each_width(monkeypatch, tmp_path):
    monkeypatch.setattr(area_xilinx, "measure", lambda component: {"lut": len(component.i.payload)})
    monkeypatch.setattr(area_xilinx, "Rnic", lambda config: Slice(config.data_width))
    path = tmp_path / "area.json"
    assert area_xilinx.main(["--output", str(path)]) == 0
    assert [(each["data_width"], each["lut"]) for each in json.loads(path.read_text())] == [(64, 64), (512, 512)]
