"""The table of what each switch costs."""

import json
from dataclasses import fields

import pytest
from verbena.boards import area_switches
from verbena.boards.area_switches import main, table
from verbena.boards.tools import BuildError
from verbena.boards.variants import ROWS
from verbena.hdl.config import Config


@pytest.fixture
def run(monkeypatch, tmp_path):
    """Runs the command, which finds ``costs`` in the place of cells; returns its status and what the file holds."""

    def run(costs, *arguments):
        def measure(changes, folder):
            if changes.get("srqs"):
                raise BuildError("yosys failed")
            return {"lut4": costs + len(changes), "lut4_sites": 2000, "bram": 10 - len(changes), "levels": 7.2}

        monkeypatch.setattr(area_switches, "measure", measure)
        path = tmp_path / "switches.json"
        return main(["--output", str(path), *arguments]), json.loads(path.read_text())

    return run


def test_each_switch_has_a_row():
    rows = [Config(**changes) for changes in ROWS.values()]
    for field in fields(Config):
        if isinstance(field.default, bool):
            assert {getattr(row, field.name) for row in rows} == {False, True}, field.name


def test_table(run, capsys):
    """What a row takes more than the standard one; what is known of other rows stays."""
    assert run(1000, "--only", "ud")[0] == 0
    assert capsys.readouterr().out.splitlines()[2:] == [
        "| standard | 1,000 | 2,000 | 10 | 7.2 |",
        "| `ud=False` | +1 | +0 | -1 | 7.2 |",
    ]
    status, results = run(1500, "--only", "alone")
    assert results["ud=False"]["standard"] == {"lut4": 1000, "lut4_sites": 2000, "bram": 10}
    assert status == 0
    assert {name: row["lut4"] for name, row in results.items()} == {
        "standard": 1000,
        "RC alone": 1502,
        "ud=False": 1001,
    }


def test_a_row_is_compared_with_the_standard_engine_of_its_time(run):
    """Whatever that takes later. The commit is told where it is known."""
    run(1000, "--only", "ud")
    _, results = run(1100, "--only", "standard")
    results["standard"]["commit"] = "0123abc"
    assert list(table(results))[1:] == [
        "| standard | 1,100 | 2,000 | 10 | 7.2 | 0123abc |",
        "| `ud=False` | +1 | +0 | -1 | 7.2 |  |",
    ]


def test_what_yosys_says(run, capsys):
    status, results = run(1000, "--only", "srqs")
    assert (status, list(results)) == (1, ["standard"])
    assert capsys.readouterr().err.endswith("yosys failed\n")
