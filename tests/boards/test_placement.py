"""What nextpnr is told, and in which order, by a stand-in for it."""

import copy
import json
import re
from itertools import pairwise

import pytest
from placed import Placed
from verbena.boards.placement import Stall, place_and_route, site
from verbena.boards.tools import StalledError

AIMS = {"'clk'": "250.00", "'other'": "125.00"}
OPTIONS = ["--timing-allow-fail", "--lpf", "top.lpf"]
LPF = 'LOCATE COMP "clk__io" SITE "K23";\nFREQUENCY PORT "clk__io" 25000000.0 HZ;\n'


@pytest.fixture
def crossed():
    """Placed: two block RAMs, each at the other's logic, and a way that is too long."""
    placed = Placed()
    placed.add("near", "DP16KD", "X40/Y6/EBR1", DOA0="near.D")
    placed.add("far", "DP16KD", "X4/Y9/EBR0", DOA0="far.D")
    placed.flop("left", "X5/Y5/SLICEA.FF0", M="near.D", fixed=True)
    placed.flop("right", "X38/Y10/SLICEB.FF0", M="far.D", fixed=True)
    placed.lut("lut", "X38/Y10/SLICEC.K0", "left.Q")
    placed.flop("back", "X6/Y5/SLICEA.FF0", M="lut.F", fixed=True)
    return placed.module


class Nextpnr:
    """Places everything where ``placed`` says, but block RAM where it is told to; says nothing of routing.

    ``routed`` is, one after the other, how fast the first clock is; None if routing comes to no end.
    """

    def __init__(self, folder, placed, routed=()):
        self.folder = folder
        self.placed = placed
        self.routed = list(routed)
        self.runs = []  # arguments, netlist, constraints
        bare = copy.deepcopy(placed)
        for cell in bare["cells"].values():
            del cell["attributes"]["NEXTPNR_BEL"]
        (folder / "top.json").write_text(json.dumps({"modules": {"top": bare}}))
        (folder / "top.lpf").write_text(LPF)

    def __call__(self, arguments, stalled=None):
        given = dict(pairwise(arguments))
        module = json.loads((self.folder / given["--json"]).read_text())["modules"]["top"]
        self.runs.append((arguments, module, (self.folder / given["--lpf"]).read_text()))
        if "--write" in given:
            result = copy.deepcopy(self.placed)
            for name, cell in module["cells"].items():
                if "BEL" in cell["attributes"]:
                    result["cells"][name]["attributes"]["NEXTPNR_BEL"] = cell["attributes"]["BEL"]
            (self.folder / given["--write"]).write_text(json.dumps({"modules": {"top": result}}))
        if "--log" in given:
            said = [f"Info: Max frequency for clock {n:>9}: 99.12 MHz (FAIL at {aim} MHz)" for n, aim in AIMS.items()]
            (self.folder / given["--log"]).write_text("\n".join(said))
        if "--no-place" in arguments:
            assert stalled is not None
            mhz = self.routed.pop(0)
            if mhz is None:
                raise StalledError("no end")
            told = aims((self.folder / given["--lpf"]).read_text())
            fmax = {name: {"achieved": 130 if name == "other" else mhz, "constraint": told[name]} for name in told}
            (self.folder / given["--report"]).write_text(json.dumps({"fmax": fmax}))

    def sites(self):
        return [module["cells"]["near"]["attributes"].get("BEL") for _, module, _ in self.runs]


def test_sites(tmp_path, crossed):
    """A placement without routing, and another with the sites that suit it; as those suit it still, no more."""
    nextpnr = Nextpnr(tmp_path, crossed)
    site(nextpnr, tmp_path, OPTIONS, 3)
    assert nextpnr.sites() == [None, "X4/Y6/EBR0"]
    for arguments, _, _ in nextpnr.runs:
        assert arguments[:5] == [*OPTIONS, "--seed", "3"]
        assert "--no-route" in arguments
    sited = json.loads((tmp_path / "sited.json").read_text())["modules"]["top"]["cells"]
    assert (sited["near"]["attributes"]["BEL"], sited["far"]["attributes"]["BEL"]) == ("X4/Y6/EBR0", "X40/Y9/EBR1")
    assert not (tmp_path / "placed.json").exists()


def test_sites_without_block_ram(tmp_path, crossed):
    for name in ("near", "far"):
        del crossed["cells"][name]
    nextpnr = Nextpnr(tmp_path, crossed)
    site(nextpnr, tmp_path, OPTIONS, 3)
    assert not nextpnr.runs
    assert (tmp_path / "sited.json").exists()


def aims(constraints):
    return {name: float(mhz) for name, mhz in re.findall(r'FREQUENCY NET "(\w+)" ([\d.]+) MHZ;', constraints)}


def run(tmp_path, crossed, *routed):
    nextpnr = Nextpnr(tmp_path, crossed, routed)
    (tmp_path / "sited.json").write_bytes((tmp_path / "top.json").read_bytes())
    return nextpnr.runs, place_and_route(nextpnr, tmp_path, OPTIONS, ["--textcfg", "x"], 7)


def test_placed_refined_and_routed(tmp_path, crossed):
    ((placing, _, _), (routing, refined, constraints)), report = run(tmp_path, crossed, 260.0)
    assert placing[:5] == [*OPTIONS, "--seed", "7"]
    assert "--no-route" in placing
    assert {"--no-pack", "--no-place"} <= set(routing)
    assert routing[:3] == ["--timing-allow-fail", "--seed", "7"]
    assert routing[-2:] == ["--textcfg", "x"]
    # The way from left to back went over the other side; a period is 4 ns.
    assert refined["cells"]["lut"]["attributes"]["NEXTPNR_BEL"] != "X38/Y10/SLICEC.K0"
    # Pins keep their places, and all clocks their aims, by the names of their nets.
    assert constraints.splitlines()[0] == LPF.splitlines()[0]
    assert "PORT" not in constraints
    assert aims(constraints) == {"clk": 250, "other": 125}
    assert report["fmax"]["clk"] == {"achieved": 260.0, "constraint": 250}
    assert not (tmp_path / "placed.json").exists()
    assert json.loads((tmp_path / "refined.json").read_text())["modules"]["top"] == refined


def told(runs):
    """Seed of each routing, and what the first clock's aim was."""
    return [
        (dict(pairwise(arguments))["--seed"], aims(constraints)["clk"])
        for arguments, _, constraints in runs
        if "--no-place" in arguments
    ]


def test_routed_until_it_is_fast_enough(tmp_path, crossed):
    """What was asked is 0.8 % less than the aim, whatever the router is told."""
    runs, report = run(tmp_path, crossed, 248.0, None, None, 248.1)
    assert told(runs) == [("7", 250), ("107", 251.5), ("207", 250), ("307", 248.5)]
    assert report["fmax"]["clk"] == {"achieved": 248.1, "constraint": 250}


def test_a_router_that_comes_to_no_end(tmp_path, crossed):
    """What has come to one stands; if nothing has, that is an error."""
    runs, report = run(tmp_path, crossed, None, 240.0, None, None, None)
    assert told(runs) == [("7", 250), ("107", 248.5), ("207", 250), ("307", 248.5), ("407", 247)]
    assert report["fmax"]["clk"]["achieved"] == 240
    with pytest.raises(StalledError):
        run(tmp_path, crossed, *[None] * 5)


def test_stall():
    """When nearly no wire is used twice, it has 120 iterations more, and 400 in all; when many are, 10 to do better."""

    def stalls(overused):
        stall = Stall()
        lines = [f"Info:     iter={n} wires=9 overused={u} overuse=9 tmgfail=8" for n, u in enumerate(overused, 1)]
        return next((n for n, line in enumerate(lines, 1) if stall(line)), None)

    assert stalls([500] * 50 + [20] + [30] * 300) == 171
    assert stalls([500] * 50 + [20] * 300) == 171
    assert stalls([500] * 600) == 400
    assert stalls([500] * 50 + [3] * 110) is None
    assert stalls([9000, 2000, 1000, *range(1001, 1100)]) == 13
    assert stalls([9000, 2000, *[1001] * 9, 1000, *[1001] * 9, 900, *range(800, 500, -1)]) is None
    assert stalls([9000, 501, *[600] * 20]) == 12
    assert stalls([9000, 500, *[600] * 20]) is None
    assert not Stall()("Info: Routing complete.")
