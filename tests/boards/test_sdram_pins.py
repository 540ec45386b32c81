"""SDRAM at its pins: chips that are given, and give, each word at its nanosecond."""

from pathlib import Path

import pytest
from sdram_top import SdramTop
from streams import make_rng
from verbena import boards
from verilated import run_bench

PINS = Path(boards.__file__).parent / "native" / "ecp5_pins.v"


@pytest.mark.slow
def test_cocotbext_axi_through_the_pins(tmp_path, monkeypatch):
    run_bench("sdram_bench", SdramTop(), tmp_path, monkeypatch, [PINS], SDRAM_SEED=make_rng().seed_value)
