"""Bitstreams: ``python -m verbena.boards.build ecpix5-85f`` writes ``build/ecpix5-85f/top.bit``, ``report.json`` and
``floorplan.png``.

A board is synthesized once, and placed and routed with each seed; as many run side by side as there are processors.
The report tells what each block takes, what the whole takes of the device, and how fast each clock can be; the picture
where each block stands. They and the bitstream are those of the first seed that meets all clocks. A board that does
not fit, or misses a clock, stops no other: one line says what, and the status is 1. ``build/boards.json`` has all
runs; what it says of boards that are not built this time stays.
"""

import argparse
import ipaddress
import json
import os
import re
import runpy
import sys
import threading
from dataclasses import asdict
from datetime import date
from pathlib import Path

from verbena.sw.tools.command import command_line, first_line

from .bitstream import COMPOSED, check, place, publish, synthesize
from .board import Board
from .catalog import BOARDS
from .cells import count_blocks, show
from .nextpnr import LOG
from .progress import Stages
from .synthesis import SEED
from .tools import BuildError, side_by_side

__all__ = ["ADDRESSES", "ALL", "BuildError", "build", "find_boards", "main", "read_boards"]

DEFAULT_MAC, DEFAULT_IP, DEFAULT_ALLOWED = "02:56:42:00:00:e1", "192.168.1.50", "192.168.1.1"

ALL = "all"
"""What stands for the name of each board."""


def find_boards():
    """All boards by name."""
    return {board.name: board for board in BOARDS}


def read_boards(path):
    """Boards by name of a Python file of somebody's own: those in its list ``BOARDS``. ``BuildError`` if that cannot be
    had.
    """
    try:
        found = runpy.run_path(str(path))
    except OSError as error:
        raise BuildError(f"{path} cannot be read: {error.strerror}") from None
    except Exception as error:
        raise BuildError(f"{path} fails: {type(error).__name__}: {error}") from None
    if "BOARDS" not in found:
        raise BuildError(f"{path} has no 'BOARDS'")
    boards = found["BOARDS"]
    if not (isinstance(boards, list) and boards and all(isinstance(board, Board) for board in boards)):
        raise BuildError(f"BOARDS in {path} must be a list of Board, not {boards!r}")
    return {board.name: board for board in boards}


def _mac(text):
    if not re.fullmatch(r"([0-9a-fA-F]{2}:){5}[0-9a-fA-F]{2}", text):
        raise argparse.ArgumentTypeError(f"{text!r} is no MAC address")
    return int(text.replace(":", ""), 16)


def _ip(text):
    try:
        return int(ipaddress.IPv4Address(text))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no IPv4 address") from None


ADDRESSES = {"mac": _mac(DEFAULT_MAC), "ip": _ip(DEFAULT_IP), "allowed": [_ip(DEFAULT_ALLOWED)]}
"""What a node is built with if nobody says otherwise."""


def build(boards, folder, seeds, *, addresses=None, blocks=True, jobs=None, done=lambda name, result: None):
    """Builds ``boards`` in ``folder``, one folder a board; returns what boards.json says of each, by name.

    Parameters
    ----------
    boards : list of Board
    folder : Path
    seeds : sequence of int
        Of nextpnr.
    addresses : dict, optional
        Those of :data:`ADDRESSES`.
    blocks : bool
        Count the cells of each block, too.
    jobs : int, optional
        Runs side by side; by default as many as there are processors.
    done : callable
        Called with a board's name and what is known of it, after its synthesis and after each seed.
    """
    results, lock = {}, threading.Lock()

    def synthesized(board):
        say = Stages(board.name)
        say("synthesizing")
        result = {"built": date.today().isoformat(), "core_mhz": board.core / 1e6}
        result |= {"memory_size": board.memory_size, "config": asdict(board.config), "blocks": {}, "runs": []}
        try:
            synthesize(board, folder / board.name, **(addresses or ADDRESSES))
            if blocks:
                say("counting the cells of each block")
                result["blocks"] = count_blocks(folder / board.name, COMPOSED)
        except BuildError as error:
            result["error"] = str(error)
        result["synthesis_seconds"] = round(say.seconds)
        with lock:
            results[board.name] = result
            done(board.name, result)
        return "error" not in result

    def placed(board, seed, before):
        if not before.result():
            return
        result = results[board.name]
        say = Stages(f"{board.name}, seed {seed}")
        run, report = {"seed": seed, "meets": False}, None
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
            # The first that meets, else the first that there is.
            best = min(result["runs"], key=lambda each: (not each["meets"], seeds.index(each["seed"])))
            if report is not None and best is run:
                publish(folder / board.name, report | {"blocks": result["blocks"], "seconds": run["seconds"]})
            done(board.name, result)

    with side_by_side(jobs or os.cpu_count()) as pool:
        before = {board.name: pool.submit(synthesized, board) for board in boards}
        runs = [pool.submit(placed, board, seed, before[board.name]) for board in boards for seed in seeds]
        for run in runs:
            run.result()
    return results


def _earlier(path):
    """What ``path`` says of boards."""
    try:
        return json.loads(path.read_text())
    except (FileNotFoundError, ValueError):
        return {}


def _failures(name, result):
    """A line for each thing that is not as it should be."""
    if "error" in result:
        yield f"{name}: {result['error']}"
    for run in result["runs"]:
        if "error" in run:
            yield f"{name}, seed {run['seed']}: {run['error']}"


def _show(name, result):
    if result["blocks"]:
        show(result["blocks"])
    for run in result["runs"]:
        told = [f"{clock} {each['mhz']} of {each['wanted_mhz']} MHz" for clock, each in run.get("clocks", {}).items()]
        told += [f"{kind} {each['used']} of {each['available']}" for kind, each in run.get("utilization", {}).items()]
        print(f"{name}, seed {run['seed']}, {run['seconds']} s: {', '.join(told) or run['error']}")


@command_line
def main(argv=None):
    """Command line; returns the status."""
    parser = argparse.ArgumentParser(prog="python -m verbena.boards.build", description=first_line(__doc__))
    parser.add_argument(
        "boards", nargs="*", metavar="board", help=f"their names, or {ALL}; without any they are listed"
    )
    parser.add_argument("--board-file", type=Path, metavar="PATH", help="a Python file with more of them: BOARDS")
    parser.add_argument("--mac", type=_mac, default=DEFAULT_MAC, help="own MAC address (%(default)s)")
    parser.add_argument("--ip", type=_ip, default=DEFAULT_IP, help="own IPv4 address (%(default)s)")
    parser.add_argument("--allow", type=_ip, action="append", metavar="IP", help=f"may drive it ({DEFAULT_ALLOWED})")
    parser.add_argument("--seeds", type=int, nargs="+", metavar="SEED", default=[SEED], help="of nextpnr (%(default)s)")
    parser.add_argument("--jobs", type=int, metavar="N", help="runs side by side (the number of processors)")
    parser.add_argument("--no-blocks", action="store_true", help="spare the second synthesis, block by block")
    parser.add_argument("--output", type=Path, default=Path("build"), help="folder above the boards' (%(default)s)")
    args = parser.parse_args(argv)
    try:
        return _build(args)
    except BuildError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130


def _build(args):
    boards = find_boards() | (read_boards(args.board_file) if args.board_file else {})
    if not args.boards:
        print("\n".join(sorted(boards)))
        return 0
    names = sorted(boards) if ALL in args.boards else list(dict.fromkeys(args.boards))
    if unknown := [name for name in names if name not in boards]:
        raise BuildError(f"there is no board {unknown[0]!r}; there are {', '.join(sorted(boards))}")
    addresses = {"mac": args.mac, "ip": args.ip, "allowed": args.allow or ADDRESSES["allowed"]}
    if len(addresses["allowed"]) > 2:
        raise BuildError("at most 2 addresses can be allowed")
    seeds = list(dict.fromkeys(args.seeds))
    for name in names:
        folder, logs = args.output / name, ", ".join(f"seed-{seed}/{LOG}" for seed in seeds)
        print(f"{name}: usually takes {boards[name].minutes} minutes; logs in {folder}: yosys.log, {logs}", flush=True)
    args.output.mkdir(parents=True, exist_ok=True)
    summary = args.output / "boards.json"
    results = _earlier(summary)

    def done(name, result):
        results[name] = result
        summary.write_text(json.dumps(dict(sorted(results.items())), indent=1) + "\n")

    options = {"addresses": addresses, "blocks": not args.no_blocks, "jobs": args.jobs, "done": done}
    built = build([boards[name] for name in names], args.output, seeds, **options)
    for name in names:
        _show(name, built[name])
    failures = [line for name in names for line in _failures(name, built[name])]
    for line in failures:
        print(line, file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
