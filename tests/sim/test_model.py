"""Building: from cache, by several at once, and what goes wrong."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from stand_in import stand_in
from verbena.sim import model
from verbena.sim.model import BuildError, Design, build


def test_a_second_build_is_at_hand():
    first = build(stand_in())
    start = time.perf_counter()
    assert build(stand_in()).directory == first.directory
    assert time.perf_counter() - start < 1
    assert first.library.exists()
    assert first.executable.exists()


def test_no_tool_warns():
    text = build(stand_in()).log.read_text()
    assert [line for line in text.splitlines() if "warning:" in line.lower() or line.startswith("%Warning")] == []


def test_several_processes_build_one_model(tmp_path):
    program = "from stand_in import stand_in; from verbena.sim.model import build; print(build(stand_in()).library)"
    environment = {**os.environ, "VERBENA_BUILD": str(tmp_path), "PYTHONPATH": str(Path(__file__).parent)}
    command = [sys.executable, "-c", program]
    workers = [subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    libraries = {worker.communicate(timeout=300)[0].strip() for worker in workers}
    assert len(libraries) == 1
    assert libraries.pop().startswith(str(tmp_path))
    assert not list(tmp_path.glob("model/*.part"))


def test_what_is_missing_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("VERBENA_BUILD", str(tmp_path))
    found = shutil.which
    monkeypatch.setattr(model.shutil, "which", lambda name: None if name == "g++" else found(name))
    with pytest.raises(BuildError, match=r"g\+\+ is missing; .* apt install g\+\+"):
        build(stand_in())


def test_what_a_tool_says_is_in_the_error(tmp_path, monkeypatch):
    monkeypatch.setenv("VERBENA_BUILD", str(tmp_path))
    design = Design("broken", None, "0" * 64)
    (tmp_path / "verilog").mkdir()
    (tmp_path / "verilog" / f"broken-{'0' * 16}.v").write_text(
        "module broken(clk);\n  input clk;\n  syntax error\nendmodule\n"
    )
    with pytest.raises(BuildError, match="syntax error, unexpected"):
        build(design)


def test_a_design_is_known_by_its_sources(tmp_path):
    (tmp_path / "a.py").write_text("1")
    keys = [Design.of(None, [tmp_path]).key, Design.of(None, [tmp_path], parameters="2").key]
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "c.py").write_text("1")
    keys.append(Design.of(None, [tmp_path]).key)
    assert len(set(keys)) == 3
