"""Lattice Versa ECP5-5G, with 88E1512 PHYs, whose delays are off at first. Not yet tried on a board."""

from amaranth_boards.versa_ecp5_5g import VersaECP55GPlatform

from .board import Board
from .ecpix5 import SMALL

__all__ = ["BOARDS"]

BOARDS = [
    Board(
        "versa-5g",
        VersaECP55GPlatform,
        80_000_000,
        SMALL,
        32768,
        lut_rows=16,
        tx_clock_delay=2e-9,
        rx_delay=2e-9,
    ),
]
