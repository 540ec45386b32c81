"""Each program of ``examples/`` runs, and prints what its docstring says."""

import ast
import os
import re
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
HELPERS = {"connection", "rdma"}
PAIR = {"rdma_server", "rdma_client"}
ALONE = [
    "send",
    "signaled",
    "many_qps",
    "file_copy",
    "key_value",
    "server_first",
    "datagrams",
    "rdma_cm",
    "device_memory",
    "raw_packets",
]
LIMIT = 300
"""Seconds: the first one may have to compile the engine."""


def command(name, *arguments):
    return [sys.executable, "-m", "verbena.sw.cli", "run", str(EXAMPLES / f"{name}.py"), *map(str, arguments)]


def run(name, *arguments):
    return subprocess.run(command(name, *arguments), capture_output=True, text=True, timeout=LIMIT, check=False)


def steady(text):
    """The text without what differs from run to run: keys, ports, and numbers of processes."""
    return re.sub(r"0x[0-9a-f]+|(?<=port )\d+|(?<=pid )\d+", "…", text)


def printed(name):
    """What the example prints, as its docstring says: the indented lines at its end."""
    text = ast.get_docstring(ast.parse((EXAMPLES / f"{name}.py").read_text()))
    lines = text.split("prints:\n\n")[1].splitlines()
    assert all(line.startswith("    ") for line in lines)
    return steady("\n".join(line[4:] for line in lines) + "\n")


def conversation(name, mode):
    text = printed(name)
    return text if mode == "write" else text.replace("writing message to", "reading message from")


@pytest.mark.parametrize("name", ALONE)
def test_an_example_prints_what_it_says(name):
    result = run(name)
    assert result.returncode == 0, result.stderr
    assert steady(result.stdout) == printed(name)


def test_a_network_interface_of_linux():
    """In a network namespace of its own, where such may be made."""
    isolated = ["unshare", "-rn"]
    probe = (
        "import fcntl, os, struct; fcntl.ioctl(os.open('/dev/net/tun', 2), 0x400454CA, struct.pack('16sH22x', b't', 2))"
    )
    try:
        able = subprocess.run([*isolated, sys.executable, "-c", probe], capture_output=True, timeout=60, check=False)
    except FileNotFoundError:
        pytest.skip("there is no unshare")
    if able.returncode:
        pytest.skip(f"no TAP device in a namespace: {able.stderr.decode().splitlines()[-1:]}")
    result = subprocess.run(
        [*isolated, *command("netdev", "--ping")], capture_output=True, text=True, timeout=LIMIT, check=False
    )
    assert result.returncode == 0, result.stderr
    assert steady(result.stdout) == printed("netdev")


@pytest.mark.parametrize("how", [(), ("--cm",)], ids=["TCP", "CM"])
@pytest.mark.parametrize("mode", ["write", "read"])
def test_server_and_client_as_threads(mode, how):
    result = run("rdma_server", mode, "--both", *how)
    assert result.returncode == 0, result.stderr
    lines = steady(result.stdout).splitlines(keepends=True)
    for side in ("server", "client"):
        said = "".join(line.removeprefix(f"{side}: ") for line in lines if line.startswith(f"{side}: "))
        assert said == conversation(f"rdma_{side}", mode)


@pytest.mark.parametrize(("how", "host"), [((), "127.0.0.1"), (("--cm",), "10.0.0.1")], ids=["TCP", "CM"])
@pytest.mark.parametrize("mode", ["write", "read"])
def test_server_and_client_as_processes(mode, how, host, tmp_path, monkeypatch):
    pytest.importorskip("verbena.sim.switch", reason="there is no verbena sim")
    monkeypatch.setenv("VERBENA_SIM", str(tmp_path / "network"))
    switch = subprocess.Popen([sys.executable, "-m", "verbena.sw.cli", "sim", str(tmp_path / "network")])
    server = None
    try:
        until = time.monotonic() + LIMIT
        while not (tmp_path / "network").exists():
            assert switch.poll() is None
            assert time.monotonic() < until
            time.sleep(0.05)
        server = subprocess.Popen(command("rdma_server", *how, mode), stdout=subprocess.PIPE, text=True)
        first = server.stdout.readline()
        port = first.rstrip(".\n").split()[-1]
        client = run("rdma_client", *how, mode, host, port)
        assert client.returncode == 0, client.stderr
        said = first + server.communicate(timeout=LIMIT)[0]
        assert server.returncode == 0
        assert steady(said) == conversation("rdma_server", mode)
        assert steady(client.stdout) == conversation("rdma_client", mode)
        assert f"pid {server.pid}\n" in client.stdout
    finally:
        for process in filter(None, (server, switch)):
            process.terminate()
            process.wait(LIMIT)


@pytest.mark.parametrize("size", [0, 1, 512, 5000])
def test_the_copy_is_equal(tmp_path, size):
    content = os.urandom(size)
    (tmp_path / "from").write_bytes(content)
    result = run("file_copy", tmp_path / "from", tmp_path / "to")
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "to").read_bytes() == content


def test_bad_input_is_one_line(tmp_path):
    result = run("file_copy", tmp_path / "missing")
    assert (result.returncode, result.stderr) == (
        1,
        f"cannot read {tmp_path / 'missing'}: No such file or directory\n",
    )
    result = run("rdma_client", "write", "127.0.0.1", 1)
    assert result.returncode == 1
    assert result.stderr.splitlines()[-1] == "the client ends: [Errno 111] Connection refused"
    assert "Traceback" not in result.stderr


def test_nobody_listens_by_cm():
    """An adapter without a connection manager is silent; so the client asks itself, which is refused."""
    result = run("rdma_client", "--cm", "write", "10.0.0.1", 1)
    assert result.returncode == 1
    assert result.stderr.splitlines()[-1] == "the client ends: RDMA_CM_EVENT_REJECTED, status 8"
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    ("name", "arguments"),
    [("rdma_server", ["post"]), ("rdma_client", ["write"]), ("rdma_client", ["write", "here", "x"])],
)
def test_a_wrong_option_is_one_line_and_status_1(name, arguments):
    result = run(name, *arguments)
    assert (result.returncode, result.stdout) == (1, "")
    (line,) = result.stderr.splitlines()
    assert re.fullmatch(rf"{name}\.py: .*; --help tells more", line)


def test_a_peer_that_hangs_up_is_told():
    server = subprocess.Popen(
        command("rdma_server", "write"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"VERBENA_SIM": ""},
    )
    try:
        port = int(server.stdout.readline().rstrip(".\n").split()[-1])
        with socket.create_connection(("127.0.0.1", port)) as peer:
            peer.shutdown(socket.SHUT_WR)
            _, told = server.communicate(timeout=LIMIT)
        assert server.returncode == 1
        assert told.splitlines()[-1] == "the server ends: the peer has hung up"
        assert "Traceback" not in told
    finally:
        server.kill()


def test_a_server_that_hangs_up_is_told():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = subprocess.Popen(
            command("rdma_client", "write", "127.0.0.1", listener.getsockname()[1]),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"VERBENA_SIM": ""},
        )
        try:
            listener.accept()[0].close()
            _, told = client.communicate(timeout=LIMIT)
        finally:
            client.kill()
    assert client.returncode == 1
    assert re.match(r"the client ends: (the peer has hung up|.*reset by peer|.*Broken pipe)", told.splitlines()[-1])
    assert "Traceback" not in told


@pytest.fixture
def network(tmp_path, monkeypatch):
    monkeypatch.setenv("VERBENA_SIM", str(tmp_path / "network"))
    with subprocess.Popen([sys.executable, "-m", "verbena.sw.cli", "sim", str(tmp_path / "network")]) as switch:
        until = time.monotonic() + LIMIT
        while not (tmp_path / "network" / "network.json").exists():
            assert switch.poll() is None
            assert time.monotonic() < until
            time.sleep(0.05)
        yield
        switch.terminate()


SLOW_SIDE = """
import sys, time
sys.path.insert(0, {examples!r})
import rdma
work = rdma.Conversation._work
def slow(conversation):
    print("working", flush=True)
    time.sleep(600)
rdma.Conversation._work = slow
"""
"""What makes a side stop when the regions are known, and before it has written."""


@pytest.mark.parametrize("victim", ["server", "client"])
@pytest.mark.parametrize("phase", ["connected", "regions known"])
def test_a_side_that_is_killed_is_missed(network, tmp_path, victim, phase):
    """By one that has sent all that it had to send, and only waits."""
    script = tmp_path / f"rdma_{victim}.py"
    text = (EXAMPLES / f"rdma_{victim}.py").read_text()
    slow = SLOW_SIDE.format(examples=str(EXAMPLES))
    if phase == "connected":
        slow = slow.replace("_work", "run")
    head, imports, rest = text.partition("import argparse\n")
    script.write_text(head + imports + slow + rest)
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}

    def start(side, *arguments):
        words = command(f"rdma_{side}", *arguments)
        if side == victim:
            words[words.index(str(EXAMPLES / f"rdma_{side}.py"))] = str(script)
        return subprocess.Popen(words, **pipes)

    server = start("server", "write")
    port = server.stdout.readline().rstrip(".\n").split()[-1]
    client = start("client", "write", "127.0.0.1", port)
    try:
        dying, left = (server, client) if victim == "server" else (client, server)
        while dying.stdout.readline() != "working\n":
            assert dying.poll() is None, dying.stderr.read()
        time.sleep(0.3)
        dying.kill()
        _, told = left.communicate(timeout=LIMIT)
        assert left.returncode == 1
        name = "client" if left is client else "server"
        assert re.match(rf"the {name} ends: (the peer has hung up|.*RETRY_EXC|.*reset)", told.splitlines()[-1])
        assert "Traceback" not in told
    finally:
        for process in (server, client):
            process.kill()
            process.communicate()


def test_each_example_is_run_and_listed():
    names = {path.stem for path in EXAMPLES.glob("*.py")}
    assert names == {*ALONE, *PAIR, *HELPERS, "netdev"}
    table = (EXAMPLES / "README.md").read_text()
    assert names == set(re.findall(r"\[(\w+)\.py\]\(\1\.py\)", table))
