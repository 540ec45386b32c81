"""Programs as processes, each with its own adapter, and the switch between them."""

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

__all__ = ["Programs", "await_listener", "free_port", "network", "programs"]


def free_port():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return str(sock.getsockname()[1])


def await_listener(port, seconds=60):
    """Returns when a program of this machine listens on ``port``, without a word to it."""
    limit = time.monotonic() + seconds
    place = f":{int(port):04X}"
    while not any(
        local.endswith(place) and state == "0A"
        for _, local, _, state, *_ in map(str.split, Path("/proc/net/tcp").read_text().splitlines()[1:])
    ):
        assert time.monotonic() < limit
        time.sleep(0.02)


class Programs:
    """Processes, with the environment of the network ``where``."""

    def __init__(self, where):
        self.environment = os.environ | {"VERBENA_SIM": str(where), "PYTHONUNBUFFERED": "1"}
        self.running = []

    def start(self, *arguments, **environment):
        process = subprocess.Popen(
            [sys.executable, *map(str, arguments)],
            env=self.environment | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.running.append(process)
        return process

    def stop(self):
        for process in self.running:
            process.kill()
            process.communicate()


@pytest.fixture
def programs(tmp_path):
    made = Programs(tmp_path / "net")
    yield made
    made.stop()


@pytest.fixture
def network(programs, tmp_path):
    """Starts the switch; more options may be given."""

    def start(*options):
        switch = programs.start("-m", "verbena.sw.cli", "sim", tmp_path / "net", *options)
        assert " adapters, sim0 to sim" in switch.stdout.readline()
        return switch

    return start
