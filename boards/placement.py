"""Placement and routing: nextpnr, several times, and what is done in between.

Block RAM gets its sites from placements that are thrown away (:mod:`.block_ram`); then the whole is placed, what stands
on the longest ways is moved (:mod:`.refinement`), and that is routed.
"""

import json
import re

from .block_ram import assign_block_ram
from .estimate import main_clock
from .refinement import refine
from .synthesis import BLOCK_RAM, MARGIN
from .tools import StalledError

__all__ = ["REFINED", "ROUTED", "Stall", "place_and_route", "site"]

ROUNDS = 2
"""Most placements for the sites of block RAM. The second makes the wires a tenth shorter, further ones do nothing."""

ENOUGH = 0.95
"""Sites that still cost so much of what those before did are no better."""

GOAL = 0.896
"""Of the period: what no way should be longer than by the estimate, before it is routed."""

TRIES, STEP = 5, 0.006
"""The router is told each clock's aim, and has so many tries to meet all clocks. Each has another seed; one that came
to no end makes the next one's aim this part of it lower, one that missed a clock makes it higher. The last that came to
an end stands.
"""

REFINED, ROUTED = "refined.json", "routed.json"
"""What is routed, and nextpnr's report of it."""

GRADES = {"5G": 54, 8: 76, 7: 98, 6: 120}
"""How slow each speed grade is; the estimate is that of the first."""


AIM = re.compile(r"Max frequency for clock +'(.+)': [\d.]+ MHz \(\w+ at ([\d.]+) MHz\)")
"""Of each clock, as nextpnr says it; those of a PLL it knows by itself, and without routing no report has them."""


def site(run, folder, options, seed):
    """Leaves the netlist ``top.json`` in ``folder`` as ``sited.json``, in which block RAM has its sites.

    ``run`` runs nextpnr in ``folder`` with the arguments that it is given, and ``options`` are those of all runs. The
    sites are the same for all seeds from then on.
    """
    netlist, placed, sited = (folder / name for name in ("top.json", "placed.json", "sited.json"))
    design = json.loads(netlist.read_text())
    module = design["modules"]["top"]
    sited.write_text(json.dumps(design))
    if not any(cell["type"] == BLOCK_RAM for cell in module["cells"].values()):
        return
    for _ in range(ROUNDS):
        run([*options, "--seed", str(seed), "--json", sited.name, "--no-route", "--write", placed.name])
        before, after = assign_block_ram(_top(placed), module)
        sited.write_text(json.dumps(design))
        ratio = after / max(before, 1)
        print(f"placed; the wires of block RAM cost {ratio:.2f} of before with better sites", flush=True)
        if ratio > ENOUGH:
            break
    placed.unlink()


def place_and_route(run, folder, options, results, seed, grade="5G"):
    """Places and routes what :func:`site` left; returns nextpnr's report, each ``constraint`` in it the aim.

    In ``folder`` remains, as ``REFINED``, what was routed, each cell with its place.

    Parameters
    ----------
    run : callable
        Runs nextpnr, as for :func:`site`; ``stalled`` is a :class:`Stall`, which may stop it.
    folder : Path
    options : list of str
        What all runs have, ``--lpf`` with its file among it, if there is one.
    results : list of str
        What routing has besides.
    seed : int
    grade : int or "5G"
        Speed grade of the device.

    Raises
    ------
    StalledError
        The router comes to no end, whatever it is told.
    """
    clocks = _place(run, folder, options, seed, GRADES[grade])
    options, constraints = _without_clocks(folder, options)

    def route(seed, part):
        lines = "".join(f'FREQUENCY NET "{name}" {aim * part:.3f} MHZ;\n' for name, aim in clocks.items())
        (folder / "refined.lpf").write_text(constraints + lines)
        routing = ["--lpf", "refined.lpf", "--no-pack", "--no-place", "--json", REFINED, "--report", ROUTED]
        run([*options, "--seed", str(seed), *routing, *results], stalled=Stall())
        report = json.loads((folder / ROUTED).read_text())
        for name, each in report["fmax"].items():
            each["constraint"] = clocks.get(name, each["constraint"])  # whatever the router was told
        return report

    return _until_met(route, seed)


def _place(run, folder, options, seed, slow):
    """Leaves what is placed and refined; returns the aim of each clock, in MHz."""
    placed, log = folder / "placed.json", folder / "placed.log"
    placing = ["--seed", str(seed), "--json", "sited.json", "--no-route", "--write", placed.name, "--log", log.name]
    run([*options, *placing])
    design = json.loads(placed.read_text())
    placed.unlink()
    module = design["modules"]["top"]
    clocks = {name: float(aim) for name, aim in AIM.findall(log.read_text())}
    main = [main_clock(module)]
    for aim in (aim for name, aim in clocks.items() if module["netnames"].get(name, {}).get("bits") == main):
        before, after, moves = refine(module, GOAL * 1000 / aim * GRADES["5G"] / slow)
        print(f"placed; {moves} moves make the longest way {before:.1f}, then {after:.1f} ns by estimate", flush=True)
    (folder / REFINED).write_text(json.dumps(design))
    return clocks


def _without_clocks(folder, options):
    """``options`` without the file of constraints, and what that has besides clocks: what is loaded as placed has lost
    these, and needs them by the names of their nets.
    """
    options = list(options)
    if "--lpf" not in options:
        return options, ""
    file = options.index("--lpf") + 1
    lines = (folder / options[file]).read_text().splitlines(keepends=True)
    del options[file - 1 : file + 1]
    return options, "".join(line for line in lines if not line.startswith("FREQUENCY")) + "\n"


def _until_met(route, seed):
    """The report of the last of some tries that came to an end."""
    report, part = None, 1.0
    for attempt in range(TRIES):
        try:
            report = route(seed + 100 * attempt, part)
        except StalledError:
            print(f"routing comes to no end with {part:.3f} of each clock's aim", flush=True)
            if attempt == TRIES - 1 and report is None:
                raise
            part -= STEP
            continue
        missed = [f"{name} {each['achieved']:.1f} MHz" for name, each in report["fmax"].items() if _misses(each)]
        if not missed:
            break
        print(f"routed with {part:.3f} of each clock's aim, but {', '.join(missed)}", flush=True)
        part += STEP
    return report


def _misses(clock):
    return clock["achieved"] < clock["constraint"] / MARGIN


def _top(path):
    return json.loads(path.read_text())["modules"]["top"]


class Stall:
    """Whether a router has come to where it goes round in circles; called with each line that it says.

    A wire too slow for its clock is ripped up again and again, though nothing else is wrong; where wires are scarce,
    what is ripped up leaves more and more of them used twice.
    """

    QUIET, LATER, LAST = 20, 120, 400
    """So many wires used twice are nearly none; iterations that are enough from then on, and in all. Whatever came to
    an end had at most 62 then, and 93 in all.
    """
    MANY, WORSE = 500, 10
    """With more than so many wires used twice, iterations that are enough without fewer of them than ever before.
    Whatever came to an end had none.
    """

    ITERATION = re.compile(r"iter=(\d+) wires=\d+ overused=(\d+) ")

    def __init__(self):
        self.quiet = None
        self.fewest, self.best = None, 0

    def __call__(self, line):
        found = self.ITERATION.search(line)
        if found is None:
            return False
        iteration, overused = map(int, found.groups())
        if self.fewest is None or overused < self.fewest:
            self.fewest, self.best = overused, iteration
        if self.quiet is None and overused <= self.QUIET:
            self.quiet = iteration
        return (
            iteration >= self.LAST
            or (self.quiet is not None and iteration - self.quiet >= self.LATER)
            or (self.fewest > self.MANY and iteration - self.best >= self.WORSE)
        )
