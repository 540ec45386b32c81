"""Each refused operation, and each disturbance, alone on a good wire."""

import pytest
from verbena.sim.soak import flow as flow_module
from verbena.sim.soak.model import Difference
from verbena.sim.soak.refusals import REFUSALS
from verbena.sim.soak.run import Soak
from verbena.sw import host_memory
from verbena.sw.verbs.libibverbs_enums import ibv_wc_status


@pytest.fixture
def soak():
    soak = Soak(3, 0, pairs=1, adapters=2, unrest=0)
    with soak.world:
        yield soak


def run(soak, operations=20):
    """Some operations, and all that follows from what was done before."""
    wanted = soak.done + operations
    while soak.done < wanted:
        soak.step()
    soak.drain()


@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda refusal: refusal.name)
def test_a_refusal_ends_a_life_with_its_status(soak, refusal, monkeypatch):
    (connection,) = soak.connections
    run(soak)
    monkeypatch.setattr(flow_module, "REFUSALS", (refusal,))
    assert connection.flows[0].refuse()
    # Both sides' completions are there before one is looked at: who sees the peer's first flushes what is open here.
    soak.world.advance(20_000, stop=0)
    run(soak)
    assert connection.ends[ibv_wc_status(refusal.status).name] == 1
    assert connection.ends["begun anew"] == 1


def test_what_is_not_refused_is_noticed(soak, monkeypatch):
    granted = REFUSALS[0]
    request = REFUSALS[-1].request

    def harmless(flow, number, local, random):
        wr = request(flow, number, local, random)
        wr.sg_list[0].lkey = flow.pool_mrs[0].lkey
        return wr

    monkeypatch.setattr(flow_module, "REFUSALS", (type(granted)("nothing wrong", granted.status, harmless),))
    soak.connections[0].flows[0].post_receives(4)
    assert soak.connections[0].flows[0].refuse()
    with pytest.raises(Difference, match="which must be refused"):
        run(soak)


def test_a_byte_that_changes_by_itself_is_noticed(soak):
    run(soak)
    flow = soak.connections[0].flows[1]
    value = host_memory.read(flow.slice + 77, 1)[0]
    host_memory.write(flow.slice + 77, bytes([value ^ 1]))
    with pytest.raises(Difference, match=r"slice of QP .*: byte 0x4d is"):
        soak.drain()
