"""The picture of the benchmark: one panel a group of rows."""

import textwrap

from ..extra import require
from .goals import AT_MOST
from .loss import LOSSES, LOSSY
from .plan import CURVES, SIZES
from .words import name_of

__all__ = ["CLOCK_MHZ", "draw", "panels_of"]

CLOCK_MHZ = 156.25
COLOURS = dict(zip((*CURVES, "FETCH_ADD"), ("#2a6fb0", "#c2571a", "#3d8b4f", "#7d4fa0")))
MET, MISSED, FREE = "#3d8b4f", "#b8322a", "#8a8f98"
STYLES = {1: ("-", "o"), 16: ("--", "s")}
LABEL_WIDTH = 44


def _group(rows, *names):
    return [row for row in rows if row["group"] in names]


def _sizes(axes, title):
    axes.set_xscale("log", base=2)
    axes.set_xticks(SIZES, [str(s) for s in SIZES], rotation=30)
    axes.set_xlabel("message size, bytes")
    axes.set_title(title)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)


def _curves(rows, cycles, share):
    """Cycles a message and share of the wire, against size."""
    mtu = max(row["mtu"] for row in rows)
    for name in CURVES:
        both = [row for row in rows if row["op"] == name and row["mtu"] == mtu]
        for qps, (style, marker) in STYLES.items():
            line = [row for row in both if row["qps"] == qps]
            sizes = [row["size"] for row in line]
            curve = {"color": COLOURS[name], "marker": marker, "ms": 4}
            curve["label"] = f"{name}, {qps} QP{'s' if qps > 1 else ''}"
            cycles.plot(sizes, [row["cycles_per_message"] for row in line], style, **curve)
            share.plot(sizes, [row["wire_fraction"] for row in line], style, **curve)
        line = sorted(both, key=lambda row: row["size"])
        limit = [row["wire_cycles"] for row in line]
        label = "wire" if name == CURVES[-1] else None
        cycles.plot([row["size"] for row in line], limit, ":", color="#555", lw=1, label=label)
    cycles.set_yscale("log")
    share.set_ylim(0, 1.05)
    _sizes(cycles, f"cycles a message, MTU {mtu}")
    _sizes(share, "share of the wire's tighter direction")


def _label(row):
    mtu = f", MTU {row['mtu']}" if row["group"] == "mixed sizes" else ""
    return f"{name_of(row)}: {row['size']} bytes{mtu}, {row['qps']} QP{'s' if row['qps'] > 1 else ''}"


def _bars(axes, rows, title, figure=None):
    """A bar a row, with its aim as a mark; green if it is met, red if not, grey where there is none."""
    values = [row[figure or row["figure"]] for row in rows]
    colours = [{True: MET, False: MISSED, None: FREE}[row["met"]] for row in rows]
    places = range(len(rows))
    axes.barh(places, values, color=colours, height=0.65)
    shown = figure or rows[0]["figure"]
    for place, (row, value) in enumerate(zip(rows, values)):
        text = f"{value:.0%}" if shown == "wire_fraction" else f"{value:g}"
        if row["aim"] is not None and row["figure"] == shown:
            axes.plot([row["aim"]] * 2, [place - 0.42, place + 0.42], color="#111", lw=2)
            text += f"  (aim {'≤' if row['bound'] == AT_MOST else '≥'} {row['aim']:g})"
        if "ideal_cost_cycles" in row:
            axes.plot([row["ideal_cost_cycles"]] * 2, [place - 0.42, place + 0.42], ":", color="#111", lw=2)
            text += f"  (ideal {row['ideal_cost_cycles']})"
        axes.annotate(text, (value, place), (4, 0), textcoords="offset points", va="center", fontsize=8)
    labels = [_label(row) for row in rows]
    axes.set_yticks(places, [textwrap.fill(label, LABEL_WIDTH) for label in labels], fontsize=8)
    axes.invert_yaxis()
    axes.margins(x=0.35)
    axes.set_title(title)
    axes.grid(alpha=0.3, axis="x")
    axes.set_axisbelow(True)


def _lossy(axes, rows):
    for name in LOSSY:
        line = [row for row in rows if row["op"] == name]
        for key, style, label in (("wire_fraction", "-o", "measured"), ("ideal_fraction", ":s", "ideal go-back-N")):
            curve = {"color": COLOURS[name], "ms": 4, "label": f"{name}, {label}"}
            axes.plot([100 * row["loss"] for row in line], [row[key] for row in line], style, **curve)
    axes.set_xscale("symlog", linthresh=0.1)
    axes.set_xticks([100 * loss for loss in LOSSES], [f"{100 * loss:g}" for loss in LOSSES])
    axes.set_ylim(0, 1.05)
    axes.set_xlabel("frames lost, %")
    axes.set_title("goodput of 64 KiB messages, share of the wire")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)


def panels_of(rows):
    """What there is to draw: functions of the panels, and how many panels each needs."""
    panels = []
    if curves := _group(rows, "throughput"):
        panels.append((lambda one, two: _curves(curves, one, two), 2))

    def bars(title, *groups, which=lambda row: True, **options):
        if some := [row for row in _group(rows, *groups) if which(row)]:
            panels.append((lambda axes: _bars(axes, some, title, **options), 1))

    bars("UC and UD: share of the wire", "UC and UD", figure="wire_fraction")
    bars("a shared receive queue, cycles a message", "SRQ", figure="cycles_per_message")
    bars("other small messages, cycles a message", "different words", "both ways", "WQEs", figure="cycles_per_message")
    bars("slow memory (cycles of a read / of a write): share of the wire", "memory latency", figure="wire_fraction")
    bars("misses of the translation, cycles a message", "misses", figure="cycles_per_message")
    title = "more queue pairs than slots: times the cycles of one slot"
    bars(title, "queue pairs", which=lambda row: not row.get("silent"), figure="ratio_to_one_slot")
    title = "beside those whose peers are silent: times the cycles without them"
    bars(title, "queue pairs", which=lambda row: row.get("silent"), figure="ratio_to_answering")
    bars("keys: made valid, used, and made invalid, cycles", "keys", figure="cycles_per_message")
    bars("raw packets: share of the wire", "raw packets", figure="wire_fraction")
    bars("events a completion", "events", figure="events_per_completion")
    bars("latency alone, cycles", "latency")
    bars("latency beside long messages, worst, cycles", "mixed sizes")
    bars("what one loss costs, cycles", "one loss")
    if lossy := _group(rows, "lossy wire"):
        panels.append((lambda axes: _lossy(axes, lossy), 1))
    return panels


def draw(rows, path):
    """Draws all groups of rows that there are."""
    require("matplotlib")
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    panels = panels_of(rows)
    count = sum(number for _, number in panels)
    columns = min(2, max(1, count))
    lines = max(1, -(-count // columns))
    figure, grid = plt.subplots(lines, columns, figsize=(9 * columns, 5 * lines), dpi=100, squeeze=False)
    axes = list(grid.flat)
    for function, number in panels:
        function(*axes[:number])
        del axes[:number]
    for left in axes:
        left.set_axis_off()
    usual = next((row for row in rows if row["group"] != "memory latency"), rows[0])
    figure.suptitle(
        f"{rows[0]['data_width']}-bit engine at {CLOCK_MHZ} MHz; memory latency {usual['memory_latency']} cycles "
        "where nothing else is said; green: the aim is met, red: missed"
    )
    figure.tight_layout(rect=(0, 0, 1, 0.985))
    figure.savefig(path)
    plt.close(figure)
