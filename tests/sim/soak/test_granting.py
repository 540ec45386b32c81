"""Keys that come and go in the soak: they find what is wrong."""

from types import SimpleNamespace

import pytest
from verbena.sim.model import rnic
from verbena.sim.ports import Faults
from verbena.sim.soak.granting import FREE, KINDS, VALID, WINDOW_2, Granting
from verbena.sim.soak.host import Host
from verbena.sim.soak.model import Difference
from verbena.sim.world import World
from verbena.sw.verbs.libibverbs_enums import ibv_wc_status


def granting_in(world, seed=5):
    return Granting(seed, [Host(world, index, 64) for index in (0, 1)], 6)


@pytest.fixture
def granting():
    with World(2, rnic(), seed=1) as world:
        yield granting_in(world)


def run(granting, steps, posting=True):
    for _ in range(steps):
        granting.step(posting)
        granting.hosts[0].world.advance(300, stop=0)
        for event in granting.hosts[1].take_events():
            assert granting.event(event)


def end(granting):
    while not granting.end():
        run(granting, 1, posting=False)
    granting.check()


def traffic(granting, grants):
    granting.hosts[0].world.set_faults(Faults(lose=0.02, duplicate=0.02, reorder=0.02, corrupt=0.02))
    counts = granting.counts
    wanted = (*KINDS, "taken", "taken by the peer", "refused", "ends")
    while sum(counts[kind] for kind in KINDS) < grants or 0 in (counts[name] for name in wanted):
        run(granting, 1)
    end(granting)
    assert counts["used"] > grants


@pytest.mark.parametrize("grants", [30, pytest.param(2000, marks=pytest.mark.slow)])
def test_a_bad_wire(granting, grants):
    """All kinds are granted, used, taken away from both sides, and refused then."""
    traffic(granting, grants)


@pytest.mark.slow
def test_queue_pairs_that_leave_their_slots():
    with World(2, rnic(swap_every=4096), seed=1) as world:
        traffic(granting_in(world), 300)


def test_a_changed_byte_is_found(granting):
    run(granting, 60)
    end(granting)
    memory = granting.pairs[0].memory
    memory.write(bytes([memory.read(1, 77)[0] ^ 1]), 1, 77)
    with pytest.raises(Difference, match="byte 0x4d"):
        granting.check()


def test_a_key_that_works_though_it_should_not_is_found(granting):
    """The model takes a window that is bound for one that is free."""
    pair = granting.pairs[0]
    grant = next(grant for grant in pair.grants if grant.kind == WINDOW_2)
    while grant.state != VALID or grant.length < 8 or pair.killed or pair.doomed:
        run(granting, 1)
    while pair.used:
        run(granting, 1, posting=False)
    if grant.state == VALID and not pair.killed:
        pair.probe(grant.key, pair.memory.buf + grant.at)
        with pytest.raises(Difference, match="nothing was done to it"):
            run(granting, 50, posting=False)


def test_a_key_that_does_not_work_is_found(granting):
    pair = granting.pairs[0]
    while pair.killed or pair.doomed or pair.grants[0].state != FREE or pair.grants[0].key == 0:
        run(granting, 1)
    while pair.used:
        run(granting, 1, posting=False)
    grant = pair.grants[0]
    if grant.state == FREE and not pair.killed:
        pair.use(grant)
        with pytest.raises(Difference, match=r"ACCESS_ERR|WR_FLUSH_ERR"):  # the far side may hear of it first
            run(granting, 50, posting=False)


def test_retries_that_end_while_it_is_killed(granting):
    """Its peer is in ERR first, so they may; but a queue pair fails once."""
    pair = granting.pairs[0]
    while len(pair.used) < 2 or pair.doomed:
        run(granting, 1)
    pair.kill()

    def hear():
        number = pair.used[0][0]
        pair._heard_near(SimpleNamespace(wr_id=number, status=ibv_wc_status.IBV_WC_RETRY_EXC_ERR))

    hear()
    assert granting.counts["out of retries"] == 1
    with pytest.raises(Difference, match="nothing was done"):
        hear()
