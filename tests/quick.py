"""A plugin for pytest, for ``make test-quick``: each test function has half a second of processor time.

Its cases run in their order until that is used up, and the first one always does; so each function is tried, and one
with many widths, seeds or stalls with some of them. How many cases were left out is said at the end. Processor time is
that of the process and of the programs it has called.
"""

import os
from collections import Counter

import pytest

__all__ = ["BUDGET"]

BUDGET = 0.5
"""Seconds a test function."""

spent = Counter()
left_out = [0]


def _function(item):
    return item.nodeid.partition("[")[0]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item, nextitem):
    """Counts a case that is left out as done: there is no report."""
    if spent[_function(item)] <= BUDGET:
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
        spent[_function(item)] += sum(os.times()[:4]) - start


def pytest_sessionfinish(session):
    """A worker tells the process that reports."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["left_out"] = left_out[0]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node):
    left_out[0] += getattr(node, "workeroutput", {}).get("left_out", 0)


def pytest_terminal_summary(terminalreporter):
    terminalreporter.write_line(f"quick: {left_out[0]} cases left out, their functions had {BUDGET} s")
