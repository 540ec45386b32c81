"""Pairs of UC in the soak: they find what is wrong."""

import pytest
from verbena.sim.model import rnic
from verbena.sim.ports import Faults
from verbena.sim.soak.host import Host
from verbena.sim.soak.model import Difference
from verbena.sim.soak.unreliable import DEPTH, GUARD, SLOT, Unreliable
from verbena.sim.world import World
from verbena.sw.verbs.libibverbs_enums import ibv_qp_type


@pytest.fixture(params=["UC", "UD"])
def pair(request):
    with World(2, rnic(), seed=1) as world:
        yield Unreliable(5, [Host(world, index, 64) for index in (0, 1)], ibv_qp_type[f"IBV_QPT_{request.param}"])


def run(pair, steps):
    for _ in range(steps):
        pair.step()
        pair.hosts[0].world.advance(300, stop=0)


def test_a_bad_wire(pair):
    """Some messages arrive and some do not, and all that was sent is complete in the end."""
    pair.hosts[0].world.set_faults(Faults(lose=0.02, duplicate=0.02, reorder=0.02, corrupt=0.02))
    while pair.counts["sent"] < 200 or (not pair.datagrams and pair.counts["refused with a receive"] == 0):
        run(pair, 1)
    while not pair.end():
        pair.step(posting=False)
        pair.hosts[0].world.advance(300, stop=0)
    pair.check()
    assert 0 < pair.counts["arrived"] < pair.counts["sent"]


def test_a_changed_byte_is_found(pair):
    """As the engine, a message of which a byte is another one would be written."""
    direction = pair.directions[0]
    while True:
        run(pair, 1)
        for number, (_opcode, content) in direction.messages.items():
            if content:
                direction.messages[number] = (_opcode, content[:-1] + bytes([content[-1] ^ 1]))
        if direction.open:
            break
    with pytest.raises(Difference, match="arrived with others"):
        run(pair, 100)


def test_a_receive_that_is_left_out_is_found(pair):
    run(pair, 3)
    pair.directions[1].expected -= 1
    pair.directions[1].receives -= 1
    with pytest.raises(Difference, match="was next"):
        run(pair, 200)


def test_a_message_that_nobody_sent_is_found(pair):
    def run_on():
        for _ in range(100):
            run(pair, 1)
            for direction in pair.directions:
                direction.messages.clear()

    with pytest.raises(Difference, match="was None"):
        run_on()


def test_what_is_written_beside_is_found(pair):
    pair.directions[0].places.write(b"\1", 1, (DEPTH - 1) * (SLOT + GUARD) + SLOT + GUARD - 1)
    with pytest.raises(Difference, match=f"behind place {DEPTH - 1}"):
        pair.check()
