"""All bitstreams: ``python -m verbena.boards.survey`` builds each board and writes ``build/boards.json``.

A board is synthesized once, and placed with each of its seeds; ``build/BOARD/top.bit`` is that of the first seed that
meets all clocks. A board that does not fit, or misses a clock, stops nothing: one line says what, and the status is 1.
What the file says of boards that are not built this time stays, each with the day of its own.
"""

import argparse
import json
import sys
import time
from dataclasses import asdict
from datetime import date
from pathlib import Path

from .build import ADDRESSES, check, count_blocks, find_boards, pack, place, synthesize
from .tools import BuildError, StalledError

__all__ = ["main", "survey"]


def survey(board, folder, seeds, *, blocks=True):
    """What boards.json says of a board, after each step of its: synthesis, and each seed."""
    result = {"built": date.today().isoformat(), "core_mhz": board.core / 1e6}
    result |= {"memory_size": board.memory_size, "config": asdict(board.config)}
    start = time.monotonic()
    try:
        synthesize(board, folder, **ADDRESSES)
        result["blocks"] = count_blocks(folder) if blocks else {}
    except BuildError as error:
        yield result | {"fits": False, "error": str(error), "runs": []}
        return
    result |= {"synthesis_seconds": round(time.monotonic() - start), "fits": True, "runs": []}
    yield result
    packed = False  # with all clocks met
    for seed in seeds:
        start = time.monotonic()
        run = {"seed": seed, "meets": False}
        try:
            report = place(board, folder, seed)
            run |= {name: report[name] for name in ("device", "speed", "clocks", "utilization")}
            if not packed:
                pack(folder, report)
            check(report)
            run["meets"] = packed = True
        except StalledError as error:
            run["error"] = str(error)
        except BuildError as error:
            run["error"] = str(error)
            result["fits"] = "clocks" in run
        run["seconds"] = round(time.monotonic() - start)
        result["runs"].append(run)
        yield result
        if not result["fits"]:
            return  # with no seed


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
    parser.add_argument("--seeds", type=int, nargs="+", metavar="SEED", help="of nextpnr, for all boards")
    parser.add_argument("--no-blocks", action="store_true", help="spare the second synthesis, block by block")
    parser.add_argument("--output", type=Path, default=Path("build"), help="folder above the boards' (%(default)s)")
    args = parser.parse_args(argv)
    if unknown := sorted(set(args.boards) - set(boards)):
        print(f"there is no board {unknown[0]!r}; there are {', '.join(sorted(boards))}", file=sys.stderr)
        return 1
    args.output.mkdir(parents=True, exist_ok=True)
    names, summary = args.boards or sorted(boards), args.output / "boards.json"
    results, failed = _earlier(summary), 0
    for name in names:
        board = boards[name]
        for result in survey(board, args.output / name, args.seeds or board.seeds, blocks=not args.no_blocks):
            results[name] = result
            summary.write_text(json.dumps(dict(sorted(results.items())), indent=1) + "\n")
        for line in _failures(name, results[name]):
            print(line, file=sys.stderr)
            failed = 1
    for name in names:
        for run in results[name]["runs"]:
            clocks = ", ".join(f"{clock} {each['mhz']} MHz" for clock, each in run.get("clocks", {}).items())
            print(f"{name}, seed {run['seed']}, {run['seconds']} s: {clocks or run['error']}")
    return failed


if __name__ == "__main__":
    sys.exit(main())
