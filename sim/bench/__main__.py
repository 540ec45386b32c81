"""Cycles per message, as perftest would print them: ``python -m verbena.sim.bench``, a table, a picture and JSON."""

import argparse
import json
import sys
from pathlib import Path

from verbena.hdl.config import DATA_WIDTHS, Config
from verbena.sw.tools.command import command_line, first_line

from ..console import Console, Progress, Table
from ..devices import world
from ..ticks import tick_text
from .picture import CLOCK_MHZ, draw
from .plan import GROUPS, plan, run
from .words import aim_text, name_of, value_text

__all__ = ["main", "show"]

TITLES = ("bytes", "MTU", "QPs", "memory", "cycles/message", "of the wire", "Gb/s", "Mpps", "value", "aim")


def show(rows, console):
    """Prints the rows as a table, a section a group; what misses its aim is marked, and counted below."""
    table = Table(title=f"{rows[0]['data_width']} bits at {CLOCK_MHZ} MHz; memory: its read latency in cycles")
    table.add_column("operation")
    for title in TITLES:
        table.add_column(title, justify="right")
    group = rows[0]["group"]
    for row in rows:
        if row["group"] != group:
            table.add_section()
            group = row["group"]
        cells = [name_of(row), *(str(row[k]) for k in ("size", "mtu", "qps", "memory_latency"))]
        if "latency_cycles" in row:
            cells += [""] * 4
        else:
            cycles, payload = row["cycles_per_message"], row["payload_bytes_per_cycle"]
            cells += [f"{cycles:.2f}", f"{row['wire_fraction']:.1%}"]
            cells += [f"{payload * 8 * CLOCK_MHZ / 1000:.2f}", f"{CLOCK_MHZ / cycles:.3f}"]
        table.add_row(*cells, value_text(row), aim_text(row), style="red" if row["met"] is False else None)
    console.print(table)
    aimed = [row for row in rows if row["aim"] is not None]
    met = sum(row["met"] for row in aimed)
    console.print(f"{met} of {len(aimed)} rows with an aim reach it; ✗ marks those that do not", highlight=False)


@command_line
def main(argv=None):
    parser = argparse.ArgumentParser(prog="python -m verbena.sim.bench", description=first_line(__doc__))
    parser.add_argument("--memory-latency", type=int, default=128, help="of the hosts, for which the engines are made")
    parser.add_argument("--data-width", type=int, choices=DATA_WIDTHS, default=64, help="of the engines, in bits")
    parser.add_argument("--output", type=Path, default=Path("build/bench.json"))
    parser.add_argument("--only", action="append", choices=GROUPS, help="measure this group of rows; may be repeated")
    parser.add_argument(
        "--all",
        action="store_true",
        help="measure what takes longer, too: engines made for slower memory, each compiled for some minutes",
    )
    args = parser.parse_args(argv)
    try:
        Config(data_width=args.data_width, memory_latency=args.memory_latency)
    except ValueError as error:
        parser.error(str(error))
    # Into a file or a pipe the table goes in full.
    console = Console(width=None if sys.stdout.isatty() else 160)
    items = [item for item in plan(args.all) if args.only is None or item.group in args.only]
    if not items:
        parser.error(f"the rows of {', '.join(args.only)} need engines of their own: --all")
    rows, begun = [], []
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task("measuring", total=len(items))

        def begin(item):
            if not console.is_terminal and item.group not in (one.group for one in begun):
                print(f"{item.group}, {len(begun) + 1} of {len(items)}", file=sys.stderr, flush=True)
            progress.update(task, description=item.text, completed=len(begun))
            begun.append(item)

        args.output.parent.mkdir(parents=True, exist_ok=True)
        for row in run(items, args.data_width, args.memory_latency, begin):
            rows.append(row)
            rows.sort(key=lambda row: GROUPS.index(row["group"]))
            # All of them take an hour: what is there stays, whatever happens to the next one.
            args.output.write_text(json.dumps(rows, indent=1) + "\n")
    picture = args.output.with_suffix(".png")
    draw(rows, picture)
    show(rows, console)
    console.print(tick_text(world().ports["sim0"].tick, world().clock_hz), highlight=False)
    console.print(f"{args.output} and {picture}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
