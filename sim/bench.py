"""Cycles per message, as perftest would print them: ``python -m verbena.sim.bench``, a table, a picture and JSON."""

import argparse
import json
import sys
from pathlib import Path

from verbena.hdl.abi.wqe import SendOpcode
from verbena.hdl.config import DATA_WIDTHS, Config

from .bench_rows import (
    CURVES,
    LOSSES,
    LOSSY,
    MTU,
    OPERATIONS,
    RETURNING,
    SIZES,
    both_ways,
    busy_latency,
    data_width,
    goodput,
    latency,
    round_trip,
    throughput,
)
from .console import Console, Progress, Table
from .devices import configure, tick_text, world
from .extra import require
from .model import rnic
from .wire_limit import go_back_n, wire_cycles

__all__ = ["main"]

CLOCK_MHZ = 156.25
COLOURS = dict(zip(CURVES, ("#2a6fb0", "#c2571a", "#3d8b4f")))


def draw(rows, path):
    """Throughput and message rate against size, and goodput against loss, as a picture."""
    require("matplotlib")
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (left, right, lossy) = plt.subplots(1, 3, figsize=(17, 4.8), dpi=110)
    for qps, style in ((1, "-"), (16, "--")):
        for name, colour in COLOURS.items():
            line = [r for r in rows if (r["op"], r["qps"], r["mtu"]) == (name, qps, MTU)]
            line = [r for r in line if "latency_cycles" not in r and "loss" not in r]
            sizes = [r["size"] for r in line]
            label = f"{name}, {qps} QP{'s' if qps > 1 else ''}"
            rate = [r["payload_bytes_per_cycle"] * 8 * CLOCK_MHZ / 1000 for r in line]
            left.plot(sizes, rate, style, color=colour, marker="o", ms=4, label=label)
            messages = [CLOCK_MHZ / r["cycles_per_message"] for r in line]
            right.plot(sizes, messages, style, color=colour, marker="o", ms=4, label=label)
    ideal = [wire_cycles(SendOpcode.RDMA_WRITE, size, MTU, rows[0]["data_width"]) for size in SIZES]
    wire = {"linestyle": ":", "color": "#555", "label": "wire, WRITE"}
    left.plot(SIZES, [s * 8 * CLOCK_MHZ / 1000 / i for s, i in zip(SIZES, ideal)], **wire)
    right.plot(SIZES, [CLOCK_MHZ / i for i in ideal], **wire)
    for axes, title in ((left, "payload, Gb/s"), (right, "messages, million/s")):
        axes.set_xscale("log", base=2)
        axes.set_xticks(SIZES, [str(s) for s in SIZES], rotation=30)
        axes.set_xlabel("message size, bytes")
        axes.set_title(title)
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8)
    right.set_yscale("log")
    for name in LOSSY:
        line = [r for r in rows if "loss" in r and r["op"] == name]
        for key, style, label in (("wire_fraction", "-o", "measured"), ("ideal_fraction", ":s", "ideal go-back-N")):
            curve = {"color": COLOURS[name], "ms": 4, "label": f"{name}, {label}"}
            lossy.plot([100 * r["loss"] for r in line], [r[key] for r in line], style, **curve)
    lossy.set_xscale("symlog", linthresh=0.1)
    lossy.set_xticks([100 * loss for loss in LOSSES], [f"{100 * loss:g}" for loss in LOSSES])
    lossy.set_ylim(0, 1.05)
    lossy.set_xlabel("frames lost, %")
    lossy.set_title("goodput of 64 KiB messages, share of the wire")
    lossy.grid(alpha=0.3)
    lossy.legend(fontsize=8)
    figure.suptitle(
        f"{rows[0]['data_width']}-bit engine at {CLOCK_MHZ} MHz, MTU {MTU}, "
        f"memory latency {rows[0]['memory_latency']} cycles"
    )
    figure.tight_layout()
    figure.savefig(path)


def show(rows, console):
    table = Table(
        title=f"memory read latency {rows[0]['memory_latency']} cycles, {rows[0]['data_width']} bits at {CLOCK_MHZ} MHz"
    )
    table.add_column("operation")
    titles = ("bytes", "MTU", "QPs", "cycles/message", "bytes/cycle", "of the wire", "Gb/s", "Mpps", "latency")
    for title in titles:
        table.add_column(title, justify="right")
    for row in rows:
        suffix = f", {100 * row['loss']:g} % lost" if "loss" in row else ""
        suffix += f", under READs of {row['under_reads'] // 1024} KiB" if "under_reads" in row else ""
        suffix += f", {row['messages_per_ack']:g} an ACK" if "messages_per_ack" in row else ""
        suffix += (" inline" if row.get("inline") else "") + (" pushed" if row.get("push") else "")
        cells = [row["op"] + suffix, *(str(row[k]) for k in ("size", "mtu", "qps"))]
        if "latency_cycles" in row:
            cells += [""] * 5 + [f"{row['latency_cycles']} cycles"]
        else:
            cycles, payload = row["cycles_per_message"], row["payload_bytes_per_cycle"]
            cells += [f"{cycles:.2f}", f"{payload:.3f}", f"{row['wire_fraction']:.1%}"]
            cells += [f"{payload * 8 * CLOCK_MHZ / 1000:.2f}", f"{CLOCK_MHZ / cycles:.3f}", ""]
        table.add_row(*cells)
    console.print(table)


def main(argv=None):
    parser = argparse.ArgumentParser(prog="python -m verbena.sim.bench", description=__doc__.splitlines()[0])
    parser.add_argument("--memory-latency", type=int, default=128, help="of the hosts, for which the engines are made")
    parser.add_argument("--data-width", type=int, choices=DATA_WIDTHS, default=64, help="of the engines, in bits")
    parser.add_argument("--output", type=Path, default=Path("build/bench.json"))
    args = parser.parse_args(argv)
    try:
        config = Config(data_width=args.data_width, memory_latency=args.memory_latency)
    except ValueError as error:
        parser.error(str(error))
    configure(memory_latency=args.memory_latency, design=rnic(config), seed=1)
    # Into a file or a pipe the table goes in full.
    console = Console(width=None if sys.stdout.isatty() else 120)
    work = [(throughput, (name, size, qps)) for name in CURVES for qps in (1, 16) for size in SIZES]
    work += [(throughput, (name, 65536, 1, 1024)) for name in CURVES]
    work += [(throughput, ("FETCH_ADD", 8, qps)) for qps in (1, 16)]
    work += [(both_ways, ("WRITE", 8, qps)) for qps in (1, 16)]
    for push in (True, False):
        work += [(latency, (name, 8, inline, push)) for name in ("SEND", "WRITE_WITH_IMM") for inline in (False, True)]
        work += [(latency, (name, 8, False, push)) for name in RETURNING]
    work += [(busy_latency, (mtu,)) for mtu in (4096, 1024)]
    work += [(goodput, (name, *item)) for name in LOSSY for item in LOSSES.items()]
    rows = []
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task("measuring", total=len(work))
        for function, arguments in work:
            progress.update(task, description=f"{function.__name__} {' '.join(map(str, arguments))}")
            rows.append(function(*arguments) | {"data_width": data_width(), "memory_latency": args.memory_latency})
            progress.advance(task)
    trips = {name: round_trip(name) for name in LOSSY}
    for row in rows:
        if "loss" in row:
            packet, trip = wire_cycles(OPERATIONS[row["op"]], row["mtu"], row["mtu"], data_width()), trips[row["op"]]
            row |= {"round_trip": trip, "ideal_fraction": round(go_back_n(row["loss"], packet, trip), 4)}
    args.output.parent.mkdir(parents=True, exist_ok=True)
    args.output.write_text(json.dumps(rows, indent=1) + "\n")
    picture = args.output.with_suffix(".png")
    draw(rows, picture)
    show(rows, console)
    console.print(tick_text(world().ports["sim0"].tick, world().clock_hz), highlight=False)
    console.print(f"{args.output} and {picture}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
