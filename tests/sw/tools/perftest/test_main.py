"""The command."""

import pytest
from verbena.sw.tools.perftest.__main__ import main


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
        (["write_lat", "-q", "2"], "only bandwidth tests use several queue pairs"),
        (["write_bw", "-d", "sim0", "-p", "1", "127.0.0.1"], "cannot connect to 127.0.0.1 port 1: ECONNREFUSED"),
        (["write_bw", "-d", "sim0", "-x", "3", "--peer", "sim1", "--patience", "1"], "Failed to query gid 3"),
    ],
)
def test_what_is_wrong_is_told(capsys, arguments, complaint):
    assert main(arguments) == 1
    assert complaint in capsys.readouterr().err


def test_unknown_tests(capsys):
    with pytest.raises(SystemExit):
        main(["frobnicate_bw"])
    assert "atomic_bw" in capsys.readouterr().err
