"""The documentation says what the code says."""

import importlib.util
import re
from pathlib import Path

DOCS = Path(__file__).resolve().parent.parent / "docs"


def test_interface_is_generated():
    spec = importlib.util.spec_from_file_location("write_interface", DOCS / "write_interface.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    assert script.FILE.read_text() == script.text(), "run python docs/write_interface.py"


def test_files_named_in_the_architecture_exist():
    text = (DOCS / "architecture.md").read_text()
    files = set(re.findall(r"`((?:hdl|sim|sw|tests|docs)/[\w/]+\.\w+)`", text))
    assert files
    assert not [name for name in sorted(files) if not (DOCS.parent / name).exists()]
    links = re.findall(r"\]\(([^)#:]+)\)", text)
    assert not [name for name in links if not (DOCS / name).exists()]
