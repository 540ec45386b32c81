"""What the engine costs on an ECP5: ``python -m verbena.boards.area``.

Runs yosys ``synth_ecp5`` twice, in one piece for the totals and block by block for the breakdown, and nextpnr with each
seed for the clock; the deepest logic (:mod:`.depth`) is told before nextpnr's hour. The engine's ports hang on shift
registers (:mod:`.harness`), which the totals include.
"""

import argparse
import json
import os
import sys
import threading
from dataclasses import asdict
from pathlib import Path
from statistics import median_low

from verbena.hdl.config import Config
from verbena.hdl.generate import to_rtlil
from verbena.hdl.rnic import Rnic
from verbena.sw.tools.command import command_line, first_line

from .cells import count, count_blocks, show
from .clocking import clock_network
from .depth import deepest
from .depth import show as show_depth
from .harness import Harness
from .nextpnr import folder_of, place_and_route
from .progress import Stages
from .synthesis import SEED, finish, free_states, synth_ecp5
from .tools import BuildError, run_yosys, side_by_side
from .variants import ROWS

__all__ = ["COMPOSED", "DEEPEST", "main", "measure", "synthesize", "write_design"]

DEVICE = ["--um5g-85k", "--speed", "8", "--package", "CABGA756"]
AIM_MHZ = 125
"""What the engine is to reach on this device."""

DEEPEST = 7
"""Levels of LUTs from register to register, at most."""

SIZES = ("data_width", "qps", "cqs")

COMPOSED = ("top.core", "top.core.send", "top.core.wire")
"""What is no more than blocks of its own."""


def write_design(config, folder, spread=None):
    """Leaves ``Rnic(config, spread)`` in its harness in ``top.il``."""
    (folder / "top.il").write_text(free_states(to_rtlil(Harness(Rnic(config, spread), spread), "top")))


def synthesize(folder):
    """Cells of the whole; leaves its netlist in ``top.json``."""
    script = f"read_rtlil top.il; {synth_ecp5(folder, '-top top -json top.json')}; tee -q -o flat.json stat -json"
    run_yosys(script, folder)
    cells = json.loads((folder / "flat.json").read_text())["modules"]["\\top"]["num_cells_by_type"]
    cells["TRELLIS_FF"] -= finish(folder / "top.json", "top")
    return count(cells)


def measure(config, folder, seeds=(SEED,), blocks=True, jobs=None, done=lambda result: None):
    """Synthesizes ``Rnic(config)`` in ``folder``, places and routes it with each seed, ``jobs`` side by side; returns
    the dictionary that area.json holds. ``done`` is called with what is known of it after each seed. A seed that fails
    stops no other: its run has an ``error`` in the place of a clock.
    """
    folder.mkdir(parents=True, exist_ok=True)
    say = Stages("area")
    say("synthesizing")
    write_design(config, folder, clock_network)  # as wires the reset would keep the router busy for hours
    lock = threading.Lock()
    with side_by_side(jobs or os.cpu_count()) as pool:
        breakdown = pool.submit(count_blocks, folder, COMPOSED) if blocks else None
        result = synthesize(folder)
        synthesis_seconds = round(say.seconds)
        depth = deepest(json.loads((folder / "top.json").read_text())["modules"]["top"])
        show_depth(depth)
        result.update(
            device="LFE5UM5G-85F-8",
            config=asdict(config),
            depth=depth,
            synthesis_seconds=synthesis_seconds,
            runs=[],
            median_mhz=None,
            blocks={},
        )

        def placed(seed):
            run = _place(folder, seed)
            with lock:
                result["runs"] = sorted([*result["runs"], run], key=lambda each: seeds.index(each["seed"]))
                if clocks := [each["fmax_mhz"] for each in result["runs"] if "fmax_mhz" in each]:
                    result["median_mhz"] = median_low(clocks)
                done(result)

        for run in [pool.submit(placed, seed) for seed in seeds]:
            run.result()
        if blocks:
            result["blocks"] = {name.removeprefix("top.core."): each for name, each in breakdown.result().items()}
            done(result)
    return result


def _place(folder, seed):
    """A run with this seed: clock, and what it takes of the device, or why there is none; and seconds."""
    say = Stages(f"area, seed {seed}")
    options = [*DEVICE, "--freq", str(AIM_MHZ), "--lpf-allow-unconstrained"]
    run = {"seed": seed}
    try:
        report = place_and_route(folder_of(seed, folder, "top.json"), options, seed, say)
        clocks = list(report["fmax"].values())
        if len(clocks) != 1:
            raise BuildError(f"expected one clock in nextpnr's report, not {sorted(report['fmax'])}")
        run["fmax_mhz"] = round(clocks[0]["achieved"], 2)
        run["utilization"] = {name: each for name, each in report["utilization"].items() if each["used"]}
    except BuildError as error:
        run["error"] = str(error)
    return run | {"seconds": round(say.seconds)}


def _show(result):
    show(result["blocks"] | {"in one piece, with harness": result})
    clocks = [run for run in result["runs"] if "error" not in run]
    for run in clocks:
        print(f"clock {run['fmax_mhz']} MHz on {result['device']}, seed {run['seed']}, {run['seconds']} s")
    if len(clocks) > 1:
        print(f"median {result['median_mhz']} MHz")


@command_line
def main(argv=None):
    parser = argparse.ArgumentParser(prog="python -m verbena.boards.area", description=first_line(__doc__))
    parser.add_argument("--engine", default="standard", choices=ROWS, metavar="NAME", help="; ".join(ROWS))
    for size in SIZES:
        parser.add_argument(f"--{size.replace('_', '-')}", type=int, help="instead of the engine's")
    parser.add_argument("--seeds", type=int, nargs="+", metavar="SEED", default=[SEED], help="of nextpnr (%(default)s)")
    parser.add_argument("--jobs", type=int, metavar="N", help="runs side by side (the number of processors)")
    parser.add_argument("--no-blocks", action="store_true", help="totals and clock only")
    parser.add_argument("--output", type=Path, default=Path("build/area.json"))
    args = parser.parse_args(argv)
    seeds = list(dict.fromkeys(args.seeds))
    given = {size: getattr(args, size) for size in SIZES if getattr(args, size) is not None}
    engine = ", ".join([args.engine, *(f"{size}={value}" for size, value in given.items())])
    config = Config(**ROWS[args.engine] | given)

    def done(result):
        args.output.write_text(json.dumps({"engine": engine} | result, indent=1) + "\n")

    try:
        result = measure(config, args.output.parent / "area", seeds, not args.no_blocks, args.jobs, done)
    except BuildError as error:
        print(error, file=sys.stderr)
        return 1
    _show(result)
    failures = [run for run in result["runs"] if "error" in run]
    for run in failures:
        print(f"seed {run['seed']}: {run['error']}", file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
