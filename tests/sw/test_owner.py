"""One driver at a time: in this process, on this host, and beyond."""

import errno
import gc
import os
import signal
import subprocess
import sys
import tempfile

import pytest
from fake_device import OWNER, FakeDevice
from verbena.sw import owner
from verbena.sw.adapter import Adapter
from verbena.sw.errors import AdapterError
from verbena.sw.owner import claim


@pytest.fixture
def shared(tmp_path, monkeypatch):
    """A device that other processes can open, too."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    fake = FakeDevice()
    fake.key = "some:board/1"
    return fake


def refused(port):
    """Why a claim is refused; it has changed nothing."""
    before = port.registers.get(OWNER, 0)
    with pytest.raises(AdapterError) as caught:
        claim(port)
    assert caught.value.errno == errno.EBUSY
    assert port.registers.get(OWNER, 0) == before
    return caught.value.strerror


@pytest.mark.parametrize("key", [None, "board"])
def test_a_second_driver_in_this_process(shared, key):
    shared.key = key
    first = Adapter(shared)
    with pytest.raises(AdapterError) as caught:
        Adapter(shared)
    assert caught.value.errno == errno.EBUSY
    assert "another driver in this process" in caught.value.strerror
    first.close()
    Adapter(shared).close()
    assert shared.registers[OWNER] == 0


def test_nothing_is_done_to_a_device_in_use(shared):
    first = claim(shared)
    count = len(shared.writes)
    with pytest.raises(AdapterError):
        Adapter(shared)
    assert shared.writes[count:] == []
    first.give_up()
    first.give_up()
    assert shared.registers[OWNER] == 0


@pytest.mark.parametrize("key", [None, "board"])
def test_one_that_is_forgotten_is_taken_over(shared, key):
    shared.key = key
    old = claim(shared).token
    gc.collect()
    assert shared.registers[OWNER] == old
    new = claim(shared)
    assert shared.registers[OWNER] == new.token != old


HOLD = """
import sys
from verbena.sw.owner import claim

class Port:
    name, key, value = "p", sys.argv[1], 0
    def read32(self, offset): return self.value
    def write32(self, offset, value): self.value = value

owner = claim(Port())
print(owner.token, flush=True)
sys.stdin.read()
"""


def test_another_process(shared):
    """It keeps the device while it lives, and not a moment longer, even if it is killed."""
    command = [sys.executable, "-c", HOLD, shared.key]
    environment = {**os.environ, "TMPDIR": tempfile.gettempdir()}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment) as other:
        shared.registers[OWNER] = int(other.stdout.readline())
        assert "another process" in refused(shared)
        other.send_signal(signal.SIGKILL)
        other.wait()
    taken = claim(shared)
    assert shared.registers[OWNER] == taken.token


def test_another_host(shared, monkeypatch):
    """Nobody here can know whether its driver lives."""
    here = owner._host()
    with monkeypatch.context() as there:
        there.setattr(owner, "_host", lambda: here ^ 1)
        claim(shared).forget()
    assert "another host" in refused(shared)
    shared.write32(OWNER, 0)
    claim(shared)


def test_who_comes_first_has_it(shared):
    """Two claim at the same moment: the register decides."""
    write = shared.write32

    def raced(offset, value):
        if offset == OWNER and value:
            shared.registers.setdefault(OWNER, 0)
            write(OWNER, 0x12340001)
        write(offset, value)

    shared.write32 = raced
    with pytest.raises(AdapterError) as caught:
        claim(shared)
    assert caught.value.errno == errno.EBUSY
