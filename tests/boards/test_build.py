"""The command that builds bitstreams: which boards and seeds, what it says, and what it leaves if there is none."""

import json
import re
import signal
from datetime import date
from pathlib import Path

import pytest
from blinker import Blinker, tiny
from stand_ins import NEXTPNR, PLACED, REPORT, YOSYS, stand_in
from verbena.boards import bitstream, build

LUCK = (
    NEXTPNR
    + """
seed = int(given["--seed"])
if seed == 9:
    print("ERROR: Unable to place cell 'x', no BELs remaining")
    raise SystemExit(1)
placed["fmax"]["clk"]["achieved"] = 98.0 + seed
open("top.config", "w").write(str(seed))
"""
    + REPORT
)
"""Meets 100 MHz with seed 2 and above; 9 does not fit."""

TOOLS = {"YOSYS": YOSYS, "NEXTPNR_ECP5": LUCK, "ECPPACK": "open('top.bit', 'w').write(open('top.config').read())"}

OWN = """
from amaranth_boards.ecpix5 import ECPIX585Platform
from verbena.boards.board import Board

BOARDS = [Board("own", ECPIX585Platform, 100_000_000, minutes=7)]
"""


@pytest.fixture(autouse=True)
def tools(monkeypatch, tmp_path):
    monkeypatch.setattr(bitstream, "Top", Blinker)
    monkeypatch.setattr(build, "find_boards", lambda: {name: tiny(name) for name in ("one", "two")})
    for variable, text in TOOLS.items():
        stand_in(tmp_path, monkeypatch, variable, text)


def run(folder, *arguments):
    """Status, and what boards.json says."""
    status = build.main(["--output", str(folder), "--no-blocks", *arguments])
    path = folder / "boards.json"
    return status, json.loads(path.read_text()) if path.exists() else None


def complaints(capsys):
    """What is said besides the stages."""
    return [line for line in capsys.readouterr().err.splitlines() if not re.match(r" *\d+:\d\d  ", line)]


def test_without_a_board(capsys):
    assert build.main([]) == 0
    assert capsys.readouterr().out == "one\ntwo\n"


def test_an_unknown_board(tmp_path, capsys):
    assert run(tmp_path, "one", "three")[0] == 1
    assert complaints(capsys) == ["there is no board 'three'; there are one, two"]
    assert not (tmp_path / "one").exists()


def test_every_board_and_seed(tmp_path, capsys):
    """The bitstream is that of the first seed that meets; a seed that misses is one line, and the rest goes on."""
    status, boards = run(tmp_path, build.ALL, "--seeds", "1", "2", "3")
    assert status == 1
    assert complaints(capsys) == [f"{name}, seed 1: {name} misses clk: 99.0 of 100.0 MHz" for name in ("one", "two")]
    for name in ("one", "two"):
        assert [(each["seed"], each["meets"]) for each in boards[name]["runs"]] == [(1, False), (2, True), (3, True)]
        assert (tmp_path / name / "top.bit").read_text() == "2"
        assert json.loads((tmp_path / name / "report.json").read_text())["seed"] == 2
    first = boards["one"]
    assert first["config"]["qps"] == 16384
    assert first["runs"][0]["clocks"] == {"clk": {"mhz": 99.0, "wanted_mhz": 100.0}}
    assert first["runs"][0]["utilization"] == PLACED["utilization"]
    assert first["runs"][1]["device"] == "LFE5UM5G-45F"


def test_all_well(tmp_path, capsys):
    """Before the tools run it says how long they take and where they write; then each stage once."""
    arcs = """
for left in (124_000, 3_000):
    print(f"Info:       1000 |        0        999 |    0   999 |    {left}|       0.50       0.50|")
"""
    program = tmp_path / "nextpnr_ecp5"
    program.write_text(program.read_text() + arcs)
    assert run(tmp_path, "two", "--seeds", "3")[0] == 0
    said, folder = capsys.readouterr(), tmp_path / "two"
    first = f"two: usually takes 30 minutes; logs in {folder}: yosys.log, seed-3/nextpnr-ecp5.log\n"
    assert said.out.startswith(first)
    assert "two, seed 3" in said.out.splitlines()[-1]
    stages = [line.split("  ")[-1] for line in said.err.splitlines()]
    ours = "two, seed 3: "
    assert stages == ["two: synthesizing", f"{ours}routing, 124,000 arcs left", f"{ours}packing the bitstream"]
    assert (folder / "seed-3" / "nextpnr-ecp5.log").exists()


def test_what_does_not_fit(tmp_path, capsys):
    status, boards = run(tmp_path, "one", "--seeds", "9")
    (said,) = complaints(capsys)
    assert status == 1
    assert "one, seed 9: " in said
    assert "failed: ERROR: Unable to place cell 'x', no BELs remaining" in said
    assert set(boards) == {"one"}
    assert not (tmp_path / "one" / "top.bit").exists()


def test_synthesis_that_fails(tmp_path, capsys, monkeypatch):
    """Each board's is one line. An old bitstream does not stay."""
    run(tmp_path, "one", "--seeds", "2")
    complaints(capsys)
    stand_in(tmp_path, monkeypatch, "YOSYS", "print('ERROR: broken'); raise SystemExit(1)")
    status, boards = run(tmp_path, build.ALL)
    assert status == 1
    said = complaints(capsys)
    assert [line.split(":")[0] for line in said] == ["one", "two"]
    assert all("broken" in line for line in said)
    assert not any(board["runs"] for board in boards.values())
    assert not (tmp_path / "one" / "top.bit").exists()


@pytest.mark.parametrize("variable", TOOLS)
def test_a_missing_tool(variable, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv(variable, "/nowhere/tool")
    assert run(tmp_path, "one")[0] == 1
    (said,) = complaints(capsys)
    assert said.endswith("/nowhere/tool cannot be run: No such file or directory")


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
    assert run(tmp_path, "one", "--seeds", "2", "3", "--jobs", "2")[0] == 0


def test_interrupted(tmp_path, capsys, monkeypatch):
    """Ctrl-C ends the tools, and one line is said."""
    stand_in(tmp_path, monkeypatch, "YOSYS", "import os, signal; os.kill(os.getppid(), signal.SIGINT); signal.pause()")
    assert run(tmp_path, "one")[0] == 130
    assert complaints(capsys) == ["interrupted"]
    assert not (tmp_path / "one" / "top.bit").exists()


def test_terminated(tmp_path, capsys, monkeypatch):
    """SIGTERM ends them, too."""
    number = tmp_path / "number"
    text = (
        f"import os, signal; open({str(number)!r}, 'w').write(str(os.getpid())); os.kill(os.getppid(), signal.SIGTERM)"
    )
    stand_in(tmp_path, monkeypatch, "YOSYS", f"{text}; signal.pause()")
    with pytest.raises(SystemExit) as ended:
        run(tmp_path, "one")
    assert ended.value.code == 128 + signal.SIGTERM
    assert not Path(f"/proc/{number.read_text()}").exists()
    assert complaints(capsys) == []


def test_boards_built_before(tmp_path):
    """What is known of them stays, unless they are built again; a file in pieces is made anew."""
    before = run(tmp_path, "two")[1]["two"]
    _, boards = run(tmp_path, "one", "--seeds", "2")
    assert set(boards) == {"one", "two"}
    _, boards = run(tmp_path, "one", "--seeds", "3")
    assert [each["seed"] for each in boards["one"]["runs"]] == [3]
    assert boards["two"] == before
    assert date.fromisoformat(before["built"]) <= date.today()
    (tmp_path / "boards.json").write_text('{"two": ')
    assert set(run(tmp_path, "one")[1]) == {"one"}


def test_a_board_of_ones_own(tmp_path, capsys):
    """It is built like the others, and listed among them. A clock that is missed leaves its report, too."""
    path = tmp_path / "own.py"
    path.write_text(OWN)
    assert build.main(["--board-file", str(path)]) == 0
    assert capsys.readouterr().out == "one\nown\ntwo\n"
    run(tmp_path, "own", "--board-file", str(path))
    assert capsys.readouterr().out.startswith("own: usually takes 7 minutes")
    assert json.loads((tmp_path / "own" / "report.json").read_text())["device"] == "LFE5UM5G-85F"


def test_the_documentation_has_such_a_file(tmp_path):
    text = (Path(build.__file__).parents[1] / "docs" / "boards.md").read_text()
    path = tmp_path / "myboard.py"
    path.write_text(re.search(r"```python\n(# myboard.py\n.*?)```", text, re.DOTALL)[1])
    (board,) = build.read_boards(path).values()
    assert board.name == "myboard"
    assert board.platform().device.startswith("LFE5U")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "cannot be read: No such file or directory"),
        ("", "has no 'BOARDS'"),
        ("BOARDS = [1]", "must be a list of Board, not [1]"),
        ("BOARDS = []", "must be a list of Board, not []"),
        ("import nowhere", "fails: ModuleNotFoundError: No module named 'nowhere'"),
        (OWN.replace("100_", "101_"), "fails: ValueError: the engine of own can have 100000000 Hz, not 101000000"),
    ],
)
def test_a_board_file_that_is_none(text, said, tmp_path, capsys):
    path = tmp_path / "own.py"
    if text is not None:
        path.write_text(text)
    assert run(tmp_path, "one", "--board-file", str(path))[0] == 1
    assert said in complaints(capsys)[0]


def test_bad_addresses(tmp_path, capsys):
    friends = [each for n in (1, 2, 3) for each in ("--allow", f"10.0.0.{n}")]
    assert run(tmp_path, "one", *friends)[0] == 1
    assert complaints(capsys) == ["at most 2 addresses can be allowed"]
    for option, value in (("--mac", "02:00"), ("--ip", "10.0.0.256")):
        with pytest.raises(SystemExit) as stop:
            build.main(["one", option, value])
        assert stop.value.code == 2
        assert value in capsys.readouterr().err


def test_real_boards(monkeypatch):
    """Their names are those of the documentation."""
    monkeypatch.undo()
    boards = build.find_boards()
    assert set(boards) == {"ecpix5-85f", "ecpix5-45f", "versa-5g", "colorlight-i9", "butterstick", "logicbone"}
