"""The measurement of area, on a design small enough to count by hand."""

import json

import pytest
from amaranth.hdl import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from stand_ins import NEXTPNR, PLACED, REPORT, stand_in
from verbena.boards import area
from verbena.boards.cells import count_blocks
from verbena.boards.harness import Harness
from verbena.boards.tools import BuildError
from verbena.hdl.config import Config
from verbena.hdl.generate import to_rtlil
from verbena.hdl.stream.fifo import Queue
from verbena.hdl.stream.slice import Slice


class Core(wiring.Component):
    """A register of 32 bits, and a queue of as many."""

    i: In(stream.Signature(32))
    o: Out(stream.Signature(32))

    def elaborate(self, platform):
        m = Module()
        m.submodules.register = register = Slice(32)
        m.submodules.queue = queue = Queue(32, 16)
        wiring.connect(m, wiring.flipped(self.i), register.i)
        wiring.connect(m, register.o, queue.i)
        wiring.connect(m, queue.o, wiring.flipped(self.o))
        return m


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("area")
    (folder / "top.il").write_text(to_rtlil(Harness(Core()), "top"))
    return folder


def test_blocks_are_counted_with_what_is_inside_them(folder):
    blocks = count_blocks(folder, area.COMPOSED)
    assert set(blocks) == {"top.core.register", "top.core.queue"}
    assert blocks["top.core.register"]["ff"] == 34  # its state twice
    assert blocks["top.core.queue"]["ff"] > 32
    assert blocks["top.core.queue"]["lut4_sites"] >= 8 * 4  # 32 bits of LUT RAM, 4 sites for 4 bits


def test_parts_of_a_composed_block_are_counted_one_by_one(tmp_path):
    class Engine(wiring.Component):
        i: In(stream.Signature(32))
        o: Out(stream.Signature(32))

        def elaborate(self, platform):
            m = Module()
            m.submodules.send = send = Core()
            m.submodules.other = other = Core()
            wiring.connect(m, wiring.flipped(self.i), send.i)
            wiring.connect(m, send.o, other.i)
            wiring.connect(m, other.o, wiring.flipped(self.o))
            return m

    (tmp_path / "top.il").write_text(to_rtlil(Harness(Engine()), "top"))
    blocks = {name.removeprefix("top.core."): each for name, each in count_blocks(tmp_path, area.COMPOSED).items()}
    assert set(blocks) == {"send.register", "send.queue", "other"}
    assert blocks["other"]["ff"] == blocks["send.register"]["ff"] + blocks["send.queue"]["ff"]


def test_the_whole_includes_the_harness(folder):
    counts = area.synthesize(folder)
    # 34 bits of inputs (one of them `ready`) shift, and as many of outputs are held, besides what folds them.
    assert counts["ff"] >= 33 + 33 + 34 + 34
    assert counts["bram"] == counts["dsp"] == 0


def test_the_reset_goes_by_a_network_made_for_clocks(tmp_path, monkeypatch):
    """As wires it keeps router1 busy for hours: that from outside, and that of the engine, with DEVICE_RESET."""
    stand_in(tmp_path, monkeypatch, "YOSYS", "print('ERROR: no such design'); raise SystemExit(3)")
    with pytest.raises(BuildError):
        area.measure(Config(qps=2, cqs=2), tmp_path, blocks=False)
    assert (tmp_path / "top.il").read_text().count(r"cell \DCCA") == 2


def test_each_seed_has_its_clock(tmp_path, monkeypatch, capsys):
    """They are placed in folders of their own, and what another run left there is gone."""
    design = to_rtlil(Harness(Core()), "top")
    monkeypatch.setattr(area, "write_design", lambda config, folder, spread: (folder / "top.il").write_text(design))
    tell = "import os; print('again' if os.path.exists('routed.json') else 'first')\n"
    lucky = "placed['fmax']['clk']['achieved'] = 90 + 10 * (int(given['--seed']) % 3)"
    stand_in(tmp_path, monkeypatch, "NEXTPNR_ECP5", NEXTPNR + tell + lucky + REPORT)
    output = tmp_path / "area.json"
    for seeds in (["1"], ["1", "2", "3"]):
        assert area.main(["--seeds", *seeds, "--no-blocks", "--output", str(output)]) == 0
    result = json.loads(output.read_text())
    assert [(run["seed"], run["fmax_mhz"]) for run in result["runs"]] == [(1, 100), (2, 110), (3, 90)]
    assert result["median_mhz"] == 100
    assert result["runs"][0]["utilization"] == PLACED["utilization"]
    for seed in (1, 2, 3):
        assert (tmp_path / "area" / f"seed-{seed}" / "nextpnr-ecp5.log").read_text() == "first\n"
    assert capsys.readouterr().out.splitlines()[-2:] == [
        f"clock 90 MHz on LFE5UM5G-85F-8, seed 3, {result['runs'][2]['seconds']} s",
        "median 100 MHz",
    ]


def test_a_seed_that_fails_stops_no_other(tmp_path, monkeypatch, capsys):
    """What the others reached is kept, and so it is while one of them still runs."""
    design = to_rtlil(Harness(Core()), "top")
    monkeypatch.setattr(area, "write_design", lambda config, folder, spread: (folder / "top.il").write_text(design))
    output = tmp_path / "area.json"
    fail = "if given['--seed'] == '1': print('ERROR: no place for a cell'); raise SystemExit(1)\n"
    look = f"if given['--seed'] == '3': print(open({str(output)!r}).read())\n"
    stand_in(tmp_path, monkeypatch, "NEXTPNR_ECP5", NEXTPNR + fail + look + REPORT)
    assert area.main(["--seeds", "1", "2", "3", "3", "--jobs", "1", "--no-blocks", "--output", str(output)]) == 1
    result = json.loads(output.read_text())
    assert [run["seed"] for run in result["runs"]] == [1, 2, 3]
    assert "no place for a cell" in result["runs"][0]["error"]
    assert result["median_mhz"] == result["runs"][1]["fmax_mhz"] == PLACED["fmax"]["clk"]["achieved"]
    assert result["config"]["qps"] == Config().qps
    said = json.loads((tmp_path / "area" / "seed-3" / "nextpnr-ecp5.log").read_text())
    assert said["runs"] == result["runs"][:2]
    told = capsys.readouterr()
    assert "seed 1: " in told.err
    assert "seed 1," not in told.out


def test_the_engine_is_named(tmp_path, monkeypatch):
    """With all that differs from the one of that name, so that nobody takes it for that."""
    made = []

    def write(config, folder, spread):
        made.append(config)
        (folder / "top.il").write_text(to_rtlil(Harness(Core()), "top"))

    monkeypatch.setattr(area, "write_design", write)
    stand_in(tmp_path, monkeypatch, "NEXTPNR_ECP5", NEXTPNR + REPORT)
    output = tmp_path / "area.json"
    assert area.main(["--engine", "RC alone", "--qps", "64", "--no-blocks", "--output", str(output)]) == 0
    assert made == [Config(uc=False, ud=False, qps=64)]
    assert json.loads(output.read_text())["engine"] == "RC alone, qps=64"


def test_a_clock_too_many_is_told(tmp_path, monkeypatch, capsys):
    design = to_rtlil(Harness(Core()), "top")
    monkeypatch.setattr(area, "write_design", lambda config, folder, spread: (folder / "top.il").write_text(design))
    another = "placed['fmax']['other'] = placed['fmax']['clk']"
    stand_in(tmp_path, monkeypatch, "NEXTPNR_ECP5", NEXTPNR + another + REPORT)
    assert area.main(["--no-blocks", "--output", str(tmp_path / "area.json")]) == 1
    assert "seed 1: expected one clock in nextpnr's report, not ['clk', 'other']" in capsys.readouterr().err


@pytest.mark.slow
def test_a_tool_that_fails_says_why(tmp_path, monkeypatch, capsys):
    stand_in(tmp_path, monkeypatch, "YOSYS", "print('ERROR: no such design'); raise SystemExit(3)")
    assert area.main(["--no-blocks", "--qps", "2", "--cqs", "2", "--output", str(tmp_path / "area.json")]) == 1
    assert "failed: ERROR: no such design" in capsys.readouterr().err
    assert not (tmp_path / "area.json").exists()
