"""Where block RAM stands.

nextpnr's static placer puts block RAM onto its sites once, early, and roughly: on a chip of which most block RAM is
used, some ends up half a chip from its logic, which then has to follow. So the whole is placed several times, and each
time the block RAM gets the sites that suit what stood around it the time before.
"""

import json
import re

import numpy as np
from scipy.optimize import linear_sum_assignment

__all__ = ["ROUNDS", "Stall", "assign_block_ram", "place_and_route"]

ROUNDS = 2
"""Most placements before the one that counts. The second makes the wires a tenth shorter, further ones do nothing."""

ENOUGH = 0.95
"""Sites that still cost so much of what those before did are no better, and it is placed only once more."""

BLOCK_RAM = "DP16KD"

MANY = 60
"""Users of a signal from which on it says nothing about where its source should be."""

REACH = 50
"""Tiles from which on the square of a distance counts for more than the distance: the longest way makes the clock."""

SITE = re.compile(r"X(\d+)/Y(\d+)/(.*)")


def assign_block_ram(placed, netlist):
    """Gives each block RAM of the module ``netlist`` the site that suits its neighbours best, as ``BEL`` attribute;
    returns the cost of the sites that they had, and of those that they get.

    ``placed`` is the same module as nextpnr has written it after placement. Choice is among the crossings of the
    columns and rows where block RAM stands in it. The cost of a site is the sum, over the signals of the block RAM, of
    the distance to the box around the others of the signal, ``d + d ** 2 / REACH``; block RAMs do not count as others.
    """
    cells, places = placed["cells"], {}
    for name, cell in cells.items():
        if found := SITE.fullmatch(cell["attributes"].get("NEXTPNR_BEL", "")):
            places[name] = (int(found[1]), int(found[2]), found[3])
    rams = [name for name in places if cells[name]["type"] == BLOCK_RAM]
    if not rams:
        return 0, 0
    users = {}  # of a signal: the places of all but block RAM
    for name, place in places.items():
        if cells[name]["type"] != BLOCK_RAM:
            for bit in _bits(cells[name]):
                users.setdefault(bit, []).append(place[:2])

    kinds = {places[name][0]: places[name][2] for name in rams}  # of site, by column
    sites = [(x, y, kinds[x]) for x in sorted(kinds) for y in sorted({places[name][1] for name in rams})]
    across, down = (np.array([site[axis] for site in sites]) for axis in (0, 1))
    cost = np.zeros((len(rams), len(sites)))
    for row, name in enumerate(rams):
        for bit in _bits(cells[name]):
            others = np.array(users.get(bit, ()))
            if 0 < len(others) <= MANY:
                low, high = others.min(0), others.max(0)
                distance = sum(
                    np.maximum(np.maximum(low[axis] - place, place - high[axis]), 0)
                    for axis, place in enumerate((across, down))
                )
                cost[row] += distance + distance**2 / REACH
    before = sum(cost[row, sites.index(places[name])] for row, name in enumerate(rams))
    rows, columns = linear_sum_assignment(cost)
    for row, column in zip(rows, columns):
        x, y, kind = sites[column]
        netlist["cells"][rams[row]]["attributes"]["BEL"] = f"X{x}/Y{y}/{kind}"
    return before, cost[rows, columns].sum()


def _bits(cell):
    """Signals of a cell, each once; constants are none."""
    return {bit for bits in cell["connections"].values() for bit in bits if isinstance(bit, int)}


def place_and_route(run, folder, options, results):
    """Places and routes the netlist ``top.json`` in ``folder``, which stays as it is.

    Parameters
    ----------
    run : callable
        Runs nextpnr in ``folder`` with the arguments that it is given, the last time with a :class:`Stall` as well, as
        ``stalled``, which may stop it.
    options : list of str
        What all runs have; ``--json`` is added.
    results : list of str
        What the last one has besides.
    """
    netlist, placed, sited = (folder / name for name in ("top.json", "placed.json", "sited.json"))
    design = json.loads(netlist.read_text())
    module = design["modules"]["top"]
    rounds = ROUNDS if any(cell["type"] == BLOCK_RAM for cell in module["cells"].values()) else 0
    for _ in range(rounds):
        run([*options, "--json", netlist.name, "--no-route", "--write", placed.name])
        before, after = assign_block_ram(json.loads(placed.read_text())["modules"]["top"], module)
        sited.write_text(json.dumps(design))
        netlist = sited
        ratio = after / max(before, 1)
        print(f"placed; the wires of block RAM cost {ratio:.2f} of before with better sites", flush=True)
        if ratio > ENOUGH:
            break
    placed.unlink(missing_ok=True)
    run([*options, "--json", netlist.name, *results], stalled=Stall())


class Stall:
    """Whether a router has come to where it goes round in circles; called with each line that it says.

    A wire too slow for its clock is ripped up again and again, though nothing else is wrong.
    """

    QUIET, LATER, LAST = 20, 200, 500
    """So many wires used twice are nearly none; iterations that are enough from then on, and in all. Whatever came to
    an end had at most 62 then, and 93 in all.
    """

    ITERATION = re.compile(r"iter=(\d+) wires=\d+ overused=(\d+) ")

    def __init__(self):
        self.quiet = None

    def __call__(self, line):
        found = self.ITERATION.search(line)
        if found is None:
            return False
        iteration, overused = map(int, found.groups())
        if self.quiet is None and overused <= self.QUIET:
            self.quiet = iteration
        return iteration >= self.LAST or (self.quiet is not None and iteration - self.quiet >= self.LATER)
