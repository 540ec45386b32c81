"""Bitstreams: ``python -m verbena.boards.build ecpix5-85f`` writes ``build/ecpix5-85f/top.bit``, ``report.json`` and
``floorplan.png``.

yosys makes a netlist of the board, nextpnr places and routes it by its defaults, ecppack packs it. The report tells
what each block takes, what the whole takes of the device, and how fast each clock can be; the picture where each block
stands. A design that does not fit is an error, and so is a clock that is missed: one line says what, and the status
is 1.
"""

import argparse
import importlib
import ipaddress
import json
import os
import re
import runpy
import shutil
import sys
from pathlib import Path

from verbena.hdl.generate import mark_collisions

from .area import COMPOSED as ENGINE_COMPOSED
from .area import KINDS, LUTS_OF
from .board import Board, Top
from .clocking import NETS
from .floorplan import draw
from .nextpnr import LOG, PLACED, place_and_route, signal_of
from .progress import Stages
from .synthesis import SEED, block_ram_constants, finish, free_states, spare_block_ram, spare_lut_ram, synth_ecp5
from .tools import BuildError, run_tool

__all__ = [
    "ADDRESSES",
    "BuildError",
    "build",
    "check",
    "count_blocks",
    "find_boards",
    "main",
    "place",
    "publish",
    "read_boards",
    "synthesize",
]

FILES = ("ecpix5", "versa", "colorlight", "butterstick", "logicbone")
DEFAULT_MAC, DEFAULT_IP, DEFAULT_ALLOWED = "02:56:42:00:00:e1", "192.168.1.50", "192.168.1.1"

COMPOSED = (["top", "node"], ["top", "node", "rnic"], *(["top", "node", "rnic", name] for name in ENGINE_COMPOSED))
"""What is no more than blocks of its own."""

RESULTS = ("top.bit", "report.json", "floorplan.png")

UNCONSTRAINED = 12
"""MHz: nextpnr's aim for a clock without a constraint."""


def find_boards():
    """All boards by name."""
    modules = [importlib.import_module(f".{name}", __package__) for name in FILES]
    return {board.name: board for module in modules for board in module.BOARDS}


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


def _run(tool, variable, arguments, folder):
    """Runs a tool of YoWASP, or the one that ``variable`` names, in ``folder``."""
    run_tool([os.environ.get(variable) or f"yowasp-{tool}", *arguments], folder, f"{tool}.log")


def synthesize(board, folder, *, mac, ip, allowed):
    """Leaves netlist and constraints of ``board`` in ``folder``, and nothing of an older bitstream."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in RESULTS:
        (folder / name).unlink(missing_ok=True)  # nobody shall take an old one for the new
    # Amaranth's own run of the tools would ask for programs that are not needed here.
    os.environ.setdefault("AMARANTH_ENV_TRELLIS", "")
    plan = board.platform().prepare(Top(board, mac=mac, ip=ip, allowed=allowed), "top")
    files = {name: text for name, text in plan.files.items() if name.endswith((".il", ".lpf"))}
    for name, text in files.items():
        text = text.decode() if isinstance(text, bytes) else text
        if name.endswith(".il"):
            text = spare_block_ram(free_states(mark_collisions(text)), board.lut_rows, board.lut_width)
            text = block_ram_constants(text) if board.block_constants else text
            text = spare_lut_ram(text, board.register_rows)
        (folder / name).write_text(text)
    script = f"read_rtlil top.il; {synth_ecp5('-top top -json top.json', board.lut_sums)}"
    _run("yosys", "YOSYS", ["-p", script], folder)
    # Only the engine's domain: the network reaches all of the chip, but it is one.
    finish(folder / "top.json", "top", board.core, **NETS)


def place(board, folder, seed, say=lambda text: None):
    """Places, routes, packs and draws what :func:`synthesize` left in ``folder``; returns what the report says of it:
    clocks, utilization, and of what. The files are in ``folder / f"seed-{seed}"``.
    """
    platform = board.platform()
    package = platform._nextpnr_package_options[platform.package].upper()
    options = [platform._nextpnr_device_options[platform.device], "--package", package, "--speed", str(platform.speed)]
    options += ["--lpf", "top.lpf", "--textcfg", "top.config", *board.options]
    own = folder / f"seed-{seed}"
    shutil.rmtree(own, ignore_errors=True)
    own.mkdir()
    for name in ("top.json", "top.lpf"):
        (own / name).hardlink_to(folder / name)
    routed = place_and_route(own, options, seed, say)
    report = _report(routed) | {
        "board": board.name,
        "device": platform.device,
        "speed": platform.speed,
        "seed": seed,
        "options": list(board.options),
    }
    say("packing the bitstream")
    _run("ecppack", "ECPPACK", ["--input", "top.config", "--bit", "top.bit"], own)
    module = json.loads((own / PLACED).read_text())["modules"]["top"]
    title = "{board}: {device}, seed {seed}".format_map(report)
    draw(module, routed, {".".join(levels[1:]) for levels in COMPOSED}, title, own / "floorplan.png")
    (own / PLACED).unlink()  # large, and of no further use
    return report


def publish(folder, report):
    """Makes what was placed with a seed the result in ``folder``, and ``report`` its report.json."""
    own = folder / f"seed-{report['seed']}"
    for name in ("top.bit", "floorplan.png"):
        shutil.copyfile(own / name, folder / name)
    (folder / "report.json").write_text(json.dumps(report, indent=1) + "\n")


def check(report):
    """``BuildError`` if a clock is missed, or nobody has said how fast it is."""
    unknown = [name for name, each in report["clocks"].items() if each["wanted_mhz"] == UNCONSTRAINED]
    if unknown:
        raise BuildError(f"{report['board']} has no constraint for {', '.join(unknown)}")
    missed = [
        f"{name}: {each['mhz']} of {each['wanted_mhz']} MHz"
        for name, each in report["clocks"].items()
        if each["mhz"] < each["wanted_mhz"]
    ]
    if missed:
        raise BuildError(f"{report['board']} misses {', '.join(missed)}")


def build(board, folder, *, mac, ip, allowed, seed=SEED, blocks=True):
    """Builds the bitstream of ``board`` in ``folder``; returns the dictionary that report.json holds, in which without
    ``blocks`` those are left out.

    ``BuildError`` if it does not come about, or misses a clock.
    """
    say = Stages(board.name)
    print(f"{board.name}: usually takes {board.minutes} minutes; logs: {folder}/yosys.log, {folder}/seed-{seed}/{LOG}")
    sys.stdout.flush()
    try:
        say("synthesizing")
        synthesize(board, folder, mac=mac, ip=ip, allowed=allowed)
        report = place(board, folder, seed, say)
        if blocks:
            say("counting the cells of each block")
        report["blocks"] = count_blocks(board, folder) if blocks else {}
        report["seconds"] = round(say.seconds)
    finally:
        say.close()
    publish(folder, report)
    check(report)
    return report


def count_blocks(board, folder):
    """Cells of each block: those that the top and the node are made of, and those of the engine."""
    script = f"read_rtlil top.il; {synth_ecp5('-noflatten -top top', board.lut_sums)}; tee -q -o blocks.json stat -json"
    _run("yosys", "YOSYS", ["-p", script], folder)
    modules = json.loads((folder / "blocks.json").read_text())["modules"]
    modules = {name.removeprefix("\\"): each["num_cells_by_type"] for name, each in modules.items()}

    def total(name):
        cells = {}
        for kind, count in modules[name].items():
            part = kind.removeprefix("\\")
            for leaf, number in (total(part) if part in modules else {part: 1}).items():
                cells[leaf] = cells.get(leaf, 0) + number * count
        return cells

    table = {}
    for name in modules:
        levels = name.split(".")
        if len(levels) == 2 or levels[:-1] in COMPOSED:
            cells = total(name)
            table[name] = {kind: sum(cells.get(cell, 0) for cell in of) for kind, of in KINDS.items()}
            table[name]["lut4_sites"] = sum(cells.get(cell, 0) * sites for cell, sites in LUTS_OF.items())
    return table


def _report(nextpnr):
    clocks = {
        signal_of(name): {
            "mhz": round(each["achieved"], 2),
            "wanted_mhz": round(each["constraint"], 1),  # nextpnr counts in whole picoseconds
        }
        for name, each in nextpnr["fmax"].items()
    }
    return {"clocks": clocks, "utilization": {k: v for k, v in nextpnr["utilization"].items() if v["used"]}}


def _show(report):
    row = "{:40} {:>8} {:>8} {:>6} {:>5} {:>10}"
    if report["blocks"]:
        print(row.format("block", "LUT4", "FF", "BRAM", "DSP", "LUT4 sites"))
    for name, each in sorted(report["blocks"].items()):
        print(row.format(name, *(each[kind] for kind in (*KINDS, "lut4_sites"))))
    for name, each in report["clocks"].items():
        print(f"{name:32} {each['mhz']:8} MHz, {each['wanted_mhz']} wanted")
    for name, each in report["utilization"].items():
        print(f"{name:32} {each['used']:8} of {each['available']}")
    print(f"{report['board']}: {report['device']}, seed {report['seed']}, {report['seconds']} s")


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


def main(argv=None):
    """Command line; returns the status."""
    parser = argparse.ArgumentParser(prog="python -m verbena.boards.build", description=__doc__.splitlines()[0])
    parser.add_argument("board", nargs="?", help="name of a board; without one they are listed")
    parser.add_argument("--board-file", type=Path, metavar="PATH", help="a Python file with more of them: BOARDS")
    parser.add_argument("--mac", type=_mac, default=DEFAULT_MAC, help="own MAC address (%(default)s)")
    parser.add_argument("--ip", type=_ip, default=DEFAULT_IP, help="own IPv4 address (%(default)s)")
    parser.add_argument("--allow", type=_ip, action="append", metavar="IP", help=f"may drive it ({DEFAULT_ALLOWED})")
    parser.add_argument("--seed", type=int, default=SEED, help="of nextpnr (%(default)s)")
    parser.add_argument("--no-blocks", action="store_true", help="spare the second synthesis, block by block")
    parser.add_argument("--output", type=Path, default=Path("build"), help="folder above the board's (%(default)s)")
    args = parser.parse_args(argv)
    try:
        boards = find_boards() | (read_boards(args.board_file) if args.board_file else {})
        if args.board is None:
            print("\n".join(sorted(boards)))
            return 0
        if args.board not in boards:
            raise BuildError(f"there is no board {args.board!r}; there are {', '.join(sorted(boards))}")
        allowed = args.allow or ADDRESSES["allowed"]
        if len(allowed) > 2:
            raise BuildError("at most 2 addresses can be allowed")
        folder = args.output / args.board
        sizes = {"mac": args.mac, "ip": args.ip, "allowed": allowed, "seed": args.seed, "blocks": not args.no_blocks}
        _show(build(boards[args.board], folder, **sizes))
    except BuildError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
