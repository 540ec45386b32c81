"""The deepest logic of a netlist, which says in seconds where a clock is lost: ``python -m verbena.boards.depth
build/area/top.json``.

A level is a LUT with the wire to it, some 1.2 ns on an LFE5UM5G; what LUTs share a slice for (PFUMX, L6MUX21, the rest
of a carry chain) counts a part of one. Where nextpnr places the cells is not known yet, so this is no clock.
"""

import argparse
import json
import sys
from collections import Counter
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from verbena.sw.tools.command import command_line

__all__ = ["deepest", "levels", "main", "show"]

LEVELS = {"LUT4": 1.0, "TRELLIS_DPR16X4": 1.0, "CCU2C": 1.0, "PFUMX": 0.2, "L6MUX21": 0.2}
"""Levels that a cell takes from an input to an output; all other cells begin and end paths."""

CARRY = 0.1
"""From CIN to COUT."""

CLOCKS = ("CLK", "CLKA", "CLKB", "WCK")
LUT_RAM_READ = ("RAD",)
"""Inputs of LUT RAM that reach its outputs without a clock."""


def _ports(cell, direction):
    for port, bits in cell["connections"].items():
        if cell["port_directions"][port] == direction:
            for bit in bits:
                if isinstance(bit, int):
                    yield port, bit


def _graph(module):
    """By output bit what leads there, ``(input bit, levels)``; and the ends of paths, ``(bit, cell, port)``."""
    before, ends = {}, []
    for name, cell in module["cells"].items():
        kind = cell["type"]
        inputs = list(_ports(cell, "input"))
        through = [(port, bit) for port, bit in inputs if kind != "TRELLIS_DPR16X4" or port in LUT_RAM_READ]
        if kind in LEVELS:
            for output, bit in _ports(cell, "output"):
                short = {"CIN"} if output == "COUT" else set()
                before[bit] = [(at, CARRY if port in short else LEVELS[kind]) for port, at in through]
        else:
            through = []
        ends += [(bit, name, port) for port, bit in inputs if port not in CLOCKS and (port, bit) not in through]
    return before, ends


def levels(module):
    """Of each end of a path ``(levels, bits of the path from its begin)``, by ``(cell, port, bit)``. ``ValueError`` if
    logic goes in a circle.
    """
    before, ends = _graph(module)
    found, last = {}, {}
    try:
        for bit in TopologicalSorter({bit: [at for at, _ in ways] for bit, ways in before.items()}).static_order():
            ways = [(found[at] + cost, at) for at, cost in before.get(bit, ())]
            found[bit], last[bit] = max(ways, default=(0.0, None))
    except CycleError as error:
        raise ValueError(f"logic goes in a circle through bit {error.args[1][0]}") from None

    def path(bit):
        bits = [bit]
        while (bit := last.get(bit)) is not None:
            bits.append(bit)
        return bits[::-1]

    return {(cell, port, bit): (found.get(bit, 0.0), path(bit)) for bit, cell, port in ends}


def deepest(module, most=20):
    """``histogram`` of ends by whole levels, and of the ``most`` deepest paths their ``levels``, where they begin
    (``source``) and end (``sink``); of paths from one register to one block the deepest only.
    """
    names = {}
    for name, net in module["netnames"].items():
        for bit in net["bits"]:
            names[bit] = min(names.get(bit, name), name, key=len)
    reached = levels(module)
    paths = {}
    for (cell, port, _), (depth, bits) in sorted(reached.items(), key=lambda each: -each[1][0]):
        source = names.get(bits[0], "?")
        pair = (source, ".".join(cell.split(".")[:3]))
        if pair not in paths:
            paths[pair] = {"levels": round(depth, 1), "source": source, "sink": f"{cell} {port}"}
        if len(paths) == most:
            break
    histogram = Counter(int(depth) for depth, _ in reached.values())
    return {"histogram": dict(sorted(histogram.items())), "paths": list(paths.values())}


def show(found):
    """Prints what :func:`deepest` returned."""
    print("levels of LUTs: " + ", ".join(f"{depth}: {ends:,}" for depth, ends in found["histogram"].items()))
    for path in found["paths"]:
        print(f"{path['levels']:5.1f}  {path['source']} -> {path['sink']}")


@command_line
def main(argv=None):
    parser = argparse.ArgumentParser(prog="python -m verbena.boards.depth", description=__doc__.split(":")[0])
    parser.add_argument("netlist", type=Path, help="yosys' JSON, after synth_ecp5")
    parser.add_argument("--top", default="top", help="its module (%(default)s)")
    parser.add_argument("--most", type=int, default=20, metavar="N", help="paths to show (%(default)s)")
    options = parser.parse_args(argv)
    try:
        module = json.loads(options.netlist.read_text())["modules"][options.top]
    except OSError as error:
        print(f"{options.netlist} cannot be read: {error.strerror}", file=sys.stderr)
        return 1
    except (ValueError, KeyError):
        print(f"{options.netlist} is no netlist of yosys with a module {options.top!r}", file=sys.stderr)
        return 1
    show(deepest(module, options.most))
    return 0


if __name__ == "__main__":
    sys.exit(main())
