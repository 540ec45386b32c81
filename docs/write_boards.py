"""Writes the tables of clocks and of switches into docs/boards.md, docs/architecture.md and README.md from
docs/boards.json.

``python docs/write_boards.py`` does that; ``python docs/write_boards.py build`` first takes what ``make bitstream``,
``make area`` and ``python -m verbena.boards.area_switches`` left in that folder (``boards.json``, ``area.json``,
``area_switches.json``) into docs/boards.json, the first two with the commit that is checked out. What was measured
before stays, so that boards and seeds may be built one by one, and what was taken before keeps its commit.
"""

import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

from verbena.boards.area_switches import table
from verbena.boards.variants import ROWS
from verbena.hdl.config import Config

HERE = Path(__file__).resolve().parent
FILE = HERE / "boards.json"
PAGES = (HERE / "boards.md", HERE / "architecture.md", HERE.parent / "README.md")

BEGIN, END = "<!-- clocks of {} -->", "<!-- end -->"
SWITCHES = "<!-- switches -->"

COLUMNS = {
    "boards": "board, device, commit, seed, engine's MHz, of, Ethernet's MHz (of 125), minutes, LUT4 sites, block RAMs",
    "area": "engine, commit, seed, MHz, minutes, LUT4 sites, flip-flops, block RAMs",
}


def _used(run, kind):
    used = run["utilization"].get(kind)
    return f"{used['used']:,} of {used['available']:,}" if used else "not kept"


def boards(results):
    rows = []
    for name, result in sorted(results["boards"].items()):
        for run in result["runs"]:
            engine = [each for each in run["clocks"].values() if each["wanted_mhz"] != 125]
            ethernet = [each for each in run["clocks"].values() if each["wanted_mhz"] == 125]
            cells = [f"`{name}`", f"{run['device']}-{run['speed']}", run["commit"], run["seed"], engine[0]["mhz"]]
            cells += [f"{engine[0]['wanted_mhz']:g}", ", ".join(f"{each['mhz']:g}" for each in ethernet)]
            cells += [round(run["seconds"] / 60), _used(run, "TRELLIS_COMB"), _used(run, "DP16KD")]
            rows.append(cells)
    return rows


def area(results):
    for run in results["area"]:
        used = [_used(run, kind) for kind in ("TRELLIS_COMB", "TRELLIS_FF", "DP16KD")]
        yield [run["engine"], run["commit"], run["seed"], run["fmax_mhz"], round(run["seconds"] / 60), *used]


def fill(text, results):
    """``text`` with the tables between its marks written anew."""
    tables = {SWITCHES: "\n".join(table(results["switches"]))}
    for name, rows in (("boards", boards), ("area", area)):
        columns = COLUMNS[name].split(", ")
        lines = [columns, ["---"] * len(columns), *rows(results)]
        tables[BEGIN.format(name)] = "\n".join("| " + " | ".join(map(str, cells)) + " |" for cells in lines)
    for begin, body in tables.items():
        if begin in text:
            before, _, rest = text.partition(begin)
            text = f"{before}{begin}\n\n{body}\n\n{rest[rest.index(END) :]}"
    return text


def _measured(run):
    return {key: value for key, value in run.items() if key != "commit"}


def _newest(before, measured, commit):
    """A run for each seed (and engine, if runs tell it), the newest."""

    def place(run):
        return list(ROWS).index(run.get("engine", next(iter(ROWS)))), run["seed"]

    runs = {place(run): run for run in before}
    for run in measured:
        if run not in map(_measured, runs.values()):
            runs[place(run)] = run | {"commit": commit}
    return [runs[each] for each in sorted(runs)]


def take(results, folder, commit):
    """``results`` with what stands in ``folder`` in the place of what was known of it."""
    path = folder / "boards.json"
    for name, result in (json.loads(path.read_text()) if path.exists() else {}).items():
        before = results["boards"].get(name, {}).get("runs", [])
        runs = _newest(before, [run for run in result["runs"] if "clocks" in run], commit)
        results["boards"][name] = {"core_mhz": result["core_mhz"], "runs": runs}
    path = folder / "area.json"
    if path.exists():
        measured = json.loads(path.read_text())
        engine = measured["engine"]
        if engine not in ROWS or measured["config"] != asdict(Config(**ROWS[engine])):
            raise SystemExit(f"{path} is of an engine that the table does not have: {engine}")
        placed = [{"engine": engine} | run for run in measured["runs"] if "error" not in run]
        results["area"] = _newest(results["area"], placed, commit)
    path = folder / "area_switches.json"
    if path.exists():
        rows = {name: dict(row) for name, row in results["switches"].items()}
        for name, row in json.loads(path.read_text()).items():
            if {**rows.get(name, {}), "commit": None} != {**row, "commit": None}:
                rows[name] = row | {"commit": commit}
        results["switches"] = {name: rows[name] for name in ROWS if name in rows}
    return results


if __name__ == "__main__":
    known = json.loads(FILE.read_text()) if FILE.exists() else {"boards": {}, "area": [], "switches": {}}
    for given in sys.argv[1:]:
        told = subprocess.run(
            ["git", "rev-parse", "--short", "HEAD"], cwd=HERE, capture_output=True, text=True, check=True
        )
        known = take(known, Path(given), told.stdout.strip())
    FILE.write_text(json.dumps(known, indent=1) + "\n")
    for page in PAGES:
        page.write_text(fill(page.read_text(), known))
