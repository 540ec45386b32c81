"""The socket by which `verbena stat` looks at the adapter of another program."""

import os
import socket
import threading
import time
from contextlib import closing

import pytest
from verbena.hdl.abi.counters import COUNTERS
from verbena.sim import stat_socket
from verbena.sim.stat_socket import Glass, Teller, place


class Port:
    """A simulated device whose counters are all ``count``; each look takes it ``step`` ns."""

    name = "sim4"
    clock_text = "simulated; timers: 16 cycles for 4.096 µs"
    gone = False
    count, now, step = 7, 0, 100

    def read32(self, offset):
        return 0 if offset & 4 else self.count

    def time_ns(self):
        self.now += self.step
        return self.now


@pytest.fixture
def port():
    made = Port()
    yield made
    made.gone = True


@pytest.fixture
def path(tmp_path):
    return place(tmp_path, "sim4")


def until(condition):
    limit = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < limit
        time.sleep(0.01)


def test_a_look_tells_what_there_is_at_that_time(port, path):
    Teller(port, path)
    glass = Glass(path)
    assert glass.look() == {
        "device": "sim4",
        "time_ns": 100,
        "times": port.clock_text,
        "counters": dict.fromkeys(COUNTERS, 7),
    }
    port.count = 9
    assert set(glass.look()["counters"].values()) == {9}
    glass.close()


def test_several_look_at_once_and_who_goes_does_not_matter(port, path):
    Teller(port, path)
    first, second = Glass(path), Glass(path)
    assert first.look()["time_ns"] == 100
    assert second.look()["time_ns"] == 200
    first.close()
    assert second.look()["time_ns"] == 300
    second.close()


def test_the_end_of_the_world_is_told_and_leaves_nothing(port, path):
    Teller(port, path)
    glass = Glass(path)
    assert glass.look() is not None
    port.gone = True
    until(lambda: not path.exists())
    assert glass.look() is None
    glass.close()
    with pytest.raises(OSError, match="No such file"):
        Glass(path)


def test_a_forgotten_device_is_shown_no_more(path):
    Teller(Port(), path)
    until(lambda: not path.exists())


def test_what_a_killed_program_has_left_is_replaced(port, path):
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    with pytest.raises(ConnectionRefusedError):
        Glass(path)
    Teller(port, path)
    with closing(Glass(path)) as glass:
        assert glass.look() is not None


def test_the_place_of_another_program_stays(port, path):
    """The next one has the adapter before this one's thread has seen its end."""
    first = Teller(port, path)
    other = Port()
    Teller(other, path)
    port.gone = True
    first.join(30)
    with closing(Glass(path)) as glass:
        assert glass.look() is not None
    other.gone = True


def test_a_program_that_does_not_answer(path, monkeypatch):
    monkeypatch.setattr(stat_socket, "PATIENCE", 0.1)
    with socket.socket(socket.AF_UNIX) as stopped:
        stopped.bind(str(path))
        stopped.listen()
        glass = Glass(path)
        with pytest.raises(TimeoutError, match=r"the program has not answered for 0\.1 s: it may be stopped"):
            glass.look()
        glass.close()


def test_a_child_shows_nothing(port, path):
    """Else those who look would wait at it when its parent has ended."""
    Teller(port, path)
    glass = Glass(path)
    assert glass.look() is not None
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(writing)
        os.read(reading, 1)  # lives until the parent is done
        os._exit(0)
    try:
        port.gone = True
        until(lambda: not any(thread.name == "verbena-teller" for thread in threading.enumerate()))
        assert glass.look() is None
        glass.close()
        assert not path.exists()
    finally:
        os.close(writing)
        os.close(reading)
        os.waitpid(child, 0)
