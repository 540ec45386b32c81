"""ibv_asyncwatch: the lines of its model, and what ends it."""

import pytest
from verbena.sw import cli
from verbena.sw.tools.asyncwatch import asyncwatch
from verbena.sw.verbs.device import Device

DEVICE_FATAL, PORT_ACTIVE, PORT_ERR = 8, 9, 10


def lines_of(capsys):
    out, err = capsys.readouterr()
    first, *events = out.splitlines()
    assert first.startswith("fake0: async event FD ")
    assert int(first.rpartition(" ")[2]) > 2
    return events, err


def test_events_as_they_come(capsys, device):
    """The fake device does one thing of its script each time it is given time."""
    device.script += [lambda kind=kind: device.event(kind, 0) for kind in (PORT_ERR, PORT_ACTIVE, DEVICE_FATAL)]
    assert cli.main(["ibv_asyncwatch", "-d", "fake0"]) == 0
    events, err = lines_of(capsys)
    assert events == [
        "  event_type IBV_EVENT_PORT_ERR (10), port 1",
        "  event_type IBV_EVENT_PORT_ACTIVE (9), port 1",
        "  event_type IBV_EVENT_DEVICE_FATAL (8)",
    ]
    assert err == "the device is idle, and nobody is at its port: no event can come any more\n"


def test_the_first_device_by_default(capsys, device, monkeypatch):
    monkeypatch.setattr("verbena.sw.tools.devices.get_device_list", lambda: [Device("fake0", 0), Device("other", 1)])
    assert asyncwatch([]) == 0
    assert lines_of(capsys)[0] == []


def test_no_device(capsys, monkeypatch):
    monkeypatch.setattr("verbena.sw.tools.devices.get_device_list", list)
    assert asyncwatch([]) == 1
    assert capsys.readouterr() == ("", "ibv_asyncwatch: no RDMA devices found\n")


def test_a_device_that_is_not_there(capsys):
    assert asyncwatch(["-d", "nothing"]) == 1
    assert capsys.readouterr().err.startswith("ibv_asyncwatch: Failed to find device nothing")


@pytest.mark.parametrize("code", [5, 110])
def test_another_failure_is_told(capsys, device, monkeypatch, code):
    """EDEADLK alone says that nothing more comes."""

    def fail(context):
        from verbena.sw.verbs.base import refuse

        refuse("Failed to get async event", code)

    monkeypatch.setattr("verbena.sw.verbs.device.Context.get_async_event", fail)
    assert asyncwatch(["-d", "fake0"]) == 1
    assert "Failed to get async event" in capsys.readouterr().err
