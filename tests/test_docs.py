"""The documentation says what the code says."""

import ast
import importlib.util
import re
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parent.parent / "docs"
BLOCK = re.compile(r"^\| ([^|]+) \| `(hdl/[\w/]+\.py)` \| [^|]+ \| ([^|]*) \| [^|]*\|$", re.MULTILINE)
"""A row of the table of blocks: names, file, cycles."""


@pytest.mark.parametrize("name", ["write_interface", "write_verbs"])
def test_what_is_generated(name):
    spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    assert script.FILE.read_text() == script.text(), f"run python docs/{name}.py"


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
