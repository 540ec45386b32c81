"""Levels of logic, counted by hand."""

import json

import pytest
from verbena.boards import area, depth
from verbena.boards.clocking import clock_network
from verbena.hdl.config import Config


def cell(kind, inputs, outputs):
    ports = inputs | outputs
    directions = dict.fromkeys(inputs, "input") | dict.fromkeys(outputs, "output")
    return {"type": kind, "connections": {name: [bit] for name, bit in ports.items()}, "port_directions": directions}


def register(data, out):
    return cell("TRELLIS_FF", {"CLK": 1, "DI": data}, {"Q": out})


def netlist(**cells):
    names = {f"n{bit}": {"bits": [bit]} for bit in range(1, 20)}
    return {"cells": cells, "netnames": names}


def test_levels_of_luts():
    """A register, two LUTs, one of which has a short way as well, and a multiplexer behind them."""
    module = netlist(
        a=register(9, 2),
        x=cell("LUT4", {"A": 2, "B": "0"}, {"Z": 3}),
        y=cell("LUT4", {"A": 3, "B": 2}, {"Z": 4}),
        z=cell("PFUMX", {"ALUT": 4, "BLUT": 3, "C0": 2}, {"Z": 9}),
    )
    assert depth.levels(module)[("a", "DI", 9)] == (pytest.approx(2.2), [2, 3, 4, 9])
    found = depth.deepest(module)
    assert found["histogram"] == {2: 1}
    assert found["paths"] == [{"levels": 2.2, "source": "n2", "sink": "a DI"}]


def test_carry_chains():
    module = netlist(
        a=register(9, 2),
        low=cell("CCU2C", {"A0": 2, "CIN": "0"}, {"COUT": 3}),
        middle=cell("CCU2C", {"A0": 2, "CIN": 3}, {"COUT": 4}),
        high=cell("CCU2C", {"A0": 2, "CIN": 4}, {"S0": 9}),
    )
    assert depth.levels(module)[("a", "DI", 9)] == (pytest.approx(2.1), [2, 3, 4, 9])


def test_lut_ram_is_written_by_the_clock_and_read_without():
    ram = {"WCK": 1, "WRE": 5, "DI": 6, "WAD": 7, "RAD": 2}
    module = netlist(a=register(9, 2), b=register(9, 5), ram=cell("TRELLIS_DPR16X4", ram, {"DO": 9}))
    reached = depth.levels(module)
    assert {end: levels for end, (levels, _) in reached.items()} == {
        ("a", "DI", 9): 1.0,
        ("b", "DI", 9): 1.0,
        ("ram", "WRE", 5): 0.0,
        ("ram", "DI", 6): 0.0,
        ("ram", "WAD", 7): 0.0,
    }


def test_a_circle():
    module = netlist(
        a=register(3, 2),
        x=cell("LUT4", {"A": 4}, {"Z": 3}),
        y=cell("LUT4", {"A": 3}, {"Z": 4}),
    )
    with pytest.raises(ValueError, match="in a circle"):
        depth.levels(module)


def test_command_line(tmp_path, capsys):
    path = tmp_path / "top.json"
    assert depth.main([str(path)]) == 1
    assert "cannot be read" in capsys.readouterr().err
    path.write_text("{}")
    assert depth.main([str(path)]) == 1
    assert "no netlist of yosys with a module 'top'" in capsys.readouterr().err
    module = netlist(a=register(3, 2), x=cell("LUT4", {"A": 2}, {"Z": 3}))
    path.write_text(json.dumps({"modules": {"top": module}}))
    assert depth.main([str(path)]) == 0
    assert capsys.readouterr().out == "levels of LUTs: 1: 1\n  1.0  n2 -> a DI\n"


@pytest.mark.slow
@pytest.mark.parametrize("qps", [16384, 64])
def test_the_engine_is_shallow(qps, tmp_path):
    """In its standard configuration, and without a table of queue pairs, from register to register, as `make area` and
    boards build it: with its reset on a network for clocks.
    """
    area.write_design(Config(qps=qps), tmp_path, clock_network)
    area.synthesize(tmp_path)
    found = depth.deepest(json.loads((tmp_path / "top.json").read_text())["modules"]["top"], 1)
    assert max(found["histogram"]) <= area.DEEPEST, found["paths"]
