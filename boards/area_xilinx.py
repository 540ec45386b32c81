"""What the engine costs on a Xilinx UltraScale+: ``python -m verbena.boards.area_xilinx``.

Runs yosys ``synth_xilinx -family xcup`` once for each data width, and counts cells. Nothing is placed or routed, so it
says nothing about the clock. Ports end as they are, without buffers.
"""

import argparse
import json
import re
import sys
import tempfile
import time
from pathlib import Path

from verbena.hdl.config import Config
from verbena.hdl.generate import to_rtlil
from verbena.hdl.rnic import Rnic
from verbena.sw.tools.command import command_line, first_line

from .tools import BuildError, run_yosys

__all__ = ["count", "main", "measure"]

LUTS = {
    1: "INV LUT1 LUT2 LUT3 LUT4 LUT5 LUT6 LUT6_2 SRL16E SRLC32E RAM64X1S",
    2: "RAM128X1S RAM32X1D RAM64X1D",
    4: "RAM256X1S RAM128X1D RAM32M RAM64M",
    8: "RAM512X1S RAM256X1D RAM32M16 RAM64M8 RAM32X16DR8 RAM64X8SW",
}
LUTS_OF = {kind: number for number, kinds in LUTS.items() for kind in kinds.split()}
"""LUTs with 6 inputs that a cell takes."""

OTHERS = {
    "ff": r"FD[RSCP]E(_1)?",
    "carry8": r"CARRY8",
    "carry4": r"CARRY4",  # what yosys writes for this family, too: two make a CARRY8
    "bram36": r"RAMB36E2",
    "bram18": r"RAMB18E2",
    "uram": r"URAM288",
    "dsp": r"DSP48E2",
    "mux": r"MUXF[789]",
}


def count(cells):
    """What yosys' counts of cells by type take of a device; of LUTs, ``lutram`` are memories or shift registers.
    ``ValueError`` if there is a cell whose size is not known.
    """
    result = dict.fromkeys(("lut", "lutram", *OTHERS), 0)
    for kind, number in cells.items():
        name = next((name for name, pattern in OTHERS.items() if re.fullmatch(pattern, kind)), None)
        if name is not None:
            result[name] += number
        elif kind in LUTS_OF:
            result["lut"] += number * LUTS_OF[kind]
            result["lutram"] += number * LUTS_OF[kind] * kind.startswith(("RAM", "SRL"))
        else:
            raise ValueError(f"{number} cells {kind}, of which nobody knows how much they take")
    return result


def measure(component):
    """:func:`count` of a component. ``BuildError`` if yosys fails."""
    script = "read_rtlil top.il; synth_xilinx -family xcup -flatten -noiopad -noclkbuf -top top"
    script += "; delete t:$scopeinfo; tee -q -o stat.json stat -json"
    with tempfile.TemporaryDirectory(prefix="verbena-") as folder:
        folder = Path(folder)
        (folder / "top.il").write_text(to_rtlil(component, "top"))
        run_yosys(script, folder)
        return count(json.loads((folder / "stat.json").read_text())["modules"]["\\top"]["num_cells_by_type"])


@command_line
def main(argv=None):
    parser = argparse.ArgumentParser(prog="python -m verbena.boards.area_xilinx", description=first_line(__doc__))
    parser.add_argument("--data-width", type=int, nargs="+", default=[64, 512])
    parser.add_argument("--output", type=Path, default=Path("build/area_xcup.json"))
    args = parser.parse_args(argv)
    args.output.parent.mkdir(parents=True, exist_ok=True)
    results = []
    for width in args.data_width:
        start = time.monotonic()
        config = Config(data_width=width)
        try:
            counts = measure(Rnic(config))
        except (BuildError, ValueError) as error:
            print(error, file=sys.stderr)
            return 1
        sizes = {"data_width": width, "qps": config.qps, "cqs": config.cqs, "family": "xcup"}
        results.append(sizes | counts | {"seconds": round(time.monotonic() - start)})
        # Each takes a while: what is there stays, whatever happens to the next one.
        args.output.write_text(json.dumps(results, indent=1) + "\n")
        print(f"{width} bits:", ", ".join(f"{name} {number}" for name, number in counts.items()), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
