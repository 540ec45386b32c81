"""All bitstreams: ``python -m verbena.boards.survey`` builds each board and writes ``build/boards.json``.

A board is synthesized once, and placed with each seed; as many run side by side as there are processors.
``build/BOARD/top.bit`` is that of the first seed that meets all clocks. A board that does not fit, or misses a clock,
stops nothing: one line says what, and the status is 1. What the file says of boards that are not built this time stays,
each with the day of its own.
"""

import argparse
import json
import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from datetime import date
from pathlib import Path

from .build import ADDRESSES, check, count_blocks, find_boards, place, publish, synthesize
from .progress import Stages
from .tools import BuildError, stop_tools

__all__ = ["SEEDS", "main", "survey"]

SEEDS = (1, 2, 3)


def survey(boards, folder, seeds, *, blocks=True, jobs=None, done=lambda name, result: None):
    """Builds ``boards`` in ``folder``, one folder a board; returns what boards.json says of each, by name.

    Parameters
    ----------
    boards : list of Board
    folder : Path
    seeds : sequence of int
    blocks : bool
        Count the cells of each block, too.
    jobs : int, optional
        Runs side by side; by default as many as there are processors.
    done : callable
        Called with a board's name and what is known of it, after its synthesis and after each seed.
    """
    results, lock = {}, threading.Lock()

    def synthesized(board):
        say = Stages(board.name, alone=False)
        say("synthesizing")
        result = {"built": date.today().isoformat(), "core_mhz": board.core / 1e6}
        result |= {"memory_size": board.memory_size, "config": asdict(board.config), "runs": []}
        try:
            synthesize(board, folder / board.name, **ADDRESSES)
            result["blocks"] = count_blocks(board, folder / board.name) if blocks else {}
            result["fits"] = True
        except BuildError as error:
            result |= {"fits": False, "error": str(error)}
        result["synthesis_seconds"] = round(say.seconds)
        with lock:
            results[board.name] = result
            done(board.name, result)
        return result["fits"]

    def placed(board, seed, before):
        if not before.result():
            return
        result = results[board.name]
        say = Stages(f"{board.name}, seed {seed}", alone=False)
        run = {"seed": seed, "meets": False}
        report = None
        try:
            report = place(board, folder / board.name, seed, say)
            run |= {name: report[name] for name in ("device", "speed", "clocks", "utilization")}
            check(report)
            run["meets"] = True
        except BuildError as error:
            run["error"] = str(error)
        run["seconds"] = round(say.seconds)
        with lock:
            result["runs"] = sorted([*result["runs"], run], key=lambda each: seeds.index(each["seed"]))
            result["fits"] = any("clocks" in each for each in result["runs"])
            # The first that meets, else the first that there is.
            best = min(result["runs"], key=lambda each: (not each["meets"], seeds.index(each["seed"])))
            if report is not None and best is run:
                publish(folder / board.name, report | {"blocks": result["blocks"], "seconds": run["seconds"]})
            done(board.name, result)

    pool = ThreadPoolExecutor(jobs or os.cpu_count())
    try:
        before = {board.name: pool.submit(synthesized, board) for board in boards}
        runs = [pool.submit(placed, board, seed, before[board.name]) for board in boards for seed in seeds]
        for run in runs:
            run.result()
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        stop_tools()
        raise
    pool.shutdown()
    return results


def _earlier(path):
    """What ``path`` says of boards, but for those that are no more."""
    try:
        found = json.loads(path.read_text())
    except (FileNotFoundError, ValueError):
        return {}
    return {name: result for name, result in found.items() if name in find_boards()}


def _failures(name, result):
    """A line for each thing that is not as it should be."""
    if "error" in result:
        yield f"{name}: {result['error']}"
    for run in result["runs"]:
        if "error" in run:
            yield f"{name}, seed {run['seed']}: {run['error']}"


def main(argv=None):
    """Command line; returns the status."""
    boards = find_boards()
    parser = argparse.ArgumentParser(prog="python -m verbena.boards.survey", description=__doc__.splitlines()[0])
    parser.add_argument("boards", nargs="*", metavar="board", help=f"of {', '.join(sorted(boards))}; all by default")
    parser.add_argument("--seeds", type=int, nargs="+", metavar="SEED", default=SEEDS, help="of nextpnr (%(default)s)")
    parser.add_argument("--jobs", type=int, metavar="N", help="runs side by side (the number of processors)")
    parser.add_argument("--no-blocks", action="store_true", help="spare the second synthesis, block by block")
    parser.add_argument("--output", type=Path, default=Path("build"), help="folder above the boards' (%(default)s)")
    args = parser.parse_args(argv)
    if unknown := sorted(set(args.boards) - set(boards)):
        print(f"there is no board {unknown[0]!r}; there are {', '.join(sorted(boards))}", file=sys.stderr)
        return 1
    args.output.mkdir(parents=True, exist_ok=True)
    names, summary = list(dict.fromkeys(args.boards)) or sorted(boards), args.output / "boards.json"
    results = _earlier(summary)

    def done(name, result):
        results[name] = result
        summary.write_text(json.dumps(dict(sorted(results.items())), indent=1) + "\n")

    seeds = list(dict.fromkeys(args.seeds))
    try:
        survey([boards[n] for n in names], args.output, seeds, blocks=not args.no_blocks, jobs=args.jobs, done=done)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    failures = [line for name in names for line in _failures(name, results[name])]
    for line in failures:
        print(line, file=sys.stderr)
    for name in names:
        for run in results[name]["runs"]:
            clocks = ", ".join(f"{clock} {each['mhz']} MHz" for clock, each in run.get("clocks", {}).items())
            print(f"{name}, seed {run['seed']}, {run['seconds']} s: {clocks or run['error']}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
