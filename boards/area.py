"""What the engine costs on an ECP5: ``python -m verbena.boards.area``.

Runs yosys ``synth_ecp5`` twice, in one piece for the totals and block by block for the breakdown, and nextpnr for the
clock; the deepest logic (:mod:`.depth`) is told before nextpnr's hour. The engine's ports hang on shift registers
(:mod:`.harness`), which the totals include.
"""

import argparse
import json
import sys
from pathlib import Path

from verbena.hdl.config import Config
from verbena.hdl.generate import to_rtlil
from verbena.hdl.rnic import Rnic
from verbena.sw.tools.command import command_line

from .cells import count, count_blocks, show
from .clocking import clock_network
from .depth import deepest
from .depth import show as show_depth
from .harness import Harness
from .nextpnr import place_and_route
from .progress import Stages
from .synthesis import SEED, finish, free_states, synth_ecp5
from .tools import BuildError, run_tool, side_by_side

__all__ = ["COMPOSED", "DEEPEST", "main", "measure", "synthesize", "write_design"]

DEVICE = ["--um5g-85k", "--speed", "8", "--package", "CABGA756"]
AIM_MHZ = 125
"""What the engine is to reach on this device."""

DEEPEST = 7
"""Levels of LUTs from register to register, at most."""

COMPOSED = ("top.core", "top.core.send", "top.core.wire")
"""What is no more than blocks of its own."""


def write_design(config, folder, spread=None):
    """Leaves ``Rnic(config, spread)`` in its harness in ``top.il``."""
    (folder / "top.il").write_text(free_states(to_rtlil(Harness(Rnic(config, spread)), "top")))


def synthesize(folder):
    """Cells of the whole; leaves its netlist in ``top.json``."""
    script = f"read_rtlil top.il; {synth_ecp5(folder, '-top top -json top.json')}; tee -q -o flat.json stat -json"
    run_tool("yosys", ["-p", script], folder, "yosys.log")
    cells = json.loads((folder / "flat.json").read_text())["modules"]["\\top"]["num_cells_by_type"]
    cells["TRELLIS_FF"] -= finish(folder / "top.json", "top")
    return count(cells)


def measure(config, folder, seed=SEED, blocks=True):
    """Synthesizes, places and routes ``Rnic(config)`` in ``folder``; returns the dictionary that area.json holds."""
    folder.mkdir(parents=True, exist_ok=True)
    say = Stages("area")
    say("synthesizing")
    write_design(config, folder, clock_network)  # as wires the reset would keep the router busy for hours
    with side_by_side(2) as pool:
        breakdown = pool.submit(count_blocks, folder, COMPOSED) if blocks else None
        result = synthesize(folder)
        depth = deepest(json.loads((folder / "top.json").read_text())["modules"]["top"])
        show_depth(depth)
        options = [*DEVICE, "--freq", str(AIM_MHZ), "--lpf-allow-unconstrained"]
        report = place_and_route(folder, options, seed, say)
        table = {name.removeprefix("top.core."): each for name, each in breakdown.result().items()} if blocks else {}
    clocks = report["fmax"]
    if len(clocks) != 1:
        raise SystemExit(f"expected one clock in nextpnr's report, not {sorted(clocks)}")
    result.update(
        fmax_mhz=round(next(iter(clocks.values()))["achieved"], 2),
        device="LFE5UM5G-85F-8",
        seed=seed,
        seconds=round(say.seconds),
        data_width=config.data_width,
        qps=config.qps,
        cqs=config.cqs,
        depth=depth,
        utilization={k: v for k, v in report["utilization"].items() if v["used"]},
        blocks=table,
    )
    return result


def _show(result):
    show(result["blocks"] | {"in one piece, with harness": result})
    print(f"clock {result['fmax_mhz']} MHz on {result['device']}, seed {result['seed']}, {result['seconds']} s")


@command_line
def main(argv=None):
    parser = argparse.ArgumentParser(prog="python -m verbena.boards.area", description=__doc__.splitlines()[0])
    parser.add_argument("--data-width", type=int, default=64)
    parser.add_argument("--qps", type=int, default=Config().qps)
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
