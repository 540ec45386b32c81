"""The command ``verbena``."""

import importlib
import os
import tomllib
from pathlib import Path

import pytest
from verbena.sim.sweep.__main__ import CLOCK_HZ
from verbena.sw import cli
from verbena.sw.tools.perftest.kinds import KINDS


def test_help_names_every_command(capsys):
    assert cli.main(["--help"]) == 0
    out = capsys.readouterr().out
    for name, (_, text) in cli.COMMANDS.items():
        assert f"  {name} " in out
        assert text in out
    for option, (_, _, text) in cli.OPTIONS.items():
        assert f"  {option} " in out
        assert text in out


def test_the_version(capsys):
    assert cli.main(["--version"]) == 0
    version = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]["version"]
    assert capsys.readouterr().out == f"verbena {version}\n"


def test_without_a_command_the_status_is_1(capsys):
    assert cli.main([]) == 1
    assert capsys.readouterr().out.startswith("usage: verbena [options] NAME")


def test_an_unknown_command_is_one_line(capsys):
    assert cli.main(["pingpogn"]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("verbena: there is no command 'pingpogn'; there are: board, ")
    assert err.count("\n") == 1


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_every_command_leads_to_a_function(name):
    module, function = cli.COMMANDS[name][0].split(":")
    assert callable(getattr(importlib.import_module(module), function))


def test_arguments_and_status_pass(monkeypatch):
    seen = []
    monkeypatch.setattr("verbena.sw.tools.pingpong.main", lambda arguments: seen.append(arguments) or 7)
    assert cli.main(["rc-pingpong", "-n", "3"]) == 7
    assert seen == [["-n", "3"]]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ([], [None, None]),
        (["--exact"], ["1", None]),
        (["--true-tick", "--exact"], ["1", str(round(CLOCK_HZ * 4.096e-6))]),
    ],
)
def test_options_before_the_name_hold_for_every_program(options, expected, monkeypatch):
    names = ("VERBENA_EXACT", "VERBENA_TICK")
    for name in names:
        monkeypatch.setenv(name, "")  # so that it is taken back
        monkeypatch.delenv(name)
    seen = []

    def program(arguments):
        seen.append((arguments, [os.environ.get(name) for name in names]))
        return 0

    monkeypatch.setattr("verbena.sw.tools.pingpong.main", program)
    assert cli.main([*options, "rc-pingpong", "-n", "3"]) == 0
    assert seen == [(["-n", "3"], expected)]


def test_ctrl_c_has_its_status(monkeypatch):
    def stop(arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr("verbena.sw.tools.pingpong.main", stop)
    assert cli.main(["rc-pingpong"]) == 130


@pytest.mark.parametrize("name", ["ib_write_bw", "ib_write_lat", "ib_read_bw", "ib_send_lat", "ib_atomic_bw"])
def test_familiar_names_are_tests_of_perftest(monkeypatch, name):
    seen = []
    monkeypatch.setattr(
        "verbena.sw.tools.perftest.__main__.main", lambda arguments, test: seen.append((arguments, test)) or 5
    )
    assert cli.main([name, "-n", "3"]) == 5
    assert seen == [(["-n", "3"], name.removeprefix("ib_"))]


def test_every_test_of_perftest_has_its_familiar_name():
    assert {test for test, _ in cli.TESTS.values()} == set(KINDS)
