"""A picture of a placed chip: which block stands where, and the longest way."""

import re
from collections import Counter

import matplotlib
import numpy as np

from .nextpnr import signal_of
from .synthesis import BLOCK_RAM

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.colors import to_rgb
from matplotlib.patches import Patch, Rectangle

__all__ = ["OTHERS", "block_of", "draw", "longest_way", "place_of"]

SLICED = ("TRELLIS_COMB", "TRELLIS_FF", "TRELLIS_RAMW")
"""Cells that stand in slices."""

SITE = re.compile(r"X(\d+)/Y(\d+)/(.*)")

MOST = 19
"""Blocks that have a colour of their own; the others share one."""

OTHERS, GREY, EMPTY = "all else", "#9a9a9a", "#ffffff"

RAM_WIDTH = 2.2
"""Tiles; so much room has each block RAM in its row."""


def place_of(cell):
    """Tile, and where in it, of a cell as nextpnr has written it: ``(x, y, bel)``; None if it has none."""
    found = SITE.fullmatch(cell["attributes"].get("NEXTPNR_BEL", ""))
    return found and (int(found[1]), int(found[2]), found[3])


def block_of(name, composed):
    """Block that a cell is of, by the cell's name, such as ``node.rnic.send.requester``.

    ``composed`` holds the names of what is no more than blocks of its own.
    """
    parts = [part.partition("$")[0] for part in name.split(".")]
    depth = 1
    while depth < len(parts) - 1 and ".".join(parts[:depth]) in composed:
        depth += 1
    block = ".".join(parts[:depth])
    return OTHERS if depth == len(parts) or block in composed else block


def longest_way(report):
    """Of the clock with the least to spare, in nextpnr's report: its net, nanoseconds, and the tiles passed."""
    name, _ = min(report["fmax"].items(), key=lambda item: item[1]["achieved"] / item[1]["constraint"])
    edge = f"posedge {name}"
    ways = [way["path"] for way in report["critical_paths"] if (way["from"], way["to"]) == (edge, edge)]
    path = max(ways, key=lambda steps: sum(step["delay"] for step in steps), default=[])
    tiles = [tuple(step[end]["loc"]) for step in path for end in ("from", "to")]
    passed = [tile for index, tile in enumerate(tiles) if index == 0 or tile != tiles[index - 1]]
    return name, sum(step["delay"] for step in path), passed


def draw(module, report, composed, title, path):
    """Draws ``module``, as nextpnr has written it once placed, and the longest way of its ``report``, into ``path``.

    A tile has the colours of the blocks whose cells stand in it, mixed, and is the paler the fewer these are. Block RAM
    is drawn as a box.
    """
    tiles, rams, sizes = {}, [], Counter()
    for name, cell in module["cells"].items():
        place = place_of(cell)
        if place is None or cell["type"] not in (*SLICED, BLOCK_RAM):
            continue
        block = block_of(name, composed)
        sizes[block] += 1
        if cell["type"] == BLOCK_RAM:
            rams.append((place[:2], block))
        else:
            tiles.setdefault(place[:2], Counter())[block] += 1
    named = [block for block, _ in sizes.most_common() if block != OTHERS][:MOST]
    palette = plt.get_cmap("tab20").colors
    colours = dict(zip(named, [colour for index, colour in enumerate(palette) if index != 14]))  # 14 is a grey

    places = [*tiles, *(place for place, _ in rams)]
    width, height = (1 + max((place[axis] for place in places), default=0) for axis in (0, 1))
    picture = np.ones((height, width, 3))
    full = max((sum(blocks.values()) for blocks in tiles.values()), default=0)
    for (x, y), blocks in tiles.items():
        count = sum(blocks.values())
        mixed = sum(np.array(colours.get(block, to_rgb(GREY))) * cells for block, cells in blocks.items()) / count
        share = 0.35 + 0.65 * count / full
        picture[y, x] = mixed * share + np.array(to_rgb(EMPTY)) * (1 - share)

    figure, axes = plt.subplots(figsize=(13, 1 + 9.6 * height / width), dpi=100)
    axes.imshow(picture, interpolation="nearest")
    for (x, y), block in rams:
        shape = {"facecolor": colours.get(block, GREY), "edgecolor": "black", "lw": 0.7}
        axes.add_patch(Rectangle((x - RAM_WIDTH / 2, y - 0.5), RAM_WIDTH, 1, **shape))
    clock, delay, passed = longest_way(report)
    handles = [Patch(facecolor=colours[block], label=f"{block} ({sizes[block]:,})") for block in named]
    handles.append(Patch(facecolor=GREY, label=f"{OTHERS} ({sum(sizes.values()) - sum(sizes[b] for b in named):,})"))
    if passed:
        xs, ys = zip(*passed)
        axes.plot(xs, ys, color="white", lw=4)
        label = f"longest way, {delay:.2f} ns,\nof {signal_of(clock)}"
        handles += axes.plot(xs, ys, color="black", lw=1.6, marker="o", ms=3.5, label=label)
    axes.set_title(title)
    axes.set_xlabel("column of tiles")
    axes.set_ylabel("row")
    axes.legend(handles=handles, fontsize=8, loc="upper left", bbox_to_anchor=(1.01, 1.0), title="cells")
    figure.savefig(path, bbox_inches="tight")  # with the legend, however long its names are
    plt.close(figure)
