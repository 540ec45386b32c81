"""The whole soak, for a short while."""

import pytest
from verbena.sim.soak import run
from verbena.sim.soak.pace import longest_for, timeout_for
from verbena.sim.soak.run import Soak


@pytest.mark.slow
@pytest.mark.parametrize("operations", [80, 160])
def test_everything_at_once(operations):
    soak = Soak(7, 0.05, pairs=5, adapters=3, unrest=0.5)  # messages are shorter where more is lost
    with soak.world:
        # What happens when depends on more than the seed: the world's keys are random.
        while soak.done < operations or len(soak.disturbances.counts) < 4:
            soak.step()
            assert soak.done < 10 * operations
        soak.drain()
        report = soak.report()
        assert sum(report["faults"].values()) > operations // 8
        assert report["events of completions"] > operations * 12 // 160
        assert {connection.hosts for connection in soak.connections} > {(soak.hosts[0], soak.hosts[1])}


@pytest.mark.slow
def test_a_wire_that_loses_much():
    """Timeouts and lengths follow from the loss; with those of a good wire this takes many times as many cycles."""
    soak = Soak(31337, 0.1, pairs=4)
    longest = dict.fromkeys(soak.flows, 0)
    with soak.world:
        assert soak.timeout == timeout_for(4, 64, 0.1)
        while soak.done < 150:
            soak.step()
            for flow in soak.flows:
                for op in flow.model.open:
                    longest[flow] = max(longest[flow], sum(length for _, length in op.pieces))
        soak.drain()
        assert soak.report()["recovery"]["retries"] > 50
        assert soak.world.cycles < 4_000_000
    assert all(0 < length <= longest_for(0.1, flow.mtu, 1 << 20) for flow, length in longest.items())


@pytest.mark.slow
def test_queue_pairs_give_their_state_away_and_get_it_back():
    """All kinds of operations over a bad wire, and every 1024 cycles another queue pair of each adapter is away."""
    soak = Soak(11, 0.01, pairs=6, adapters=2, swap_every=1024)
    with soak.world:
        while soak.done < 600:
            soak.step()
        soak.drain()
        report = soak.report()
    assert sum(report["faults"].values()) > 50
    assert len(report["by kind"]) == 7


@pytest.mark.slow
def test_more_queue_pairs_than_slots():
    """They come and go all the time, also while a packet of another one looks for its receive of a shared queue."""
    soak = Soak(28, 0.01, slots=4)
    with soak.world:
        while soak.done < 1000:  # to wait for all that is open would take twice as long
            soak.step()
        assert sum(soak.report()["faults"].values()) > 100


def test_command_line(capsys, tmp_path):
    assert run.main(["--seed", "3", "--operations", "12", "--pairs", "2", "--captures", str(tmp_path)]) == 0
    text = capsys.readouterr().out
    assert "to repeat: make soak SEED=3 LOSS=1 OPERATIONS=12 PAIRS=2" in text
    assert "nothing lost, doubled or changed" in text
    assert (tmp_path / "last.pcapng").exists()
    for wrong in (["--width", "65"], ["--adapters", "0"], ["--loss", "60"], ["--pairs", "33"], ["--unrest", "101"]):
        with pytest.raises(SystemExit):
            run.main(wrong)
