"""Each disturbance alone, on a good wire."""

import itertools

import pytest
from verbena.sim.soak import disturbances
from verbena.sim.soak.model import Difference
from verbena.sim.soak.run import Soak
from verbena.sw import host_memory

ENDING = {
    "reset": "reset",
    "destroy": "destroyed",
    "error": "begun anew",
    "deregister": "begun anew",
    "bus": "begun anew",
    "overrun": "CQ overrun",
    "drain": None,
    "resize": None,
    "moderate": None,
    "memory": None,
}


@pytest.fixture
def soak():
    soak = Soak(5, 0, pairs=2, adapters=2, unrest=0)
    with soak.world:
        yield soak


def busy(soak, operations=20):
    wanted = soak.done + operations
    while soak.done < wanted:
        soak.step()


@pytest.mark.parametrize("times", [1, pytest.param(4, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", ENDING)
def test_a_life_ends_or_goes_on(soak, name, times):
    action = getattr(soak.disturbances, name)
    assert set(ENDING) | {"refusal"} == {each.__name__ for each in soak.disturbances._choices}
    first = soak.connections[0]
    if name == "overrun":
        first.own = True
        first.depth = first.flows[0].depth = first.flows[1].depth = 32
        first.end("made longer", anew=True)
    done = 0
    for _ in range(300):
        busy(soak, 5)
        connection = soak.connections[0] if name == "overrun" else soak.random.choice(soak.connections)
        if not connection.failing and not any(f.dead for f in connection.flows) and action(connection) is not False:
            done += 1
        if done == times:
            break
    assert done == times
    busy(soak)
    soak.drain()
    ends = {why for connection in soak.connections for why in connection.ends}
    assert ENDING[name] is None or ENDING[name] in ends
    assert name in ("error", "deregister", "bus") or not any(why.startswith("IBV_WC") for why in ends)


def test_memory_that_changes_after_its_region_is_gone_is_noticed(soak, monkeypatch):
    busy(soak)
    monkeypatch.setattr(soak.random, "choice", lambda items: items[0])
    flow = soak.connections[0].flows[0]
    advance = soak.world.advance
    values = itertools.count()

    def late(cycles, stop=0):
        host_memory.write(flow.slice + 5, bytes([next(values) % 256]))
        return advance(cycles, stop)

    monkeypatch.setattr(soak.world, "advance", late)
    with pytest.raises(Difference, match="slice_mrs were deregistered, and memory was written"):
        soak.disturbances.deregister(soak.connections[0])


def test_faults_are_those_of_the_wire(soak):
    assert set(soak.world.adapters[0].fault_counters) == set(disturbances.KINDS)
