"""The floors of the repository: no import runs back up."""

import ast
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

GROUND = {"abi", "stream"}
MIDDLE = {"context", "memory", "queue", "wire", "dma", "ethernet"}

FLOORS = {
    "abi": set(),
    "stream": {"abi"},
    **dict.fromkeys(MIDDLE, GROUND),
    "transport": GROUND | MIDDLE,
    "control": GROUND | MIDDLE | {"transport"},
}
"""What each folder of hdl may import, besides itself. Files that stand above the folders may import them all."""

FILES = [path.relative_to(ROOT) for folder in ("hdl", "sw", "sim", "boards") for path in (ROOT / folder).rglob("*.py")]


def imports(path, text=None):
    """(absolute name, whether it was named relatively) of each module that a file imports, in its functions too."""
    package = ["verbena", *path.parent.parts]
    for node in ast.walk(ast.parse(text or (ROOT / path).read_text(), str(path))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, False
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = [*base, *(node.module.split(".") if node.module else [])]
            if node.module and not (node.module == "verbena" or module[-1] in ("hdl", "sw", "sim", "boards")):
                yield ".".join(module), bool(node.level)
            else:
                # `from ..stream import ram` and `from . import cqe`: the name may be a module, and that decides.
                for alias in node.names:
                    yield ".".join([*module, alias.name]), bool(node.level)


def trespasses(path, text=None):
    """The imports of a file that the rules forbid."""
    top, folder = path.parts[0], path.parts[1] if len(path.parts) > 2 else None
    for name, relative in imports(path, text):
        parts = name.split(".")
        if parts[0] == "verbena":
            other, inner = parts[1], parts[2] if len(parts) > 2 else None
            if top == "hdl":
                if other != "hdl":
                    yield f"{name}: hdl stands below {other}"
                elif not relative:
                    yield f"{name}: imports inside hdl are relative"
                elif folder in FLOORS and inner != folder and inner not in FLOORS[folder]:
                    yield f"{name}: {folder} must not know {inner}"
            elif top == "sw" and not (other == "sw" or (other == "hdl" and inner == "abi")):
                yield f"{name}: sw stands on hdl.abi alone"
        elif parts[0] not in sys.stdlib_module_names:
            if (top == "hdl" and folder == "abi") or path.parts[:2] == ("sw", "verbs"):
                yield f"{name}: plain Python only"
            elif top == "hdl" and parts[0] != "amaranth":
                yield f"{name}: hdl needs Amaranth and nothing else"


@pytest.mark.parametrize("path", FILES, ids=str)
def test_no_import_runs_back_up(path):
    assert list(trespasses(path)) == []


def test_every_folder_has_a_floor():
    folders = {path.name for path in (ROOT / "hdl").iterdir() if (path / "__init__.py").exists()}
    assert folders <= set(FLOORS)


@pytest.mark.parametrize(
    ("path", "text", "allowed"),
    [
        ("hdl/dma/reader.py", "from ..stream.packet import PacketBeat", True),
        ("hdl/dma/reader.py", "from . import axi", True),
        ("hdl/dma/reader.py", "from ..memory.access import AccessUnit", False),
        ("hdl/dma/reader.py", "from .. import memory", False),
        ("hdl/dma/reader.py", "from ..config import Config", False),
        ("hdl/dma/reader.py", "from verbena.hdl.stream.packet import PacketBeat", False),
        ("hdl/dma/reader.py", "def f():\n    from ..transport import psn", False),
        ("hdl/stream/table.py", "from ..abi.contexts import QP_CONTEXT", True),
        ("hdl/abi/header.py", "import amaranth", False),
        ("hdl/abi/header.py", "import struct", True),
        ("hdl/stream/fifo.py", "import numpy", False),
        ("hdl/rnic.py", "from .transport.requester import Requester", True),
        ("hdl/generate.py", "from ..sim import model", False),
        ("hdl/generate.py", "from verbena import sim", False),
        ("sw/adapter.py", "from verbena.hdl.abi import cqe", True),
        ("sw/adapter.py", "from ..hdl.stream import fifo", False),
        ("sw/adapter.py", "from verbena.hdl import rnic", False),
        ("sw/verbs/qp.py", "import rich", False),
        ("sim/model.py", "from ..hdl.rnic import Rnic", True),
    ],
)
def test_the_rules_bite(path, text, allowed):
    assert (list(trespasses(Path(path), text)) == []) == allowed
