"""Which rows there are."""

from verbena.sim.bench.goals import GOALS, NARROW
from verbena.sim.bench.picture import panels_of
from verbena.sim.bench.plan import FAR, GROUPS, plan
from verbena.sim.bench.rows import both_ways, throughput


def test_groups_stand_together_and_in_order():
    groups = [item.group for item in plan(True)]
    assert list(dict.fromkeys(groups)) == list(GROUPS)
    assert groups == sorted(groups, key=GROUPS.index)


def test_each_group_is_drawn():
    for group in GROUPS:
        assert panels_of([{"group": group}]), group


def test_engines_are_compiled_on_demand_only():
    assert all(item.engine_latency is None for item in plan())
    more = [item for item in plan(True) if item.engine_latency is not None]
    assert {item.engine_latency for item in more} == set(FAR)
    assert all(item.engine_latency == item.memory_latency for item in more)
    rest = [item for item in plan(True) if item.engine_latency is None]
    assert [item for item in rest if item.group != "queue pairs"] == plan()


def test_what_is_aimed_at_is_measured():
    """Groups, sizes and queue pairs of the aims for throughput."""
    measured = {item.arguments for item in plan() if item.function is throughput and item.memory_latency is None}
    for goal in GOALS:
        rows = goal.rows
        assert rows["group"] in GROUPS
        if rows["group"] == "throughput":
            assert rows.items() >= NARROW.items()
            sizes = rows["size"] if isinstance(rows["size"], tuple) else (rows["size"],)
            assert {(rows["op"], size, rows["qps"]) for size in sizes} <= measured
    assert [i.arguments for i in plan() if i.function is both_ways and i.arguments[-1]] == [("WRITE", 8, 16, True)]
    far = {(i.memory_latency, i.write_latency, i.arguments[1:]) for i in plan() if i.memory_latency}
    slow = {(i.memory_latency, i.write_latency, i.arguments[1:]) for i in plan() if i.group == "memory latency"}
    assert slow - far == {(None, NARROW["memory_latency"], (8, 16))}
    assert far == {(n, write, what) for n, what in FAR.items() for write in (32, n)}
