"""Colorlight 5A-75B, with B50612D PHYs, whose delays are on at first; the smallest device. Not yet tried on a board."""

import os

from .board import Board
from .ecpix5 import SMALL

__all__ = ["BOARDS"]


def platform():
    # Its file looks for the loader, even if nothing is loaded.
    os.environ.setdefault("OPENFPGALOADER", "true")
    from amaranth_boards.colorlight_5a75b_r7_0 import Colorlight_5A75B_R70Platform

    return Colorlight_5A75B_R70Platform()


BOARDS = [Board("colorlight-5a75b", platform, 62_500_000, SMALL, 4096, loader=("--board", "colorlight"))]
