"""How long the ways through some cells are, wherever these stand."""

from collections import defaultdict

import numpy as np

from .estimate import NEVER, START, distance

__all__ = ["Surroundings"]

BESIDE = 2
"""Tiles by which a new place may be outside the box around all that hangs on the cell."""

SHORT = 0.002
"""Of the length of all its wires, what counts beside the longest way through a cell."""


class Surroundings:
    """What hangs on units that move together, and how long the ways through them are, wherever they stand."""

    def __init__(self, estimate, floor, units):
        self.estimate = estimate
        self.room = floor.room(units[0])
        self.corner = floor.corner(units[0])
        self.cells = [cell for unit in units for cell in floor.members[unit]]
        self._inside = set(self.cells)
        # Of a unit that is wider than a tile, a point that hangs on a tile in it is as much further to the left.
        self._right = {cell: estimate.x[cell] - floor.corner(unit)[0] for unit in units for cell in floor.members[unit]}
        self._into = defaultdict(list)  # by output, -1 for an end: sources as (x, y, nanoseconds)
        self._out_of = defaultdict(list)  # by output: users as (x, y, nanoseconds)
        nets = {estimate.net_of[bits[0]] for cell in self.cells for bits in self._outputs(cell)}
        for cell in self.cells:
            for arc in estimate.arcs_into(cell):
                net = estimate.arc_net[arc]
                source = estimate.source[net]
                if source not in self._inside and estimate.arrival[net] > NEVER / 2:
                    place = estimate.x[source] - self._right[cell], estimate.y[source]
                    self._spread(arc, estimate.arrival[net], place)
        self.now = self._now(nets)
        for net in nets:
            if estimate.start[net] != NEVER:
                self._pass(net, estimate.start[net], None)
            for arc in estimate.arcs_of[net]:
                cell, out = estimate.arc_cell[arc], estimate.arc_out[arc]
                tail = estimate.tail[out] if out >= 0 else 0
                if cell not in self._inside and tail > NEVER / 2:
                    x = estimate.x[cell] - self._right[estimate.source[net]]
                    self._out_of[net].append((x, estimate.y[cell], estimate.arc_delay[arc] + tail))

    def _outputs(self, cell):
        cell = self.estimate.cells[cell]
        return [
            bits
            for port, bits in cell["connections"].items()
            if bits and cell["port_directions"][port] == "output" and bits[0] in self.estimate.net_of
        ]

    def _spread(self, arc, arrival, source):
        """An arc begins at ``arrival``, at ``source`` outside, or inside without one."""
        estimate = self.estimate
        out, arrival = estimate.arc_out[arc], arrival + estimate.arc_delay[arc]
        if out < 0:
            self._into[-1].append((source, arrival))
        else:
            self._pass(out, arrival, source)

    def _pass(self, net, arrival, source):
        estimate = self.estimate
        self._into[net].append((source, arrival))
        for arc in estimate.arcs_of[net]:
            if estimate.arc_cell[arc] in self._inside:
                self._spread(arc, arrival + (0 if estimate.arc_direct[arc] else START), source)

    def _now(self, nets):
        """Nanoseconds of the longest way through the units as they stand."""
        estimate = self.estimate
        ways = [estimate.arrival[net] + estimate.tail[net] for net in nets]
        for cell in self.cells:
            for arc in estimate.arcs_into(cell):
                if estimate.arc_out[arc] < 0:
                    ways.append(estimate.arrival[estimate.arc_net[arc]] + estimate.wire[arc])
        return max(ways, default=0)

    def place(self, goal):
        """Nanoseconds that the longest way through the units is shorter at the best tile, and that tile."""
        points = [source for each in self._into.values() for source, _ in each if source]
        points += [user[:2] for each in self._out_of.values() for user in each]
        if not points:
            return 0, None
        area = [
            np.arange(max(0, min(axis.min(), here) - BESIDE), min(most, max(axis.max(), here) + BESIDE + 1))
            for axis, here, most in zip(np.array(points).T, self.corner, self.room.shape)
        ]
        longest, wires = self._ways(*area)
        score = np.maximum(longest, goal) + SHORT * wires
        score[~self.room[np.ix_(*area)]] = np.inf
        best = np.unravel_index(score.argmin(), score.shape)
        if not np.isfinite(score[best]):
            return 0, None
        return self.now - longest[best], (int(area[0][best[0]]), int(area[1][best[1]]))

    def _ways(self, columns, rows):
        """Nanoseconds of the longest way through the units, and of all wires, if they stand at each of the tiles."""
        seen = {}

        def wire(point):
            if point not in seen:
                seen[point] = distance(columns - point[0])[:, None] + distance(rows - point[1])[None, :] + START
            return seen[point]

        longest = np.zeros((len(columns), len(rows)))
        for net, sources in self._into.items():
            arrival = np.full_like(longest, NEVER)
            for source, nanoseconds in sources:
                arrival = np.maximum(arrival, (wire(source) if source else 0) + nanoseconds)
            if net < 0:
                longest = np.maximum(longest, arrival)
            elif self._out_of[net]:
                users = [wire(user[:2]) + user[2] for user in self._out_of[net]]
                longest = np.maximum(longest, arrival + np.maximum.reduce(users))
        return longest, sum(seen.values())
