"""Clocks of worlds, and when they go on by themselves."""

import pytest
from verbena.sw import events
from verbena.sw.cm.clock import Clock, skip


class Port:
    second_ns = 32_000_000

    def __init__(self, world):
        self.world = world
        self.ns = 0

    def time_ns(self):
        return self.ns


class World:
    pass


class Agent:
    def __init__(self, port, due):
        self.clock, self.due = Clock(port), due
        self.worked = []

    def work(self):
        self.worked.append(self.clock.now)


class Adapter:
    files = False

    def __init__(self, port, due=None):
        self.port = port
        self.agent = Agent(port, due)


@pytest.fixture
def adapters():
    world, other = World(), World()
    made = [Adapter(Port(world), 500), Adapter(Port(world), 300), Adapter(Port(other), 100)]
    for adapter in made:
        events.watch_events(adapter, True)
    yield made
    for adapter in made:
        events.watch_events(adapter, False)


@pytest.mark.parametrize(("second_ns", "ms"), [(32_000_000, 1500), (10**9, 3), (None, 3)])
def test_a_second_is_the_ports_or_shorter_in_simulation(monkeypatch, second_ns, ms):
    if second_ns is None:
        monkeypatch.delattr(Port, "second_ns")
    else:
        monkeypatch.setattr(Port, "second_ns", second_ns)
    port = Port(World())
    port.ns = 3_000_000
    assert Clock(port).now == ms


def test_a_world_goes_on_to_what_is_due_first(adapters):
    one, two, other = adapters
    assert skip(one)
    assert one.agent.worked == two.agent.worked == [300]
    assert other.agent.clock.now == 0
    two.agent.due = None
    assert skip(two)
    assert one.agent.clock.now == two.agent.clock.now == 500
    assert skip(one)  # due already
    assert one.agent.clock.now == 500
    one.agent.due = None
    assert not skip(one)
    assert other.agent.worked == []


def test_never_where_others_may_act(adapters):
    one, *_ = adapters
    one.port.linked = True
    assert not skip(one)


def test_events_are_taken_and_agents_work_where_time_has_passed(adapters):
    events.take_events(adapters[0].port.world)
    assert [len(each.agent.worked) for each in adapters] == [1, 1, 0]
    assert events.driven(None) == []
