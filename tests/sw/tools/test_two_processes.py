"""Each tool as it is used: a server and a client, two processes, over `verbena sim`."""

import json
import re
import signal
import socket
import time

import pytest
from network_programs import await_listener, free_port, network, programs

__all__ = ["network", "programs"]  # fixtures

pytestmark = pytest.mark.verilator


def tool(programs, *arguments):
    return programs.start("-m", "verbena.sw.cli", *arguments)


def ended(process, seconds=100):
    """Status and what was printed."""
    out, errors = process.communicate(timeout=seconds)
    return process.returncode, out, errors


def both(programs, name, *options, client=()):
    """What server and client print."""
    port = free_port()
    server = tool(programs, name, "-p", port, *options)
    server.stderr.readline()  # of the seed: it has its adapter
    await_listener(port)
    status, out, errors = ended(tool(programs, name, "-p", port, *options, *client, "127.0.0.1"))
    assert status == 0, errors
    status, theirs, errors = ended(server)
    assert status == 0, errors
    return theirs.splitlines(), out.splitlines()


def row(lines):
    """The numbers below the columns' names; times one by one may stand between."""
    at = next(i for i, line in enumerate(lines) if line.startswith(" #bytes"))
    return next(line for line in lines[at:] if re.match(r" \d+ +\d+ ", line)).split()


@pytest.mark.parametrize(
    ("name", "options", "title", "columns"),
    [
        ("ib_write_bw", "-s 4096 -n 40 -q 2 -t 16 -b -F", "RDMA_Write Bidirectional BW Test", 5),
        ("ib_write_lat", "-s 8 -n 20 -i 1 -U", "RDMA_Write Latency Test", 9),
        ("ib_read_bw", "-s 3000 -n 20 -o 4 -m 1024 --report_gbits", "RDMA_Read BW Test", 5),
        ("ib_read_lat", "-s 64 -n 20 -C", "RDMA_Read Latency Test", 9),
        ("ib_send_bw", "-s 2000 -n 40 -e -Q 4 -r 64 -l 4", "Send BW Test", 5),
        ("ib_send_lat", "-s 8 -n 20 -I 8 -H", "Send Latency Test", 9),
        ("ib_atomic_bw", "-n 40 -A CMP_AND_SWAP -Q 8", "Atomic CMP_AND_SWAP BW Test", 5),
        ("ib_write_lat", "-s 8 -D 0.00005", "RDMA_Write Latency Test", 4),
        ("ib_send_bw", "-s 500 -D 0.00005 -b -Q 4", "Send Bidirectional BW Test", 5),
        ("ib_atomic_lat", "-n 20 -A FETCH_AND_ADD", "Atomic FETCH_AND_ADD Latency Test", 9),
    ],
)
def test_perftest(network, programs, tmp_path, name, options, title, columns):
    network()
    file = tmp_path / "out.json"
    server, client = both(programs, name, *options.split(), client=("--out_json", "--out_json_file", file))
    for lines in (server, client):
        assert any(line.strip() == title for line in lines)
    mine = row(client)
    assert len(mine) == columns
    assert mine[0] == (options.split()[1] if "-s" in options else "8")
    told = json.loads(file.read_text())["results"]
    assert [float(told["MsgSize"]), float(told["n_iterations"])] == [float(number) for number in mine[:2]]
    for number in mine[2:]:
        decimals = len(number.partition(".")[2])
        assert number in {f"{float(value):.{decimals}f}" for value in told.values()}


ONE_WORLD = """
import sys
from verbena.sim.devices import configure
from verbena.sw.tools.perftest.__main__ import main
configure(wire_delay=199, store=True)
sys.exit(main([sys.argv[1], "-d", "sim1", "--peer", "sim0", *sys.argv[2:]]))
"""
"""With the way of two cables of 640 ns, less the cycle that a wire takes."""


@pytest.mark.parametrize(("name", "size"), [("write_lat", 8), ("send_lat", 2000), ("read_lat", 100)])
def test_cycles_are_those_of_one_world(network, programs, name, size):
    network("--delay-ns", "640")
    options = ("-s", size, "-n", 10, "-C")
    _, client = both(programs, f"ib_{name}", *options)
    status, out, errors = ended(programs.start("-c", ONE_WORLD, name, *options, VERBENA_SIM=""))
    assert status == 0, errors
    alone = row([line for line in out.splitlines() if not line.startswith("server:")])
    # Least and typical, in whole cycles: the median of times that are half of a way to and fro.
    mine, theirs = ([round(float(lines[column])) for column in (2, 4)] for lines in (row(client), alone))
    assert mine == theirs


def test_rc_pingpong(network, programs):
    network()
    for lines in both(programs, "ibv_rc_pingpong", "-s", "1500", "-n", "20", "-e", "-c", "-m", "1024"):
        assert any(re.fullmatch(r"60000 bytes in \d+\.\d+ seconds = \d+\.\d+ Mbit/sec", line) for line in lines)
        assert any(re.fullmatch(r"20 iters in \d+\.\d+ seconds = \d+\.\d+ usec/iter", line) for line in lines)


@pytest.mark.parametrize(
    ("name", "server", "client", "last"),
    [
        ("rping", "-s -v", "-c -a 10.0.0.1 -C 3 -V -v", "ping data: rdma-ping-2: CDEF"),
        ("rping", "-s -v", "-c -a fe80::56:42ff:fe00:1 -C 3 -V -v", "ping data: rdma-ping-2: CDEF"),
        ("udaddy", "-C 4", "-C 4 -s 10.0.0.1", "return status 0"),
    ],
)
def test_over_the_connection_manager(network, programs, name, server, client, last):
    network()
    serving = tool(programs, name, *server.split())
    serving.stderr.readline()  # of the seed: soon it listens
    for _ in range(5):
        # What comes before is lost, and repeated after six seconds of the simulation.
        status, out, errors = ended(tool(programs, name, *client.split(), "--patience", "15"))
        if "in vain" not in errors:
            break
    assert status == 0, errors
    assert out.splitlines()[-1].startswith(last)
    status, theirs, errors = ended(serving)
    assert status == 0, errors
    assert last in theirs.splitlines()[-1]


def test_a_busy_port(network, programs):
    network()
    with socket.socket() as sock:
        sock.bind(("", 0))
        sock.listen()
        status, _, errors = ended(tool(programs, "ib_write_bw", "-p", str(sock.getsockname()[1])))
    assert status == 1
    assert re.search(r"cannot listen on port \d+: EADDRINUSE$", errors)


def test_a_peer_that_dies(network, programs):
    """The client ends with what the completion says."""
    network()
    port = free_port()
    server = tool(programs, "ib_write_bw", "-p", port, "-n", "1000000", "-u", "8")
    server.stderr.readline()
    await_listener(port)
    client = tool(programs, "ib_write_bw", "-p", port, "-n", "1000000", "-u", "8", "127.0.0.1")
    for line in client.stdout:
        if line.startswith(" #bytes"):
            break
    time.sleep(0.3)
    server.send_signal(signal.SIGKILL)
    status, _, errors = ended(client)
    assert status == 1
    assert "IBV_WC_RETRY_EXC_ERR (12)" in errors.splitlines()[-1]


@pytest.mark.parametrize(
    ("victim", "number"),
    [
        ("client", signal.SIGINT),
        pytest.param("client", signal.SIGKILL, marks=pytest.mark.slow),
        pytest.param("server", signal.SIGKILL, marks=pytest.mark.slow),
    ],
)
def test_a_pingpong_whose_peer_is_ended(network, programs, victim, number):
    """Both sides of ibv_rc_pingpong leave the handshake's connection behind; a side of ours does not."""
    network()
    port = free_port()
    sides = {"server": tool(programs, "ibv_rc_pingpong", "-p", port, "-n", "1000000")}
    sides["server"].stderr.readline()
    await_listener(port)
    sides["client"] = tool(programs, "ibv_rc_pingpong", "-p", port, "-n", "1000000", "127.0.0.1")
    for side in sides.values():
        while "remote address" not in side.stdout.readline():
            assert side.poll() is None
    time.sleep(0.3)
    ending = sides.pop(victim)
    ending.send_signal(number)
    assert ended(ending)[0] == (130 if number == signal.SIGINT else -number)
    (left,) = sides.values()
    status, _, errors = ended(left)
    assert status == 1
    assert re.search("IBV_WC_RETRY_EXC_ERR|the peer closed the connection", errors.splitlines()[-1])
    assert "Traceback" not in errors


def test_stat_shows_the_counters_of_another_program(network, programs):
    network()
    status, _, errors = ended(tool(programs, "stat", "-d", "sim0"))
    assert (status, errors) == (
        1,
        "verbena stat: no program shows counters of sim0 now: say what shall use it behind --\n",
    )
    port = free_port()
    server = tool(programs, "ib_write_bw", "-p", port, "-s", "64", "-n", "1000000", "-u", "8")
    server.stderr.readline()
    await_listener(port)
    client = tool(programs, "ib_write_bw", "-p", port, "-s", "64", "-n", "1000000", "-u", "8", "127.0.0.1")
    for line in client.stdout:
        if line.startswith(" #bytes"):
            break
    live = tool(programs, "stat", "-d", "sim1", "--json", "--interval", "0.1")
    looks = [json.loads(live.stdout.readline()) for _ in range(3)]
    assert {look["device"] for look in looks} == {"sim1"}
    sent = [look["counters"]["tx_messages"] for look in looks]
    assert 0 < sent[0] < sent[1] < sent[2]
    status, out, _ = ended(tool(programs, "stat", "-d", "sim0", "--once", "--json"))
    assert status == 0
    assert json.loads(out)["counters"]["rx_bytes"] >= 64 * looks[0]["counters"]["tx_messages"] // 2
    client.send_signal(signal.SIGINT)
    assert ended(client)[0] == 130
    status, _, errors = ended(live)
    assert (status, errors) == (0, "the program has ended\n")
    server.kill()


def test_both_ends_in_one_program_are_not_alone(programs):
    options = ("--peer", "sim1", "-d", "sim0", "-n", "5")
    status, _, errors = ended(programs.start("-m", "verbena.sw.cli", "ib_write_lat", *options, VERBENA_SIM=""))
    assert status == 0
    assert "alone" not in errors


def test_a_wrong_option_is_one_line(programs):
    for name in ("ib_send_lat", "ibv_rc_pingpong"):
        status, out, errors = ended(tool(programs, name, "--frobnicate"))
        assert (status, out, errors.count("\n")) == (1, "", 1)


@pytest.mark.parametrize(
    "words",
    [
        ["ibv_rc_pingpong"],
        ["ib_send_bw"],
        ["mckey", "-m", "239.1.1.1"],
    ],
)
def test_who_waits_is_told_that_the_switch_has_ended(programs, network, words, tmp_path):
    """Be it at a TCP port or for datagrams: nobody can come any more."""
    switch, port = network(), free_port()
    words += [] if words[0] == "mckey" else ["-p", port]
    server = tool(programs, *words)
    while not (tmp_path / "net" / "sim0.counters").exists():  # it has its adapter
        time.sleep(0.1)
    if words[0] != "mckey":
        await_listener(port)
    time.sleep(3)
    switch.send_signal(signal.SIGINT)
    assert ended(switch)[0] == 0
    status, _, errors = ended(server)
    assert status == 1
    assert "can come: the network has ended" in errors
