"""The picture of a placed chip."""

import numpy as np
import pytest
from matplotlib.image import imread
from placed import Placed
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


def test_picture(tmp_path):
    """It shows each block in a colour of its own, and changes with the place of a block."""
    pictures = []
    for column in (5, 6, 30):
        placed = Placed()
        placed.add("node.memory.rows.0", "DP16KD", "X20/Y10/EBR0")
        for tile in range(10):
            placed.lut(f"node.mac.a.{tile}", f"X{column}/Y{2 + tile}/SLICEA.K0")
            placed.lut(f"node.rnic.access.a.{tile}", f"X{40 + tile}/Y12/SLICEA.K0")
        draw(placed.module, REPORT, COMPOSED, "a board", tmp_path / "floorplan.png")
        pictures.append(imread(tmp_path / "floorplan.png")[..., :3])
    shades = {tuple(shade) for shade in (pictures[0].reshape(-1, 3) * 255).astype(int)}
    assert len(shades) > 6
    assert not np.array_equal(pictures[0], pictures[1])
    assert (pictures[0] != pictures[2]).any(axis=2).sum() > 200


def test_long_names(tmp_path):
    """The legend is whole: nothing touches the picture's edge."""
    placed = Placed()
    placed.lut(f"node.{'long' * 20}.a", "X5/Y2/SLICEA.K0")
    placed.lut("node.mac.a", "X40/Y30/SLICEA.K0")
    draw(placed.module, REPORT, COMPOSED, "a board", tmp_path / "floorplan.png")
    picture = imread(tmp_path / "floorplan.png")[..., :3]
    for edge in (picture[0], picture[-1], picture[:, 0], picture[:, -1]):
        assert (edge == 1).all()
