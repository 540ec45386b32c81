"""Logicbone, with a KSZ9031 PHY. Not yet tried on a board."""

from amaranth_boards.logicbone import Logicbone85FPlatform
from verbena.hdl.config import Config

from .board import Board

__all__ = ["BOARDS"]

BOARDS = [
    Board(
        "logicbone",
        Logicbone85FPlatform,
        80_000_000,
        Config(qps=16, cqs=16),
        65536,
        tx_clock_delay=2e-9,
    ),
]
