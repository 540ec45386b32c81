"""What is told of a soak that is under way."""

import io

import pytest
from verbena.sim.console import Console
from verbena.sim.soak.progress import EVERY, Ahead


@pytest.fixture
def now():
    return [100.0]


def make(now, *goal, terminal=False):
    out = io.StringIO()
    return Ahead(Console(file=out, width=120, force_terminal=terminal), *goal, clock=lambda: now[0]), out


def test_a_line_a_minute(now):
    ahead, out = make(now, 1500)
    with ahead:
        now[0] += EVERY - 1
        ahead.update(300, 1_000_000)
        assert out.getvalue() == ""
        now[0] += 1
        ahead.update(500, 2_000_000)
        ahead.update(501, 2_000_010)
        assert out.getvalue() == "500 of 1,500 operations, about 2 minutes left, 2,000,000 cycles\n"
        assert not ahead.reached
        ahead.update(1500, 6_000_000)
        assert ahead.reached
        now[0] += EVERY
        ahead.drain(77, 6_000_001)
    assert out.getvalue().splitlines()[1] == "1,500 operations, the last 77 are coming in, 6,000,001 cycles"


def test_seconds_are_told_near_the_end(now):
    ahead, _ = make(now, 1000)
    with ahead:
        assert ahead.text == "0 of 1,000 operations"
        now[0] += 270
        ahead.update(900, 1)
        assert ahead.text == "900 of 1,000 operations, about 30 s left"


def test_a_goal_of_minutes(now):
    ahead, _ = make(now, None, 2)
    with ahead:
        now[0] += 90
        ahead.update(12_000, 1)
        assert ahead.text == "12,000 operations, about 30 s left"
        assert not ahead.reached
        now[0] += 30
        assert ahead.reached


def test_a_terminal_gets_a_bar(now):
    ahead, out = make(now, 10, terminal=True)
    with ahead:
        ahead.update(5, 1234)
        ahead._progress.refresh()
    assert "5 of 10 operations, 1,234 cycles" in out.getvalue()
