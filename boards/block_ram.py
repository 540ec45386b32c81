"""Where block RAM stands.

nextpnr's static placer puts block RAM onto its sites once, early, and roughly: on a chip of which most block RAM is
used, some ends up half a chip from its logic, which then has to follow.
"""

import numpy as np
from scipy.optimize import linear_sum_assignment

from .estimate import place_of
from .synthesis import BLOCK_RAM

__all__ = ["assign_block_ram"]

MANY = 60
"""Users of a signal from which on it says nothing about where its source should be."""

REACH = 50
"""Tiles from which on the square of a distance counts for more than the distance: the longest way makes the clock."""


def assign_block_ram(placed, netlist):
    """Gives each block RAM of the module ``netlist`` the site that suits its neighbours best, as ``BEL`` attribute;
    returns the cost of the sites that they had, and of those that they get.

    ``placed`` is the same module as nextpnr has written it after placement. Choice is among the crossings of the
    columns and rows where block RAM stands in it. The cost of a site is the sum, over the signals of the block RAM, of
    the distance to the box around the others of the signal, ``d + d ** 2 / REACH``; block RAMs do not count as others.
    """
    cells = placed["cells"]
    places = {name: place for name, cell in cells.items() if (place := place_of(cell))}
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
