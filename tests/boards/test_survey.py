"""All bitstreams, of boards that are as small as in test_build.py, with programs that say what we want."""

import json
from datetime import date

import pytest
from amaranth_boards.ecpix5 import ECPIX545Platform
from stand_ins import NEXTPNR, PLACED, REPORT, YOSYS, stand_in
from test_build import Blinker
from verbena.boards import build, survey
from verbena.boards.board import Board

LUCK = (
    NEXTPNR
    + """
seed = int(given["--seed"])
if seed == 9:
    print("ERROR: no BELs remaining")
    raise SystemExit(1)
placed["fmax"]["clk"]["achieved"] = 98.0 + seed
open("top.config", "w").write(str(seed))
"""
    + REPORT
)
"""Meets 100 MHz with seed 2 and above; 9 does not fit."""

ECPPACK_COPY = "open('top.bit', 'w').write(open('top.config').read())"


@pytest.fixture(autouse=True)
def tools(monkeypatch, tmp_path):
    boards = {
        "one": Board("one", ECPIX545Platform, 100_000_000),
        "two": Board("two", ECPIX545Platform, 100_000_000),
    }
    monkeypatch.setattr(build, "Top", Blinker)
    monkeypatch.setattr(survey, "find_boards", lambda: boards)
    for variable, text in (("YOSYS", YOSYS), ("NEXTPNR_ECP5", LUCK), ("ECPPACK", ECPPACK_COPY)):
        stand_in(tmp_path, monkeypatch, variable, text)


def run(folder, *arguments):
    status = survey.main(["--no-blocks", "--output", str(folder), *arguments])
    return status, json.loads((folder / "boards.json").read_text())


def test_every_board_and_seed(tmp_path, capsys):
    """The bitstream is that of the first seed that meets; a seed that misses is one line, and the rest goes on."""
    status, boards = run(tmp_path)
    assert status == 1
    said = [line for line in capsys.readouterr().err.splitlines() if "misses" in line]
    assert said == [f"{name}, seed 1: {name} misses clk: 99.0 of 100.0 MHz" for name in ("one", "two")]
    assert {name: [(each["seed"], each["meets"]) for each in board["runs"]] for name, board in boards.items()} == {
        "one": [(1, False), (2, True), (3, True)],
        "two": [(1, False), (2, True), (3, True)],
    }
    assert (tmp_path / "one" / "top.bit").read_text() == "2"
    first = boards["one"]
    assert first["fits"]
    assert first["config"]["qps"] == 64
    assert first["runs"][0]["clocks"] == {"clk": {"mhz": 99.0, "wanted_mhz": 100.0}}
    assert first["runs"][0]["utilization"] == PLACED["utilization"]
    assert first["runs"][1]["device"] == "LFE5UM5G-45F"


def test_what_does_not_fit(tmp_path, capsys):
    status, boards = run(tmp_path, "one", "--seeds", "9")
    assert status == 1
    said = [line for line in capsys.readouterr().err.splitlines() if "ERROR" in line]
    assert len(said) == 1
    assert "no BELs remaining" in said[0]
    assert not boards["one"]["fits"]
    assert set(boards) == {"one"}
    assert not (tmp_path / "one" / "top.bit").exists()


def test_side_by_side(tmp_path, monkeypatch):
    """Two runs wait for each other."""
    wait = """
import os, time
open(f"../../at-{given['--seed']}", "w").close()
end = time.monotonic() + 60
while not all(os.path.exists(f"../../at-{n}") for n in (2, 3)):
    assert time.monotonic() < end
    time.sleep(0.01)
"""
    stand_in(tmp_path, monkeypatch, "NEXTPNR_ECP5", LUCK + wait)
    status, _ = run(tmp_path, "one", "--seeds", "2", "3", "--jobs", "2")
    assert status == 0


def test_synthesis_that_fails(tmp_path, capsys, monkeypatch):
    """One board's does not stop the others."""
    stand_in(tmp_path, monkeypatch, "YOSYS", "print('ERROR: broken'); raise SystemExit(1)")
    status, boards = run(tmp_path)
    assert status == 1
    said = [line for line in capsys.readouterr().err.splitlines() if "broken" in line]
    assert [line.split(":")[0] for line in said] == ["one", "two"]
    assert not any(board["fits"] or board["runs"] for board in boards.values())


def test_all_well(tmp_path, capsys):
    status, boards = run(tmp_path, "two", "--seeds", "3")
    assert status == 0
    assert "misses" not in capsys.readouterr().err
    assert boards["two"]["runs"][0]["meets"]


def test_boards_built_before(tmp_path, capsys):
    """What is known of them stays, unless they are built again or are no more; a file in pieces is made anew."""
    run(tmp_path, "two")
    _, boards = run(tmp_path, "one", "--seeds", "2")
    assert set(boards) == {"one", "two"}
    assert "two" not in capsys.readouterr().out.splitlines()[-1]
    before = boards["two"]
    _, boards = run(tmp_path, "one", "--seeds", "3")
    assert [each["seed"] for each in boards["one"]["runs"]] == [3]
    assert boards["two"] == before
    assert date.fromisoformat(before["built"]) <= date.today()

    (tmp_path / "boards.json").write_text(json.dumps({"gone": before, "two": before}))
    assert set(run(tmp_path, "one")[1]) == {"one", "two"}
    (tmp_path / "boards.json").write_text('{"two": ')
    assert set(run(tmp_path, "one")[1]) == {"one"}


def test_an_unknown_board(tmp_path, capsys):
    assert survey.main(["three", "--output", str(tmp_path)]) == 1
    assert capsys.readouterr().err == "there is no board 'three'; there are one, two\n"
