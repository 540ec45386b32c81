"""verbena stat: counters of a device, live or as JSON."""

import json

import pytest
from verbena.hdl.abi.counters import COUNTERS
from verbena.sw import cli, port
from verbena.sw.tools import stat
from verbena.sw.tools.stat import Look, main, told_by

AT = list(COUNTERS).index


def count(device, **values):
    for name, value in values.items():
        device.counters[2 * AT(name)] = value & 0xFFFFFFFF
        device.counters[2 * AT(name) + 1] = value >> 32


def test_once_for_machines(capsys, device):
    count(device, tx_packets=7, rx_bytes=(3 << 32) + 5)
    assert main(["-d", "fake0", "--once", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["device"] == "fake0"
    assert found["times"] == "the device's"
    assert list(found["counters"]) == list(COUNTERS)
    assert {name: value for name, value in found["counters"].items() if value} == {
        "tx_packets": 7,
        "rx_bytes": (3 << 32) + 5,
    }


def test_a_look_changes_nothing(device, capsys):
    """The device may be another program's: it is neither reset nor brought up."""
    assert main(["-d", "fake0", "--once"]) == 0
    assert (device.writes, device.commands) == ([], [])


def test_a_table_has_what_counted(capsys, device):
    count(device, tx_packets=1234, retries=2)
    assert main(["-d", "fake0", "--once"]) == 0
    out = capsys.readouterr().out
    assert "tx_packets" in out
    assert "1234" in out
    assert "timeouts" not in out
    assert "since" not in out  # there is no look before
    assert main(["-d", "fake0", "--once", "--all"]) == 0
    assert "timeouts" in capsys.readouterr().out


def test_changes(device):
    count(device, tx_packets=5)
    first = Look(told_by(device))
    assert first.changes()["tx_packets"] == 5
    count(device, tx_packets=12, rx_packets=1)
    changes = Look(told_by(device), first).changes()
    assert {name: change for name, change in changes.items() if change} == {"tx_packets": 7, "rx_packets": 1}
    table = Look(told_by(device), first).table()
    assert [column.header for column in table.columns] == ["counter", "value", "since"]
    assert list(table.columns[2].cells) == ["+7", "+1"]


def test_live_while_a_program_runs(capsys, device, monkeypatch):
    seen = []

    def program(arguments):
        seen.append(arguments)
        count(device, tx_packets=9)
        return 3

    monkeypatch.setattr("verbena.sw.tools.pingpong.main", program)
    assert main(["-d", "fake0", "--json", "--interval", "0.01", "--", "rc-pingpong", "-n", "4"]) == 3
    assert seen == [["-n", "4"]]
    looks = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert looks[-1]["counters"]["tx_packets"] == 9


def test_a_simulated_device_with_its_program(capsys):
    program = ["ib_write_bw", "-d", "sim0", "--peer", "sim1", "-n", "5", "-s", "64"]
    assert main(["-d", "sim0", "--once", "--json", "--", *program]) == 0
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert found["times"].startswith("simulated; timers: ")
    assert found["counters"]["tx_messages"] >= 5
    assert main(["-d", "sim0", "--interval", "0.05", "--", *program]) == 0
    assert "tx_messages" in capsys.readouterr().out


class Glass:
    """Another program's device: what it tells, look by look."""

    def __init__(self, *counts):
        self._told = [
            {"device": "sim5", "time_ns": at, "times": "simulated", "counters": {"tx_packets": count, "retries": 0}}
            for at, count in enumerate(counts)
        ]
        self.closed = False

    def look(self):
        return self._told.pop(0) if self._told else None

    def close(self):
        self.closed = True


@pytest.fixture
def another(monkeypatch):
    """Makes ``sim5`` a device of another program, which shows its counters through the glass, or none."""

    def make(glass):
        def opener():
            raise AssertionError("it must not be opened")

        opener.glass = lambda: glass
        opener.listed = False
        port.provide("sim5", opener)

    yield make
    port._openers.pop("sim5", None)


def test_a_device_of_another_program_is_shown_until_that_ends(capsys, another):
    glass = Glass(3, 10)
    another(glass)
    assert main(["-d", "sim5", "--json", "--interval", "0.01"]) == 0
    out, err = capsys.readouterr()
    assert [json.loads(line)["counters"]["tx_packets"] for line in out.splitlines()] == [3, 10]
    assert err == "the program has ended\n"
    assert glass.closed
    another(Glass(3, 10))
    assert main(["--interval", "0.01"]) == 0  # the first one that there is
    assert "+7" in capsys.readouterr().out
    another(Glass(4))
    assert main(["-d", "sim5", "--once"]) == 0
    assert "tx_packets" in capsys.readouterr().out


def test_a_device_of_another_program_that_shows_nothing(capsys, another):
    another(None)
    assert main(["-d", "sim5"]) == 1
    assert capsys.readouterr().err == (
        "verbena stat: no program shows counters of sim5 now: say what shall use it behind --\n"
    )
    another(Glass())
    assert main(["-d", "sim5", "--once"]) == 1
    assert capsys.readouterr().err == "verbena stat: the program has ended\n"


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["-d", "nosuch"], "no device 'nosuch'"),
        (["-d", "fake0", "--interval", "0"], "the interval must be more than 0, and at most 86400 seconds, not 0"),
        (["-d", "fake0", "--", "frobnicate"], "there is no command 'frobnicate'"),
        (["-d", "sim0"], "sim0 is simulated, in this program alone"),
    ],
)
def test_what_is_wrong_is_one_line(capsys, device, arguments, complaint):
    assert main(arguments) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert [line for line in err.splitlines() if "VERBENA_SEED" not in line] == [err.splitlines()[-1]]
    assert err.splitlines()[-1].startswith("verbena stat: ")
    assert complaint in err


def test_it_is_a_command():
    assert cli.COMMANDS["stat"][0] == f"{stat.__name__}:main"
