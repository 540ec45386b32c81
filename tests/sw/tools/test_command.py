"""Bad input of every tool: one plain line on stderr, status 1, and nothing on stdout."""

import argparse
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from verbena.sim.model import build, rnic
from verbena.sw import cli
from verbena.sw.tools.command import Parser, command_line, first_line, plain, port_number


@pytest.fixture(scope="module")
def engine():
    """It is compiled before: what that says is none of a tool's lines."""
    build(rnic())


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (OSError(2, "No such file or directory", "a.pcap"), "a.pcap: No such file or directory"),
        (OSError(17, "another program has sim1"), "another program has sim1"),
        (OSError("no number"), "no number"),
        (ValueError("mtu must be 256"), "mtu must be 256"),
    ],
)
def test_plain(error, text):
    assert plain(error) == text


@pytest.mark.parametrize("text", ["0", "-1", "65536", "99999"])
def test_ports_that_are_none(text):
    with pytest.raises(argparse.ArgumentTypeError, match=f"a TCP port is 1 to 65535, not {text}"):
        port_number(text)
    assert [port_number("1"), port_number("65535")] == [1, 65535]


def test_options_are_not_abbreviated(capsys):
    parser = Parser(prog="tool")
    parser.add_argument("--iterations")
    with pytest.raises(SystemExit) as ended:
        parser.parse_args(["--iter", "3"])
    assert ended.value.code == 1
    assert capsys.readouterr().err == "tool: unrecognized arguments: --iter 3; --help tells more\n"


TOOLS = sorted(cli.COMMANDS.keys() - {"run"})  # whose options are the program's


def refused(capsys, *arguments):
    """The line that a command tells."""
    try:
        status = cli.main([*map(str, arguments)])
    except SystemExit as ended:
        status = ended.code
    out, err = capsys.readouterr()
    assert (status, out) == (1, "")
    assert err.count("\n") == 1
    assert "[Errno" not in err
    assert "usage" not in err
    return err


@pytest.mark.parametrize("name", TOOLS)
def test_help_tells_of_every_option(capsys, monkeypatch, name):
    parsers = []
    tell = Parser.print_help
    monkeypatch.setattr(Parser, "print_help", lambda parser, file=None: (parsers.append(parser), tell(parser, file)))
    with pytest.raises(SystemExit) as ended:
        cli.main([name, "--help"])
    out, err = capsys.readouterr()
    assert (ended.value.code, err) == (0, "")
    assert "``" not in out
    assert [action.dest for action in parsers[0]._actions if not action.help] == []


@pytest.mark.parametrize("name", TOOLS)
def test_a_wrong_option(capsys, name):
    assert "--frobnicate" in refused(
        capsys, name, "--frobnicate", *(["write_bw"] if name == "perftest" else ["x", "y"])
    )


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ("stat -d nothing", "verbena stat: no device 'nothing'; there are: "),
        ("stat --interval 0", "the interval must be more than 0"),
        ("stat --interval inf", "the interval must be more than 0, and at most 86400 seconds, not inf"),
        ("stat --interval nan", "the interval must be more than 0, and at most 86400 seconds, not nan"),
        ("trace --qp zz {0}/text.pcapng", "'zz' is no whole number"),
        ("trace --capture {0} sim", "cannot write {0}: Is a directory"),
        ("udaddy -t zz", "'zz' is no whole number"),
        ("ibv_rc_pingpong a..b", "no address of 'a..b'"),
        ("stat -- nothing", "there is no command 'nothing'"),
        ("trace {0}/none.pcap", "verbena trace: {0}/none.pcap: No such file or directory"),
        ("trace {0}/none.py", "there is no program '{0}/none.py'"),
        ("trace {0}/text.pcapng", "text.pcapng"),
        ("trace --first 0 x", "--first must be at least 1, not 0"),
        ("run {0}/none.py", "there is no program '{0}/none.py'"),
        ("run {0}", "there is no program '{0}'"),
        ("sim -c {0}/none.toml", "cannot read {0}/none.toml: No such file or directory"),
        ("sim -c {0}/text.pcapng", "verbena sim: {0}/text.pcapng: "),
        ("sim {0}/text.pcapng/x", "verbena sim: {0}/text.pcapng"),
        ("sim --mtu 77 {0}/net", "mtu must be 256, 512, 1024, 2048 or 4096, not 77"),
        ("sim --lose 7 {0}/net", "lose must be a probability, not 7.0"),
        ("sim --delay-ns inf {0}/net", "delay_ns must be "),
        ("sweep -c {0}/none.toml", "verbena sweep: {0}/none.toml: No such file or directory"),
        ("sweep -g size {0}/x.py", "--grid is NAME=VALUES, not 'size'"),
        ("sweep", "there is no program"),
        ("ib_write_bw -p 99999", "a TCP port is 1 to 65535, not 99999"),
        ("ib_write_bw -p {1}", "cannot listen on port {1}: EADDRINUSE"),
        ("ib_write_bw -n 0", "iterations must be between 5 and "),
        ("ib_write_bw a..b", "no address of 'a..b'"),
        ("ib_write_bw -d nothing -p {2}", "Failed to find device nothing"),
        ("ibv_rc_pingpong -p 0", "a TCP port is 1 to 65535, not 0"),
        ("ibv_rc_pingpong -p {1}", "cannot listen on port {1}: EADDRINUSE"),
        ("ibv_rc_pingpong -d nothing -p {2}", "Failed to find device nothing"),
        ("ibv_rc_pingpong -m 77 --peer sim1", "the MTU must be 256, 512, 1024, 2048 or 4096, not 77"),
        ("ibv_devinfo -d nothing", "Failed to find device nothing"),
        ("board nothing", "there is no board 'nothing'"),
        ("perftest nothing", "invalid choice: 'nothing'"),
    ],
)
def test_bad_input(capsys, tmp_path, arguments, text):
    (tmp_path / "text.pcapng").write_text("no capture = but text\nand more")
    with socket.socket() as busy, socket.socket() as free:
        busy.bind(("", 0))
        busy.listen()
        free.bind(("", 0))
        places = tmp_path, busy.getsockname()[1], free.getsockname()[1]
        free.close()
        told = refused(capsys, *arguments.format(*places).split())
    assert text.format(*places) in told


@pytest.mark.verilator
@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize("name", ["ib_write_bw", "ibv_rc_pingpong"])
def test_a_peer_that_cannot_be_reached(capsys, name):
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
    assert refused(capsys, name, "-p", port, "127.0.0.1") == f"cannot connect to 127.0.0.1 port {port}: ECONNREFUSED\n"
    assert "no address of 'nobody.invalid'" in refused(capsys, name, "nobody.invalid")


CAPTURE = str(Path(__file__).parents[2] / "captures" / "rc_send_1.pcap")

UNHEARD = [
    "verbena.sw.cli --help",
    "verbena.sw.cli ib_write_bw --help",
    "verbena.sw.cli ibv_devinfo -l",
    "verbena.sw.cli trace -o {folder}/page.html {capture}",
    "verbena.sw.cli sim {folder}/net",
    "verbena.sw.cli run {folder}/script.py",
    "verbena.sw.tools.pingpong --help",
    "verbena.sw.tools.perftest --help",
    "verbena.sim.speed --help",
]


@pytest.mark.parametrize("words", UNHEARD)
@pytest.mark.parametrize("buffered", [True, False])
def test_nobody_reads_what_is_printed(tmp_path, words, buffered):
    """As behind a ``head`` that has seen enough: no word, and the status that a shell tells of others."""
    (tmp_path / "script.py").write_text("for number in range(9):\n    print(number)\n")
    reading, writing = os.pipe()
    os.close(reading)
    try:
        result = subprocess.run(
            [sys.executable, "-m", *words.format(folder=tmp_path, capture=CAPTURE).split()],
            env=os.environ | {"VERBENA_SIM": "", "PYTHONUNBUFFERED": "" if buffered else "1"},
            stdout=writing,
            stderr=subprocess.PIPE,
            text=True,
            timeout=100,
            check=False,
        )
    finally:
        os.close(writing)
    said = [line for line in result.stderr.splitlines() if "verbena: compile" not in line]  # the first one may have to
    # argparse itself takes no notice, if the text goes out at once.
    quiet = not buffered and "--help" in words and "cli --help" not in words
    assert (result.returncode, said) == (0 if quiet else 141, [])


def test_another_broken_pipe_is_told():
    @command_line
    def main():
        raise BrokenPipeError("a socket's")

    with pytest.raises(BrokenPipeError, match="a socket's"):
        main()


def test_a_script_whose_socket_breaks_is_told(tmp_path, capfd):
    (tmp_path / "script.py").write_text("raise BrokenPipeError('a socket is gone')\n")
    assert cli.main(["run", str(tmp_path / "script.py")]) == 1
    assert "BrokenPipeError: a socket is gone" in capfd.readouterr().err


def test_ctrl_c_is_no_traceback():
    @command_line
    def main():
        raise KeyboardInterrupt

    assert main() == 130


def test_a_docstring_that_is_left_out():
    """As ``python -OO`` does."""
    assert first_line("First.\n\nMore.") == "First."
    assert first_line(None) == ""


@pytest.mark.parametrize("name", ["verbena.sim.trace", "verbena.sim.sweep", "verbena.boards.bring_up"])
def test_commands_without_docstrings(name):
    done = subprocess.run([sys.executable, "-OO", "-m", name, "--help"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_what_cannot_be_written_is_told_in_a_line():
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([sys.executable, "-m", "verbena.sw.cli", "help"], stdout=full, stderr=subprocess.PIPE)
    assert done.returncode == 1
    assert done.stderr == b"cannot write the output: No space left on device\n"


def test_a_demo_whose_capture_cannot_be_written(tmp_path):
    (tmp_path / "data [final].bin").write_bytes(b"1")
    words = ["-m", "verbena.sim.demo", "data [final].bin", "--capture", "data [final].bin/demo.pcapng"]
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout.startswith("verbena demo: data [final].bin")


def test_the_status_of_a_program_that_was_killed(tmp_path):
    """As a shell tells it."""
    (tmp_path / "killed.py").write_text("import os; os.kill(os.getpid(), 9)")
    words = ["-m", "verbena.sw.cli", "trace", "killed.py"]
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 128 + 9
