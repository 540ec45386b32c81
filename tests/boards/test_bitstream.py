"""The steps to a bitstream, by the tools themselves and by programs in their place."""

import json

import pytest
from blinker import Blinker, tiny
from stand_ins import ECPPACK, NEXTPNR_SAYS, YOSYS, stand_in
from verbena.boards import bitstream
from verbena.boards.build import ADDRESSES
from verbena.boards.cells import count_blocks
from verbena.boards.tools import BuildError


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(bitstream, "Top", Blinker)


@pytest.mark.slow
def test_by_the_tools(tmp_path):
    board = tiny()
    bitstream.synthesize(board, tmp_path, **ADDRESSES)
    netlist = (tmp_path / "top.json").read_text()
    assert ".py:" not in netlist
    assert str(tmp_path) not in netlist
    report = bitstream.place(board, tmp_path, 3)
    bitstream.publish(tmp_path, report)
    assert (tmp_path / "top.bit").stat().st_size > 100_000
    assert (tmp_path / "floorplan.png").read_bytes().startswith(b"\x89PNG")
    assert json.loads((tmp_path / "report.json").read_text()) == report
    assert (report["board"], report["seed"], report["device"]) == ("tiny", 3, "LFE5UM5G-45F")
    assert len(report["clocks"]) == 1
    assert all(clock["mhz"] > clock["wanted_mhz"] == 100 for clock in report["clocks"].values())
    # 23 bits of carry, 2 a cell; all flip-flops are in the block, but for those of the reset.
    block = count_blocks(tmp_path, bitstream.COMPOSED)["top.counter"]
    assert (block["ff"], block["bram"]) == (24, 0)
    assert report["utilization"]["TRELLIS_FF"]["used"] == 24 + 2
    # One network is the clock's, and one the reset's.
    assert report["utilization"]["DCCA"]["used"] == 2


def test_options_of_nextpnr(tmp_path, monkeypatch):
    """It gets the seed, the device and its static placer; all else is its own choice."""
    told = "import json, sys; open('told.json', 'w').write(json.dumps(sys.argv))\n" + NEXTPNR_SAYS
    for name, text in (("YOSYS", YOSYS), ("NEXTPNR_ECP5", told), ("ECPPACK", ECPPACK)):
        stand_in(tmp_path, monkeypatch, name, text)
    board = tiny()
    bitstream.synthesize(board, tmp_path, **ADDRESSES)
    bitstream.place(board, tmp_path, 5)
    told = json.loads((tmp_path / "seed-5" / "told.json").read_text())
    assert [told[told.index(option) + 1] for option in ("--seed", "--placer")] == ["5", "static"]
    device, results = {"--um5g-45k", "--package", "--speed"}, {"--textcfg", "--report", "--write"}
    given = {each for each in told if each.startswith("--")}
    assert given == device | results | {"--json", "--lpf", "--placer", "--seed", "--timing-allow-fail"}


@pytest.mark.parametrize(
    ("wanted", "said"),
    [(12, "tiny has no constraint for clk"), (100, "tiny misses clk: 99 of 100 MHz"), (99, None)],
)
def test_check(wanted, said):
    """nextpnr aims at 12 MHz if nobody says how fast a clock is: to reach that says nothing."""
    report = {"board": "tiny"} | bitstream._results(
        {"fmax": {"clk": {"achieved": 99, "constraint": wanted}}, "utilization": {}}
    )
    if said is None:
        bitstream.check(report)
    else:
        with pytest.raises(BuildError, match=said):
            bitstream.check(report)
