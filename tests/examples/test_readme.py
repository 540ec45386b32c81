"""README's first screen: what is typed in three terminals prints what stands there."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

README = Path(__file__).parents[2] / "README.md"
LIMIT = 300
"""Seconds: the first one may have to compile the engine."""

FIGURE = re.compile(r"\b\d+\.\d+\b")
SLACK = 0.002
"""By how much a figure may differ, as a share: who comes when differs from run to run, by a few cycles."""


def terminals():
    """What the first screen shows, for each terminal: the command, and the lines that it prints."""
    (block,) = re.findall(r"^```\n(\$ verbena sim\n.*?)^```$", README.read_text(), re.MULTILINE | re.DOTALL)
    screens = [screen.strip().splitlines() for screen in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]]
    return [(typed, shown) for typed, *shown in screens]


def steady(line):
    """The line without what differs from run to run: seeds, numbers of queue pairs and packets, places."""
    line = re.sub(r"(?<=SEED=)\d+|(?<=QPN )0x\w+|(?<=PSN )0x\w+", "…", line)
    return re.sub(r"(?<= at )/\S+(?=;)", "…", line)


def assert_equal(found, shown):
    assert [FIGURE.sub("…", steady(line)) for line in found] == [FIGURE.sub("…", steady(line)) for line in shown]
    for line, other in zip(found, shown):
        figures = [[float(figure) for figure in FIGURE.findall(steady(each))] for each in (line, other)]
        assert figures[0] == pytest.approx(figures[1], rel=SLACK), f"{line!r} where README has {other!r}"


@pytest.fixture
def terminal(tmp_path):
    """Starts what is typed in a terminal; what it prints, and all that it says, is in a file."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("VERBENA_")}
    if "VERBENA_BUILD" in os.environ:
        environment["VERBENA_BUILD"] = os.environ["VERBENA_BUILD"]
    environment |= {"XDG_RUNTIME_DIR": str(tmp_path), "PYTHONUNBUFFERED": "1", "COLUMNS": "120"}
    running = []

    def start(typed, *more):
        program, *arguments = [*typed.split(), *more]
        assert program == "verbena"
        file = tmp_path / f"terminal{len(running)}"
        with file.open("w") as out:
            process = subprocess.Popen(
                [sys.executable, "-m", "verbena.sw.cli", *arguments], env=environment, stdout=out, stderr=out
            )
        running.append(process)
        process.said = lambda: [line for line in file.read_text().splitlines() if "verbena: compile" not in line]
        return process

    yield start
    for process in running:
        process.kill()
        process.wait()


def wait_for(process, text):
    until = time.monotonic() + LIMIT
    while not any(text in line for line in process.said()):
        assert process.poll() is None, process.said()
        assert time.monotonic() < until
        time.sleep(0.05)


def free_port():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return str(sock.getsockname()[1])


@pytest.mark.slow
def test_the_first_screen(terminal):
    """With another TCP port than the usual one, which somebody else may have."""
    (switch_typed, switch_shown), (server_typed, server_shown), (client_typed, client_shown) = terminals()
    port = ["-p", free_port()]
    switch = terminal(switch_typed)
    wait_for(switch, "Ctrl-C ends the switch")
    server = terminal(server_typed, *port)
    wait_for(server, "VERBENA_SEED")
    client = terminal(client_typed, *port)
    assert [client.wait(LIMIT), server.wait(LIMIT)] == [0, 0], (client.said(), server.said())
    assert_equal(server.said(), server_shown)
    assert_equal(client.said(), client_shown)
    # README shows it while both programs run.
    assert_equal(switch.said()[: len(switch_shown)], switch_shown)
    switch.send_signal(signal.SIGINT)
    assert switch.wait(LIMIT) == 0


def test_the_sides_tell_of_each_other():
    """What README shows is of one run: each side's remote address is the other one's local address."""
    _, (_, server), (_, client) = terminals()
    addresses = [
        {kind: text for line in shown for kind, text in re.findall(r"^  (local|remote) address: +(.*)$", line)}
        for shown in (server, client)
    ]
    assert addresses[0]["local"] == addresses[1]["remote"] != addresses[0]["remote"] == addresses[1]["local"]
