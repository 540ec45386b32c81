"""The last step of placement: what stands on the longest ways moves to where they are shorter.

nextpnr's static placer leaves some way half as long again as it needs to be, each time another one, and half of the
slices empty. Here all cells keep their place but those on ways that are too long, and these only go to empty slices.
"""

from collections import defaultdict

import numpy as np

from .estimate import NEVER, SLICED, START, Estimate, distance

__all__ = ["refine"]

PASSES = 20
"""At most; each looks at every way that is too long."""

BESIDE = 2
"""Tiles by which a new place may be outside the box around all that hangs on the cell."""

GAIN = 0.02
"""Nanoseconds; less is not worth a move."""

SHORT = 0.002
"""Of the length of all its wires, what counts beside the longest way through a cell."""

LETTERS = "ABCD"
"""Slices of a tile."""

RAM, ANY = "ram", "any"
"""Where a unit can stand: a site of block RAM, or any slice; a tuple has tiles to the right, and slices there."""

LUT_RAM = ("DPRAM", "RAMW_BLOCK")


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


class Floor:
    """Which cells move, with which others, and which places are empty.

    A unit is what moves as one: a block RAM; a LUT with the flip-flop behind it; a flip-flop; all of a slice whose LUTs
    are one; all of the slices of a carry chain or of a wider LUT. LUT RAM stays where it is, and so do flip-flops of
    other clocks or with a reset of their own. Slices go to empty slices, so nothing that a slice has in common can be
    in conflict, but not to a tile with LUT RAM or another clock. A block RAM changes places with the one that is there.

    Members
    -------
    members : list
        Cells of each unit.
    unit : array of int
        Of each cell; -1 if it stays.
    """

    def __init__(self, estimate):
        self.estimate = estimate
        self.members, self._slots = [], []
        self.unit = np.full(len(estimate.cells), -1)
        self._slices = defaultdict(list)  # cells by x, y and letter
        for index, cell in enumerate(estimate.cells):
            if cell["type"] in SLICED and estimate.bel[index]:
                self._slices[self._slice(index)].append(index)
        self._find_units()
        self._rams = {}  # unit by place
        for index, cell in enumerate(estimate.cells):
            if cell["type"] == "DP16KD" and estimate.bel[index]:
                self._rams[self._place(index)] = len(self.members)
                self._add(RAM, [index])
        self._find_room()

    def _place(self, cell):
        return int(self.estimate.x[cell]), int(self.estimate.y[cell])

    def _slice(self, cell):
        return *self._place(cell), LETTERS.index(self.estimate.bel[cell][5])

    def _add(self, slots, cells):
        for cell in cells:
            self.unit[cell] = len(self.members)
        self.members.append(list(cells))
        self._slots.append(slots)

    def _find_units(self):
        """Slices that hang together move together; of others, each half, and each cell that is alone in its half."""
        estimate = self.estimate
        group = {place: place for place in self._slices}

        def root(place):
            while group[place] != place:
                place = group[place]
            return place

        for arc in np.nonzero(estimate.arc_direct)[0]:
            source, user = estimate.source[estimate.arc_net[arc]], estimate.arc_cell[arc]
            group[root(self._slice(source))] = root(self._slice(user))
        together = defaultdict(list)
        for place in self._slices:
            together[root(place)].append(place)
        for places in together.values():
            cells = [cell for place in places for cell in self._slices[place]]
            if len(places) > 1:
                if all(self._moves(cell) for cell in cells):
                    left, row = min(x for x, _, _ in places), places[0][1]
                    if all(y == row for _, y, _ in places):
                        self._add(tuple((x - left, letter) for x, _, letter in places), cells)
                continue
            for part in self._parts(cells):
                if all(self._moves(cell) for cell in part):
                    self._add(ANY, part)

    def _parts(self, cells):
        connections = {cell: self.estimate.cells[cell]["connections"] for cell in cells}
        if any(each.get("F1") for each in connections.values()):
            yield cells
            return
        for half in "01":
            part = [cell for cell in cells if self.estimate.bel[cell][-1] == half]
            if any(connections[cell].get("DI") for cell in part):
                yield part
            else:
                yield from ([cell] for cell in part)

    def _moves(self, cell):
        cell = self.estimate.cells[cell]
        if cell["type"] == "TRELLIS_FF":
            return cell["connections"]["CLK"] == [self.estimate.clock] and not cell["connections"].get("LSR")
        return cell["type"] == "TRELLIS_COMB" and cell["parameters"].get("MODE") not in LUT_RAM

    def _find_room(self):
        """Empty slices, where a column of slices crosses a row of them; sites of block RAM."""
        estimate = self.estimate
        shape = (len(LETTERS), estimate.x.max() + 2, estimate.y.max() + 2)
        self._empty, self._sites = np.zeros(shape, bool), np.zeros(shape[1:], bool)
        ram_rows = {y for _, y in self._rams}
        self._ram_bel = {x: estimate.bel[self.members[unit][0]] for (x, _), unit in self._rams.items()}
        for x in {x for x, _, _ in self._slices}:
            for y in {y for _, y, _ in self._slices} - ram_rows:
                self._empty[:, x, y] = True
        for x in self._ram_bel:
            for y in ram_rows:
                self._sites[x, y] = True
        self._barred = np.zeros(shape[1:], bool)
        for (x, y, letter), cells in self._slices.items():
            self._empty[letter, x, y] = False
            for cell in cells:
                cell = estimate.cells[cell]
                clock = cell["connections"].get("CLK") if cell["type"] == "TRELLIS_FF" else None
                ram = cell["type"] == "TRELLIS_RAMW" or cell["parameters"].get("MODE") in LUT_RAM
                self._barred[x, y] |= ram or (clock is not None and clock != [estimate.clock])

    def is_ram(self, unit):
        return self._slots[unit] == RAM

    def room(self, unit):
        """By tile, whether the unit may go there; of a chain, its leftmost tile."""
        slots = self._slots[unit]
        if slots == RAM:
            return self._sites
        empty = self._empty & ~self._barred
        if slots == ANY:
            return empty.any(0)
        room = np.ones_like(empty[0])
        for right, letter in slots:
            room[: len(room) - right] &= empty[letter, right:]
            room[len(room) - right :] = False
        return room

    def corner(self, unit):
        """Leftmost tile of a unit."""
        cells = self.members[unit]
        return int(self.estimate.x[cells].min()), int(self.estimate.y[cells[0]])

    def move(self, units, tile):
        """Moves the units next to ``tile``, each where it has room; returns what :meth:`restore` takes."""
        undo = []
        for unit in units:
            xs, ys = np.nonzero(self.room(unit))
            if not len(xs):
                break
            nearest = (abs(xs - tile[0]) + abs(ys - tile[1])).argmin()
            undo.append((unit, *self.corner(unit), self._letter(unit)))
            self._go(unit, int(xs[nearest]), int(ys[nearest]))
        return undo

    def restore(self, undo):
        for unit, x, y, letter in reversed(undo):
            self._go(unit, x, y, letter)

    def _letter(self, unit):
        return self._slice(self.members[unit][0])[2] if self._slots[unit] == ANY else None

    def _go(self, unit, x, y, letter=None):
        slots = self._slots[unit]
        if slots == RAM:
            other, old = self._rams.get((x, y)), self.corner(unit)
            self._rams[x, y] = unit
            self._stand(unit, x, y)
            if other is None:
                del self._rams[old]
            elif other != unit:
                self._rams[old] = other
                self._stand(other, *old)
            return
        if slots == ANY and letter is None:
            letter = int(self._empty[:, x, y].argmax())
        right = x - self.corner(unit)[0]
        for cell in self.members[unit]:
            old = self._slice(cell)
            new = old[0] + right, y, old[2] if letter is None else letter
            self._slices[old].remove(cell)
            if not self._slices[old]:
                del self._slices[old]
                self._empty[old[2], old[0], old[1]] = True
            self._slices[new].append(cell)
            self._empty[new[2], new[0], new[1]] = False
            bel = self.estimate.bel[cell]
            self.estimate.bel[cell] = f"SLICE{LETTERS[new[2]]}{bel[6:]}"
            self.estimate.x[cell], self.estimate.y[cell] = new[:2]

    def _stand(self, ram, x, y):
        cell = self.members[ram][0]
        self.estimate.x[cell], self.estimate.y[cell], self.estimate.bel[cell] = x, y, self._ram_bel[x]


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
