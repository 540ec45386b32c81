"""The whole soak, for a short while."""

import pytest
from verbena.sim.soak import run
from verbena.sim.soak.run import Soak, timeout_for


@pytest.mark.parametrize("data_width", [64, 512])
def test_what_is_under_way_passes_within_a_timeout(data_width):
    for connections in (1, 8, 32):
        cycles = 16 << timeout_for(connections, data_width)
        assert cycles * data_width // 8 >= connections * run.BACKLOG
    assert timeout_for(16, 64) == timeout_for(16, 512) + 3


def test_everything_at_once():
    soak = Soak(7, 0.01, pairs=5, adapters=3, unrest=0.5)
    with soak.world:
        while soak.done < 250:
            soak.step()
        soak.drain()
        report = soak.report()
        assert len(report["disturbances"]) >= 5
        assert sum(report["faults"].values()) > 30
        assert report["events of completions"] > 20
        assert {connection.hosts for connection in soak.connections} > {(soak.hosts[0], soak.hosts[1])}


def test_command_line(capsys, tmp_path):
    assert run.main(["--seed", "3", "--operations", "60", "--pairs", "2", "--captures", str(tmp_path)]) == 0
    text = capsys.readouterr().out
    assert "to repeat: make soak SEED=3 LOSS=1 OPERATIONS=60 PAIRS=2" in text
    assert "nothing lost, doubled or changed" in text
    assert (tmp_path / "last.pcapng").exists()
    for wrong in (["--width", "65"], ["--adapters", "0"], ["--loss", "60"], ["--pairs", "33"], ["--unrest", "101"]):
        with pytest.raises(SystemExit):
            run.main(wrong)
