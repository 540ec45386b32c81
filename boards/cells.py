"""How many cells of an ECP5 a design takes, and each of its blocks."""

import json
import os
import re
from concurrent.futures import ThreadPoolExecutor

from .synthesis import synth_ecp5
from .tools import run_yosys

__all__ = ["KINDS", "LUTS_OF", "count", "count_blocks", "show"]

KINDS = {"lut4": ("LUT4",), "ff": ("TRELLIS_FF",), "bram": ("DP16KD", "PDPW16KD"), "dsp": ("MULT18X18D",)}
LUTS_OF = {"LUT4": 1, "CCU2C": 2, "TRELLIS_DPR16X4": 6}
"""LUT4 sites that a cell takes: a carry cell two, a LUT RAM of 16 x 4 six (four of data, two of its write port)."""

MODULE = re.compile(r"^module \\(\S+)$", re.MULTILINE)

ROW = "{:40} {:>8} {:>8} {:>6} {:>5} {:>10}"


def count(cells):
    """Numbers by kind of what yosys' ``stat`` counts by type."""
    counts = {name: sum(cells.get(kind, 0) for kind in kinds) for name, kinds in KINDS.items()}
    counts["lut4_sites"] = sum(cells.get(kind, 0) * sites for kind, sites in LUTS_OF.items())
    return counts


def count_blocks(folder, composed):
    """:func:`count` of each block of ``top.il`` in ``folder`` with what is inside it, by the block's name.

    Blocks are the parts of those modules whose names ``composed`` holds, but for these themselves. yosys runs once for
    each, in one piece (all blocks in one run are more than its memory holds), as many side by side as there are
    processors. Each keeps its ports, whatever its neighbours do with them; so the sum is not that of the whole.
    """
    logs = folder / "blocks"
    logs.mkdir(exist_ok=True)

    def cells(block):
        script = f"read_rtlil ../top.il; {synth_ecp5(logs, f'-top {block}')}; tee -q -o {block}.json stat -json"
        run_yosys(script, logs, f"{block}.log")
        (module,) = json.loads((logs / f"{block}.json").read_text())["modules"].values()
        return count({kind.removeprefix("\\"): number for kind, number in module["num_cells_by_type"].items()})

    modules = MODULE.findall((folder / "top.il").read_text())
    blocks = [name for name in modules if name.rpartition(".")[0] in composed and name not in composed]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return dict(zip(blocks, pool.map(cells, blocks)))


def show(table):
    """Prints a table of :func:`count_blocks`, or what has its form, the largest first."""
    print(ROW.format("block", "LUT4", "FF", "BRAM", "DSP", "LUT4 sites"))
    for name, each in sorted(table.items(), key=lambda item: -item[1]["lut4_sites"]):
        print(ROW.format(name, *(each[kind] for kind in (*KINDS, "lut4_sites"))))
