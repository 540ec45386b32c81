"""nextpnr-ecp5: placement and routing in one run, by its static placer and its default router."""

import json
import os
import re
import shutil
from pathlib import Path

from .tools import program, run_tool

__all__ = ["LOG", "PLACED", "PLACER", "folder_of", "place_and_route", "progress", "run_nextpnr", "signal_of"]

TOOL = "nextpnr-ecp5"

PLACER = "static"
"""Whose placements of the engine have a third less wire than those of HeAP, nextpnr's default, which puts block RAM far
from its users. docs/nextpnr.md, 6, has the figures.
"""

LOG, PLACED, REPORT = "nextpnr-ecp5.log", "placed.json", "routed.json"
"""What it says, the netlist in which each cell has its place, and its report."""

STAGES = {
    "Packing constants": "packing",
    "Running Static placer": "placing",
    "Creating initial analytic placement": "placing",
    "Running simulated annealing": "placing",
    "Routing globals": "routing the clocks",
    "Running router": "routing",
    "Routing..": "routing",
}
"""By which words a line begins a stage."""

ARCS = re.compile(r"Info: +\d+ \|(?: +\d+){2} \|(?: +\d+){2} \| +(?P<arcs>\d+)\|")
"""A line of router1's table: arcs that are left."""


def progress(line):
    """What a line of nextpnr tells of how far it is, in a few words; None if it is nothing new."""
    if found := ARCS.match(line):
        return f"routing, {int(found['arcs']):,} arcs left"
    return next((stage for words, stage in STAGES.items() if words in line), None)


def folder_of(seed, folder, *names):
    """``folder / "seed-N"``, made anew, with these files of ``folder``: runs with several seeds may go side by side."""
    own = folder / f"seed-{seed}"
    shutil.rmtree(own, ignore_errors=True)
    own.mkdir()
    for name in names:
        (own / name).hardlink_to(folder / name)
    return own


def run_nextpnr(folder, arguments, heard=lambda line: None):
    """Runs nextpnr in ``folder``, as :func:`.tools.run_tool` does; ``arguments`` name files there only.

    YoWASP's sees no other folder, unless ``YOWASP_MOUNT`` says so: the names of those that it sees are in its memory,
    and its router's choices depend on where things are there.
    """
    variables = None
    if Path(program(TOOL)).name == f"yowasp-{TOOL}" and ":" not in (alone := f"/={folder.resolve()}"):
        variables = {"YOWASP_MOUNT": alone} | os.environ
    run_tool(TOOL, arguments, folder, LOG, heard, variables)


def place_and_route(folder, options, seed, say=lambda text: None):
    """Places and routes ``top.json`` in ``folder``, and returns nextpnr's report; each cell's place stands in
    ``PLACED``. ``say`` is called with each stage. A clock that is missed is no error.
    """
    arguments = [*options, "--placer", PLACER, "--seed", str(seed), "--json", "top.json", "--timing-allow-fail"]
    arguments += ["--report", REPORT, "--write", PLACED]

    def heard(line):
        if (text := progress(line)) is not None:
            say(text)

    run_nextpnr(folder, arguments, heard)
    return json.loads((folder / REPORT).read_text())


def signal_of(clock):
    """A clock's own name, without what nextpnr adds to that of its net."""
    return re.sub(r"^\$glbnet\$|\$TRELLIS_IO_IN$", "", clock)
