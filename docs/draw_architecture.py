"""Draws docs/architecture.png: ``python docs/draw_architecture.py``."""

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.patches import FancyBboxPatch, Rectangle

__all__ = ["main"]

FLOORS = {
    "control": "#e3d4f2",
    "queue": "#cfe3f8",
    "stream": "#ffffff",
    "transport": "#d2efd8",
    "memory": "#fde7b8",
    "dma": "#fad2ca",
    "roce": "#dfe3e6",
}
OUTSIDE = "#f7f7f7"

C = [2.75 + 2.9 * i for i in range(6)]
"""Left edges of the columns."""
W, H = 1.95, 0.95

BLOCKS = [
    # left, bottom, width, height, text, floor
    (0.1, 0.75, 1.5, 9.5, "host\n\nCPU,\ndriver,\nmemory:\n\nrings\nkey table\npage tables\npayload", None),
    (19.95, 0.75, 1.1, 7.6, "MAC", None),
    (C[0], 9.3, W, H, "registers,\ndoorbells", "control"),
    (C[1], 9.3, W, H, "commands", "control"),
    (C[5], 9.3, W, H, "counters", "control"),
    # transmit
    (C[0], 7.4, W, H, "send WQE\nprefetcher", "queue"),
    (C[1], 7.4, W, H, "ready queue", "stream"),
    (C[2], 7.4, W, H, "requester", "transport"),
    (C[3], 7.4, W, H, "queue of\n32 headers", "stream"),
    (C[4], 7.4, W, H, "transmitter", "transport"),
    (C[5], 7.4, W, H, "packetizer\n+ ICRC", "roce"),
    # shared
    (C[0], 2.4, W, 4.0, "AXI4\nread arbiter,\nwrite arbiter,\nstructure\nreaders and\nwriters", "dma"),
    (C[1], 3.55, W, H, "completion and\nevent writers", "queue"),
    (C[2], 3.55, W, 1.85, "access check\n\nkeys (MPT),\npages (MTT)", "memory"),
    (C[3], 5.7, W, 0.85, "payload reader", "dma"),
    (C[3], 2.3, W, 0.85, "payload writer", "dma"),
    (C[4], 3.55, W, H, "acknowledger,\nACK queue", "transport"),
    # receive
    (C[0], 0.75, W, H, "receive WQE\nprefetcher", "queue"),
    (C[1], 0.75, W, H, "completer", "transport"),
    (C[2], 0.75, W, H, "responder", "transport"),
    (C[3], 0.75, W, H, "QP lookup", "transport"),
    (C[4], 0.75, W, H, "queue of\n256 headers", "stream"),
    (C[5], 0.75, W, H, "depacketizer\n+ ICRC, store", "roce"),
]

STYLES = {
    "payload": {"color": "#c0392b", "lw": 2.6},
    "message": {"color": "#34495e", "lw": 1.4},
    "feedback": {"color": "#7f8c8d", "lw": 1.2, "linestyle": (0, (4, 2.5))},
}

TX, RX = 7.4 + H / 2, 0.75 + H / 2

ARROWS = [
    # points, kind, label, where it stands (its centre); "<" in the kind: a head at both ends
    ([(1.6, 9.78), (C[0], 9.78)], "message", "AXI4-Lite", (2.17, 9.95)),
    ([(C[0] + W, 9.78), (C[1], 9.78)], "message", "", None),
    ([(C[0] + W / 2, 9.3), (C[0] + W / 2, 7.4 + H)], "message", "doorbells", (C[0] + W / 2 + 0.55, 8.75)),
    ([(C[0] + 0.25, 9.3), (C[0] + 0.25, 8.83), (2.3, 8.83), (2.3, RX), (C[0], RX)], "message", "", None),
    ([(C[1] + W, 9.78), (C[1] + W + 1.0, 9.78)], "feedback", "", None),
    ([(C[5] - 1.0, 9.78), (C[5], 9.78)], "feedback", "", None),
    # transmit
    ([(C[0] + W, TX), (C[1], TX)], "message", "QP", (C[1] - 0.5, TX + 0.17)),
    ([(C[1] + W, TX), (C[2], TX)], "message", "turn", (C[2] - 0.5, TX + 0.17)),
    ([(C[2] + W, TX), (C[3], TX)], "message", "headers", (C[3] - 0.5, TX + 0.17)),
    ([(C[3] + W, TX), (C[4], TX)], "message", "", None),
    ([(C[4] + W, TX + 0.2), (C[5], TX + 0.2)], "message", "header", (C[5] - 0.5, TX + 0.37)),
    ([(C[4] + W, TX - 0.2), (C[5], TX - 0.2)], "payload", "payload", (C[5] - 0.5, TX - 0.41)),
    ([(C[5] + W, TX), (19.95, TX)], "payload", "frame", (C[5] + W + 0.37, TX + 0.2)),
    ([(C[2] + W, 7.62), (10.8, 7.62), (10.8, 7.05), (14.7, 7.05), (14.7, 7.4)], "payload", "inline data", (12.6, 7.2)),
    ([(C[2] + W / 2, 7.4), (C[2] + W / 2, 5.4)], "message", "accesses", (C[2] + W / 2 + 0.5, 6.75)),
    # shared
    ([(1.6, 4.4), (C[0], 4.4)], "<payload", "AXI4", (1.95, 4.62)),
    ([(C[0] + W / 2, 6.4), (C[0] + W / 2, 7.4)], "message", "WQEs", (C[0] + W / 2 + 0.4, 6.9)),
    ([(C[0] + W / 2, 2.4), (C[0] + W / 2, 0.75 + H)], "message", "WQEs", (C[0] + W / 2 + 0.4, 2.05)),
    ([(C[0] + W, 6.12), (C[3], 6.12)], "payload", "reads", (C[1] + 0.5, 6.3)),
    ([(C[0] + W, 5.05), (C[2], 5.05)], "message", "table entries", (C[1] + 0.85, 5.22)),
    ([(C[1], 4.02), (C[0] + W, 4.02)], "message", "CQE, EQE", (C[1] - 0.475, 4.19)),
    ([(C[3], 2.72), (C[0] + W, 2.72)], "payload", "writes", (C[1] + 0.5, 2.5)),
    ([(C[2] + W, 5.15), (C[3] + W / 2, 5.15), (C[3] + W / 2, 5.7)], "message", "pieces", (C[3] + 0.45, 5.32)),
    ([(C[2] + W, 3.75), (C[3] + W / 2, 3.75), (C[3] + W / 2, 3.15)], "message", "pieces", (C[3] + 0.45, 3.58)),
    ([(C[2] + W, 4.75), (15.35, 4.75), (15.35, 7.4)], "message", "verdict", (13.9, 4.91)),
    ([(C[3] + W, 6.12), (14.95, 6.12), (14.95, 7.4)], "payload", "payload", (13.95, 6.32)),
    ([(15.95, 3.55 + H), (15.95, 7.4)], "message", "ACK, NAK", (16.42, 5.6)),
    # receive
    ([(19.95, RX), (C[5] + W, RX)], "payload", "frame", (C[5] + W + 0.37, RX + 0.2)),
    ([(C[5], RX), (C[4] + W, RX)], "message", "header", (C[5] - 0.5, RX + 0.17)),
    ([(C[4], RX), (C[3] + W, RX)], "message", "", None),
    ([(C[3], RX), (C[2] + W, RX)], "message", "request", (C[3] - 0.5, RX + 0.17)),
    ([(C[5] + W / 2, 0.75 + H), (C[5] + W / 2, 2.5), (C[3] + W, 2.5)], "payload", "payload", (17.0, 2.3)),
    ([(C[2] + W / 2, 0.75 + H), (C[2] + W / 2, 3.55)], "message", "accesses", (C[2] + W / 2 - 0.5, 2.25)),
    ([(C[3] + W, 2.95), (14.8, 2.95), (14.8, 3.55)], "message", "done", (14.0, 3.1)),
    ([(10.1, 0.75 + H), (10.1, 1.98), (15.5, 1.98), (15.5, 3.55)], "message", "jobs", (12.6, 2.13)),
    ([(C[4], 4.2), (10.95, 4.2), (10.95, 3.3), (7.2, 3.3), (7.2, 3.55)], "message", "completions", (12.6, 4.36)),
    ([(C[1] + W / 2, 0.75 + H), (C[1] + W / 2, 3.55)], "message", "completions", (C[1] + W / 2 - 0.63, 2.05)),
    ([(C[0] + W / 2, 0.75), (C[0] + W / 2, 0.42), (9.1, 0.42), (9.1, 0.75)], "message", "WQEs", (4.6, 0.57)),
    ([(C[3] + W / 2, 0.75), (C[3] + W / 2, 0.1), (6.6, 0.1), (6.6, 0.75)], "message", "ACK, NAK", (11.4, 0.27)),
    # what turns back
    (
        [(C[2] + 0.3, 7.4), (C[2] + 0.3, 6.75), (8.08, 6.75), (8.08, RX), (C[1] + W, RX)],
        "<feedback",
        "messages",
        (7.62, 6.62),
    ),
    ([(C[2] + 1.6, 7.4 + H), (C[2] + 1.6, 8.7), (6.9, 8.7), (6.9, 7.4 + H)], "feedback", "again", (8.1, 8.85)),
]

NOTES = [
    (C[1] + W + 1.15, 9.78, "attributes and tokens, to every block"),
    (C[5] - 1.15, 9.78, "strobes, from every block"),
]


def arrow(axes, points, kind, order):
    """A line along ``points``, with a halo, so that a line it crosses is seen to pass beneath."""
    style = STYLES[kind.removeprefix("<")]
    xs, ys = zip(*points)
    joins = {"solid_joinstyle": "round", "solid_capstyle": "butt"}
    axes.plot(xs, ys, color="white", lw=style["lw"] + 3.4, zorder=order, **joins)
    axes.plot(xs, ys, zorder=order, **style, **joins)
    heads = [(points[-2], points[-1])] + ([(points[1], points[0])] if kind.startswith("<") else [])
    for tail, head in heads:
        # The arrow's own line is invisible: only its head is wanted.
        shape = {"arrowstyle": "-|>", "color": style["color"], "lw": 0.01, "mutation_scale": 11 + style["lw"] * 1.5}
        axes.annotate("", head, tail, arrowprops={**shape, "shrinkA": 0, "shrinkB": 0}, zorder=order + 0.5)


def legend(axes):
    x = 2.75
    for floor, colour in FLOORS.items():
        axes.add_patch(Rectangle((x, -0.78), 0.36, 0.28, facecolor=colour, edgecolor="#555", lw=0.9))
        axes.text(x + 0.48, -0.64, f"hdl/{floor}", fontsize=9, va="center")
        x += 1.72
    for kind, text in (("payload", "payload"), ("message", "headers, requests"), ("feedback", "back or aside")):
        axes.plot([x + 0.1, x + 0.65], [-0.64, -0.64], **STYLES[kind])
        axes.text(x + 0.8, -0.64, text, fontsize=9, va="center")
        x += 1.85 if kind == "payload" else 2.35


def main():
    figure, axes = plt.subplots(figsize=(17, 9.3), dpi=100)
    for bottom, height, text, y in ((6.9, 1.65, "transmit  ►", 6.62), (-0.12, 1.98, "◄  receive", 2.05)):
        axes.add_patch(Rectangle((2.45, bottom), 17.35, height, facecolor="#f2f6fa", edgecolor="none", zorder=0))
        axes.text(19.7, y, text, fontsize=11, color="#6b7f93", ha="right", va="center", weight="bold")
    for i, (points, kind, _, _) in enumerate(ARROWS):
        arrow(axes, points, kind, 1 + 0.001 * i + (0 if "feedback" in kind else 0.05))
    for x, y, width, height, text, floor in BLOCKS:
        colour = FLOORS.get(floor, OUTSIDE)
        shape = FancyBboxPatch(
            (x + 0.06, y + 0.06), width - 0.12, height - 0.12, boxstyle="round,pad=0.06,rounding_size=0.12"
        )
        shape.set(facecolor=colour, edgecolor="#555", linewidth=1.1, zorder=1.1)
        axes.add_patch(shape)
        axes.text(x + width / 2, y + height / 2, text, ha="center", va="center", fontsize=10, zorder=3)
    for _, _, label, place in ARROWS:
        if label:
            axes.text(*place, label, fontsize=8.5, ha="center", va="center", color="#2c3e50", zorder=3)
    for x, y, text in NOTES:
        axes.text(x, y, text, fontsize=9, color="#5d6d6e", va="center", ha="left" if x < 12 else "right")
    legend(axes)
    axes.set_xlim(0, 21.2)
    axes.set_ylim(-0.95, 10.4)
    axes.axis("off")
    figure.subplots_adjust(0.005, 0.005, 0.995, 0.995)
    figure.savefig(Path(__file__).with_name("architecture.png"))


if __name__ == "__main__":
    main()
