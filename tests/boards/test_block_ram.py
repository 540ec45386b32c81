"""Sites of block RAM, on a chip small enough to see the best ones."""

import copy

import pytest
from verbena.boards.block_ram import assign_block_ram


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
