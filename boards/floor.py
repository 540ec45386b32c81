"""Where the cells of a placed circuit may go: what moves together, and which slices are empty."""

from collections import Counter, defaultdict

import numpy as np

from .estimate import SLICED
from .synthesis import BLOCK_RAM

__all__ = ["Floor"]

LETTERS = "ABCD"
"""Slices of a tile."""

RAM, ANY = "ram", "any"
"""Where a unit can stand: a site of block RAM, or any slice; a tuple has tiles to the right, and slices there."""

LUT_RAM = ("DPRAM", "RAMW_BLOCK")


class Floor:
    """Which cells move, with which others, and which places are empty.

    A unit is what moves as one: a block RAM; a LUT with the flip-flop behind it; a flip-flop; all of a slice whose LUTs
    are one; all of the slices of a carry chain or of a wider LUT. LUT RAM stays where it is, and so do flip-flops of
    other clocks, and cells with a place by constraint (``BEL``). Slices go to empty slices, so nothing that a slice has
    in common can be in conflict, but not to a tile with LUT RAM or another clock, and those with a reset (LSR) not to
    one with another reset: a tile could have two of them, and one is used here. A block RAM changes places with the one
    that is there.

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
        self._resets = defaultdict(Counter)  # how many flip-flops have each, by tile
        for (x, y, _), cells in self._slices.items():
            self._resets[x, y] += self._resets_of(cells)
        self._find_units()
        self._rams = {}  # unit by place
        for index, cell in enumerate(estimate.cells):
            if cell["type"] == BLOCK_RAM and estimate.bel[index]:
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
                if self._move(cells):
                    left, row = min(x for x, _, _ in places), places[0][1]
                    if all(y == row for _, y, _ in places):
                        self._add(tuple((x - left, letter) for x, _, letter in places), cells)
                continue
            for part in self._parts(cells):
                if self._move(part):
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

    def _move(self, cells):
        return len(self._resets_of(cells)) <= 1 and all(self._moves(self.estimate.cells[cell]) for cell in cells)

    def _moves(self, cell):
        if "BEL" in cell["attributes"]:
            return False
        if cell["type"] == "TRELLIS_FF":
            return cell["connections"]["CLK"] == [self.estimate.clock]
        return cell["type"] == "TRELLIS_COMB" and cell["parameters"].get("MODE") not in LUT_RAM

    def _resets_of(self, cells):
        found = (self.estimate.cells[cell]["connections"].get("LSR") for cell in cells)
        return Counter(bits[0] for bits in found if bits)

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
        for reset in self._resets_of(self.members[unit]):
            for (x, y), others in self._resets.items():
                if others.keys() - {reset}:
                    empty[:, x, y] = False
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
            resets = self._resets_of([cell])
            self._resets[old[0], old[1]] -= resets
            self._resets[old[0] + right, y] += resets
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
