"""Cells on long ways, in circuits small enough to see where they should go."""

from collections import defaultdict

import pytest
from placed import Placed
from streams import make_rng
from verbena.boards import refinement
from verbena.boards.estimate import Estimate
from verbena.boards.refinement import refine

FAR = 60


def chip(placed):
    """Slices that are used for something else, so that there are columns and rows of them."""
    for x in (*range(2, 20), *range(22, 40), *range(42, FAR + 1)):
        placed.flop(f"filler{x}", f"X{x}/Y2/SLICED.FF0", M="elsewhere")
    for y in range(3, 12):
        placed.flop(f"filler_{y}", f"X2/Y{y}/SLICED.FF0", M="elsewhere")
    return placed


@pytest.fixture
def placed():
    return chip(Placed())


def longest(placed):
    return Estimate(placed.module).lengths().max()


def test_a_cell_beside_its_way(placed):
    placed.flop("first", "X10/Y2/SLICEA.FF0", M="elsewhere")
    placed.lut("lut", "X55/Y9/SLICEA.K0", "first.Q")
    placed.flop("last", "X12/Y2/SLICEA.FF0", M="lut.F")
    before, after, moves = refine(placed.module, 1.5)
    assert before > 5
    assert after == pytest.approx(longest(placed))
    assert after < 1.5
    assert moves >= 1


def test_cells_that_gain_nothing_alone(placed):
    """Three in one tile, between two that stay in another: wherever one of them goes, its wires are as long."""
    placed.flop("first", "X10/Y2/SLICEA.FF0", M="elsewhere", fixed=True)
    for letter, name, source in (("A", "one", "first.Q"), ("B", "two", "one.F"), ("C", "three", "two.F")):
        placed.lut(name, f"X55/Y5/SLICE{letter}.K0", source)
    placed.flop("last", "X10/Y2/SLICEB.FF0", M="three.F", fixed=True)
    before, after, _ = refine(placed.module, 2.5)
    assert before > 6
    assert after < 2.5


def test_a_lut_takes_its_flip_flop_along(placed):
    placed.flop("first", "X10/Y2/SLICEA.FF0", M="elsewhere", fixed=True)  # stays
    placed.lut("lut", "X55/Y9/SLICEC.K1", "first.Q")
    placed.flop("behind", "X55/Y9/SLICEC.FF1", DI="lut.F")
    refine(placed.module, 1.0)
    lut, behind = placed.place("lut"), placed.place("behind")
    assert lut.split(".")[0] == behind.split(".")[0] != "X55/Y9/SLICEC"
    assert (lut[-2:], behind[-3:]) == ("K1", "FF1")


def chain(placed, name, slices, source):
    """A carry chain over the slices, ``(x, y, letter)``; ``source`` enters at the last one, whose sum is ``name``."""
    carry = None
    for n, (x, y, letter) in enumerate(slices):
        for half in (0, 1):
            ports = {"FCI": carry} if carry else {}
            if n == len(slices) - 1:
                ports |= {"A": source, "F": name}
            carry = f"{name}_c{n}{half}"
            bel = f"X{x}/Y{y}/SLICE{letter}.K{half}"
            placed.add(f"{name}{n}{half}", "TRELLIS_COMB", bel, {"MODE": "CCU2"}, FCO=carry, **ports)


def test_a_carry_chain_keeps_its_shape(placed):
    """It needs a row of empty slices, over tiles' edges; and it is its last tile that should be near."""
    placed.flop("first", "X30/Y2/SLICEA.FF0", M="elsewhere", fixed=True)
    for y in set(range(2, 12)) - {6}:
        placed.flop(f"in_the_way{y}", f"X26/Y{y}/SLICEB.FF0", M="elsewhere", fixed=True)
    chain(placed, "sum", [(x, 9, letter) for x in range(51, 59) for letter in "ABCD"][2:-2], "first.Q")
    placed.flop("last", "X58/Y9/SLICEB.FF1", DI="sum")
    refine(placed.module, 0.5)
    left, row = (int(each[1:]) for each in placed.place("sum00").split("/")[:2])
    shape = [(x, letter) for x in range(left, left + 8) for letter in "ABCD"][2:-2]
    assert [placed.place(f"sum{n}0") for n in range(len(shape))] == [f"X{x}/Y{row}/SLICE{y}.K0" for x, y in shape]
    assert placed.place("last") == f"X{left + 7}/Y{row}/SLICEB.FF1"
    assert abs(left + 7 - 30) <= 2
    assert row == 6


def test_block_ram_changes_places(placed):
    placed.add("wrong", "DP16KD", "X41/Y6/EBR1", {"REGMODE_A": "OUTREG"}, CLKA="clk", DOA0="wrong.D")
    placed.add("idle", "DP16KD", "X21/Y6/EBR0", CLKA="clk", DOA0="idle.D")
    placed.flop("user", "X19/Y2/SLICEA.FF0", M="wrong.D", fixed=True)
    refine(placed.module, 0.8)
    assert placed.place("wrong") == "X21/Y6/EBR0"
    assert placed.place("idle") == "X41/Y6/EBR1"


def test_a_move_that_makes_it_worse(placed, monkeypatch):
    """Whatever was expected of it, it is taken back."""
    placed.flop("first", "X10/Y2/SLICEA.FF0", M="elsewhere", fixed=True)
    placed.lut("lut", "X35/Y2/SLICEA.K0", "first.Q")
    placed.flop("last", "X40/Y2/SLICEA.FF0", M="lut.F", fixed=True)
    monkeypatch.setattr(refinement, "_best", lambda estimate, floor, way, goal: ([floor.unit[way[1]]], (59, 11)))
    before, after, moves = refine(placed.module, 1.0)
    assert (after, moves) == (before, 0)
    assert placed.place("lut") == "X35/Y2/SLICEA.K0"


@pytest.mark.parametrize("kind", ["LUT RAM", "constraint", "clock"])
def test_what_stays(kind, placed):
    """LUT RAM; a LUT whose flip-flop has a place by constraint, or another clock; though they make a way too long."""
    placed.flop("first", "X10/Y2/SLICEA.FF0", M="elsewhere", fixed=True)
    parameters = {"MODE": "DPRAM"} if kind == "LUT RAM" else {}
    placed.add("stays", "TRELLIS_COMB", "X55/Y9/SLICEA.K0", parameters, A="first.Q", F="stays.F")
    if kind != "LUT RAM":
        ports = {"fixed": True} if kind == "constraint" else {"clock": "rx"}
        placed.flop("behind", "X55/Y9/SLICEA.FF0", DI="stays.F", **ports)
    placed.flop("last", "X12/Y2/SLICEA.FF0", M="stays.F", fixed=True)
    before, after, _ = refine(placed.module, 1.0)
    assert before == after > 5
    assert placed.place("stays") == "X55/Y9/SLICEA.K0"


@pytest.mark.parametrize("kind", ["LUT RAM", "clock"])
def test_tiles_that_take_nothing(kind, placed):
    """Between the two ends all tiles have LUT RAM, or another clock: the cell goes to what is beside them."""
    placed.flop("first", "X10/Y2/SLICEA.FF0", M="elsewhere", fixed=True)
    placed.flop("last", "X10/Y3/SLICEA.FF0", M="lut.F", fixed=True)
    placed.lut("lut", "X55/Y9/SLICEA.K0", "first.Q")
    barred = {(x, y) for x in range(9, 12) for y in range(2, 5)}
    for x, y in barred:
        if kind == "clock":
            placed.flop(f"other{x}_{y}", f"X{x}/Y{y}/SLICEB.FF0", clock="rx", M="elsewhere")
        else:
            placed.add(f"other{x}_{y}", "TRELLIS_COMB", f"X{x}/Y{y}/SLICEB.K0", {"MODE": "DPRAM"}, A="elsewhere")
    refine(placed.module, 1.0)
    x, y, _ = placed.place("lut").split("/")
    assert (int(x[1:]), int(y[1:])) not in barred
    assert longest(placed) < 2


def test_a_tile_has_one_reset(placed):
    """A flip-flop with a reset goes to a tile without one or with the same, and takes it along."""
    placed.flop("first", "X10/Y2/SLICEA.FF0", M="elsewhere", fixed=True)
    placed.flop("last", "X10/Y3/SLICEA.FF0", M="two.Q", fixed=True)
    placed.flop("one", "X55/Y9/SLICEA.FF0", M="first.Q", LSR="one")
    placed.flop("two", "X45/Y9/SLICEA.FF0", M="one.Q", LSR="two")
    near = {(x, y) for x in range(8, 13) for y in range(2, 6)}
    for x, y in near - {(10, 4)}:
        placed.flop(f"other{x}_{y}", f"X{x}/Y{y}/SLICEB.FF0", M="elsewhere", LSR="two")
    refine(placed.module, 1.0)
    tiles = {name: tuple(int(each[1:]) for each in placed.place(name).split("/")[:2]) for name in ("one", "two")}
    assert tiles["one"] not in near - {(10, 4)}
    assert tiles["two"] != tiles["one"]
    assert longest(placed) < 2


def test_nothing_to_do(placed):
    placed.flop("first", "X10/Y2/SLICEA.FF0", M="elsewhere")
    placed.flop("last", "X12/Y2/SLICEA.FF0", M="first.Q")
    before = {name: placed.place(name) for name in placed.module["cells"]}
    length = longest(placed)
    assert refine(placed.module, 3.0) == (length, length, 0)
    assert {name: placed.place(name) for name in placed.module["cells"]} == before
    assert refine({"cells": {}, "netnames": {}}, 3.0) == (0, 0, 0)


@pytest.mark.parametrize("room", [0.9, 0.05])
def test_random_circuits(room):
    """No cell vanishes, no two stand in one place, none changes its kind of place, and ways only become shorter."""
    rng = make_rng()
    placed = chip(Placed())
    free = [(x, y, letter) for x in range(3, 19) for y in range(3, 12) for letter in "ABC"]
    signals = ["elsewhere"]
    for number in range(3):  # rows of which carry chains take the middle
        slices = [place for place in free if place[1] == 4 + 2 * number][6:12]
        free = [place for place in free if place not in slices]
        chain(placed, f"chain{number}", slices, rng.choice(signals))
        signals.append(f"chain{number}")
    rng.shuffle(free)
    for n in range(60):
        x, y, letter = free.pop()
        half = rng.randrange(2)
        if rng.random() < 0.5:
            placed.lut(f"n{n}", f"X{x}/Y{y}/SLICE{letter}.K{half}", *rng.choices(signals, k=rng.randint(1, 4)))
            signals.append(f"n{n}.F")
            if rng.random() < 0.5:
                placed.flop(f"m{n}", f"X{x}/Y{y}/SLICE{letter}.FF{half}", DI=f"n{n}.F")
                signals.append(f"m{n}.Q")
        else:
            reset = {"LSR": rng.choice(("one", "two"))} if rng.random() < 0.3 and letter == "A" else {}
            placed.flop(f"n{n}", f"X{x}/Y{y}/SLICE{letter}.FF{half}", M=rng.choice(signals), **reset)
            signals.append(f"n{n}.Q")
    for x, y, letter in free:
        if rng.random() > room:
            placed.flop(f"full{x}_{y}{letter}", f"X{x}/Y{y}/SLICE{letter}.FF0", M="elsewhere", fixed=True)
    names = list(placed.module["cells"])
    kinds = {name: placed.place(name).split(".")[1] for name in names}
    before = longest(placed)
    told, after, _ = refine(placed.module, before * 0.5)
    assert (told, after) == (pytest.approx(before), pytest.approx(longest(placed)))
    assert after <= before
    assert list(placed.module["cells"]) == names
    assert {name: placed.place(name).split(".")[1] for name in names} == kinds
    resets = defaultdict(set)
    for name in names:
        if reset := placed.module["cells"][name]["connections"].get("LSR"):
            resets[placed.place(name).split("/SLICE")[0]].add(reset[0])
    assert max((len(each) for each in resets.values()), default=0) <= 1
    assert len({placed.place(name) for name in names}) == len(names)
    for n in range(60):
        if f"m{n}" in placed.module["cells"]:
            assert placed.place(f"m{n}").split(".")[0] == placed.place(f"n{n}").split(".")[0]
