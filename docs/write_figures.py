"""Writes docs/figures.md and docs/bench.png from what ``make bench`` left in build/; run it after that."""

import json
import shutil
from pathlib import Path

from verbena.sim.bench.words import aim_text, name_of, value_text

HERE = Path(__file__).resolve().parent
FILE = HERE / "figures.md"
PICTURE = HERE / "bench.png"
BUILD = HERE.parent / "build"

HEAD = """# Figures

What `make bench` measured last, {width}-bit engine, {memory}/{write} cycles of a read or a write of host memory where
nothing else is said. Written by `docs/write_figures.py` from `build/bench.json`. Cycles do not depend on the machine.
Rows with random pages and rows with retries differ by some per cent with what was measured before them.

* **Cycles** are those of the engine's clock for each message, or what a latency row took from the first register write.
* **Of the wire**: the share that is reached of what the tighter direction of the wire can carry, requests included.
* **Aim**: what is to be reached, from `sim/bench/goals.py`; ✗ marks what is not.
* **Memory a/b**: a read takes a cycles, a write b, rather than 128 and 32; **engine for n** tells its `memory_latency`.
* **Retries** on a wire that loses nothing come from frames that the receiver had no room for (`drop_overflow`). Beside
  silent peers they are those of the silent queue pairs, whose timers ran out.

`make bench ALL=1` also measures engines that are made for slow memory; `ONLY="misses"` measures one group, `WIDTH=512`
another width. The group "queue pairs", up to 10,000 of which 64 have a slot, is measured with `ALL=1` only.

![All groups of rows](bench.png)
"""

COLUMNS = (
    "| operation | bytes | MTU | QPs | cycles | of the wire | value | aim |\n|---|---:|---:|---:|---:|---:|---:|---|\n"
)


def text(rows):
    """The page for these rows of ``build/bench.json``."""
    usual = next((row for row in rows if row["group"] != "memory latency"), rows[0])
    parts = [HEAD.format(width=usual["data_width"], memory=usual["memory_latency"], write=usual["write_latency"])]
    group = None
    for row in rows:
        if row["group"] != group:
            group = row["group"]
            parts.append(f"\n## {group[0].upper()}{group[1:]}\n\n{COLUMNS}")
        late = "latency_cycles" in row
        cells = [name_of(row), row["size"], row["mtu"], row["qps"]]
        cells += [row["latency_cycles"] if late else f"{row['cycles_per_message']:.2f}"]
        cells += ["" if late else f"{row['wire_fraction']:.1%}", "" if late else value_text(row), aim_text(row)]
        parts.append("| " + " | ".join(map(str, cells)) + " |\n")
    return "".join(parts)


if __name__ == "__main__":
    FILE.write_text(text(json.loads((BUILD / "bench.json").read_text())))
    shutil.copy(BUILD / "bench.png", PICTURE)
