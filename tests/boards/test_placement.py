"""Sites of block RAM, on a chip small enough to see the best ones."""

import copy
import json

import pytest
from verbena.boards.placement import Stall, assign_block_ram, place_and_route


def cell(kind, bel, **connections):
    attributes = {"NEXTPNR_BEL": bel} if bel else {}
    return {"type": kind, "attributes": attributes, "connections": {k: [v] for k, v in connections.items()}}


@pytest.fixture
def crossed():
    """Two block RAMs, each at the other's logic; one site of four is the best for each."""
    return {
        "cells": {
            "near": cell("DP16KD", "X40/Y22/EBR1", DOA0=1, CLKA=9, ADA0="0", DIA0=3),
            "far": cell("DP16KD", "X4/Y46/EBR0", DOA0=2, CLKA=9, DIA0=3),
            "left": cell("TRELLIS_COMB", "X5/Y20/SLICEA", A=1),
            "right": cell("TRELLIS_COMB", "X38/Y50/SLICEB", A=2),
            "packed": cell("TRELLIS_IO", None, I=2),
            **{f"flop{n}": cell("TRELLIS_FF", f"X{n}/Y60/FF", CLK=9) for n in range(70)},
        }
    }


def test_block_ram_goes_to_its_logic(crossed):
    netlist = copy.deepcopy(crossed)
    before, after = assign_block_ram(crossed, netlist)
    assert netlist["cells"]["near"]["attributes"]["BEL"] == "X4/Y22/EBR0"
    assert netlist["cells"]["far"]["attributes"]["BEL"] == "X40/Y46/EBR1"
    assert after < before


def test_costs(crossed):
    """Distances are counted to the box around the others, and a signal with many users does not count."""
    for n in range(3):
        crossed["cells"][f"other{n}"] = cell("TRELLIS_COMB", "X16/Y22/SLICEA", A=20 + n)
        crossed["cells"]["near"]["connections"][f"DOB{n}"] = [20 + n]
    before, after = assign_block_ram(crossed, netlist := copy.deepcopy(crossed))
    # At X4: 1 + 2 to the left one and 3 x 12 to the others; at X40: 35 + 2 and 3 x 24.
    assert netlist["cells"]["near"]["attributes"]["BEL"] == "X4/Y22/EBR0"
    assert after == pytest.approx(3 + 9 / 50 + 3 * (12 + 144 / 50) + 6 + 36 / 50)
    assert before > after


def test_a_design_without_block_ram(crossed):
    crossed["cells"] = {"left": crossed["cells"]["left"]}
    assert assign_block_ram(crossed, crossed) == (0, 0)


def test_without_block_ram_it_is_placed_once(tmp_path):
    runs, stops = [], []

    def run(arguments, stalled=None):
        runs.append(arguments)
        stops.append(stalled)

    (tmp_path / "top.json").write_text(json.dumps({"modules": {"top": {"cells": {"a": cell("LUT4", None, A=1)}}}}))
    place_and_route(run, tmp_path, ["--seed", "3"], ["--report", "x.json"])
    assert runs == [["--seed", "3", "--json", "top.json", "--report", "x.json"]]
    assert [type(each) for each in stops] == [Stall]


def test_each_round_begins_with_the_sites_of_the_one_before(tmp_path, crossed):
    """A placement without routing, another with the sites that suit it, and, as those suit it still, the whole."""

    def bare(module):
        for each in module["cells"].values():
            each["attributes"].pop("NEXTPNR_BEL", None)
        return module

    runs = []
    (tmp_path / "top.json").write_text(json.dumps({"modules": {"top": bare(copy.deepcopy(crossed))}}))

    def run(arguments, stalled=None):
        assert (stalled is None) == ("--no-route" in arguments)
        source = tmp_path / arguments[arguments.index("--json") + 1]
        module = json.loads(source.read_text())["modules"]["top"]
        runs.append((arguments, module["cells"]["near"]["attributes"].get("BEL")))
        if "--write" in arguments:
            placed = copy.deepcopy(crossed)
            for name, each in module["cells"].items():
                if "BEL" in each["attributes"]:
                    placed["cells"][name]["attributes"]["NEXTPNR_BEL"] = each["attributes"]["BEL"]
            (tmp_path / "placed.json").write_text(json.dumps({"modules": {"top": placed}}))

    place_and_route(run, tmp_path, ["--seed", "3"], ["--report", "x.json"])
    assert [sites for _, sites in runs] == [None, "X4/Y22/EBR0", "X4/Y22/EBR0"]
    assert [arguments[:2] for arguments, _ in runs] == [["--seed", "3"]] * 3
    assert ["--no-route" in arguments for arguments, _ in runs] == [True, True, False]
    assert runs[-1][0][-2:] == ["--report", "x.json"]
    # Another seed begins anew.
    assert "BEL" not in (tmp_path / "top.json").read_text().replace("NEXTPNR_BEL", "")


def test_stall():
    """When nearly no wire is used twice, it has 200 iterations more; and 500 in all."""

    def stalls(overused):
        stall = Stall()
        lines = [f"Info:     iter={n} wires=9 overused={u} overuse=9 tmgfail=8" for n, u in enumerate(overused, 1)]
        return next((n for n, line in enumerate(lines, 1) if stall(line)), None)

    assert stalls([500] * 50 + [20] + [30] * 300) == 251
    assert stalls([500] * 50 + [20] * 300) == 251
    assert stalls([500] * 600) == 500
    assert stalls([500] * 50 + [3] * 190) is None
    assert not Stall()("Info: Routing complete.")
