"""The documentation says what the code says."""

import ast
import importlib.util
import json
import re
from dataclasses import asdict
from pathlib import Path

import pytest
from verbena.boards.variants import ROWS
from verbena.hdl.config import Config

DOCS = Path(__file__).resolve().parent.parent / "docs"
BLOCK = re.compile(r"^\| ([^|]+) \| `(hdl/[\w/]+\.py)` \| [^|]+ \| ([^|]*) \| [^|]*\|$", re.MULTILINE)
"""A row of the table of blocks: names, file, cycles."""


def script_of(name):
    spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    return script


@pytest.mark.parametrize("name", ["write_interface", "write_verbs"])
def test_what_is_generated(name):
    script = script_of(name)
    assert script.FILE.read_text() == script.text(), f"run python docs/{name}.py"


def test_tables_of_boards_are_those_of_their_file():
    script = script_of("write_boards")
    known = json.loads(script.FILE.read_text())
    for page in script.PAGES:
        assert script.fill(page.read_text(), known) == page.read_text(), "run python docs/write_boards.py"


def test_boards_are_taken_one_by_one(tmp_path):
    """A seed that is built again takes the place of its former run, and of no other; each has its own commit."""
    script = script_of("write_boards")
    known = {"boards": {}, "area": [], "switches": {}}

    def take(commit, seconds, *seeds):
        clocks = {"clk": {"mhz": 100.5, "wanted_mhz": 62.5}, "tx": {"mhz": 250, "wanted_mhz": 125}}
        run = {"device": "LFE5U-45F", "speed": "6", "clocks": clocks, "utilization": {}, "seconds": seconds}
        built = {"small": {"core_mhz": 62.5, "runs": [run | {"seed": seed} for seed in seeds]}}
        built["small"]["runs"].append({"seed": 9, "error": "no place for a cell", "seconds": seconds})
        (tmp_path / "boards.json").write_text(json.dumps(built))
        placed = [{"seed": seed, "fmax_mhz": 99.5, "seconds": seconds, "utilization": {}} for seed in seeds]
        placed.append({"seed": 9, "error": "no place for a cell", "seconds": 5})
        (tmp_path / "area.json").write_text(
            json.dumps({"engine": "standard", "config": asdict(Config()), "runs": placed})
        )
        script.take(known, tmp_path, commit)

    take("aaaa", 600, 3, 1)
    take("bbbb", 1200, 2)
    take("cccc", 1800, 3)
    take("dddd", 1800, 3)  # it lies there since
    runs = [(run["seed"], run["commit"]) for run in known["boards"]["small"]["runs"]]
    assert runs == [(1, "aaaa"), (2, "bbbb"), (3, "cccc")]
    page = script.fill("<!-- clocks of boards -->\n\nold\n\n<!-- end -->\nrest\n", known)
    assert "| `small` | LFE5U-45F-6 | bbbb | 2 | 100.5 | 62.5 | 250 | 20 | not kept | not kept |" in page
    assert "old" not in page
    assert page.endswith("<!-- end -->\nrest\n")
    assert [(run["seed"], run["commit"]) for run in known["area"]] == runs
    assert "| standard | bbbb | 2 | 99.5 | 20 |" in script.fill(
        "<!-- clocks of area -->\n\nold\n\n<!-- end -->\n", known
    )


def area_of(engine, config):
    """What ``make area`` leaves of an engine, with one seed."""
    run = {"seed": 1, "fmax_mhz": 300, "seconds": 5, "utilization": {}}
    return json.dumps({"engine": engine, "config": asdict(config), "runs": [run]})


def test_each_engine_has_its_clocks(tmp_path):
    script = script_of("write_boards")
    known = {"boards": {}, "area": [], "switches": {}}
    for engine in ("RC alone", "standard"):
        (tmp_path / "area.json").write_text(area_of(engine, Config(**ROWS[engine])))
        script.take(known, tmp_path, "aaaa")
    assert [run["engine"] for run in known["area"]] == ["standard", "RC alone"]


@pytest.mark.parametrize("engine", ["standard", "standard, qps=64"])
def test_clocks_of_another_engine_are_not_taken(tmp_path, engine):
    script = script_of("write_boards")
    (tmp_path / "area.json").write_text(area_of(engine, Config(qps=64)))
    with pytest.raises(SystemExit, match=rf"area\.json is of an engine that the table does not have: {engine}"):
        script.take({"boards": {}, "area": [], "switches": {}}, tmp_path, "aaaa")


def test_switches_are_taken_one_by_one(tmp_path):
    """Each row with the commit at which it was made, or made anew and differs."""
    script = script_of("write_boards")
    known = {"boards": {}, "area": [], "switches": {}}

    def take(commit, **rows):
        (tmp_path / "area_switches.json").write_text(json.dumps(rows))
        return script.take(known, tmp_path, commit)["switches"]

    take("aaaa", **{"standard": {"lut4": 100}, "ud=False": {"lut4": 80}})
    switches = take("bbbb", **{"uc=False": {"lut4": 90}, "standard": {"lut4": 100}, "ud=False": {"lut4": 85}})
    assert list(switches) == ["standard", "uc=False", "ud=False"]
    assert [(row["lut4"], row["commit"]) for row in switches.values()] == [(100, "aaaa"), (90, "bbbb"), (85, "bbbb")]


def test_files_named_in_the_architecture_exist():
    text = (DOCS / "architecture.md").read_text()
    files = set(re.findall(r"`((?:hdl|sim|sw|tests|docs)/[\w/]+\.\w+)`", text))
    assert files
    assert not [name for name in sorted(files) if not (DOCS.parent / name).exists()]
    links = re.findall(r"\]\(([^)#:]+)\)", text)
    assert not [name for name in links if not (DOCS / name).exists()]


def class_docstrings(file):
    """Docstrings of a file's classes, by their names."""
    tree = ast.parse((DOCS.parent / file).read_text())
    return {node.name: ast.get_docstring(node) or "" for node in tree.body if isinstance(node, ast.ClassDef)}


def strange_cycles(text):
    """Numbers in the column of cycles that do not stand in the docstring of the block."""
    found = []
    for names, file, cycles in BLOCK.findall(text):
        docs = class_docstrings(file)
        mine = [docs[name] for name in re.findall(r"`(\w+)`", names) if name in docs] or docs.values()
        known = set(re.findall(r"\d+", " ".join(mine)))
        found += [(names, number) for number in re.findall(r"\d+", cycles) if number not in known]
    return found


def test_cycles_are_those_of_the_docstrings():
    text = (DOCS / "architecture.md").read_text()
    assert len(BLOCK.findall(text)) >= 30
    assert strange_cycles(text) == []


def test_other_cycles_are_found():
    text = (DOCS / "architecture.md").read_text()
    wrong = text.replace("doorbell out after 2, read", "doorbell out after 2, 17, read")
    assert strange_cycles(wrong) == [("`Registers`", "17")]


VARIABLE = re.compile(r"[\"'](VERBENA_[A-Z_]*[A-Z])[\"']|^\s*(?:export )?(VERBENA_[A-Z_]*[A-Z])\s*[:?]?=", re.MULTILINE)
"""A variable of the environment, as Python and make name it."""


def variables_in_use():
    root = DOCS.parent
    files = [
        file for part in ("hdl", "sim", "sw", "boards", "tests", "examples") for file in (root / part).rglob("*.py")
    ]
    text = "\n".join(file.read_text() for file in [*files, root / "Makefile"])
    return {name for names in VARIABLE.findall(text) for name in names if name}


def table_of_variables():
    text = (DOCS / "simulation.md").read_text()
    return re.findall(r"^\| `(VERBENA_[A-Z_]+)` \|", text, re.MULTILINE)


def test_each_variable_stands_once_in_the_table():
    table = table_of_variables()
    assert len(table) == len(set(table))
    assert variables_in_use() == set(table)
