"""Frames that differ, told field by field."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from frame_fields import compare, differences
from verbena.sim.trace.capture_file import read_capture

HERE = Path(__file__).parent
WRITE, _, SECOND, *_ = [frame.data for frame in read_capture(HERE / "captures" / "rc_write_5000.pcap").frames]
BTH = 14 + 20 + 8


@pytest.fixture
def pytester_run(tmp_path):
    """Runs a test's text by pytest, with this folder's conftest, and returns what is printed."""

    def run(text, *options):
        path = tmp_path / "test_it.py"
        path.write_text(text)
        command = [sys.executable, "-m", "pytest", "-p", "conftest", "-c", os.devnull, *options, str(path)]
        environment = os.environ | {"PYTHONPATH": str(HERE)}
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False).stdout

    return run


def changed(frame, at, value):
    return frame[:at] + bytes([value]) + frame[at + 1 :]


def test_a_field():
    pad = changed(WRITE, BTH + 1, WRITE[BTH + 1] | 0x30)
    assert differences(pad, WRITE) == ["bth.pad 3, expected 0"]
    key = changed(WRITE, BTH + 12 + 8, WRITE[BTH + 12 + 8] ^ 1)
    assert [line.split()[0] for line in differences(key, WRITE)] == ["reth.rkey"]


def test_a_header_too_many():
    lines = differences(WRITE, SECOND)
    assert any(line.startswith("reth.address 0x") and line.endswith("expected absent") for line in lines)
    assert f"{len(WRITE)} bytes, expected {len(SECOND)}" in lines


def test_payload_and_icrc():
    assert differences(changed(WRITE, -5 % len(WRITE), 0x55), WRITE)[0].startswith("payload: byte")
    icrc = changed(WRITE, len(WRITE) - 4, WRITE[-4] ^ 1)
    assert differences(icrc, WRITE)[0].startswith("ICRC: byte")


def test_lists_and_what_is_no_frame():
    pad = changed(WRITE, BTH + 1, WRITE[BTH + 1] | 0x10)
    assert compare([WRITE, pad], [WRITE, WRITE]) == ["frame 1 of 2 differs, expected 2", "bth.pad 1, expected 0"]
    assert compare(b"abc", b"abd") is None
    assert compare([1], [2]) is None
    assert compare(WRITE, WRITE) is None


def test_pytest_shows_it(pytester_run):
    out = pytester_run(
        "from pathlib import Path\nfrom verbena.sim.trace.capture_file import read_capture\n"
        f"data = read_capture(Path({str(HERE / 'captures' / 'rc_write_5000.pcap')!r})).frames[0].data\n"
        f"def test_it():\n    assert data[:{BTH + 1}] + bytes([data[{BTH + 1}] | 0x30]) + data[{BTH + 2}:] == data\n"
    )
    assert "bth.pad 3, expected 0" in out


def test_waves_of_a_block(pytester_run, tmp_path):
    pytester_run(
        "from verbena.hdl.stream.skid import Skid\nfrom streams import simulate\n"
        "async def bench(ctx):\n    await ctx.tick()\n"
        "def test_it():\n    simulate(Skid(8), bench)\n",
        "--waves",
        str(tmp_path / "waves"),
    )
    (vcd,) = (tmp_path / "waves").glob("*.vcd")
    view = vcd.with_suffix(".gtkw").read_text()
    assert "i__payload" in vcd.read_text()
    assert "i__valid" in view
