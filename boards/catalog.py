"""The boards that are known. None of these bitstreams has been on its board yet; pins are those of amaranth-boards."""

import os
from dataclasses import replace

from amaranth_boards.butterstick import ButterStickPlatform
from amaranth_boards.ecpix5 import ECPIX545Platform, ECPIX585Platform
from amaranth_boards.logicbone import Logicbone85FPlatform
from amaranth_boards.versa_ecp5_5g import VersaECP55GPlatform
from verbena.hdl.config import Config

from .board import Board
from .sdram_pins import SdramChip

__all__ = ["BOARDS"]

LARGE = Config(qps=16, cqs=16, memory_latency=32, read_targets=64, responses=64)
"""For an 85F. A board's memory answers within 32 cycles."""

MEDIUM = replace(
    LARGE, qps=8, slots=8, cqs=8, mpt_sets=64, mtt_sets=64, read_targets=32, responses=32, address_width=32
)
"""For a 45F."""

SMALL = Config(
    qps=2,
    cqs=2,
    memory_latency=32,
    window=16,
    mpt_sets=4,
    mtt_sets=4,
    responses=8,
    receive_blocks=8,
    transmit_buffer=4096,
    receive_buffer=8192,
    address_width=32,
    requests=False,
    atomics=False,
    uc=False,
    ud=False,
)
"""For a 25F: a memory node, which only responds, to RC. Requester, completer, response receiver and timers would take a
quarter of the chip, and peers' atomics a thirteenth.
"""

NODE = replace(SMALL, qps=4, slots=4, cqs=4, mpt_sets=64, mtt_sets=64, responses=16, receive_blocks=16, atomics=True)
"""For a 45F that is built soon: it only responds, too."""

KSZ9031 = {"tx_clock_delay": 2e-9}
E1512 = KSZ9031 | {"rx_delay": 2e-9}
"""Delays as the PHYs' data sheets suggest. 88E1512's are off at first, and B50612D's on."""

FEW_ROWS = {"lut_rows": 16}
"""For a device with little block RAM."""

ECPIX5 = {"loader": ("--board", "ecpix5")} | KSZ9031


def colorlight():
    # Its file looks for the loader, even if nothing is loaded.
    os.environ.setdefault("OPENFPGALOADER", "true")
    from amaranth_boards.colorlight_5a75b_r7_0 import Colorlight_5A75B_R70Platform

    return Colorlight_5A75B_R70Platform()


BOARDS = [
    Board("ecpix5-85f", ECPIX585Platform, 62_500_000, LARGE, **ECPIX5),
    Board("ecpix5-45f", ECPIX545Platform, 62_500_000, NODE, 32768, minutes=16, **ECPIX5),
    # Wider tables stay in block RAM: four fifths of each kind are taken then.
    Board("versa-5g", VersaECP55GPlatform, 62_500_000, MEDIUM, 32768, memories=FEW_ROWS | {"lut_width": 73}, **E1512),
    Board("butterstick", ButterStickPlatform, 62_500_000, LARGE, **KSZ9031),
    Board("logicbone", Logicbone85FPlatform, 62_500_000, LARGE, **KSZ9031),
    Board(
        "colorlight-5a75b",
        colorlight,
        50_000_000,
        SMALL,
        sdram=SdramChip(banks=2, rows=2048, columns=256, width=32),
        memories=FEW_ROWS | {"lut_width": 100, "register_rows": 2, "block_constants": True},
        lut_sums=8,
        placer="heap",  # the static one finds no places for the last cells
        serial=False,  # its pins are those of the LED and the button
        loader=("--board", "colorlight"),
    ),
]
