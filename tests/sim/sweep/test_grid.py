"""Points and commands."""

import sys

import pytest
from verbena.sim.sweep.grid import GridError, Sweep, command_of, read_toml, values_of


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("1..4", [1, 2, 3, 4]),
        ("64..1024*4", [64, 256, 1024]),
        ("3,5..6,a,0.5", [3, 5, 6, "a", 0.5]),
        ("-1..1", [-1, 0, 1]),
    ],
)
def test_values(text, values):
    assert values_of(text) == values


@pytest.mark.parametrize("text", ["4..1", "1..8*1", "0..8*2", "1,,2", ""])
def test_no_values(text):
    with pytest.raises(GridError):
        values_of(text)


def test_points_are_all_combinations():
    sweep = Sweep(grid={"a": [1, 2], "b": ["x", "y"]}, seeds=[7, 8])
    points = sweep.points()
    assert len(points) == 8
    assert points[0] == {"a": 1, "b": "x", "seed": 7}
    assert points[1] == {"a": 1, "b": "x", "seed": 8}
    assert points[-1] == {"a": 2, "b": "y", "seed": 8}


def test_commands():
    point = {"size": 64, "VERBENA_DATA_WIDTH": 128, "seed": 3}
    command, environment = command_of("a.py", ["-s", "{size}", "{folder}/{other}"], point, "/f")
    # As a program that may say `import pyverbs`.
    assert command == [sys.executable, "-m", "verbena.sw.cli", "run", "a.py", "-s", "64", "/f/{other}"]
    assert environment == {"VERBENA_DATA_WIDTH": "128", "VERBENA_SEED": "3"}
    assert command_of("verbena.sim.soak", ["--seed", "{seed}"], {"loss": 2, "seed": 3}, "/f")[0] == [
        *(sys.executable, "-m", "verbena.sim.soak"),
        *("--seed", "3", "--loss", "2"),
    ]
    assert command_of("perftest", [], {}, "/f")[0] == [sys.executable, "-m", "verbena.sw.cli", "perftest"]
    assert command_of("prog", [], {}, "/f")[0] == ["prog"]


def test_toml(tmp_path):
    path = tmp_path / "a.toml"
    path.write_text('program = "a.py"\narguments = ["-n", 3]\nseeds = "1..2"\n[grid]\nsize = [1, 2]\nway = "a,b"\n')
    sweep = read_toml(path)
    assert sweep == Sweep("a.py", ["-n", "3"], {"size": [1, 2], "way": ["a", "b"]}, [1, 2])


@pytest.mark.parametrize(
    ("text", "message"), [("prog = 'a'", "there is no 'prog'; there are: program"), ("x = ", "Invalid value")]
)
def test_bad_toml(tmp_path, text, message):
    (tmp_path / "a.toml").write_text(text)
    with pytest.raises(GridError, match=message):
        read_toml(tmp_path / "a.toml")
