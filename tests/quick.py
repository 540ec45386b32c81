"""A plugin for pytest, for ``make test-quick``: each test function has half a second of processor time.

Its cases run in their order until that is used up, and the first one always does; so each function is tried, and one
with many widths, seeds or stalls with some of them. But those that ``tests/slow.txt`` names are left out: each case of
them takes a second and more. How many cases were left out is said at the end, and which function belongs into that
list. Processor time is that of the process and of the programs it has called.
"""

import os
from collections import Counter
from pathlib import Path

import pytest

__all__ = ["BUDGET"]

BUDGET = 0.5
"""Seconds a test function."""

SLOW = set((Path(__file__).parent / "slow.txt").read_text().split())
TOO_LONG = 2.0
"""Seconds from which on a case is called slow."""

spent = Counter()
left_out = [0]
too_long = []


def _function(item):
    return item.nodeid.partition("[")[0]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item, nextitem):
    """Counts a case that is left out as done: there is no report."""
    if spent[_function(item)] <= BUDGET and _function(item) not in SLOW:
        return None
    left_out[0] += 1
    # What was set up for this case, as a module's fixtures, and is not for the next one must go, as after a test.
    item.session._setupstate.teardown_exact(nextitem)
    return True


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    start = sum(os.times()[:4])
    try:
        return (yield)
    finally:
        took = sum(os.times()[:4]) - start
        spent[_function(item)] += took
        if took > TOO_LONG:
            too_long.append(_function(item))


def pytest_sessionfinish(session):
    """A worker tells the process that reports."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput.update(left_out=left_out[0], too_long=too_long)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node):
    output = getattr(node, "workeroutput", {})
    left_out[0] += output.get("left_out", 0)
    too_long.extend(output.get("too_long", ()))


def pytest_terminal_summary(terminalreporter):
    terminalreporter.write_line(f"quick: {left_out[0]} cases left out, their functions had {BUDGET} s or are slow")
    for name in sorted(set(too_long)):
        terminalreporter.write_line(f"quick: {name} takes over {TOO_LONG} s a case: add it to tests/slow.txt")
