"""LambdaConcept ECPIX-5, with a KSZ9031 PHY. Delays as its data sheet suggests; not yet tried on a board."""

from dataclasses import replace

from amaranth_boards.ecpix5 import ECPIX545Platform, ECPIX585Platform
from verbena.hdl.config import Config

from .board import Board

__all__ = ["BOARDS"]

SMALL = Config(qps=16, cqs=16, window=32, mpt_sets=128, mtt_sets=128)
NARROW = replace(SMALL, headers=16, address_width=32)

LOADER = ("--board", "ecpix5")
DELAYS = {"tx_clock_delay": 2e-9}

BOARDS = [
    Board(
        "ecpix5-85f",
        ECPIX585Platform,
        80_000_000,
        Config(qps=16, cqs=16),
        65536,
        loader=LOADER,
        **DELAYS,
    ),
    Board(
        "ecpix5-45f",
        ECPIX545Platform,
        80_000_000,
        NARROW,
        32768,
        lut_rows=16,
        lut_width=160,
        loader=LOADER,
        **DELAYS,
    ),
]
