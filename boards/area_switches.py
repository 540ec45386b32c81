"""What each switch of ``Config`` costs on an ECP5: ``python -m verbena.boards.area_switches``.

Each row is the standard engine with one thing changed, or several; yosys makes the whole of it, in the harness of
``make area``. Nothing is placed. A row stays in the file until it is made anew, with what the standard engine
took then.
"""

import argparse
import json
import sys
from pathlib import Path

from verbena.hdl.config import Config
from verbena.sw.tools.command import command_line, first_line

from .area import synthesize, write_design
from .depth import deepest
from .progress import Stages
from .tools import BuildError
from .variants import NAMED, ROWS

__all__ = ["main", "measure", "table"]

COUNTED = ("lut4", "lut4_sites", "bram")


def measure(changes, folder):
    """Cells of the standard engine with ``changes``, and how many LUTs are between two registers (``levels``)."""
    folder.mkdir(parents=True, exist_ok=True)
    write_design(Config(**changes), folder)
    cells = synthesize(folder)
    module = json.loads((folder / "top.json").read_text())["modules"]["top"]
    return cells | {"levels": deepest(module, 1)["paths"][0]["levels"]}


def table(results):
    """Lines of Markdown: what ``NAMED`` rows take, and what each other one takes more than the standard; with the
    commit of each, if that is known.
    """
    dated = any("commit" in row for row in results.values())
    yield f"| | LUT4 | sites | block RAMs | levels |{' commit |' * dated}\n|---|---:|---:|---:|---:|{'---|' * dated}"
    for name, row in results.items():
        form, base = ("{:,}", dict.fromkeys(COUNTED, 0)) if name in NAMED else ("{:+,}", row["standard"])
        counts = (form.format(row[kind] - base[kind]) for kind in COUNTED)
        line = f"| {name if name in NAMED else f'`{name}`'} | {' | '.join(counts)} | {row['levels']} |"
        yield line + f" {row.get('commit', '')} |" * dated


@command_line
def main(argv=None):
    parser = argparse.ArgumentParser(
        prog="python -m verbena.boards.area_switches", description=first_line(__doc__).partition(":")[0]
    )
    parser.add_argument("--only", default="", metavar="TEXT", help="rows whose names have this")
    parser.add_argument("--output", type=Path, default=Path("build/area_switches.json"))
    args = parser.parse_args(argv)
    results = json.loads(args.output.read_text()) if args.output.exists() else {}
    wanted = [name for name in ROWS if args.only in name]
    if "standard" not in results:
        wanted = ["standard", *(name for name in wanted if name != "standard")]
    for name in wanted:
        say = Stages(name)
        say("synthesizing")
        try:
            row = measure(ROWS[name], args.output.parent / "area_switches")
        except BuildError as error:
            print(error, file=sys.stderr)
            return 1
        if name not in NAMED:
            row["standard"] = {kind: results["standard"][kind] for kind in COUNTED}
        results[name] = row
        results = {each: results[each] for each in ROWS if each in results}
        args.output.write_text(json.dumps(results, indent=1) + "\n")
        say("done")
    print("\n".join(table(results)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
