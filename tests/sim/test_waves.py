"""Waves, their views, and the speed of the model."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from amaranth.hdl import Elaboratable, Module, Signal
from stand_in import R, stand_in
from verbena.sim.speed import measure
from verbena.sim.waves import fsm_states, save_views, signals
from verbena.sim.world import World

pytestmark = pytest.mark.verilator


def test_waves_of_each_adapter_and_their_views(tmp_path):
    with World(2, stand_in(), trace=True) as world:
        world.waves(tmp_path / "run")
        world.adapters[1].write32(R.SOURCE, 0x12345678)
        world.waves(None)
        cycles = world.cycles
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run.0.vcd", "run.1.vcd"]
    vcd = tmp_path / "run.1.vcd"
    text = vcd.read_text()
    assert f"{0x12345678:b}" in text
    last = int(text[text.rindex("#") :].split()[0][1:])
    assert last == pytest.approx(cycles * 6400, abs=6400)

    gtkwave, surfer = save_views(vcd)
    known = {name for name, _ in signals(vcd)}
    assert any(name.endswith(".axi__araddr") for name in known)
    for name in ("axil__wdata", "axi__araddr", "tx__payload", "rx__valid", "interrupt", "clk"):
        assert f".{name}" in gtkwave.read_text()
        assert f".{name}\n" in surfer.read_text()
    added = [line.split()[1] for line in surfer.read_text().splitlines() if line.startswith("variable_add")]
    assert set(added) <= known
    assert str(vcd) in gtkwave.read_text()
    assert "-host memory" in gtkwave.read_text()


HEADER = """$scope module adapter0 $end $scope module rnic $end
$var wire 1 a clk $end $var wire 1 b interrupt $end $var wire 8 c tx__payload$7 $end
$scope module parser$12 $end
$var wire 1 d header__valid $end $var wire 8 e header__payload$3.transport.opcode $end $var wire 2 f fsm_state $end
$upscope $end $upscope $end $upscope $end
$enddefinitions $end
"""


def test_names_and_numbers_as_text(tmp_path):
    vcd = tmp_path / "a.vcd"
    vcd.write_text(HEADER)
    gtkwave, _ = save_views(vcd, {"parser": {0: "IDLE", 1: "BUSY"}})
    text = gtkwave.read_text()
    aliases = re.findall(r"^\+{(.*?)} (.*)$", text, re.MULTILINE)
    assert aliases == [
        ("clk", "adapter0.rnic.clk"),
        ("interrupt", "adapter0.rnic.interrupt"),
        ("parser.fsm_state", "adapter0.rnic.parser$12.fsm_state[1:0]"),
        ("valid", "adapter0.rnic.parser$12.header__valid"),
        ("payload.transport.opcode", "adapter0.rnic.parser$12.header__payload$3.transport.opcode[7:0]"),
    ]
    assert (tmp_path / "a.names" / "parser.states.txt").read_text() == "0 IDLE\n1 BUSY\n"
    assert "0a RC_RDMA_WRITE_ONLY\n" in (tmp_path / "a.names" / "bth_opcode.txt").read_text()
    assert f" {tmp_path}/a.names/bth_opcode.txt\n" in text
    assert [line for line in text.splitlines() if line.startswith("-")] == [
        *["-clock"] * 2,
        *["-interrupt"] * 2,
        *["-states"] * 2,
        *["-parser", "-header", "-header", "-parser"],
    ]


class Machine(Elaboratable):
    def elaborate(self, _):
        m = Module()
        m.submodules.part = part = Module()
        step = Signal()
        with part.FSM():
            with part.State("IDLE"):
                with part.If(step):
                    part.next = "BUSY"
            with part.State("BUSY"):
                part.next = "IDLE"
        return m


def test_names_of_states():
    assert fsm_states(Machine()) == {"part": {0: "IDLE", 1: "BUSY"}}


def test_a_program_leaves_views(tmp_path):
    program = (
        "from test_world import stand_in\nfrom verbena.sim import devices\n"
        "devices.configure(design=stand_in())\ndevices.world().advance(10)\n"
    )
    path = os.pathsep.join(str(Path(__file__).parents[i]) for i in (0, 1))
    environment = os.environ | {"VERBENA_TRACE": str(tmp_path / "run"), "PYTHONPATH": path}
    subprocess.run([sys.executable, "-c", program], env=environment, check=True)
    assert {f"run.{i}.{end}" for i in range(2) for end in ("vcd", "gtkw", "sucl")} <= {
        path.name for path in tmp_path.iterdir()
    }


@pytest.mark.parametrize("adapters", [1, 2])
def test_speed_is_measured(adapters, capsys):
    speed = measure(stand_in(), adapters=adapters, seconds=0.3, frames=True)
    with capsys.disabled():
        print(f"\n{speed:,.0f} cycles/s of the stand-in with {adapters} adapters, and frames arriving")
    assert speed > 0
