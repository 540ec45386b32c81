"""The command ``verbena``."""

import importlib

import pytest
from verbena.sw import cli


def test_help_names_every_command(capsys):
    assert cli.main(["--help"]) == 0
    out = capsys.readouterr().out
    for name, (_, text) in cli.COMMANDS.items():
        assert f"  {name} " in out
        assert text in out


def test_without_a_command_the_status_is_1(capsys):
    assert cli.main([]) == 1
    assert capsys.readouterr().out.startswith("usage: verbena NAME")


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


def test_ctrl_c_has_its_status(monkeypatch):
    def stop(arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr("verbena.sw.tools.pingpong.main", stop)
    assert cli.main(["rc-pingpong"]) == 130
