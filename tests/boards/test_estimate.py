"""Ways in circuits small enough to add them up by hand."""

import pytest
from placed import Placed
from verbena.boards.estimate import NEVER, Estimate, distance, main_clock

CLOCK_TO, LUT, SETUP = 0.31, 0.14, 0.05


def wire(across, down=0):
    """What stands in nextpnr for so many tiles: each counts, the first 5 twice, and 6 more."""
    return 0.054 * (6 + across + min(across, 5) + down + min(down, 5))


@pytest.fixture
def placed():
    """Two flip-flops, with two LUTs between them, and the second one's flip-flop right behind it."""
    placed = Placed()
    placed.flop("first", "X2/Y2/SLICEA.FF0", M="elsewhere")
    placed.lut("near", "X4/Y2/SLICEA.K0", "first.Q")
    placed.lut("far", "X14/Y9/SLICEB.K1", "near.F", "first.Q")
    placed.flop("last", "X14/Y9/SLICEB.FF1", DI="far.F")
    return placed


def longest(placed):
    estimate = Estimate(placed.module)
    which = estimate.lengths().argmax()
    way = estimate.way(estimate.ends[which])
    return estimate.lengths()[which], [estimate.names[cell] for cell in way]


def test_a_way(placed):
    length, cells = longest(placed)
    assert length == pytest.approx(CLOCK_TO + wire(2) + LUT + wire(10, 7) + LUT + SETUP)
    assert cells == ["first", "near", "far", "last"]


def test_arrival_and_tail_meet(placed):
    """Whatever net of a way is asked, both together are its length."""
    estimate = Estimate(placed.module)
    length = estimate.lengths().max()
    for name in ("first.Q", "near.F", "far.F"):
        net = estimate.net_of[placed.bit(name)]
        assert estimate.arrival[net] + estimate.tail[net] == pytest.approx(length)


def test_cells_that_have_moved(placed):
    estimate = Estimate(placed.module)
    far = [estimate.names.index(name) for name in ("far", "last")]
    estimate.x[far], estimate.y[far] = 6, 2
    estimate.update()
    assert estimate.lengths().max() == pytest.approx(CLOCK_TO + wire(2) + LUT + wire(2) + LUT + SETUP)


def test_carry_and_wide_luts(placed):
    """What hangs on its neighbour costs no wire."""
    placed.add("low", "TRELLIS_COMB", "X60/Y2/SLICEA.K0", {"MODE": "CCU2"}, A="first.Q", FCO="low.C")
    placed.add("high", "TRELLIS_COMB", "X60/Y2/SLICEA.K1", {"MODE": "CCU2"}, FCI="low.C", F="high.F")
    placed.flop("sum", "X60/Y2/SLICEA.FF1", DI="high.F")
    assert longest(placed) == (
        pytest.approx(CLOCK_TO + wire(58) + 0.28 + 0.26 + SETUP),
        ["first", "low", "high", "sum"],
    )


@pytest.mark.parametrize(("parameters", "delay"), [({"REGMODE_A": "OUTREG"}, 0.45), ({}, 3.5)])
def test_block_ram(parameters, delay, placed):
    placed.add("ram", "DP16KD", "X30/Y2/EBR0", parameters, CLKA="clk", DOA0="ram.D", ADA0="last.Q")
    placed.flop("read", "X90/Y2/SLICEA.FF0", M="ram.D")
    length, cells = longest(placed)
    assert (length, cells) == (pytest.approx(delay + wire(60) + SETUP), ["ram", "read"])


def test_ways_from_and_to_other_clocks_do_not_count(placed):
    placed.flop("other", "X90/Y90/SLICEA.FF0", clock="rx", M="far.F")
    placed.flop("across", "X91/Y90/SLICEA.FF0", M="other.Q")
    assert longest(placed)[1] == ["first", "near", "far", "last"]
    estimate = Estimate(placed.module)
    assert estimate.start[estimate.net_of[placed.bit("other.Q")]] == NEVER
    assert main_clock(placed.module) == placed.bit("clk")


def test_a_loop(placed):
    placed.lut("one", "X5/Y5/SLICEA.K0", "two.F")
    placed.lut("two", "X5/Y5/SLICEA.K1", "one.F")
    with pytest.raises(ValueError, match="loop without a register"):
        Estimate(placed.module)


def test_nothing():
    estimate = Estimate({"cells": {}, "netnames": {}})
    assert estimate.clock is None
    assert not len(estimate.lengths())


def test_distance():
    assert [round(each / 0.054) for each in distance([0, 1, 5, 6, -20])] == [0, 2, 10, 11, 25]
