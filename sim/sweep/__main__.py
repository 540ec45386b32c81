"""``verbena sweep``: a program over a grid of parameters and seeds; a CSV file and a plot.

::

    verbena sweep --grid size=64..4096*4 --seeds 1..5 latency.py
    verbena sweep --config sweep.toml --scheduler tcp://head:8786

``latency.py`` gets ``--size 64`` and ``VERBENA_SEED=1``, and prints its results as a JSON object on a line.
"""

import argparse
import csv
import os
import sys
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from verbena.sw.tools.command import Parser, command_line, first_line, plain

from ..extra import require
from ..ticks import default_tick, tick_text
from .grid import GridError, Sweep, read_toml, values_of
from .plot import draw
from .point import run_point

__all__ = ["main"]

CLOCK_HZ = 156.25e6
"""The worlds' default, of which the ticks are told."""


def _arguments(argv):
    parser = Parser(prog="verbena sweep", description=first_line(__doc__))
    add = parser.add_argument
    add("-g", "--grid", action="append", default=[], metavar="NAME=VALUES", help="size=64,128 or n=1..8 or m=1..64*2")
    add("-s", "--seeds", help="values of VERBENA_SEED, such as 1..10")
    add("-c", "--config", type=Path, help="a TOML file: program, arguments, seeds, result, x, y, [grid]")
    add("-r", "--result", help="JSON file that the program leaves, such as '{folder}/out.json'")
    add("-o", "--output", type=Path, default=Path("build/sweep"), help="folder (%(default)s)")
    add("-j", "--jobs", type=int, default=os.cpu_count(), help="processes at once here (%(default)s)")
    add("--scheduler", help="of a Dask cluster, tcp://HOST:PORT")
    add("--true-tick", action="store_true", help="timers take true time (VERBENA_TICK=640)")
    add("-x", help="column of the plot's abscissa")
    add("-y", help="column of its ordinate")
    add("program", nargs="?", help="a Python script, a module with a dot, or a program of verbena or of the PATH")
    add("arguments", nargs=argparse.REMAINDER, help="its own, in which {name}, {seed} and {folder} are filled in")
    return parser.parse_args(argv)


def _sweep(args):
    sweep = read_toml(args.config) if args.config else Sweep()
    for text in args.grid:
        name, equals, values = text.partition("=")
        if not equals or not name:
            raise GridError(f"--grid is NAME=VALUES, not {text!r}")
        sweep.grid[name] = values_of(values)
    if args.seeds:
        sweep.seeds = values_of(args.seeds)
    if args.program:
        sweep.program, sweep.arguments = args.program, args.arguments
    for name in ("result", "x", "y"):
        if getattr(args, name):
            setattr(sweep, name, getattr(args, name))
    if not sweep.program:
        raise GridError("there is no program")
    if not sweep.grid and not sweep.seeds:
        raise GridError("there is nothing to vary: give --grid or --seeds")
    if args.jobs < 1:
        raise GridError(f"--jobs must be at least 1, not {args.jobs}")
    return sweep


def _here(sweep, points, args, settings):
    """Runs the points on this machine; gives number and outcome of each as it ends."""
    stop = threading.Event()
    with ThreadPoolExecutor(args.jobs) as pool:
        futures = {
            pool.submit(
                run_point,
                *(sweep.program, sweep.arguments, point),
                folder=args.output / f"point-{number:04}",
                result=sweep.result,
                settings=settings,
                stop=stop,
            ): number
            for number, point in enumerate(points)
        }
        try:
            for future in as_completed(futures):
                yield futures[future], future.result()
        finally:
            stop.set()
            pool.shutdown(cancel_futures=True)


def _there(sweep, points, args, settings):
    """The same on a Dask cluster, whose workers have this package and the program at the same place."""
    require("distributed", extra="sweep")
    from distributed import Client, Event
    from distributed import as_completed as completed

    try:
        client = Client(args.scheduler, timeout=10)
    except (OSError, ValueError) as error:
        raise GridError(f"the scheduler {args.scheduler} does not answer: {error}") from None
    with client:
        stop = Event(f"verbena-{uuid.uuid4()}", client=client)
        # The same point twice is two runs.
        futures = {
            client.submit(
                run_point,
                *(sweep.program, sweep.arguments, point),
                result=sweep.result,
                settings=settings,
                stop=stop,
                pure=False,
            ): number
            for number, point in enumerate(points)
        }
        try:
            for future in completed(futures):
                error = future.exception()
                lost = {"status": None, "seconds": 0.0, "rows": [], "tail": str(error)}
                yield futures[future], lost if error else future.result()
        finally:
            client.cancel([future for future in futures if not future.done()])
            stop.set()


def _write(path, rows, parameters):
    first = ["point", *parameters, "tick", "status", "seconds"]
    columns = dict.fromkeys(first + [name for row in rows for name in row])
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, columns)
        writer.writeheader()
        writer.writerows(rows)


def _run(sweep, args, settings, tick):
    """All points; what they gave, by number, also if somebody interrupts, and whether that was so."""
    points, outcomes, interrupted = sweep.points(), {}, False
    runs = (_there if args.scheduler else _here)(sweep, points, args, settings)
    try:
        for number, outcome in runs:
            outcomes[number] = outcome
            what = " ".join(f"{name}={value}" for name, value in points[number].items())
            if outcome["status"] != 0:
                last = (outcome["tail"].splitlines() or ["it printed nothing"])[-1]
                print(f"verbena sweep: {what} failed, status {outcome['status']}: {last}", file=sys.stderr, flush=True)
            elif sys.stderr.isatty():
                print(f"{len(outcomes)} of {len(points)}: {what}, {outcome['seconds']:.1f} s", file=sys.stderr)
    except KeyboardInterrupt:
        interrupted = True
    finally:
        runs.close()
    rows = []
    for number, outcome in sorted(outcomes.items()):
        head = {"point": number, **points[number], "tick": points[number].get("VERBENA_TICK", tick)}
        head |= {"status": outcome["status"], "seconds": outcome["seconds"]}
        rows += [head | {k: v for k, v in row.items() if k not in head} for row in outcome["rows"] or [{}]]
    return outcomes, rows, interrupted


@command_line
def main(argv=None):
    """Command line; returns the status: 1 if a point failed, 130 if it was interrupted."""
    args = _arguments(argv)
    try:
        sweep = _sweep(args)
        args.output.mkdir(parents=True, exist_ok=True)
        true = round(CLOCK_HZ * 4.096e-6)
        settings = {"VERBENA_TICK": str(true)} if args.true_tick else {}
        settings["VERBENA_CORES"] = os.environ.get("VERBENA_CORES", "1")  # points take turns on them already
        tick = int(settings.get("VERBENA_TICK") or default_tick())
        outcomes, rows, interrupted = _run(sweep, args, settings, tick)
    except (GridError, OSError, ModuleNotFoundError) as error:
        print(f"verbena sweep: {plain(error)}", file=sys.stderr)
        return 1
    parameters = [*sweep.grid, *(["seed"] if sweep.seeds else [])]
    table, picture = args.output / "sweep.csv", args.output / "sweep.png"
    _write(table, rows, parameters)
    good = [row for row in rows if row["status"] == 0]
    drawn = draw(good, parameters, picture, sweep.x, sweep.y)
    failed = sum(outcome["status"] != 0 for outcome in outcomes.values())
    count = len(sweep.points())
    print(
        f"{len(outcomes)} of {count} points{f', {failed} failed' if failed else ''}; "
        f"{tick_text(tick, CLOCK_HZ)}: {table}" + (f", {picture} ({drawn[1]} over {drawn[0]})" if drawn else "")
    )
    return 130 if interrupted else 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
