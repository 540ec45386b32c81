"""What a board's top puts on its pins."""

import pytest
from verbena.boards.board import Top
from verbena.boards.build import ADDRESSES, find_boards

RGMII = {"ODDRX1F": 6, "IDDRX1F": 5}
"""Clock, control and 4 bits out; control and 4 bits in."""


@pytest.fixture(scope="module")
def colorlight():
    """(RTLIL, constraints) of the board with SDRAM."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AMARANTH_ENV_TRELLIS", "")
        files = find_boards()["colorlight-5a75b"].platform().prepare(
            Top(find_boards()["colorlight-5a75b"], **ADDRESSES), "top"
        ).files  # fmt: skip
    return [text if isinstance(text, str) else text.decode() for text in (files["top.il"], files["top.lpf"])]


def test_sdram_has_a_register_in_each_pin(colorlight):
    netlist, _ = colorlight
    chip = find_boards()["colorlight-5a75b"].sdram
    outputs = 1 + 3 + 1 + 11 + chip.width  # clock, command, bank, address, data
    assert netlist.count("cell \\ODDRX1F") == RGMII["ODDRX1F"] + outputs
    assert netlist.count("cell \\IDDRX1F") == RGMII["IDDRX1F"] + chip.width


def test_sdram_pins_have_their_places(colorlight):
    _, constraints = colorlight
    places = [line.split('"')[1] for line in constraints.splitlines() if line.startswith("LOCATE") and "sdram" in line]
    assert len(places) == 1 + 3 + 1 + 11 + 32
    assert len(set(places)) == len(places)
