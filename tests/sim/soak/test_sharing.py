"""Shared receive queues in the soak: they find what is wrong."""

import pytest
from verbena.sim.model import rnic
from verbena.sim.ports import Faults
from verbena.sim.soak.host import Host
from verbena.sim.soak.model import Difference
from verbena.sim.soak.sharing import Sharing
from verbena.sim.world import World


@pytest.fixture
def sharing():
    with World(2, rnic(), seed=1) as world:
        yield Sharing(5, [Host(world, index, 64) for index in (0, 1)], 10)


def run(sharing, steps, posting=True):
    for _ in range(steps):
        sharing.step(posting)
        sharing.hosts[0].world.advance(300, stop=0)
        for event in sharing.hosts[1].take_events():
            assert sharing.event(event)


def end(sharing):
    while not sharing.end():
        run(sharing, 1, posting=False)
    sharing.check()


def test_a_bad_wire(sharing):
    """Queue pairs end in all ways, and all that is left arrives."""
    sharing.hosts[0].world.set_faults(Faults(lose=0.02, duplicate=0.02, reorder=0.02, corrupt=0.02))
    while sharing.counts["sent"] < 150 or 0 in (sharing.counts["ends"], sharing.counts["limits"]):
        run(sharing, 1)
    end(sharing)
    assert 0 < sharing.counts["arrived"] < sharing.counts["sent"]


def test_a_cut_wire(sharing):
    """What is sent meanwhile runs out of retries; then queue pairs begin anew."""
    sharing.hosts[0].world.set_faults(Faults(lose=1.0))
    while not sharing.counts["out of retries"]:
        run(sharing, 1)
    sharing.hosts[0].world.set_faults(Faults())
    arrived = sharing.counts["arrived"]
    while sharing.counts["arrived"] < arrived + 20:
        run(sharing, 1)
    end(sharing)


def test_a_changed_byte_is_found(sharing):
    """As the engine, a message of which a byte is another one would be written."""
    run(sharing, 2)
    sharing.random_bytes = bytes(byte ^ 1 for byte in sharing.random_bytes)
    with pytest.raises(Difference, match="arrived with others"):
        run(sharing, 100)


def test_a_receive_that_is_complete_already_is_found(sharing):
    run(sharing, 1)
    sharing.posted.clear()
    with pytest.raises(Difference, match="of a request that is not outstanding"):
        run(sharing, 100)


def test_a_message_of_another_queue_pair_is_found(sharing):
    first, second, *_ = sharing.ways
    sharing._by_number[first.far.qp_num], sharing._by_number[second.far.qp_num] = second, first
    with pytest.raises(Difference, match="out of turn"):
        run(sharing, 200)


def test_a_receive_that_is_lost_is_found(sharing):
    run(sharing, 3)
    end(sharing)
    sharing.places.popleft() if sharing.places else sharing.posted.popitem()
    with pytest.raises(Difference, match=r"receives are outstanding|are outstanding and complete"):
        sharing.check()


def test_an_event_that_nothing_has_caused_is_found(sharing):
    with sharing.hosts[1].context:
        way = sharing.ways[0]
        way.kill()
        way.killed = False
        with pytest.raises(Difference, match="which nothing has caused"):
            run(sharing, 20, posting=False)
