"""What the engine is to reach: a table of aims, and the rows of the benchmark that they are for.

The rows measure; an aim only marks what has not come as far. All count in cycles of the engine's clock, so they are the
same on every machine.
"""

from dataclasses import dataclass, field

__all__ = ["AT_LEAST", "AT_MOST", "GOALS", "Goal", "goal_of", "judged"]

AT_MOST, AT_LEAST = "at most", "at least"


@dataclass(frozen=True)
class Goal:
    """An aim for one figure of all rows that have these fields.

    Parameters
    ----------
    figure : str
        Name of the figure in a row.
    bound : str
        :data:`AT_MOST` or :data:`AT_LEAST`.
    aim : float
    rows : dict
        Fields of a row and their values, a tuple of those that may be.
    """

    figure: str
    bound: str
    aim: float
    rows: dict = field(hash=False)

    def covers(self, row):
        """Whether the aim is for this row."""
        if self.figure not in row:
            return False
        wanted = ((name, value if isinstance(value, tuple) else (value,)) for name, value in self.rows.items())
        return all(name in row and row[name] in values for name, values in wanted)

    def met(self, row):
        """Whether the row has come as far."""
        value = row[self.figure]
        return value <= self.aim if self.bound == AT_MOST else value >= self.aim


def _cycles(aim, **rows):
    return Goal("cycles_per_message", AT_MOST, aim, rows)


def _share(aim, **rows):
    return Goal("wire_fraction", AT_LEAST, aim, rows)


NARROW = {"data_width": 64, "memory_latency": 128}
"""The standard configuration, in a world of the latency that it is made for."""

CROWD = {"group": "queue pairs", "direction": "one way", "qps": 10_000, **NARROW}

GOALS = (
    _cycles(14, group="throughput", op="WRITE", size=8, qps=1, **NARROW),
    _cycles(13.3, group="throughput", op="WRITE", size=8, qps=16, **NARROW),
    _cycles(14, group="throughput", op="SEND", size=8, qps=1, **NARROW),
    _cycles(11.4, group="throughput", op="SEND", size=8, qps=16, **NARROW),
    _cycles(15, group="UC and UD", op="SEND", transport="UD", size=8, qps=16, **NARROW),
    _cycles(17, group="raw packets", size=64, **NARROW),
    _share(0.95, group="raw packets", size=1500, **NARROW),
    Goal("cost_cycles", AT_MOST, 1, {"group": "SRQ", "size": 8, **NARROW}),
    _cycles(200, group="keys", **NARROW),
    _cycles(12.6, group="different words", op="READ", qps=16, **NARROW),
    _cycles(14.5, group="different words", op="FETCH_ADD", qps=16, **NARROW),
    _share(0.98, group="throughput", op="READ", size=(32, 64, 128, 256, 512, 1024), qps=16, **NARROW),
    _cycles(15.5, group="both ways", op="WRITE", size=8, qps=16, own_qps=True, **NARROW),
    _share(0.97, group="memory latency", size=8, write_latency=128, **NARROW),
    _share(0.97, group="memory latency", size=8, memory_latency=256, data_width=64),
    _share(0.97, group="memory latency", size=1024, memory_latency=512, data_width=64),
    _share(0.9, group="memory latency", size=16384, memory_latency=1024, data_width=64),
    Goal("ratio_to_one_entry", AT_MOST, 1.1, {"group": "WQEs", "entries": 2, "memory_latency": 128}),
    _cycles(22, group="WQEs", wqe=128, qps=1, **NARROW),
    _cycles(40, group="misses", pages=4096, page_size=4096, qps=4, **NARROW),
    _cycles(24, group="misses", pages=4096, page_size=4096, qps=16, **NARROW),
    Goal("slowdown", AT_MOST, 1.2, {"group": "misses", "memory_latency": 128}),
    Goal("ratio_to_one_slot", AT_MOST, 1.1, {**CROWD, "silent": 0, "size": 4096}),
    _cycles(100, **CROWD, silent=0, size=8),
    Goal("ratio_to_answering", AT_MOST, 1.3, {**CROWD, "silent": 5_000}),
    Goal("latency_cycles", AT_MOST, 302, {"group": "latency", "op": "SEND", "push": True, "inline": False, **NARROW}),
    Goal("latency_cycles", AT_MOST, 164, {"group": "latency", "op": "SEND", "push": True, "inline": True, **NARROW}),
)

USUAL = (
    "slowdown",
    "ratio_to_one_entry",
    "ratio_to_answering",
    "ratio_to_one_slot",
    "cost_cycles",
    "latency_cycles",
    "events_per_completion",
    "cycles_per_message",
)
"""What a row without an aim is read for: the first of these that it has."""


def goal_of(row):
    """The :class:`Goal` of a row, or None."""
    return next((goal for goal in GOALS if goal.covers(row)), None)


def judged(row):
    """The row with the ``figure`` that it is read for, its ``value``, and the ``aim`` for it, with its ``bound`` and
    whether it is ``met``; the last three are None where there is no aim.
    """
    goal = goal_of(row)
    figure = goal.figure if goal else next(name for name in USUAL if name in row)
    verdict = {"figure": figure, "value": row[figure]}
    if goal is None:
        return row | verdict | {"aim": None, "bound": None, "met": None}
    return row | verdict | {"aim": goal.aim, "bound": goal.bound, "met": goal.met(row)}
