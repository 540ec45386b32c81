"""rping: both ends on two simulated adapters, and ends that go wrong."""

import errno
from dataclasses import replace

import pytest
from leftovers import queue_pairs_left
from verbena.sw.tools import rping
from verbena.sw.tools.endpoint import open_device
from verbena.sw.tools.rping import Options, client, main, ping, server
from verbena.sw.tools.session import ToolError, run
from verbena.sw.verbs.pyverbs_error import PyverbsRDMAError

FAR, FAR6 = "10.0.0.2", "fe80::56:42ff:fe00:2"


@pytest.fixture
def contexts():
    with open_device("sim0") as a, open_device("sim1") as b:
        yield a, b


def both(contexts, options, **serving):
    """What server and client print, on stdout and on stderr."""
    said = {"server": [], "client": [], "warned": []}
    near, far = contexts
    run(
        server(options, far, alone=False, tell=said["server"].append, warn=said["warned"].append, **serving),
        client(options, near, alone=False, tell=said["client"].append, warn=said["warned"].append),
    )
    return said


@pytest.mark.parametrize(("address", "size"), [(FAR, 26), (FAR, 64), (FAR, 5000), (FAR, 65535), (FAR6, 64)])
def test_pings(contexts, address, size):
    said = both(contexts, Options(address, count=3, size=size, verbose=True, validate=True))
    texts = [ping(number, size)[:-1].decode() for number in range(3)]
    assert said["server"] == [f"server ping data: {text}" for text in texts]
    assert said["client"] == [f"ping data: {text}" for text in texts]
    assert sorted(said["warned"]) == ["client DISCONNECT EVENT...", "server DISCONNECT EVENT..."]


def test_a_server_at_any_address_is_asked_over_ipv6(contexts):
    near, far = contexts
    options, told = Options(f"{FAR6}%sim0", count=1, size=26, verbose=True), []
    run(
        server(replace(options, address=None), far, alone=False, tell=told.append, warn=lambda line: None),
        client(options, near, alone=False, tell=told.append, warn=lambda line: None),
    )
    assert len(told) == 2


def test_texts_are_those_of_the_program():
    """Of a run of rdmacm-utils' rping -S 64 -v."""
    assert ping(0, 64) == rb"rdma-ping-0: ABCDEFGHIJKLMNOPQRSTUVWXYZ[\]^_`abcdefghijklmnopqr" + b"\0"
    assert ping(1, 26) == b"rdma-ping-1: BCDEFGHIJKLM\0"
    assert ping(58, 26) == b"rdma-ping-58: ABCDEFGHIJK\0"
    assert len(ping(7, 65535)) == 65535


def test_without_a_word(contexts):
    assert both(contexts, Options(FAR, count=2))["client"] == []


def test_one_client_after_the_other(contexts):
    near, far = contexts
    options, told = Options(FAR, count=1, verbose=True), []
    serving = server(options, far, alone=False, persistent=True, tell=told.append, warn=lambda line: None)
    for _ in range(3):
        asking = client(options, near, alone=False, tell=lambda line: None, warn=lambda line: None)
        for _ in asking:
            next(serving)
    serving.close()
    assert len(told) == 3


def test_another_client_meanwhile_is_refused(contexts):
    """The server and its client go on; then the server takes the next one."""
    near, far = contexts
    pings, refused = [], []
    quiet = {"alone": False, "warn": lambda line: None}
    serving = server(Options(FAR, count=6), far, persistent=True, tell=lambda line: None, **quiet)
    first = client(Options(FAR, count=6, verbose=True), near, tell=pings.append, **quiet)
    second = client(Options(FAR, count=1), near, tell=pings.append, **quiet)
    for _ in first:
        next(serving)
        if pings and not refused:
            try:
                next(second)
            except ToolError as error:
                refused.append((len(pings), str(error)))
    assert len(pings) == 6 > refused[0][0]
    assert "REJECTED" in refused[0][1]
    for _ in client(Options(FAR, count=1), near, tell=pings.append, **quiet):
        next(serving)
    serving.close()


def test_what_comes_back_is_checked(contexts, monkeypatch):
    """A server that writes something else."""
    monkeypatch.setattr(rping, "_text", lambda data: "x" * 10)
    with pytest.raises(ToolError, match="data mismatch"):
        both(contexts, Options(FAR, count=1, validate=True))


def test_nobody_listens(contexts):
    near, far = contexts
    listening = server(Options(FAR, port=9), far, alone=False)
    next(listening)
    with pytest.raises(ToolError, match="cma event RDMA_CM_EVENT_REJECTED, error 8"):
        run(client(Options(FAR), near, alone=False))
    listening.close()


def test_a_busy_port(contexts):
    _, far = contexts
    listening = server(Options(FAR), far, alone=False)
    next(listening)
    with pytest.raises(PyverbsRDMAError) as caught:
        next(server(Options(FAR), far, alone=False))
    assert caught.value.error_code == errno.EADDRINUSE
    listening.close()


@pytest.mark.parametrize("dies", ["server", "client"])
def test_the_other_end_goes(contexts, dies):
    near, far = contexts
    options, warned = Options(FAR, patience=60), []
    ends = {
        "server": server(options, far, alone=False, warn=warned.append),
        "client": client(options, near, alone=False, warn=warned.append),
    }
    for _ in range(40):
        for end in ends.values():
            next(end)
    ends.pop(dies).close()
    (name, left), *_ = ends.items()
    if name == "client":
        with pytest.raises(ToolError, match="the server has ended the connection"):
            run(left)
    else:
        run(left)
    assert warned == [f"{name} DISCONNECT EVENT..."]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("", "either -s or -c; --help tells more"),
        ("-s -c", "either -s or -c; --help tells more"),
        ("-c", "-c wants -a, the server's address"),
        ("-s -S 25", "Invalid size 25 (valid range is 26 to 65535)"),
        ("-s -C -1", "Invalid count -1"),
        ("-s -a 10.0.0.77", "no device has the address 10.0.0.77"),
    ],
)
def test_a_wrong_command_line(capsys, words, text):
    assert main(words.split()) == 1
    assert text in capsys.readouterr().err


@pytest.mark.parametrize("address", [(), ("-a", FAR6)])
def test_the_command_line(capsys, address):
    assert main(["--peer", "sim1", *address, "-C", "2", "-v", "-V", "-S", "40"]) == 0
    out, errors = capsys.readouterr()
    assert sorted(out.splitlines()) == sorted(
        line
        for number in range(2)
        for text in [ping(number, 40)[:-1].decode()]
        for line in (f"ping data: {text}", f"server: server ping data: {text}")
    )
    assert "client DISCONNECT EVENT..." in errors


def test_the_flags_that_people_type(capsys):
    assert main(["-c", "-vVd", "-C", "1", "--peer", "sim1"]) == 0
    assert "ping data: rdma-ping-0" in capsys.readouterr().out


def test_a_server_that_nobody_can_reach(capsys):
    """The world has nothing to do, and no switch."""
    assert main(["-s"]) == 1
    assert "nobody can come: no switch runs" in capsys.readouterr().err


@pytest.mark.parametrize("who", ["both", "server", "client"])
def test_queue_pairs_that_are_brought_up_by_hand(contexts, who):
    near, far = contexts
    said = []
    usual = Options(FAR, count=3, size=5000, verbose=True, validate=True)
    own = replace(usual, own_qp=True)
    run(
        server(usual if who == "client" else own, far, alone=False, tell=said.append, warn=lambda line: None),
        client(usual if who == "server" else own, near, alone=False, tell=lambda line: None, warn=lambda line: None),
    )
    assert said == [f"server ping data: {ping(number, 5000)[:-1].decode()}" for number in range(3)]
    for context in contexts:
        assert queue_pairs_left(context) == []


def test_the_command_line_with_queue_pairs_of_ones_own(capsys):
    assert main(["--peer", "sim1", "-q", "-C", "2", "-V", "-v"]) == 0
    assert capsys.readouterr().out.count("ping data: ") == 4
