"""What is said from the bitstream to the first command, with a simulated node and a loader that is none."""

import re
import sys

import pytest
from verbena.boards import bring_up
from verbena.boards.bring_up import main
from verbena.sw.tools.perftest.__main__ import main as perftest


@pytest.fixture
def loader(tmp_path, monkeypatch):
    """A program that writes down how it was called, and fails if the bitstream says so."""
    program, log = tmp_path / "loader", tmp_path / "calls"
    program.write_text(
        f"#!{sys.executable}\nimport sys\nopen({str(log)!r}, 'w').write(' '.join(sys.argv[1:]))\n"
        "if open(sys.argv[-1]).read() == 'bad': raise SystemExit('JTAG init failed')\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("OPENFPGALOADER", str(program))
    return log


def fail(capsys, *arguments):
    assert main([*arguments]) == 1
    captured = capsys.readouterr()
    assert captured.err.count("\n") == 1
    return captured.err


@pytest.mark.slow
def test_from_bitstream_to_perftest(network, loader, tmp_path, capsys):
    """What it prints to be typed here works, with the second adapter in Linux' place."""
    bitstream = tmp_path / "top.bit"
    bitstream.write_text("good")
    assert main(["ecpix5-85f", "--bitstream", str(bitstream), "--device", "sim0"]) == 0
    assert loader.read_text() == f"--board ecpix5 {bitstream}"
    said = capsys.readouterr().out
    assert "sim0: MAC 02:56:42:00:00:e1, IPv4 192.168.1.50, memory 64 KiB at 0x40000000" in said
    assert re.search(r"region of 4096 bytes at 0x[0-9a-f]{8}, rkey 0x[0-9a-f]{8}", said)
    (line,) = re.findall(r"here: +verbena-perftest (.*)", said)
    assert perftest([*line.split(), "--peer", "sim1", "-n", "5"]) in (0, None)
    assert "4096" in capsys.readouterr().out


def test_no_bitstream(tmp_path, capsys):
    missing = tmp_path / "top.bit"
    wanted = f"there is no {missing}: make bitstream BOARD=ecpix5-85f\n"
    assert fail(capsys, "ecpix5-85f", "--bitstream", str(missing)) == wanted


def test_no_loader(tmp_path, monkeypatch, capsys):
    (tmp_path / "top.bit").write_text("good")
    monkeypatch.setenv("OPENFPGALOADER", "/nowhere/loader")
    said = fail(capsys, "ecpix5-85f", "--bitstream", str(tmp_path / "top.bit"))
    assert said == "/nowhere/loader cannot be run: No such file or directory\n"


def test_a_loader_that_fails(loader, tmp_path, capsys):
    (tmp_path / "top.bit").write_text("bad")
    assert fail(capsys, "ecpix5-85f", "--bitstream", str(tmp_path / "top.bit")).endswith("failed: JTAG init failed\n")


def test_an_unknown_board(capsys):
    assert "there is no board 'ecpix6'; there are butterstick" in fail(capsys, "ecpix6")


def test_nobody_answers(monkeypatch, capsys, provided):
    def silent():
        raise TimeoutError(110, "the node does not answer")

    monkeypatch.setattr(bring_up, "LINK_SECONDS", 0)
    provided("silent", silent)
    said = fail(capsys, "ecpix5-85f", "--no-load", "--device", "silent")
    assert said.startswith("silent does not answer: is the cable in")


def test_somebody_else_answers(capsys, provided):
    def other():
        raise OSError(19, "device 'other' is no Verbena node: magic 0x00000000")

    provided("other", other)
    assert "is no Verbena node" in fail(capsys, "ecpix5-85f", "--no-load", "--device", "other")
