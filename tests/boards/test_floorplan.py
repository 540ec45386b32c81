"""The picture of a placed chip."""

import numpy as np
import pytest
from matplotlib.image import imread
from verbena.boards.floorplan import OTHERS, block_of, draw, longest_way
from verbena.boards.nextpnr import signal_of

COMPOSED = {"node", "node.rnic", "node.rnic.send"}

REPORT = {
    "fmax": {"clk": {"achieved": 120.0, "constraint": 126.0}, "slow": {"achieved": 90.0, "constraint": 25.0}},
    "critical_paths": [
        {"from": "posedge slow", "to": "posedge slow", "path": []},
        {"from": "posedge clk", "to": "posedge slow", "path": [{"delay": 99.0, "from": {"loc": [9, 9]}}]},
        {
            "from": "posedge clk",
            "to": "posedge clk",
            "path": [
                {"delay": 0.5, "from": {"loc": [1, 2]}, "to": {"loc": [1, 2]}},
                {"delay": 2.5, "from": {"loc": [1, 2]}, "to": {"loc": [30, 8]}},
                {"delay": 0.25, "from": {"loc": [30, 8]}, "to": {"loc": [30, 8]}},
            ],
        },
    ],
}


@pytest.mark.parametrize(
    ("name", "block"),
    [
        ("node.mac$295.rx_queue.storage.0$DPRAM_COMB0", "node.mac"),
        ("node.rnic.access.translation.rows_LUT4_Z", "node.rnic.access"),
        ("node.rnic.send.requester.states_TRELLIS_FF_Q", "node.rnic.send.requester"),
        ("node.rnic.send.busy_LUT4_Z", OTHERS),
        ("node.registers.words.0", "node.registers"),
        ("$gbuf$clk", OTHERS),
        ("clocking.wait_LUT4_Z", "clocking"),
    ],
)
def test_block(name, block):
    assert block_of(name, COMPOSED) == block


@pytest.mark.parametrize("net", ["rx_clk", "$glbnet$rx_clk", "rx_clk$TRELLIS_IO_IN", "$glbnet$rx_clk$TRELLIS_IO_IN"])
def test_signal(net):
    assert signal_of(net) == "rx_clk"


def test_longest_way():
    """That of the clock with the least to spare, and only from that clock to itself."""
    assert longest_way(REPORT) == ("clk", 3.25, [(1, 2), (30, 8)])
    assert longest_way(REPORT | {"critical_paths": []}) == ("clk", 0, [])


def module(**cells):
    """A placed chip, as nextpnr writes it: type and place of each cell."""
    return {"cells": {name: {"type": kind, "attributes": {"NEXTPNR_BEL": bel}} for name, (kind, bel) in cells.items()}}


def luts(name, x, y, step):
    """10 of them, from (x, y) on."""
    places = [(x + n * step[0], y + n * step[1]) for n in range(10)]
    return {f"{name}.{x}_{y}": ("TRELLIS_COMB", f"X{x}/Y{y}/SLICEA.K0") for x, y in places}


def test_picture(tmp_path):
    """It shows each block in a colour of its own, and changes with the place of a block."""
    pictures = []
    for column in (5, 6, 30):
        cells = {"node.memory.rows.0": ("DP16KD", "X20/Y10/EBR0")}
        cells |= luts("node.mac.a", column, 2, (0, 1)) | luts("node.rnic.access.a", 40, 12, (1, 0))
        draw(module(**cells), REPORT, COMPOSED, "a board", tmp_path / "floorplan.png")
        pictures.append(imread(tmp_path / "floorplan.png")[..., :3])
    shades = {tuple(shade) for shade in (pictures[0].reshape(-1, 3) * 255).astype(int)}
    assert len(shades) > 6
    assert not np.array_equal(pictures[0], pictures[1])
    assert (pictures[0] != pictures[2]).any(axis=2).sum() > 200


def test_long_names(tmp_path):
    """The legend is whole: nothing touches the picture's edge."""
    cells = luts(f"node.{'long' * 20}", 5, 2, (0, 1)) | luts("node.mac.a", 40, 12, (1, 0))
    draw(module(**cells), REPORT, COMPOSED, "a board", tmp_path / "floorplan.png")
    picture = imread(tmp_path / "floorplan.png")[..., :3]
    for edge in (picture[0], picture[-1], picture[:, 0], picture[:, -1]):
        assert (edge == 1).all()
