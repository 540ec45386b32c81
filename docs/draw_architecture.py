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
    "wire": "#dfe3e6",
}
OUTSIDE = "#f7f7f7"

C = [2.75 + 2.6 * i for i in range(7)]
"""Left edges of the columns."""
W, H = 1.8, 0.95
MAC = 21.2

TOP, SEND, RECEIVE = 12.2, 10.2, 1.3
"""Bottoms of the rows."""

BLOCKS = [
    # left, bottom, width, height, text, floor
    (0.1, RECEIVE, 1.5, 11.85, "host\n\nCPU,\ndriver,\nmemory:\n\nrings\nkey table\npage tables\npayload", None),
    (MAC, RECEIVE, 1.1, 9.85, "MAC", None),
    (C[0], TOP, W, H, "registers,\ndoorbells", "control"),
    (C[1], TOP, W, H, "commands", "control"),
    (C[5], TOP, W, H, "counters", "control"),
    (C[6], TOP, W, H, "port state", "control"),
    # transmit
    (C[0], SEND, W, H, "send WQE\nprefetcher", "queue"),
    (C[1], SEND, W, H, "ready queue", "stream"),
    (C[2], SEND, W, H, "requester", "transport"),
    (C[3], SEND, W, H, "transmit\nmerge", "transport"),
    (C[4], SEND, W, H, "queue of\n32 headers", "stream"),
    (C[5], SEND, W, H, "transmitter", "transport"),
    (C[6], SEND, W, H, "packetizer\n+ ICRC", "wire"),
    # shared
    (C[0], 3.3, W, 6.0, "AXI4\nread arbiter,\nwrite arbiter,\nstructure\nreaders and\nwriters", "dma"),
    (C[1], 3.3, 1.3, 0.8, "timers", "transport"),
    (C[2], 5.35, W, H, "completion and\nevent writers", "queue"),
    (C[3], 5.25, W, 1.95, "access check\n\nkeys (MPT),\npages (MTT)", "memory"),
    (C[3], 3.45, W, 0.75, "run arbiter", "stream"),
    (C[4], 8.55, W, 0.85, "payload reader", "dma"),
    (C[4], 7.35, W, 0.85, "atomic unit", "dma"),
    (C[4], 3.75, W, 0.95, "payload writer", "dma"),
    (C[5], 4.4, W, H, "acknowledger,\nACK queue", "transport"),
    (C[6], 7.25, W, H, "READ/atomic\nresponder,\nresponse rings", "transport"),
    # receive
    (C[0], RECEIVE, W, H, "receive WQE\nprefetcher", "queue"),
    (C[1], RECEIVE, W, H, "completer", "transport"),
    (C[2], RECEIVE, W, H, "response\nreceiver", "transport"),
    (C[3], RECEIVE, W, H, "responder", "transport"),
    (C[4], RECEIVE, W, H, "QP lookup", "transport"),
    (C[5], RECEIVE, W, H, "queue of\n256 headers", "stream"),
    (C[6], RECEIVE, W, H, "depacketizer\n+ ICRC, store", "wire"),
]

SEND_SIDE = ("send WQE", "ready queue", "requester", "transmit", "timers", "completer", "response\nreceiver")
"""How the texts of those blocks begin that an engine without requests does not have."""

STYLES = {
    "payload": {"color": "#c0392b", "lw": 2.6},
    "message": {"color": "#34495e", "lw": 1.4},
    "feedback": {"color": "#7f8c8d", "lw": 1.2, "linestyle": (0, (4, 2.5))},
}

CTL, TX, RX = TOP + H / 2, SEND + H / 2, RECEIVE + H / 2

ARROWS = [
    # points, kind, label, where it stands (its centre); "<" in the kind: a head at both ends
    ([(1.6, CTL), (C[0], CTL)], "message", "AXI4-Lite", (2.17, CTL + 0.17)),
    ([(C[0] + W, CTL), (C[1], CTL)], "message", "", None),
    ([(C[0] + W / 2, TOP), (C[0] + W / 2, SEND + H)], "message", "doorbells, WQEs", (C[0] + W / 2 + 0.8, 11.95)),
    ([(C[0] + 0.25, TOP), (C[0] + 0.25, 11.95), (2.3, 11.95), (2.3, RX), (C[0], RX)], "message", "", None),
    ([(C[1] + W, CTL), (C[1] + W + 0.8, CTL)], "feedback", "", None),
    ([(C[5] - 0.8, CTL), (C[5], CTL)], "feedback", "", None),
    ([(MAC + 0.55, SEND + H), (MAC + 0.55, CTL), (C[6] + W, CTL)], "message", "link", (C[6] + W + 0.6, CTL + 0.17)),
    # transmit
    ([(C[0] + W, TX), (C[1], TX)], "message", "QP", (C[1] - 0.4, TX + 0.17)),
    ([(C[1] + W, TX), (C[2], TX)], "message", "turn", (C[2] - 0.4, TX + 0.17)),
    ([(C[2] + W, TX), (C[3], TX)], "message", "packets", (C[3] - 0.4, TX + 0.17)),
    ([(C[3] + W, TX), (C[4], TX)], "message", "headers", (C[4] - 0.4, TX + 0.17)),
    ([(C[4] + W, TX), (C[5], TX)], "message", "", None),
    ([(C[5] + W, TX + 0.2), (C[6], TX + 0.2)], "message", "header", (C[6] - 0.4, TX + 0.37)),
    ([(C[5] + W, TX - 0.2), (C[6], TX - 0.2)], "payload", "payload", (C[6] - 0.42, TX - 0.41)),
    ([(C[6] + W, TX), (MAC, TX)], "payload", "frame", (C[6] + W + 0.68, TX + 0.2)),
    (
        [(C[2] + W, 10.4), (C[2] + W + 0.3, 10.4), (C[2] + W + 0.3, 9.85), (C[5] + 0.2, 9.85), (C[5] + 0.2, SEND)],
        "payload",
        "inline data",
        (C[4] + W / 2, 10.02),
    ),
    ([(C[3] + W / 2, SEND), (C[3] + W / 2, 7.2)], "message", "accesses", (C[3] + W / 2 + 0.45, 8.5)),
    # shared
    ([(1.6, 5.6), (C[0], 5.6)], "<payload", "AXI4", (1.95, 5.82)),
    ([(C[0] + W / 2, 9.3), (C[0] + W / 2, SEND)], "message", "WQEs", (C[0] + W / 2 + 0.4, 9.75)),
    ([(C[0] + W / 2, 3.3), (C[0] + W / 2, RECEIVE + H)], "message", "WQEs", (C[0] + W / 2 - 0.4, 2.85)),
    ([(C[0] + W, 9.12), (C[4], 9.12)], "payload", "reads", (C[1] + 0.4, 9.3)),
    ([(C[0] + W, 7.95), (C[4], 7.95)], "<payload", "atomics", (C[1] + 0.4, 8.14)),
    ([(C[0] + W, 6.75), (C[3], 6.75)], "message", "table entries", (C[1] + 0.7, 6.92)),
    ([(C[2], 5.82), (C[0] + W, 5.82)], "message", "CQE, EQE", (C[1] + 0.4, 5.99)),
    ([(C[4], 4.5), (C[0] + W, 4.5)], "payload", "writes", (C[1] + 0.4, 4.7)),
    ([(C[3] + W, 7.0), (C[4] - 0.35, 7.0), (C[4] - 0.35, 8.75), (C[4], 8.75)], "message", "", None),
    ([(C[4] - 0.35, 7.0), (C[4] - 0.35, 7.55), (C[4], 7.55)], "message", "pieces", (C[4] + 0.05, 7.12)),
    ([(C[3] + W, 5.6), (C[4] + W / 2, 5.6), (C[4] + W / 2, 4.7)], "message", "pieces", (C[4] + 0.4, 5.77)),
    ([(C[3] + W, 6.3), (C[5] + 0.95, 6.3), (C[5] + 0.95, SEND)], "message", "verdict", (C[4] + W / 2, 6.47)),
    ([(C[4] + W, 9.0), (C[5] + 0.45, 9.0), (C[5] + 0.45, SEND)], "payload", "payload", (C[5] - 0.35, 9.2)),
    ([(C[4] + W, 8.0), (C[5] + 0.7, 8.0), (C[5] + 0.7, SEND)], "payload", "values", (C[5] - 0.35, 8.2)),
    ([(C[5] + 1.2, 4.4 + H), (C[5] + 1.2, SEND)], "message", "ACK, NAK", (C[5] + 1.62, 6.75)),
    # responses
    ([(C[6], 7.6), (C[4] + W, 7.6)], "<message", "operands, results", (C[5] + 0.1, 7.4)),
    (
        [
            (C[6] + W, 7.75),
            (C[6] + W + 0.3, 7.75),
            (C[6] + W + 0.3, 11.42),
            (C[3] + W / 2, 11.42),
            (C[3] + W / 2, SEND + H),
        ],
        "message",
        "responses",
        (C[4] + W / 2, 11.59),
    ),
    (
        [(C[6] + 0.9, 7.25 + H), (C[6] + 0.9, 9.3), (C[5] + 1.68, 9.3), (C[5] + 1.68, SEND)],
        "payload",
        "replays",
        (C[6] + 0.35, 9.48),
    ),
    (
        [(C[5] + 1.44, SEND), (C[5] + 1.44, 8.8), (C[6] + 0.4, 8.8), (C[6] + 0.4, 7.25 + H)],
        "feedback",
        "answered",
        (C[6] - 0.02, 8.97),
    ),
    (
        [(C[5] + W, 4.9), (C[6] + 0.4, 4.9), (C[6] + 0.4, 7.25)],
        "<message",
        "release,\nanswered",
        (C[6] - 0.1, 5.3),
    ),
    # receive
    ([(MAC, RX), (C[6] + W, RX)], "payload", "frame", (C[6] + W + 0.5, RX + 0.2)),
    ([(C[6], RX), (C[5] + W, RX)], "message", "header", (C[6] - 0.4, RX + 0.17)),
    ([(C[5], RX), (C[4] + W, RX)], "message", "", None),
    ([(C[4], RX), (C[3] + W, RX)], "message", "request", (C[4] - 0.4, RX + 0.17)),
    ([(C[2], RX - 0.2), (C[1] + W, RX - 0.2)], "message", "jobs", (C[2] - 0.4, RX - 0.37)),
    (
        [(C[4] + W / 2, RECEIVE), (C[4] + W / 2, 0.55), (C[2] + W / 2, 0.55), (C[2] + W / 2, RECEIVE)],
        "message",
        "responses, ACKs, NAKs",
        (C[3] + W / 2 + 0.4, 0.72),
    ),
    (
        [(C[0] + W / 2, RECEIVE), (C[0] + W / 2, 0.95), (C[3] + 0.4, 0.95), (C[3] + 0.4, RECEIVE)],
        "message",
        "WQEs",
        (C[1] - 0.4, 1.12),
    ),
    (
        [(C[6] + 1.4, RECEIVE + H), (C[6] + 1.4, 4.0), (C[4] + W, 4.0)],
        "payload",
        "payload",
        (C[6] - 0.3, 4.2),
    ),
    ([(C[3] + W / 2, RECEIVE + H), (C[3] + W / 2, 3.45)], "message", "", None),
    ([(C[2] + 1.3, RECEIVE + H), (C[2] + 1.3, 3.82), (C[3], 3.82)], "message", "accesses", (C[3] - 0.4, 4.0)),
    ([(C[3] + W / 2, 4.2), (C[3] + W / 2, 5.25)], "message", "", None),
    ([(C[4] + W, 4.55), (C[5], 4.55)], "message", "done", (C[5] - 0.4, 4.72)),
    (
        [(C[4] + 0.5, 3.75), (C[4] + 0.5, 3.1), (C[1] + 1.65, 3.1), (C[1] + 1.65, RECEIVE + H)],
        "message",
        "done",
        (C[4] + 0.2, 3.27),
    ),
    (
        [(C[3] + 1.55, RECEIVE + H), (C[3] + 1.55, 2.5), (C[5] + 1.0, 2.5), (C[5] + 1.0, 4.4)],
        "message",
        "jobs",
        (C[5] - 0.4, 2.36),
    ),
    (
        [(C[3] + 1.25, RECEIVE + H), (C[3] + 1.25, 2.8), (C[6] + 0.9, 2.8), (C[6] + 0.9, 7.25)],
        "message",
        "READs, atomics",
        (C[5] - 0.1, 2.97),
    ),
    ([(C[5], 4.97), (C[2] + W / 2, 4.97), (C[2] + W / 2, 5.35)], "message", "completions", (C[5] - 0.5, 5.14)),
    ([(C[1] + 1.45, RECEIVE + H), (C[1] + 1.45, 5.5), (C[2], 5.5)], "message", "completions", (C[1] + 0.88, 5.12)),
    (
        [(C[0] + 1.5, 3.3), (C[0] + 1.5, 2.6), (C[2] + 0.3, 2.6), (C[2] + 0.3, RECEIVE + H)],
        "message",
        "WQEs",
        (C[1] + 0.05, 2.77),
    ),
    ([(C[1] + 0.5, RECEIVE + H), (C[1] + 0.5, 3.3)], "<feedback", "time", (C[1] + 0.8, 2.95)),
    # what turns back
    (
        [
            (C[2] + 0.55, SEND),
            (C[2] + 0.55, 9.6),
            (C[2] - 0.2, 9.6),
            (C[2] - 0.2, 2.87),
            (C[2] + 0.75, 2.87),
            (C[2] + 0.75, RECEIVE + H),
        ],
        "message",
        "targets",
        (C[2] + 0.3, 9.42),
    ),
    (
        [(C[2] + 0.25, SEND), (C[2] + 0.25, 9.85), (C[2] - 0.45, 9.85), (C[2] - 0.45, RX + 0.2), (C[1] + W, RX + 0.2)],
        "<feedback",
        "messages,\nprogress,\nretries",
        (C[2] - 0.9, 7.4),
    ),
    (
        [(C[1], RX), (C[1] - 0.35, RX), (C[1] - 0.35, 9.85), (C[1] + W / 2, 9.85), (C[1] + W / 2, SEND)],
        "feedback",
        "may go on",
        (C[1] + 0.3, 9.68),
    ),
    (
        [(C[2] + 1.2, SEND + H), (C[2] + 1.2, 11.4), (C[1] + 1.2, 11.4), (C[1] + 1.2, SEND + H)],
        "feedback",
        "again",
        (C[2] - 0.4, 11.57),
    ),
]

NOTES = [
    (C[1] + W + 0.9, CTL, "attributes and tokens, to every block", "left"),
    (C[5] - 0.9, CTL, "strobes, from every block", "right"),
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
        axes.add_patch(Rectangle((x, -0.38), 0.36, 0.28, facecolor=colour, edgecolor="#555", lw=0.9))
        axes.text(x + 0.48, -0.24, f"hdl/{floor}", fontsize=9, va="center")
        x += 1.6
    axes.add_patch(Rectangle((x, -0.38), 0.36, 0.28, facecolor=OUTSIDE, edgecolor="#555", lw=2.6))
    axes.text(x + 0.48, -0.24, "only to send", fontsize=9, va="center")
    x += 1.75
    for kind, text in (("payload", "payload"), ("message", "headers, requests"), ("feedback", "back or aside")):
        axes.plot([x + 0.1, x + 0.65], [-0.24, -0.24], **STYLES[kind])
        axes.text(x + 0.75, -0.24, text, fontsize=9, va="center")
        x += 1.6 if kind == "payload" else 2.2


def main():
    figure, axes = plt.subplots(figsize=(18, 11.2), dpi=100)
    for bottom, height, text, y in ((9.72, 2.0, "transmit  ►", 11.88), (0.3, 2.12, "◄  receive", 0.55)):
        axes.add_patch(Rectangle((2.45, bottom), 18.1, height, facecolor="#f2f6fa", edgecolor="none", zorder=0))
        axes.text(20.4, y, text, fontsize=11, color="#6b7f93", ha="right", va="center", weight="bold")
    for i, (points, kind, _, _) in enumerate(ARROWS):
        arrow(axes, points, kind, 1 + 0.001 * i + (0 if "feedback" in kind else 0.05))
    for x, y, width, height, text, floor in BLOCKS:
        colour = FLOORS.get(floor, OUTSIDE)
        shape = FancyBboxPatch(
            (x + 0.06, y + 0.06), width - 0.12, height - 0.12, boxstyle="round,pad=0.06,rounding_size=0.12"
        )
        send_side = text.startswith(SEND_SIDE) and text != "transmitter"
        shape.set(facecolor=colour, edgecolor="#555", linewidth=2.6 if send_side else 1.1, zorder=1.1)
        axes.add_patch(shape)
        axes.text(x + width / 2, y + height / 2, text, ha="center", va="center", fontsize=10, zorder=3)
    for _, _, label, place in ARROWS:
        if label:
            axes.text(*place, label, fontsize=8.5, ha="center", va="center", color="#2c3e50", zorder=3)
    for x, y, text, side in NOTES:
        axes.text(x, y, text, fontsize=9, color="#5d6d6e", va="center", ha=side)
    legend(axes)
    axes.set_xlim(0, 22.4)
    axes.set_ylim(-0.55, 13.35)
    axes.axis("off")
    figure.subplots_adjust(0.005, 0.005, 0.995, 0.995)
    figure.savefig(Path(__file__).with_name("architecture.png"))


if __name__ == "__main__":
    main()
