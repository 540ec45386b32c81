"""Runs cocotb test benches on the compiled model: from pytest, ``run("my_testbench", design)``."""

import os
from pathlib import Path

from .model import build, build_directory

__all__ = ["OWNED", "run"]

OWNED = {"memory": 1, "registers": 2, "wire": 4, "reset": 8}
"""Parts of the world that can drive the ports of the engine that cocotb sees."""


def run(
    testbench,
    design=None,
    *,
    adapters=1,
    world=("memory", "registers", "wire"),
    seed=1,
    capture=None,
    waves=None,
    folder=None,
    testcase=None,
    environment=None,
):
    """Runs the tests of a cocotb module; raises ``AssertionError`` if one fails or there is none.

    The test bench clocks and resets the engine (``dut.clk``, ``dut.rst``); at each rising edge the world moves, and the
    engines of further adapters with it. In the test bench, :func:`verbena.sim.cocotb_world.attach` gives access to it.

    Parameters
    ----------
    testbench : str
        Name of the module, importable with the ``sys.path`` of the caller.
    design : verbena.sim.model.Design, optional
    adapters : int
        cocotb sees the first of them.
    world : sequence of str
        Which ports of the first adapter the world drives; the test bench drives the others.
    seed : int
        Of the world's choices and of cocotb's.
    capture : path, optional
        pcapng file of frames and bus transactions.
    waves : path, optional
        VCD file.
    folder : path, optional
        Where to run; by default below the build directory.
    testcase : str, optional
        Only this test.
    environment : dict, optional
        More variables.
    """
    from cocotb_tools.check_results import get_results
    from cocotb_tools.runner import get_runner

    for part in world:
        if part not in OWNED:
            raise ValueError(f"world must be made of {', '.join(OWNED)}, not {part!r}")
    model = build(design, trace=waves is not None)
    folder = Path(folder or build_directory() / "cocotb" / f"{testbench}-{os.getpid()}").absolute()
    variables = {
        "VERBENA_MODEL": str(model.library),
        "VERBENA_ADAPTERS": str(adapters),
        "VERBENA_OWNED": str(sum(OWNED[part] for part in world)),
        "VERBENA_SEED": str(seed),
        **({"VERBENA_CAPTURE": str(Path(capture).absolute())} if capture else {}),
        **({"VERBENA_TRACE": str(Path(waves).absolute())} if waves else {}),
        **(environment or {}),
    }
    results = folder / "results.xml"
    try:
        get_runner("verilator").test(
            testbench,
            hdl_toplevel=model.design.name,
            hdl_toplevel_lang="verilog",
            build_dir=model.directory,
            test_dir=folder,
            results_xml=str(results),
            seed=seed,
            testcase=testcase,
            extra_env=variables,
        )
        tests, failed = get_results(results)
    except (SystemExit, RuntimeError) as error:
        # So it speaks of failed tests, and of a simulator that crashed.
        raise AssertionError(f"{testbench} failed, see {results}: {error}") from None
    if failed or not tests:
        raise AssertionError(f"{testbench}: {failed} of {tests} tests failed, see {results}")
    return results
