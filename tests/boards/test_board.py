"""What a board's top puts on its pins."""

from dataclasses import replace

import pytest
from amaranth.hdl import Module
from amaranth.lib import wiring
from verbena.boards import node
from verbena.boards.board import Top
from verbena.boards.build import ADDRESSES, find_boards
from verbena.hdl.rnic import Rnic

RGMII = {"ODDRX1F": 6, "IDDRX1F": 5}
"""Clock, control and 4 bits out; control and 4 bits in."""


def prepare(board):
    """(RTLIL, constraints)"""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AMARANTH_ENV_TRELLIS", "")
        files = board.platform().prepare(Top(board, **ADDRESSES), "top").files
    return files["top.il"], files["top.lpf"]


def sites(constraints, name):
    """Places of the ports whose names begin so."""
    lines = [line.split('"') for line in constraints.splitlines() if line.startswith("LOCATE")]
    return [place for _, port, _, place, _ in lines if port.startswith(name)]


@pytest.fixture(scope="module")
def colorlight():
    """The board with SDRAM."""
    return prepare(find_boards()["colorlight-i9"])


@pytest.mark.slow
def test_sdram_has_a_register_in_each_pin(colorlight):
    netlist, _ = colorlight
    chip = find_boards()["colorlight-i9"].sdram
    outputs = 1 + 3 + 2 + 11 + chip.width  # clock, command, bank, address, data
    assert netlist.count("cell \\ODDRX1F") == RGMII["ODDRX1F"] + outputs
    assert netlist.count("cell \\IDDRX1F") == RGMII["IDDRX1F"] + chip.width


@pytest.mark.slow
def test_resets_of_the_engine_go_by_clock_networks(colorlight):
    """That from outside, and DEVICE_RESET."""
    netlist, _ = colorlight
    assert netlist.count("cell \\DCCA") == 2


class Hollow(wiring.Component):
    """An engine's ports, and nothing behind them."""

    def __init__(self, *arguments):
        super().__init__(Rnic(*arguments).signature)

    def elaborate(self, platform):
        return Module()


@pytest.mark.parametrize("port", [0, 1])
def test_each_pin_of_a_colorlight_has_a_place_of_its_own(port, monkeypatch):
    monkeypatch.setattr(node, "Rnic", Hollow)
    _, constraints = prepare(replace(find_boards()["colorlight-i9"], port=port))
    places = {name: sites(constraints, name) for name in ("clk25", "led", "uart", "sdram", "eth_rgmii")}
    assert {name: len(each) for name, each in places.items()} == {
        "clk25": 1,
        "led": 1,
        "uart": 2,
        "sdram": 1 + 3 + 2 + 11 + 32,
        "eth_rgmii": 2 * (1 + 1 + 4) + 3,
    }
    assert len(set(sites(constraints, ""))) == sum(map(len, places.values())) == 68


@pytest.mark.slow
def test_lights_in_colours():
    """The green ones show; the others are driven, for a pin that is not would glow."""
    netlist, constraints = prepare(find_boards()["ecpix5-85f"])
    assert len(sites(constraints, "rgb_led")) == 12
    assert len(sites(constraints, "uart")) == 2
    for number in range(4):
        assert netlist.count(f"cell \\top.led{number}_g_buffer ") == 1
