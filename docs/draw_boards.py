"""Draws docs/boards-setup.png: ``python docs/draw_boards.py``."""

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.patches import FancyBboxPatch

__all__ = ["main"]

INK, WIRE, BRIDGE, LOAD = "#2c3e50", "#c0392b", "#7d3cb5", "#7f8c8d"

BOXES = [
    # left, bottom, width, height, title, text, colour
    (0.3, 0.5, 5.6, 8.3, "Linux machine, 192.168.1.1", "", "#f7f7f7"),
    (
        0.7,
        6.5,
        4.8,
        1.5,
        "verbena-board ecpix5-85f",
        "loads the bitstream, waits for the node,\nprints what to type",
        "#cfe3f8",
    ),
    (0.7, 4.0, 4.8, 1.7, "Python driver", "etherbone:192.168.1.50\nregisters, doorbells, memory", "#e3d4f2"),
    (0.7, 1.1, 4.8, 2.1, "Soft-RoCE (rxe0), or a RoCE NIC", "ib_write_bw, ib_read_bw,\nyour program", "#d2efd8"),
    (11.3, 0.5, 6.4, 8.3, "board, 192.168.1.50", "", "#f7f7f7"),
    (11.7, 6.5, 5.6, 1.5, "FPGA's configuration", "build/ecpix5-85f/top.bit", "#dfe3e6"),
    (11.7, 4.0, 2.6, 1.7, "bridge", "only for\n192.168.1.1", "#e3d4f2"),
    (11.7, 1.1, 2.6, 2.1, "engine", "RoCE, ARP,\nping", "#d2efd8"),
    (14.9, 1.1, 2.4, 4.6, "memory", "block RAM\nor SDRAM:\nrings, keys,\npages,\npayload", "#fad2ca"),
]

CABLES = [
    # points, colour, text, where, both heads
    ([(5.5, 7.25), (11.7, 7.25)], LOAD, "USB, JTAG: openFPGALoader", (8.6, 7.5), False),
    ([(5.5, 4.85), (11.7, 4.85)], BRIDGE, "UDP port 1234: Etherbone", (8.6, 5.1), True),
    ([(5.5, 2.15), (11.7, 2.15)], WIRE, "UDP port 4791: RoCEv2", (8.6, 2.4), True),
    ([(14.3, 4.85), (14.9, 4.85)], BRIDGE, "", None, True),
    ([(14.3, 2.15), (14.9, 2.15)], WIRE, "", None, True),
    ([(13.0, 4.0), (13.0, 3.2)], BRIDGE, "", None, True),
]


def main():
    figure, axes = plt.subplots(figsize=(14, 7.4), dpi=100)
    cable = FancyBboxPatch((6.3, 1.3), 4.6, 4.4, boxstyle="round,pad=0.06,rounding_size=0.2")
    cable.set(facecolor="#fffbe9", edgecolor="#c9b458", linewidth=1.2, linestyle="--", zorder=0)
    axes.add_patch(cable)
    axes.text(
        8.6, 3.5, "one network cable,\n1 Gb/s or 100 Mb/s", ha="center", va="center", fontsize=11, color="#8a7a2a"
    )
    for left, bottom, width, height, title, text, colour in BOXES:
        shape = FancyBboxPatch((left, bottom), width, height, boxstyle="round,pad=0.06,rounding_size=0.15")
        shape.set(facecolor=colour, edgecolor="#555", linewidth=1.1, zorder=1)
        axes.add_patch(shape)
        axes.text(left + width / 2, bottom + height - 0.3, title, ha="center", va="center", fontsize=11, weight="bold")
        axes.text(left + width / 2, bottom + (height - 0.5) / 2, text, ha="center", va="center", fontsize=10, color=INK)
    for points, colour, text, where, both in CABLES:
        style = {"arrowstyle": "<|-|>" if both else "-|>", "color": colour, "lw": 2.4, "mutation_scale": 16}
        axes.annotate("", points[-1], points[0], arrowprops={**style, "shrinkA": 0, "shrinkB": 0}, zorder=3)
        if text:
            axes.text(*where, text, ha="center", va="center", fontsize=10.5, color=colour)
    axes.set_xlim(0, 18)
    axes.set_ylim(0.2, 9.1)
    axes.axis("off")
    figure.subplots_adjust(0.005, 0.005, 0.995, 0.995)
    figure.savefig(Path(__file__).with_name("boards-setup.png"))


if __name__ == "__main__":
    main()
