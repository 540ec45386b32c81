"""The boards that are known. None of these bitstreams has been on its board yet. Pins are those of amaranth-boards and
of :mod:`.colorlight_i9`.
"""

from dataclasses import replace

from amaranth_boards.butterstick import ButterStickPlatform
from amaranth_boards.ecpix5 import ECPIX545Platform, ECPIX585Platform
from amaranth_boards.logicbone import Logicbone85FPlatform
from amaranth_boards.versa_ecp5_5g import VersaECP55GPlatform
from verbena.hdl.config import Config

from .board import Board
from .colorlight_i9 import ColorlightI9Platform
from .sdram_pins import SdramChip

__all__ = ["BOARDS"]

LARGE = Config(qps=16, cqs=16, memory_latency=32, read_targets=64, responses=64)
"""For an 85F. A board's memory answers within 32 cycles."""

MEDIUM = replace(
    LARGE, qps=8, slots=8, cqs=8, mpt_sets=64, mtt_sets=64, read_targets=32, responses=32, address_width=32
)
"""For a 45F."""

NODE = Config(
    qps=4,
    slots=4,
    cqs=4,
    memory_latency=32,
    window=16,
    mpt_sets=64,
    mtt_sets=64,
    responses=16,
    receive_blocks=16,
    transmit_buffer=4096,
    receive_buffer=8192,
    address_width=32,
    requests=False,
    uc=False,
    ud=False,
)
"""A memory node, which is built soon: it only responds, to RC. There is neither requester nor completer, response
receiver nor timers.
"""

KSZ9031 = {"tx_clock_delay": 2e-9}
E1512 = KSZ9031 | {"rx_delay": 2e-9}
"""Delays as the PHYs' data sheets suggest. 88E1512's are off at first, and B50612D's on."""

FEW_ROWS = {"lut_rows": 16, "lut_width": 73}
"""For a device with little block RAM. Wider tables stay there: four fifths of each kind are taken then."""

NARROW_ROWS = FEW_ROWS | {"lut_width": 37}
"""Where the host memory takes no block RAM: tables of more than 36 bits stand there."""

ECPIX5 = {"loader": ("--board", "ecpix5")} | KSZ9031


BOARDS = [
    Board("ecpix5-85f", ECPIX585Platform, 62_500_000, LARGE, **ECPIX5),
    Board("ecpix5-45f", ECPIX545Platform, 62_500_000, NODE, 32768, minutes=16, **ECPIX5),
    Board("versa-5g", VersaECP55GPlatform, 62_500_000, MEDIUM, 32768, minutes=60, memories=FEW_ROWS, **E1512),
    Board("butterstick", ButterStickPlatform, 62_500_000, LARGE, **KSZ9031),
    Board("logicbone", Logicbone85FPlatform, 62_500_000, LARGE, **KSZ9031),
    Board(
        "colorlight-i9",
        ColorlightI9Platform,
        50_000_000,
        MEDIUM,
        minutes=60,
        sdram=SdramChip(banks=4, rows=2048, columns=256, width=32),
        memories=NARROW_ROWS,
        loader=("--board", "colorlight-i9"),
    ),
]
