"""Draws docs/architecture.png: ``python docs/draw_architecture.py``."""

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.patches import FancyBboxPatch, Rectangle

COLOURS = {
    "control": "#e8d9f3",
    "queue": "#d6e8fa",
    "transport": "#d9f2df",
    "memory": "#fdeccb",
    "dma": "#fbd9d3",
    "roce": "#e6e6e6",
    "outside": "#ffffff",
}

BLOCKS = {
    # name: (x, y, text, floor)
    "host": (0.2, 4.6, "host\nCPU and memory", "outside"),
    "registers": (2.4, 7.2, "registers\ndoorbells", "control"),
    "commands": (4.7, 7.2, "commands\ncounters", "control"),
    "sq": (4.7, 5.8, "SQ ring\nprefetcher", "queue"),
    "scheduler": (6.9, 5.8, "ready\nqueue", "queue"),
    "requester": (9.1, 5.8, "requester", "transport"),
    "transmitter": (13.5, 5.8, "transmitter", "transport"),
    "packetizer": (15.7, 5.8, "packetizer\n+ ICRC", "roce"),
    "access": (11.3, 4.6, "access check\nMPT, MTT caches", "memory"),
    "reader": (9.1, 4.6, "DMA read", "dma"),
    "completer": (9.1, 0.8, "completer", "transport"),
    "cq": (4.7, 3.2, "completion and\nevent writers", "queue"),
    "writer": (9.1, 3.2, "DMA write", "dma"),
    "rq": (6.9, 2.0, "RQ ring\nprefetcher", "queue"),
    "responder": (11.3, 2.2, "responder", "transport"),
    "acknowledger": (13.5, 3.9, "acknowledger\nACK queue", "transport"),
    "lookup": (13.5, 2.2, "QP lookup", "transport"),
    "depacketizer": (15.7, 2.2, "depacketizer\n+ ICRC, store", "roce"),
    "wire": (17.9, 4.0, "MAC", "outside"),
}

ARROWS = [
    ("host", "registers", "MMIO"),
    ("registers", "commands", ""),
    ("registers", "sq", "doorbells"),
    ("registers", "rq", ""),
    ("sq", "scheduler", ""),
    ("scheduler", "requester", "QP"),
    ("requester", "transmitter", "headers"),
    ("requester", "access", "accesses"),
    ("access", "reader", "pieces"),
    ("reader", "transmitter", "payload"),
    ("access", "transmitter", "verdict"),
    ("transmitter", "packetizer", ""),
    ("packetizer", "wire", ""),
    ("wire", "depacketizer", ""),
    ("depacketizer", "lookup", "header"),
    ("lookup", "responder", "request"),
    ("lookup", "completer", "ACK"),
    ("rq", "responder", "WQE"),
    ("responder", "access", "accesses"),
    ("access", "writer", "pieces"),
    ("writer", "acknowledger", "done"),
    ("responder", "acknowledger", "job"),
    ("acknowledger", "transmitter", "ACK"),
    ("acknowledger", "cq", "completion"),
    ("completer", "cq", "completion"),
    ("cq", "host", "CQE, EQE"),
    ("writer", "host", ""),
    ("host", "reader", "AXI4"),
]

WIDTH, HEIGHT = 1.75, 0.85


def centre(name):
    x, y, _, _ = BLOCKS[name]
    return x + WIDTH / 2, y + HEIGHT / 2


def edge(name, towards):
    """Where the line from the block's centre to ``towards`` leaves the block."""
    (x, y), (tx, ty) = centre(name), towards
    dx, dy = tx - x, ty - y
    scale = min(WIDTH / 2 / abs(dx) if dx else 9e9, HEIGHT / 2 / abs(dy) if dy else 9e9)
    return x + dx * scale, y + dy * scale


def main():
    figure, axes = plt.subplots(figsize=(16, 7.2), dpi=110)
    for x, y, text, floor in BLOCKS.values():
        axes.add_patch(
            FancyBboxPatch((x, y), WIDTH, HEIGHT, boxstyle="round,pad=0.02", facecolor=COLOURS[floor], edgecolor="#555")
        )
        axes.text(x + WIDTH / 2, y + HEIGHT / 2, text, ha="center", va="center", fontsize=9)
    for start, end, label in ARROWS:
        tail, head = edge(start, centre(end)), edge(end, centre(start))
        axes.annotate("", head, tail, arrowprops={"arrowstyle": "-|>", "color": "#444", "lw": 1.1})
        if label:
            x, y = tail[0] + (head[0] - tail[0]) * 0.5, tail[1] + (head[1] - tail[1]) * 0.5
            box = {"facecolor": "white", "edgecolor": "none", "pad": 0.6}
            axes.text(x, y, label, fontsize=7.5, ha="center", va="center", color="#333", bbox=box)
    for i, (floor, colour) in enumerate(COLOURS.items()):
        if floor != "outside":
            axes.add_patch(Rectangle((0.2, 2.85 - 0.4 * i), 0.35, 0.24, facecolor=colour, edgecolor="#555"))
            axes.text(0.75, 2.97 - 0.4 * i, f"hdl/{floor}", fontsize=8.5, va="center")
    axes.set_xlim(0, 19.9)
    axes.set_ylim(0.4, 8.3)
    axes.axis("off")
    axes.set_title("Verbena: how data flows", fontsize=13)
    figure.tight_layout()
    figure.savefig(Path(__file__).with_name("architecture.png"))


if __name__ == "__main__":
    main()
