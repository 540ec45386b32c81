"""How long the ways in a placed circuit are: nextpnr's own estimate, before anything is routed.

nextpnr writes what it has placed with ``--write``: cells of an ECP5 as they stand in its slices, each with its place.
The estimate takes a wire for longer than it is once routed, by a fifth or so.
"""

import re
from collections import Counter

import numpy as np

from .synthesis import BLOCK_RAM

__all__ = ["NEVER", "SLICED", "START", "Estimate", "distance", "main_clock", "place_of"]

SLICED = ("TRELLIS_COMB", "TRELLIS_FF", "TRELLIS_RAMW")
"""Cells that stand in slices."""

STEP = 0.054
"""Nanoseconds of a tile's width or height on the fastest speed grade; the first 5 each way count twice (nextpnr,
``predictDelay`` of ECP5). All delays here are this grade's: on a slower one all are longer, and so the same ways are
the longest.
"""
START = 6 * STEP
NEAR = 5

CLOCK_TO_FF, CLOCK_TO_RAM, CLOCK_TO_BARE_RAM, SETUP = 0.31, 0.45, 3.5, 0.05
LUT, WIDE, CARRY = dict.fromkeys("ABCD", 0.14), dict.fromkeys("ABCD", 0.24), dict.fromkeys("ABCD", 0.28)
THROUGH = {
    "F": LUT | {"FCI": 0.26},
    "OFX": WIDE | {"M": 0.10, "F1": 0.10, "FXA": 0.10, "FXB": 0.10},
    "FCO": CARRY | {"FCI": 0.04},
}
"""Nanoseconds from the inputs of a TRELLIS_COMB to each of its outputs (nextpnr's database)."""

DIRECT = {"F1", "FXA", "FXB", "FCI", "DI", "DI0", "DI1", "WD", "WAD0", "WAD1", "WAD2", "WAD3"}
"""Inputs that hang on their neighbour in the slice, not on a wire."""

NEVER = -1e3
"""Arrival of what is no start: a constant, another clock's signal."""

SITE = re.compile(r"X(\d+)/Y(\d+)/(.*)")
RAM_PORT = re.compile(r"(?:DI|DO|AD|CE|OCE|WE|CS|RST)([AB])\d*")


def place_of(cell):
    """Tile, and where in it, of a cell as nextpnr has written it: ``(x, y, bel)``; None if it has none."""
    found = SITE.fullmatch(cell["attributes"].get("NEXTPNR_BEL", ""))
    return found and (int(found[1]), int(found[2]), found[3])


def main_clock(module):
    """Signal of the clock that most flip-flops have; None if there are none."""
    clocks = Counter(cell["connections"]["CLK"][0] for cell in module["cells"].values() if cell["type"] == "TRELLIS_FF")
    return clocks.most_common(1)[0][0] if clocks else None


class Estimate:
    """The ways from register to register that the most used clock of ``module`` has.

    ``x``, ``y``, by cell, may be changed, and :meth:`update` called again.

    Members
    -------
    names, cells : list
        Of the cells, by index; so are all arrays below that are said to be of cells.
    x, y : array of int
        Tile of each cell; 0 for what has none.
    bel : list of str
        Where in the tile.
    clock : int
        Signal of that clock.
    source : array of cells
        What drives each net. Nets are those with a driver that counts.
    arc_net, arc_cell, arc_out, arc_delay, arc_direct : array
        An arc leads from a net into a cell, and there to another net, or, with -1, to an end.
    arcs_of : list of list
        Arcs that a net has.
    start : array of float
        Arrival of a net that begins at a register, else ``NEVER``.
    arrival, tail : array of float
        Nanoseconds, by net: of the longest way that leads to it, and of that from there to an end.
    wire : array of float
        Of each arc, its cell included.

    Raises
    ------
    ValueError
        The circuit has a loop without a register.
    """

    def __init__(self, module):
        cells = module["cells"]
        self.names = list(cells)
        self.cells = [cells[name] for name in self.names]
        self.x = np.zeros(len(cells), int)
        self.y = np.zeros(len(cells), int)
        self.bel = [""] * len(cells)
        for index, cell in enumerate(self.cells):
            if found := place_of(cell):
                self.x[index], self.y[index], self.bel[index] = found
        self.clock = main_clock(module)
        self._nets()
        self._arcs()
        self._levels()
        self.update()

    def _nets(self):
        self.net_of, source, start = {}, [], []  # net by signal
        for index, cell in enumerate(self.cells):
            if cell["type"] not in ("TRELLIS_COMB", "TRELLIS_FF", BLOCK_RAM):
                continue
            for port, bits in cell["connections"].items():
                if bits and cell["port_directions"][port] == "output":
                    self.net_of[bits[0]] = len(source)
                    source.append(index)
                    start.append(self._start(cell, port))
        self.source, self.start = np.array(source, int), np.array(start)

    def _start(self, cell, port):
        if cell["type"] == "TRELLIS_COMB" or not self._ours(cell, port):
            return NEVER
        if cell["type"] == "TRELLIS_FF":
            return CLOCK_TO_FF
        # A port of 36 bits has the data outputs of both sides, and the first one's setting.
        sides = {RAM_PORT.fullmatch(port)[1], "A"}
        registered = any(cell["parameters"].get(f"REGMODE_{side}") == "OUTREG" for side in sides)
        return CLOCK_TO_RAM if registered else CLOCK_TO_BARE_RAM

    def _ours(self, cell, port):
        """The port belongs to the clock."""
        found = RAM_PORT.fullmatch(port) if cell["type"] == BLOCK_RAM else None
        return cell["connections"].get(f"CLK{found[1]}" if found else "CLK") == [self.clock]

    def _ends(self, cell):
        """Inputs that are a register's."""
        kind, connections = cell["type"], cell["connections"]
        if kind == "TRELLIS_COMB":
            return ["WRE"] if cell["parameters"].get("MODE") == "DPRAM" else []
        if kind == "TRELLIS_FF":
            return [port for port in ("DI", "M", "CE", "LSR") if self._ours(cell, port)]
        if kind == BLOCK_RAM:
            return [port for port in connections if RAM_PORT.fullmatch(port) and self._ours(cell, port)]
        if kind == "TRELLIS_RAMW":
            return list(connections)
        return []

    def _net(self, cell, port, direction):
        bits = cell["connections"].get(port)
        return self.net_of.get(bits[0]) if bits and cell["port_directions"][port] == direction else None

    def _arcs(self):
        arcs = []
        for index, cell in enumerate(self.cells):
            found = [(port, -1, SETUP) for port in self._ends(cell)]
            if cell["type"] == "TRELLIS_COMB":
                for output, inputs in THROUGH.items():
                    if (out := self._net(cell, output, "output")) is not None:
                        found += [(port, out, delay) for port, delay in inputs.items()]
            for port, out, delay in found:
                if (into := self._net(cell, port, "input")) is not None:
                    arcs.append((into, index, out, delay, port in DIRECT))
        columns = list(zip(*arcs)) or [()] * 5
        self.arc_net, self.arc_cell, self.arc_out = (np.array(column, int) for column in columns[:3])
        self.arc_delay, self.arc_direct = np.array(columns[3], float), np.array(columns[4], bool)
        self.arcs_of = [[] for _ in self.source]
        self._arcs_into = [[] for _ in self.cells]
        for arc, (net, cell) in enumerate(zip(self.arc_net, self.arc_cell)):
            self.arcs_of[net].append(arc)
            self._arcs_into[cell].append(arc)

    def _levels(self):
        """Inner arcs, those first whose net needs no other inner arc's."""
        inner = np.nonzero(self.arc_out >= 0)[0]
        begin, end = self.arc_net[inner], self.arc_out[inner]
        level = np.zeros(len(self.source), int)
        for _ in range(len(self.source) + 1):
            higher = np.zeros_like(level)
            np.maximum.at(higher, end, level[begin] + 1)
            if (higher == level).all():
                break
            level = higher
        else:
            raise ValueError("the circuit has a loop without a register")
        self.ends = np.nonzero(self.arc_out < 0)[0]
        self._layers = [inner[level[end] == each] for each in range(1, level.max(initial=0) + 1)]

    def update(self):
        """Arrivals and tails of the places as they are."""
        source = self.source[self.arc_net]
        wire = distance(self.x[source] - self.x[self.arc_cell]) + distance(self.y[source] - self.y[self.arc_cell])
        self.wire = np.where(self.arc_direct, 0, wire + START) + self.arc_delay
        self.arrival = self.start.copy()
        for arcs in self._layers:
            np.maximum.at(self.arrival, self.arc_out[arcs], self.arrival[self.arc_net[arcs]] + self.wire[arcs])
        self.tail = np.full(len(self.source), NEVER)
        np.maximum.at(self.tail, self.arc_net[self.ends], self.wire[self.ends])
        for arcs in reversed(self._layers):
            np.maximum.at(self.tail, self.arc_net[arcs], self.wire[arcs] + self.tail[self.arc_out[arcs]])

    def lengths(self):
        """Nanoseconds of the longest way to each end, in the order of ``ends``."""
        return self.arrival[self.arc_net[self.ends]] + self.wire[self.ends]

    def way(self, end):
        """Cells on the longest way to the arc ``end``, from register to register."""
        cells = [self.arc_cell[end]]
        net = self.arc_net[end]
        while self.start[net] == NEVER:
            cells.append(self.source[net])
            into = [arc for arc in self.arcs_into(self.source[net]) if self.arc_out[arc] == net]
            net = self.arc_net[max(into, key=lambda arc: self.arrival[self.arc_net[arc]] + self.wire[arc])]
        return [self.source[net], *cells[::-1]]

    def arcs_into(self, cell):
        """Arcs that lead into a cell."""
        return self._arcs_into[cell]


def distance(tiles):
    """Nanoseconds of so many tiles one way."""
    tiles = np.abs(tiles)
    return STEP * (tiles + np.minimum(tiles, NEAR))
