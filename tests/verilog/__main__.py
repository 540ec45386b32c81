"""``make test-verilog``: the blocks' tests in Amaranth's simulator, and each block's Verilog on the same inputs.

The first case of each test runs at its narrowest bus, the last at its widest, and :mod:`trace_recorder` writes what
stands at each block's ports. Then each block's Verilog gets the same inputs, and its outputs must be the same in each
cycle; payloads count while they are valid. What is undefined is random in the Verilog.
The table of all blocks is in ``build/test_verilog.txt``.
"""

import argparse
import os
import shutil
import subprocess
import sys
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from block_model import build
from block_trace import Block, read
from verbena.sim.model import build_directory

HERE = Path(__file__).parent
WORKERS = 2


@dataclass
class Outcome:
    """What became of a block's traces: rows compared, those with an undefined output, and (test, difference)."""

    block: Block
    simulations: int = 0
    rows: int = 0
    undefined: int = 0
    differences: list = field(default_factory=list)


def record(folder, tests, every):
    """Runs every so many of the tests, and records; False if one fails."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    path = os.pathsep.join([str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [sys.executable, "-m", "pytest", "-q", "-n", str(WORKERS), "--dist", "worksteal"]
    command += ["-p", "trace_recorder", "--record", folder, "--every", str(every)]
    # What Verilator compiles is the Verilog already.
    command += ["-m", "not verilator", *tests]
    return subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, check=False).returncode == 0


def compare(folder, library):
    """Replays all traces of a folder: a list of :class:`Outcome`."""
    blocks = [Block.from_json(path.read_text()) for path in sorted(folder.glob("*.json"))]
    outcomes = []
    for model in build(blocks, lambda block: (folder / f"{block.key}.il").read_text(), library, say):
        outcomes.append(outcome := Outcome(model.block))
        for path in sorted(folder.glob(f"{model.block.key}-*.traces")):
            for trace in read(path):
                outcome.simulations += 1
                outcome.rows += len(trace.rows) // model.block.row
                result = model.replay(trace.rows)
                outcome.undefined += result.undefined
                if result.difference:
                    outcome.differences.append((trace.test, result.difference))
    return sorted(outcomes, key=lambda outcome: (outcome.block.name, outcome.block.parameters))


def say(text):
    print(f"test-verilog: {text}", flush=True)


def table(outcomes):
    """A line a block and its parameters."""
    yield f"{'cycles':>9} {'undefined':>9} {'tests':>6}  equal  block"
    for each in outcomes:
        equal = "no" if each.differences else "yes"
        what = f"{each.block.name}({each.block.parameters})"
        yield f"{each.rows:9,} {each.undefined:9,} {each.simulations:6}  {equal:5}  {what}"


def summary(outcomes):
    """A line a block."""
    kinds = defaultdict(list)
    for each in outcomes:
        kinds[each.block.name].append(each)
    yield f"{'cycles':>9} {'undefined':>9} {'settings':>8}  equal  block"
    for name, each in kinds.items():
        rows, undefined = sum(one.rows for one in each), sum(one.undefined for one in each)
        equal = "no" if any(one.differences for one in each) else "yes"
        yield f"{rows:9,} {undefined:9,} {len(each):8}  {equal:5}  {name}"


def main():
    parser = argparse.ArgumentParser(prog="python tests/verilog", description=__doc__.split("\n", 1)[0])
    parser.add_argument("tests", nargs="*", default=["tests/hdl"], help="files, folders or tests (%(default)s)")
    parser.add_argument(
        "--every", type=int, default=1, metavar="N", help="of each file's tests, every Nth (%(default)s)"
    )
    options = parser.parse_args()
    root = build_directory()
    folder = root / "traces"
    passed = record(folder, options.tests, options.every)
    outcomes = compare(folder, root / "blocks")
    (root / "test_verilog.txt").write_text("\n".join([*table(outcomes), ""]))
    print("\n".join(summary(outcomes)))
    left_out = Counter()
    for path in folder.glob("left_out-*"):
        left_out.update(tuple(line.split("\t")[1:]) for line in path.read_text().splitlines())
    for (name, reason), count in sorted(left_out.items()):
        say(f"not compared: {name}, {count} times: {reason}")
    bad = [(each.block, test, difference) for each in outcomes for test, difference in each.differences]
    for block, test, difference in bad:
        say(f"{block.name}({block.parameters}) {difference}, in {test}")
    say(f"{len(outcomes)} blocks, {sum(each.rows for each in outcomes):,} cycles, {len(bad)} simulations differ")
    if not passed:
        say("some tests failed in Amaranth's simulator; what they did until then is compared, too")
    return 0 if passed and outcomes and not bad else 1


if __name__ == "__main__":
    sys.exit(main())
