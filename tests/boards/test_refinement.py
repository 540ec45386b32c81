"""Cells on long ways, in circuits small enough to see where they should go."""

import pytest
from placed import Placed
from streams import make_rng
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
    """Three in a row, too far on one side: wherever one of them goes, its wires are as long."""
    placed.flop("first", "X10/Y2/SLICEA.FF0", M="elsewhere")
    for n, source in enumerate(("first.Q", "lut0.F", "lut1.F")):
        placed.lut(f"lut{n}", f"X{55 + n}/Y5/SLICEA.K0", source)
    placed.flop("last", "X12/Y2/SLICEA.FF0", M="lut2.F")
    before, after, _ = refine(placed.module, 2.5)
    assert before > 6
    assert after < 2.6


def test_a_lut_takes_its_flip_flop_along(placed):
    placed.flop("first", "X10/Y2/SLICEA.FF0", M="elsewhere", LSR="reset")  # stays
    placed.lut("lut", "X55/Y9/SLICEC.K1", "first.Q")
    placed.flop("behind", "X55/Y9/SLICEC.FF1", DI="lut.F")
    refine(placed.module, 1.0)
    lut, behind = placed.place("lut"), placed.place("behind")
    assert lut.split(".")[0] == behind.split(".")[0] != "X55/Y9/SLICEC"
    assert (lut[-2:], behind[-3:]) == ("K1", "FF1")


def test_a_carry_chain_keeps_its_shape(placed):
    """It needs a row of empty slices: from the letter on where it begins, over the tile's edge."""
    placed.flop("first", "X10/Y2/SLICEA.FF0", M="elsewhere")
    carry = None
    for n, (x, letter) in enumerate([(50, "C"), (50, "D"), (51, "A"), (51, "B")]):
        for half in (0, 1):
            ports = {"FCI": carry} if carry else {}
            carry = f"c{n}{half}"
            bel = f"X{x}/Y9/SLICE{letter}.K{half}"
            placed.add(
                f"carry{n}{half}",
                "TRELLIS_COMB",
                bel,
                {"MODE": "CCU2"},
                A="first.Q",
                FCO=carry,
                F=f"s{n}{half}",
                **ports,
            )
    placed.flop("sum", "X51/Y9/SLICEB.FF1", DI="s31")
    before, after, _ = refine(placed.module, 1.0)
    assert after < before - 2
    corner = placed.place("carry00").split("/")
    left, row = int(corner[0][1:]), corner[1]
    assert [placed.place(f"carry{n}0") for n in range(4)] == [
        f"X{left}/{row}/SLICEC.K0",
        f"X{left}/{row}/SLICED.K0",
        f"X{left + 1}/{row}/SLICEA.K0",
        f"X{left + 1}/{row}/SLICEB.K0",
    ]
    assert placed.place("sum") == f"X{left + 1}/{row}/SLICEB.FF1"


def test_block_ram_changes_places(placed):
    placed.add("wrong", "DP16KD", "X41/Y6/EBR1", {"REGMODE_A": "OUTREG"}, CLKA="clk", DOA0="wrong.D")
    placed.add("idle", "DP16KD", "X21/Y6/EBR0", CLKA="clk", DOA0="idle.D")
    placed.flop("user", "X19/Y2/SLICEA.FF0", M="wrong.D", LSR="reset")
    refine(placed.module, 0.8)
    assert placed.place("wrong") == "X21/Y6/EBR0"
    assert placed.place("idle") == "X41/Y6/EBR1"


@pytest.mark.parametrize(
    "cells",
    [
        lambda p: p.add("stays", "TRELLIS_COMB", "X55/Y9/SLICEA.K0", {"MODE": "DPRAM"}, A="first.Q", F="stays.F"),
        lambda p: p.flop("stays", "X55/Y9/SLICEA.FF0", M="first.Q", LSR="reset"),
        lambda p: p.flop("stays", "X55/Y9/SLICEA.FF0", clock="rx", M="first.Q"),
    ],
    ids=["LUT RAM", "reset", "clock"],
)
def test_what_stays(cells, placed):
    placed.flop("first", "X10/Y2/SLICEA.FF0", M="elsewhere", LSR="reset")
    cells(placed)
    refine(placed.module, 1.0)
    assert placed.place("stays") == "X55/Y9/SLICEA." + placed.place("stays").split(".")[1]


@pytest.mark.parametrize("kind", ["LUT RAM", "clock"])
def test_tiles_that_take_nothing(kind, placed):
    """Between the two ends all tiles have LUT RAM, or another clock: the cell goes to what is beside them."""
    placed.flop("first", "X10/Y2/SLICEA.FF0", M="elsewhere", LSR="reset")
    placed.flop("last", "X10/Y3/SLICEA.FF0", M="lut.F", LSR="reset")
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


def test_nothing_to_do(placed):
    placed.flop("first", "X10/Y2/SLICEA.FF0", M="elsewhere")
    placed.flop("last", "X12/Y2/SLICEA.FF0", M="first.Q")
    before = {name: placed.place(name) for name in placed.module["cells"]}
    length = longest(placed)
    assert refine(placed.module, 3.0) == (length, length, 0)
    assert {name: placed.place(name) for name in placed.module["cells"]} == before
    assert refine({"cells": {}, "netnames": {}}, 3.0) == (0, 0, 0)


def test_random_circuits():
    """No cell vanishes, no two stand in one place, none changes its kind of place, and ways only become shorter."""
    rng = make_rng()
    placed = chip(Placed())
    free = [(x, y, letter) for x in range(3, 19) for y in range(3, 12) for letter in "ABC"]
    rng.shuffle(free)
    signals = ["elsewhere"]
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
            placed.flop(f"n{n}", f"X{x}/Y{y}/SLICE{letter}.FF{half}", M=rng.choice(signals))
            signals.append(f"n{n}.Q")
    names = list(placed.module["cells"])
    kinds = {name: placed.place(name).split(".")[1] for name in names}
    before = longest(placed)
    told, after, _ = refine(placed.module, before * 0.5)
    assert (told, after) == (pytest.approx(before), pytest.approx(longest(placed)))
    assert after <= before
    assert list(placed.module["cells"]) == names
    assert {name: placed.place(name).split(".")[1] for name in names} == kinds
    assert len({placed.place(name) for name in names}) == len(names)
    for n in range(60):
        if f"m{n}" in placed.module["cells"]:
            assert placed.place(f"m{n}").split(".")[0] == placed.place(f"n{n}").split(".")[0]
