"""Colorlight 5A-75B, with B50612D PHYs, whose delays are on at first; the smallest device. Not yet tried on a board."""

import os

from verbena.hdl.config import Config

from .board import Board
from .sdram_pins import SdramChip

__all__ = ["BOARDS", "REDUCED"]

REDUCED = Config(
    qps=2,
    cqs=2,
    window=16,
    receive_blocks=16,
    mpt_sets=8,
    mtt_sets=4,
    transmit_buffer=4096,
    receive_buffer=8192,
    headers=16,
    address_width=32,
    requests=False,
    atomics=False,
)
"""A memory node: it only responds. Requester, completer, response receiver and timers alone would take a quarter of the
chip, and peers' atomics a thirteenth.
"""


def platform():
    # Its file looks for the loader, even if nothing is loaded.
    os.environ.setdefault("OPENFPGALOADER", "true")
    from amaranth_boards.colorlight_5a75b_r7_0 import Colorlight_5A75B_R70Platform

    return Colorlight_5A75B_R70Platform()


BOARDS = [
    Board(
        "colorlight-5a75b",
        platform,
        50_000_000,
        REDUCED,
        sdram=SdramChip(banks=2, rows=2048, columns=256, width=32),
        lut_rows=16,
        lut_width=160,
        register_rows=2,
        lut_sums=8,
        block_constants=True,
        serial=False,  # its pins are those of the LED and the button
        loader=("--board", "colorlight"),
    ),
]
