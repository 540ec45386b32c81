"""The command."""

import json
import re

import pytest
from verbena.sw.tools.perftest import __main__ as perftest
from verbena.sw.tools.perftest import options, progress
from verbena.sw.tools.perftest.__main__ import main
from verbena.sw.tools.session import ToolError


def test_both_ends(capsys):
    assert main(["write_bw", "-d", "sim0", "--peer", "sim1", "-n", "10", "-s", "100", "-q", "2", "-m", "1024"]) == 0
    lines = capsys.readouterr().out.splitlines()
    mine = [line for line in lines if not line.startswith("server:")]
    theirs = [line.removeprefix("server:") for line in lines if line.startswith("server:")]
    assert mine[1].strip() == theirs[1].strip() == "RDMA_Write BW Test"
    assert " Mtu             : 1024[B]" in mine
    assert mine[-2].split()[:2] == ["100", "20"]
    # The server has not measured anything: it tells what the client did.
    assert theirs[-2] == mine[-2]


@pytest.mark.parametrize(
    ("arguments", "title"),
    [
        (["atomic_lat", "-A", "CMP_AND_SWAP"], "Atomic CMP_AND_SWAP Latency Test"),
        (["send_bw", "-b", "-s", "8", "-I", "8", "--report_gbits"], "Send Bidirectional BW Test"),
        (["send_lat", "-c", "UD", "--use-srq", "-R"], "Using SRQ      : ON"),
        (["write_bw", "-6"], "GID index       : 1"),
        (["write_bw", "-6", "-x", "0"], "GID index       : 0"),
        (["write_lat", "-R", "-6"], "GID index       : 1"),
    ],
)
def test_options_reach_the_test(capsys, arguments, title):
    assert main([*arguments, "-d", "sim0", "--peer", "sim1", "-n", "5"]) == 0
    out = capsys.readouterr().out
    assert title in out
    assert ("[Gb/sec]" in out) == ("--report_gbits" in arguments)
    assert ("Max inline data : 8[B]" in out) == ("-I" in arguments)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["write_bw", "-d", "nosuch"], "Failed to find device nosuch"),
        (["write_bw", "-c", "UD"], "UD has no WRITE"),
        (["send_bw", "-R", "-c", "UC"], "the connection manager connects RC and UD"),
        (["write_lat", "-q", "2"], "only bandwidth tests use several queue pairs"),
        (["write_bw", "-d", "sim0", "-p", "1", "127.0.0.1"], "cannot connect to 127.0.0.1 port 1: ECONNREFUSED"),
        (["write_bw", "-d", "sim0", "-x", "7", "--peer", "sim1", "--patience", "1"], "Failed to query gid 7"),
    ],
)
def test_what_is_wrong_is_told(capsys, arguments, complaint):
    assert main(arguments) == 1
    assert complaint in capsys.readouterr().err


@pytest.mark.parametrize("wrong", [["frobnicate_bw"], ["write_bw", "--frobnicate"], ["write_bw", "-c", "DC"]])
def test_wrong_options_are_one_line_and_status_1(capsys, wrong):
    with pytest.raises(SystemExit) as caught:
        main(wrong)
    out, err = capsys.readouterr()
    assert (caught.value.code, out, err.count("\n")) == (1, "", 1)


BOTH = ["-d", "sim0", "--peer", "sim1"]


def mine(capsys):
    return [line for line in capsys.readouterr().out.splitlines() if not line.startswith("server:")]


def test_it_is_said_which_times_these_are(capsys):
    assert main(["-n", "5", "-s", "8", *BOTH], test="write_bw") == 0
    assert " Times           : simulated; timers: 16 cycles for 4.096 µs (true: VERBENA_TICK=640)" in mine(capsys)


def test_options_that_mean_nothing_are_taken(capsys):
    assert main(["-n", "5", "-F", "-i", "1", "-c", "RC", "-N", "-e", "-l", "2", "-s", "64", *BOTH], test="send_bw") == 0
    lines = mine(capsys)
    assert " Post List       : 2" in lines
    assert lines[-2].split()[:3] == ["64", "5", "0.00"]


@pytest.mark.parametrize("test", ["write_bw", "send_bw", "write_lat", "send_lat"])
def test_unreliable_connections(capsys, test):
    assert main(["-c", "UC", "-n", "20", "-s", "3000", *BOTH], test=test) == 0
    lines = mine(capsys)
    assert any(line.startswith(" Connection type : UC") for line in lines)
    row = [line for line in lines if line[1:2].isdigit()][-1].split()
    assert row[:2] == ["3000", "20"]


@pytest.mark.parametrize("test", ["write_bw", "send_bw", "read_bw", "write_lat", "send_lat", "read_lat"])
def test_all_sizes(capsys, monkeypatch, test):
    monkeypatch.setattr(options, "LARGEST", 16)
    assert main(["-a", "-n", "5", *BOTH], test=test) == 0
    out = capsys.readouterr().out.splitlines()
    line = out.index("-" * 87, out.index("-" * 87, 1) + 1)
    rows = [text.split()[:2] for text in out[line:] if text[1:2].isdigit()]
    assert rows == [["2", "5"], ["4", "5"], ["8", "5"], ["16", "5"]]


def test_a_duration(capsys):
    for test in ("read_bw", "atomic_lat"):
        assert main(["-D", "0.00005", *(["-s", "8"] if test == "read_bw" else []), *BOTH], test=test) == 0
        row = [line for line in mine(capsys) if line[1:2].isdigit()][-1].split()
        assert int(row[1]) > 10


@pytest.mark.parametrize("more", [[], ["-e", "-q", "2", "-Q", "1"]])
def test_a_receiver_takes_all_that_was_sent_in_a_duration(capsys, more):
    # Long against a wait for an event, which ends up to 4096 cycles late where both sides are threads of one program.
    assert main(["-D", "0.0003", "-s", "64", *more, *BOTH], test="send_bw") == 0
    lines = capsys.readouterr().out.splitlines()
    rows = [line.removeprefix("server:").split() for line in lines if re.match(r"(server:)? \d", line)]
    assert len(rows) == 2
    assert rows[0][1] == rows[1][1]
    assert int(rows[0][1]) > 100
    rates = [float(row[3]) for row in rows]
    assert rates[0] == pytest.approx(rates[1], rel=0.2)


def test_a_latency_to_and_fro_for_a_duration(capsys):
    """The client ends it; both have all times but that of the last message."""
    assert main(["-D", "0.00003", "-s", "8", "-U", *BOTH], test="send_lat") == 0
    lines = capsys.readouterr().out.splitlines()
    rows = [line.removeprefix("server:").split() for line in lines if re.match(r"(server:)? \d+ +\d", line)]
    assert len(rows) == 2
    assert rows[0][1] == rows[1][1]
    assert 8 < int(rows[0][1]) < 30
    assert [len(row) for row in rows] == [4, 4]


@pytest.mark.parametrize("more", [["-s", "8"], ["-s", "2000", "-e"], ["-s", "8", "-C"]])
def test_each_side_writes_for_a_duration(capsys, more):
    """Either ends by its own clock; what they tell is the mean, of as many messages as fit."""
    assert main(["-D", "0.0001", "-U", *more, *BOTH], test="write_lat") == 0
    lines = capsys.readouterr().out.splitlines()
    assert sum("t_avg" in line for line in lines) == 2
    rows = [line.removeprefix("server:").split() for line in lines if re.match(r"(server:)? \d+ +\d", line)]
    assert len(rows) == 2
    for size, iterations, average, rate in rows:
        assert size == more[1]
        took = (int(iterations) - 1) * float(average) * 2
        assert took == pytest.approx(100 * (156.25 if "-C" in more else 1), rel=0.15)
        assert float(rate) == pytest.approx(1e6 / (float(average) * 2) * (156.25 if "-C" in more else 1), rel=0.01)
    assert abs(int(rows[0][1]) - int(rows[1][1])) <= 1


def test_a_duration_has_five_messages_at_least(capsys):
    for test in ("write_lat", "send_lat", "read_lat"):
        assert main(["-D", "1e-9", *BOTH], test=test) == 0
        rows = [line.split() for line in mine(capsys) if line[1:2].isdigit()]
        assert [row[1] for row in rows] == ["5"]


@pytest.mark.parametrize("more", [["-Q", "10"], ["-e", "-q", "2", "-Q", "1"], ["-Q", "50", "-r", "1"], ["-r", "2"]])
def test_both_sides_send_for_a_duration(capsys, more):
    """Either ends by its own clock; the table has the sum of both, and a side's own messages."""
    assert main(["-D", "0.00005", "-s", "64", *more, "-b", *BOTH], test="send_bw") == 0
    lines = capsys.readouterr().out.splitlines()
    rows = [line.removeprefix("server:").split() for line in lines if re.match(r"(server:)? \d", line)]
    assert len(rows) == 2
    assert rows[0][3:] == rows[1][3:]
    assert [row[2] for row in rows] == ["0.00", "0.00"]
    counts = [int(row[1]) for row in rows]
    if "-r" in more:  # they wait for receives most of the time, and for the first completion beyond the end
        assert min(counts) >= (50 if "-Q" in more else 100)
    else:  # millions of messages a second are messages a microsecond
        assert min(counts) > 100
        assert float(rows[0][4]) * 50 == pytest.approx(sum(counts), rel=0.2)


@pytest.mark.parametrize("events", [[], ["-e"]])
@pytest.mark.parametrize("test", ["send_lat", "read_lat"])
def test_each_time_in_cycles(capsys, test, events):
    assert main(["-n", "6", "-U", "-H", "-C", *events, *BOTH], test=test) == 0
    lines = mine(capsys)
    first, second = (at for at, line in enumerate(lines) if line == "#, cycles")
    came = [float(line.split(",")[1]) for line in lines[first + 1 : second]]
    assert [float(line.split(",")[1]) for line in lines[second + 1 : second + 6]] == sorted(came)
    assert len(came) == 5
    assert min(came) > 100  # cycles, of which a microsecond has more than that
    ways = 2 if test == "send_lat" else 1
    assert all(time * ways == int(time * ways) for time in came)
    row = next(line for line in reversed(lines) if line[1:2].isdigit()).split()
    for column in (2, 3, 4, 7, 8):
        assert float(row[column]) * ways == int(float(row[column]) * ways)


@pytest.mark.parametrize(
    ("test", "more"),
    [("write_bw", ["-s", "8"]), ("read_lat", []), ("write_bw", ["-a"]), ("write_bw", ["-s", "8", "-D", "1e-5"])],
)
def test_json(tmp_path, capsys, monkeypatch, test, more):
    monkeypatch.setattr(options, "LARGEST", 4)
    file = tmp_path / "out.json"
    count = [] if "-D" in more else ["-n", "5"]
    assert main([*count, *more, "--out_json", "--out_json_file", str(file), *BOTH], test=test) == 0
    found = json.loads(file.read_text())
    results = found["results"]
    rows = [line.split() for line in mine(capsys) if line[1:2].isdigit()]
    for result, row in zip(results if "-a" in more else [results], rows, strict=True):
        assert [result["MsgSize"], result["n_iterations"]] == [int(text) for text in row[:2]]
        assert (result["BW_average"] if test == "write_bw" else result["t_max"]) == pytest.approx(
            float(row[3]), abs=0.01
        )
    assert found["test_info"]["Device"] == "sim0"
    assert found["test_info"]["Times"].startswith("simulated; ")
    assert found["test_info"]["unit"] == ("MiB/sec" if test == "write_bw" else "usec")


def test_a_long_simulation_is_told_before(capsys, monkeypatch):
    def client(*arguments, connected, progress):
        yield
        connected()
        raise ToolError("that is all")

    monkeypatch.setattr(perftest, "client", client)
    assert main(["-d", "sim0", "-n", "5000", "127.0.0.1"], test="write_bw") == 1
    assert "verbena: 41 million cycles are simulated, which takes about 7 min; -n or -s" in capsys.readouterr().err
    assert main(["-d", "sim0", "-n", "500", "127.0.0.1"], test="write_bw") == 1
    assert capsys.readouterr().err == "that is all\n"


@pytest.mark.parametrize(
    ("test", "more", "count"),
    [
        ("write_bw", ["-n", "20", "-Q", "4", "-s", "4096"], 5),
        ("send_bw", ["-n", "20", "-Q", "4", "-b", "-s", "4096"], 5 + 20),
        ("read_lat", ["-n", "6"], 6),
        ("write_lat", ["-n", "6"], 6),
        ("send_lat", ["-n", "6"], 6),
        ("atomic_bw", ["-D", "1e-5", "-Q", "4"], None),
        ("read_lat", ["-D", "1e-5"], None),
    ],
)
def test_progress_is_told_by_one_end(test, more, count, capsys, monkeypatch):
    """As often as it is counted here: ``count`` times, the last of which has nothing to tell."""
    monkeypatch.setattr(progress, "FIRST", 0)
    monkeypatch.setattr(progress, "LAST", 0)
    assert main([*more, *BOTH], test=test) == 0
    err = capsys.readouterr().err
    shares = [int(line.split()[1].rstrip("%")) for line in err.splitlines() if "% is done, about" in line]
    assert shares == sorted(shares)
    assert shares[-1] >= 75
    if count is not None:
        assert len(shares) == count - 1
