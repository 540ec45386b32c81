"""The table of aims, and the rows that it marks."""

import json

import pytest
from verbena.sim.bench.goals import AT_LEAST, AT_MOST, GOALS, Goal, goal_of, judged

ROW = {
    "group": "throughput",
    "op": "WRITE",
    "size": 8,
    "qps": 1,
    "data_width": 64,
    "memory_latency": 128,
    "cycles_per_message": 20.0,
    "wire_fraction": 0.66,
}


@pytest.mark.parametrize(("cycles", "met"), [(20.0, False), (14.0, True), (13.99, True), (14.01, False)])
def test_an_aim_is_read_and_judged(cycles, met):
    row = judged(ROW | {"cycles_per_message": cycles})
    assert (row["figure"], row["value"], row["bound"]) == ("cycles_per_message", cycles, AT_MOST)
    assert row["aim"] == 14
    assert row["met"] is met


@pytest.mark.parametrize(("share", "met"), [(0.97, False), (0.98, True), (1.0, True)])
def test_a_share_is_to_be_large(share, met):
    row = judged(ROW | {"op": "READ", "size": 64, "qps": 16, "wire_fraction": share})
    assert (row["figure"], row["value"], row["aim"], row["bound"]) == ("wire_fraction", share, 0.98, AT_LEAST)
    assert row["met"] is met


def test_other_rows_have_none():
    """Another width, another latency, another operation; their value is what a message takes, or what they measure."""
    for change in ({"data_width": 512}, {"memory_latency": 256}, {"size": 64}, {"group": "lossy wire"}):
        row = judged(ROW | change)
        assert (row["aim"], row["bound"], row["met"]) == (None, None, None)
        assert row["value"] == 20.0
    assert judged(ROW | {"op": "READ", "latency_cycles": 370})["value"] == 370
    assert judged(ROW | {"group": "one loss", "cost_cycles": 1009})["value"] == 1009


def test_a_row_that_misses_a_field_is_not_covered():
    goal = Goal("cycles_per_message", AT_MOST, 1, {"wqe": 128})
    assert not goal.covers(ROW)
    assert goal.covers(ROW | {"wqe": 128})
    assert not Goal("slowdown", AT_MOST, 1, {"qps": 1}).covers(ROW)


def test_aims_do_not_overlap():
    """A row of each aim's own fields finds that aim."""
    for goal in GOALS:
        row = {name: value[0] if isinstance(value, tuple) else value for name, value in goal.rows.items()}
        row |= {goal.figure: 0}
        assert goal_of(row) is goal
        json.dumps(judged(row))
