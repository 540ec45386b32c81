"""ibv_rc_pingpong: both ends on two simulated adapters, and ends that go wrong."""

import re
import socket

import pytest
from conversations import CONVERSATIONS
from verbena.sw.tools import ping, pingpong
from verbena.sw.tools.endpoint import Endpoint, open_device
from verbena.sw.tools.exchange.channel import Channel
from verbena.sw.tools.perftest import progress
from verbena.sw.tools.pingpong import Options, main, play, srq
from verbena.sw.tools.session import ToolError, run
from verbena.sw.verbs.libibverbs_enums import ibv_qp_type


@pytest.fixture
def contexts():
    with open_device("sim0") as a, open_device("sim1") as b:
        yield a, b


def channels(contexts):
    here, there = socket.socketpair()
    return Channel(here, contexts[0].advance, 60), Channel(there, contexts[1].advance, 60)


def both(contexts, options, servers=None):
    """The server's and the client's outcome."""
    near, far = channels(contexts)
    a, b = contexts
    server = play(b, servers or options, far, server=True, tell=lambda line: None)
    return run(server, play(a, options, near, server=False, tell=lambda line: None))


@pytest.mark.parametrize(
    "options",
    [
        Options(size=5000, iterations=10, check=True),
        Options(size=1, iterations=25, rx_depth=2, mtu=256, check=True),
        Options(size=4096, iterations=3, rx_depth=1, mtu=4096, check=True),
        Options(size=300, iterations=7, rx_depth=3, check=True, events=True, service_level=3),
        Options(size=3000, iterations=7, rx_depth=3, check=True, qp_type=ibv_qp_type.IBV_QPT_UC),
        Options(size=1000, iterations=7, rx_depth=3, check=True, qp_type=ibv_qp_type.IBV_QPT_UD),
        Options(size=0, iterations=5, rx_depth=3, check=True, qp_type=ibv_qp_type.IBV_QPT_UD),
        Options(size=3000, iterations=40, rx_depth=7, check=True, qps=5, shared=True),
        Options(size=100, iterations=9, rx_depth=16, check=True, qps=16, shared=True, events=True),
        Options(size=100, iterations=3, rx_depth=1, check=True, shared=True),
    ],
)
def test_messages_go_to_and_fro(contexts, options):
    for outcome in both(contexts, options):
        assert (outcome.bytes, outcome.iterations) == (2 * options.size * options.iterations, options.iterations)
        # 10 Gb/s one way at a time, and no way takes less than the memory's latency.
        assert outcome.nanoseconds > options.iterations * 2 * max(options.size * 0.8, 800) / options.qps


def test_a_message_of_another_size_is_noticed(contexts):
    with pytest.raises(ToolError, match="a message of 100 bytes came where 200 should"):
        both(contexts, Options(size=100, iterations=5), Options(size=200, iterations=5))


def dying(session, enough):
    """A session that ends as soon as ``enough()``."""
    others = None
    try:
        while not enough():
            others = yield session.send(others)
    finally:
        session.close()


@pytest.fixture
def impatient(monkeypatch):
    """Requests are not sent again for long."""
    monkeypatch.setitem(Endpoint.connect.__kwdefaults__, "timeout", 5)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("victim", ["server", "client"])
@pytest.mark.parametrize("turns", range(8))
def test_who_dies_while_messages_go_is_missed(contexts, victim, turns):
    """Also by one whose own message has been acknowledged, and who only waits."""
    near, far = channels(contexts)
    a, b = contexts
    lines = {"server": [], "client": []}
    sessions = {
        "server": play(b, Options(iterations=1000), far, server=True, tell=lines["server"].append),
        "client": play(a, Options(iterations=1000), near, server=False, tell=lines["client"].append),
    }
    left = iter(range(turns))

    def enough():
        return len(lines[victim]) == 2 and next(left, None) is None

    sessions[victim] = dying(sessions[victim], enough)
    with pytest.raises(ToolError, match=r"IBV_WC_RETRY_EXC_ERR|the peer closed the connection"):
        run(*sessions.values())


@pytest.mark.parametrize("victim", ["server", "client"])
@pytest.mark.parametrize("turns", [0, 1])
def test_who_dies_before_is_missed(contexts, victim, turns):
    near, far = channels(contexts)
    a, b = contexts
    sessions = {
        "server": play(b, Options(), far, server=True, tell=lambda line: None),
        "client": play(a, Options(), near, server=False, tell=lambda line: None),
    }
    left = iter(range(turns))
    sessions[victim] = dying(sessions[victim], lambda: next(left, None) is None)
    if not turns:
        (near if victim == "client" else far).close()
    with pytest.raises(ToolError, match=r"the peer closed the connection after \d+ of \d+ bytes|does not take"):
        run(*sessions.values())


def test_another_number_of_messages_is_noticed(contexts, monkeypatch):
    monkeypatch.setattr(ping, "LAST_MESSAGES", 0.05)
    with pytest.raises(ToolError, match="the peer has ended after 5 messages: -n must be the same on both sides"):
        both(contexts, Options(iterations=5), Options(iterations=9))


def test_a_peer_that_has_not_stayed_is_given_up_after_a_long_silence(contexts, monkeypatch):
    """rdma-core's program closes the connection before the first message."""
    monkeypatch.setattr(pingpong, "SILENCE", 0.1)
    (address, _), (leave, _) = CONVERSATIONS["rc_pingpong"]
    near, far = socket.socketpair()
    with near:
        near.send(address.replace(b"0a0000f0", b"0a000002") + leave)
        session = play(contexts[0], Options(), Channel(far, contexts[0].advance), server=True, tell=lambda line: None)
        with pytest.raises(ToolError, match=r"waited 0\.1 s in vain for a completion; the peer may be gone"):
            run(session)


def test_changed_content_is_noticed(contexts, monkeypatch):
    monkeypatch.setattr(ping.Ping, "_take", damage)
    with pytest.raises(ToolError, match="invalid data: byte 5 is 0xff, not 0x7b"):
        both(contexts, Options(size=100, iterations=5, check=True))


def damage(messages, wc):
    messages._end.mr.write(b"\xff", 1, 5)


def test_the_peer_may_be_any_that_speaks_the_language(contexts):
    """A client as recorded, but of this wire; it says nothing more."""
    (address, _), (leave, _) = CONVERSATIONS["rc_pingpong"]
    near, far = socket.socketpair()
    near.send(address.replace(b"0a0000f0", b"0a000002") + leave)
    told = []
    channel = Channel(far, contexts[0].advance)
    session = play(contexts[0], Options(patience=0.1), channel, server=True, tell=told.append)
    with near, pytest.raises(ToolError, match=r"waited 0\.1 s in vain for a completion"):
        run(session)
    pattern = r"LID 0x0000, QPN 0x[0-9a-f]{6}, PSN 0x[0-9a-f]{6}, GID 0000:0000:0000:0000:0000:ffff:0a00:000"
    assert re.fullmatch(rf"  local address:  {pattern}1", told[0])
    assert re.fullmatch(rf"  remote address: {pattern}2", told[1])
    assert "QPN 0x000012, PSN 0xef91bc" in told[1]


def test_an_address_that_is_no_ipv4_one(contexts):
    near, far = socket.socketpair()
    near.send(b"0000:000012:ef91bc:fe800000000000005056fffe000000f0\0done\0")
    with near, pytest.raises(ToolError, match="is not an IPv4 one"):
        run(play(contexts[0], Options(), Channel(far, contexts[0].advance), server=True, tell=lambda line: None))


def test_main_with_both_ends(capsys):
    assert main(["-d", "sim0", "--peer", "sim1", "-n", "5", "-s", "64", "-c"]) == 0
    lines = capsys.readouterr().out.splitlines()
    mine = [line for line in lines if not line.startswith("server:")]
    theirs = [line.removeprefix("server: ") for line in lines if line.startswith("server:")]
    assert [line.split(":")[0].strip() for line in mine[:2]] == ["local address", "remote address"]
    assert mine[0].split(":", 1)[1].split() == theirs[1].split(":", 1)[1].split()
    assert mine[2].startswith("640 bytes in ")
    assert mine[3].startswith("5 iters in ")
    assert mine[4] == theirs[4] == "times: simulated; timers: 16 cycles for 4.096 µs (true: VERBENA_TICK=640)"


def test_srq_with_both_ends(capsys):
    """A line for each queue pair, and the bytes of all."""
    assert srq(["-d", "sim0", "--peer", "sim1", "-n", "40", "-s", "64", "-q", "3", "-r", "8", "-c"]) == 0
    lines = capsys.readouterr().out.splitlines()
    mine = [line for line in lines if not line.startswith("server:")]
    theirs = [line.removeprefix("server: ") for line in lines if line.startswith("server:")]
    assert [line.split(":")[0].strip() for line in mine[:6]] == ["local address"] * 3 + ["remote address"] * 3
    assert len({line.split("QPN ")[1].split(",")[0] for line in mine[:3]}) == 3
    assert [line.split(":", 1)[1].split() for line in mine[:3]] == [
        line.split(":", 1)[1].split() for line in theirs[3:6]
    ]
    assert mine[6].startswith("5120 bytes in ")
    assert mine[7].startswith("40 iters in ")


def test_another_number_of_queue_pairs_is_noticed(contexts):
    options = [Options(iterations=5, rx_depth=8, qps=count, shared=True) for count in (3, 2)]
    with pytest.raises(ToolError, match="the peer has 2 queue pairs, not 3: -q must be the same"):
        both(contexts, *options)


def test_srq_tells_what_is_wrong(capsys):
    for arguments, complaint in (
        ("-q 0", "qps must be between 1 and 256, not 0"),
        ("-q 257 -r 300", "qps must be between 1 and 256, not 257"),
        ("-q 9 -r 8", "rx_depth 8 is too small for 9 queue pairs"),
    ):
        assert srq(arguments.split()) == 1
        assert complaint in capsys.readouterr().err


def test_options_of_the_srq_model_are_taken(capsys):
    model = [
        "-p",
        "18515",
        "-i",
        "1",
        "-s",
        "1",
        "-m",
        "1024",
        "-q",
        "2",
        "-r",
        "10",
        "-n",
        "3",
        "-l",
        "1",
        "-e",
        "-g",
        "0",
    ]
    assert srq(["-d", "sim0", "--peer", "sim1", *model]) == 0
    assert "6 bytes in " in capsys.readouterr().out


def test_a_long_simulation_is_told(capsys, monkeypatch):
    both = ["-d", "sim0", "--peer", "sim1", "-n", "20", "-s", "64"]
    assert main(both) == 0
    assert "verbena" not in capsys.readouterr().err
    monkeypatch.setattr(progress, "LONG", 0)
    monkeypatch.setattr(progress, "FIRST", 0)
    monkeypatch.setattr(progress, "LAST", 0)
    assert main(both) == 0
    first, *others = capsys.readouterr().err.splitlines()
    assert re.fullmatch(r"verbena: 0 million cycles are simulated, .*; -n or -s make it less, on both sides", first)
    shares = [int(re.match(r"verbena: (\d+)% is done, about ", line)[1]) for line in others]
    assert shares == sorted(shares)
    assert len(shares) >= 19  # by one of the ends
    assert shares[-1] == 95


def test_main_tells_what_is_wrong(capsys):
    for arguments, complaint in (
        ("-d nosuch", "Failed to find device nosuch"),
        ("-r 0", "rx_depth must be between 1 and"),
        ("-n 0", "iterations must be between 1 and"),
        ("-l 8", "service_level must be between 0 and 7, not 8"),
        ("-d sim0 --peer sim1 -m 1500", "the MTU must be 256, 512, 1024, 2048 or 4096, not 1500"),
    ):
        assert main(arguments.split()) == 1
        assert complaint in capsys.readouterr().err


@pytest.mark.parametrize("arguments", ["-i 2", "--frobnicate", "-s many"])
def test_wrong_options_are_one_line_and_status_1(capsys, arguments):
    with pytest.raises(SystemExit) as caught:
        main(arguments.split())
    out, err = capsys.readouterr()
    assert (caught.value.code, out, err.count("\n")) == (1, "", 1)


def test_options_of_the_model_are_taken(capsys):
    model = ["-p", "18515", "-i", "1", "-s", "0", "-m", "1024", "-r", "10", "-n", "3", "-l", "1", "-e", "-g", "0", "-N"]
    assert main(["-d", "sim0", "--peer", "sim1", *model]) == 0
    assert "0 bytes in " in capsys.readouterr().out
