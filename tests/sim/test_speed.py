"""The figures of the simulation's speed, and that all of them are told; how large they are the machine decides."""

import json

import pytest
from verbena.sim import speed
from verbena.sim.message_speed import KINDS, PLACES

CYCLES = {
    "1 adapter": {"idle", "frames"},
    "2 adapters": {"idle", "frames"},
    "2 adapters on two cores": {"frames"},
    "2 linked worlds, 80 cycles apart": {"wall", "processor"},
    "2 linked worlds, 500 cycles apart": {"wall", "processor"},
}


@pytest.mark.slow
@pytest.mark.verilator
def test_all_figures_in_one_command(tmp_path, capsys):
    file = tmp_path / "speed.json"
    assert not speed.main(["--seconds", "0.05", "--json", str(file)])
    lines = capsys.readouterr().out.splitlines()
    told = json.loads(file.read_text())
    assert told["data_width"] == 64
    assert {name: set(figures) for name, figures in told["cycles_per_second"].items()} == CYCLES
    rates = told["messages_per_second"]
    assert {kind: list(each) for kind, each in rates.items()} == {kind: list(PLACES) for kind in KINDS}
    figures = [*told["cycles_per_second"].values(), *told["messages_per_second"].values()]
    numbers = [number for each in figures for number in each.values()]
    assert all(number > 0 for number in numbers)
    for number in numbers:
        assert any(f"{number:,.0f}" in line for line in lines)


def test_the_best_of_several_counts():
    given = iter([(3, 9), (5, 1), (4, 4)])
    assert speed._best(3, lambda: next(given)) == (5, 1)


def test_a_number_of_times_that_cannot_be(capsys):
    with pytest.raises(SystemExit):
        speed.main(["--repeat", "0"])
    assert "--repeat must be at least 1, not 0" in capsys.readouterr().err
