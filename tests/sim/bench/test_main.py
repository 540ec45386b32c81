"""The command: JSON, a picture and a table that marks what misses its aim."""

import json
import subprocess
import sys

import pytest
from verbena.sim.bench import __main__ as command
from verbena.sim.bench.__main__ import main
from verbena.sim.bench.goals import judged
from verbena.sim.bench.picture import draw
from verbena.sim.bench.words import aim_text, name_of, value_text

ROW = {
    "group": "WQEs",
    "op": "READ",
    "transport": "RC",
    "direction": "one way",
    "size": 64,
    "mtu": 4096,
    "qps": 1,
    "entries": 2,
    "ratio_to_one_entry": 7.379,
    "cycles_per_message": 156.0,
    "wire_cycles": 18.75,
    "wire_fraction": 0.12,
    "data_width": 64,
    "memory_latency": 128,
    "write_latency": 32,
    "engine_latency": 128,
}


def test_words():
    row = judged(ROW)
    assert (name_of(row), value_text(row), aim_text(row)) == ("READ, 2 entries", "7.379 ×", "≤ 1.1 × ✗")
    assert aim_text(judged(ROW | {"ratio_to_one_entry": 1.1})) == "≤ 1.1 ×"
    slow = judged(ROW | {"group": "memory latency", "memory_latency": 512, "write_latency": 512, "size": 1024})
    del slow["ratio_to_one_entry"], slow["entries"]
    assert name_of(slow) == "READ, memory 512/512, engine for 128"
    assert aim_text(slow) == "≥ 97.0% ✗"
    rare = {name: value for name, value in ROW.items() if name not in ("entries", "ratio_to_one_entry")}
    rare |= {"group": "events", "op": "SEND", "cq_count": 16, "cq_period": 100, "events_per_completion": 0.051}
    assert (name_of(rare), value_text(judged(rare))) == ("SEND, events for 16 CQEs or 100 us", "0.051 events a CQE")
    assert name_of(rare | {"cq_period": 0}) == "SEND, events"
    assert aim_text(judged(ROW | {"group": "lossy wire"})) == ""


def test_words_of_a_crowd():
    row = {name: value for name, value in ROW.items() if name not in ("entries", "ratio_to_one_entry")}
    row |= {"group": "queue pairs", "op": "WRITE", "size": 8, "qps": 10_000, "silent": 0, "ratio_to_one_slot": 10.5}
    assert (name_of(judged(row)), aim_text(judged(row))) == ("WRITE, drawn at random", "≤ 100 ✗")
    large = judged(row | {"size": 4096})
    assert (value_text(large), aim_text(large)) == ("10.5 ×", "≤ 1.1 × ✗")
    both = judged(row | {"direction": "both ways"})
    assert (name_of(both), aim_text(both)) == ("WRITE, both ways, drawn at random", "")
    beside = judged(row | {"silent": 5_000, "ratio_to_answering": 1.2})
    assert name_of(beside) == "WRITE, drawn at random, beside 5000 silent"
    assert (value_text(beside), aim_text(beside)) == ("1.2 ×", "≤ 1.3 ×")


def test_any_groups_can_be_drawn(tmp_path):
    latency = ROW | {"group": "latency", "latency_cycles": 302, "op": "SEND", "push": True, "inline": False}
    draw([judged(ROW), judged(latency)], tmp_path / "some.png")
    assert (tmp_path / "some.png").read_bytes()[:4] == b"\x89PNG"


@pytest.mark.parametrize("arguments", [["--only", "nothing"], ["--memory-latency", "5"], ["--data-width", "65"]])
def test_wrong_arguments(arguments, capsys):
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert arguments[1] in capsys.readouterr().err


def test_what_was_measured_stays(tmp_path, monkeypatch):
    def run(*_):
        yield judged(ROW)
        raise RuntimeError

    monkeypatch.setattr(command, "run", run)
    with pytest.raises(RuntimeError):
        main(["--output", str(tmp_path / "new" / "out.json")])
    assert json.loads((tmp_path / "new" / "out.json").read_text()) == [judged(ROW)]


@pytest.mark.slow
@pytest.mark.verilator
def test_one_group(tmp_path):
    out = tmp_path / "out.json"
    arguments = ["--only", "different words", "--output", str(out)]
    done = subprocess.run(
        [sys.executable, "-m", "verbena.sim.bench", *arguments], capture_output=True, text=True, check=True
    )
    rows = json.loads(out.read_text())
    assert [(row["op"], row["qps"], row["aim"]) for row in rows] == [
        ("READ", 16, 12.6),
        ("FETCH_ADD", 1, None),
        ("FETCH_ADD", 16, 14.5),
    ]
    for row in rows:
        assert (row["data_width"], row["memory_latency"], row["write_latency"]) == (64, 128, 32)
        assert row["value"] == row["cycles_per_message"]
        if row["aim"] is not None:
            assert row["met"] is (row["value"] <= row["aim"])
            assert f"≤ {row['aim']:g}{'' if row['met'] else ' ✗'}" in done.stdout
    assert f"{sum(bool(row['met']) for row in rows)} of 2 rows with an aim reach it" in done.stdout
    assert "different words, 1 of 3" in done.stderr
    assert out.with_suffix(".png").exists()
