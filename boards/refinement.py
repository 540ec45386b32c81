"""The last step of placement: what stands on the longest ways moves to where they are shorter.

nextpnr's static placer leaves some way half as long again as it needs to be, each time another one, and half of the
slices empty. Here all cells keep their place but those on ways that are too long, and these only go to empty slices.
"""

import numpy as np

from .estimate import Estimate
from .floor import Floor
from .surroundings import Surroundings

__all__ = ["refine"]

PASSES = 20
"""At most; each looks at every way that is too long."""

GAIN = 0.02
"""Nanoseconds; less is not worth a move."""


def refine(module, goal):
    """Moves cells of the placed ``module`` until no way is longer than ``goal`` nanoseconds, or nothing helps any more;
    returns the length of the longest way before and after, and how many moves were made.

    ``module`` is as nextpnr has written it after placement, and is changed. All nanoseconds are of :mod:`.estimate`.
    """
    estimate = Estimate(module)
    if not len(estimate.ends):
        return 0.0, 0.0, 0
    before = estimate.lengths().max()
    floor = Floor(estimate)
    moves = 0
    for _ in range(PASSES):
        made = _one_pass(estimate, floor, goal)
        moves += made
        if not made:
            break
    for index, cell in enumerate(estimate.cells):
        if estimate.bel[index]:
            place = f"X{estimate.x[index]}/Y{estimate.y[index]}/{estimate.bel[index]}"
            cell["attributes"]["NEXTPNR_BEL"] = place
    return float(before), float(estimate.lengths().max()), moves


def _one_pass(estimate, floor, goal):
    """Tries to shorten each way that is too long, the longest first; returns how many moves were made."""
    made = 0
    lengths = estimate.lengths()
    for which in np.argsort(-lengths):
        if lengths[which] <= goal:
            break
        if estimate.lengths()[which] <= goal:
            continue  # an earlier move has helped it
        found = _best(estimate, floor, estimate.way(estimate.ends[which]), goal)
        if found is None:
            continue
        cost = _cost(estimate, goal)
        undo = floor.move(*found)
        estimate.update()
        if undo and _cost(estimate, goal) < cost:
            made += 1
        else:
            floor.restore(undo)
            estimate.update()
    return made


def _cost(estimate, goal):
    return (np.maximum(estimate.lengths() - goal, 0) ** 2).sum()


def _best(estimate, floor, way, goal):
    """Units that should move together, and to which tile; None if no such move shortens the ways through them.

    ``way`` are cells. Those of it that stand one behind the other are tried one by one and together: of a row of cells
    that all stand too far on one side, none gains if it goes alone.
    """
    row = list(dict.fromkeys(floor.unit[cell] for cell in way))
    found = None
    for first in range(len(row)):
        for last in range(first + 1, len(row) + 1):
            units = row[first:last]
            if -1 in units or (len(units) > 1 and any(floor.is_ram(unit) for unit in units)):
                break
            gain, tile = Surroundings(estimate, floor, units).place(goal)
            if gain > GAIN and (found is None or gain > found[0]):
                found = gain, units, tile
    return found and found[1:]
