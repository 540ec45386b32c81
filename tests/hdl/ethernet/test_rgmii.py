"""The MAC at RGMII's pins against cocotbext-eth, at both speeds."""

from pathlib import Path

import pytest
import verbena.boards
from mac_top import RgmiiMac
from streams import make_rng
from verbena.hdl.ethernet.rgmii import Rgmii
from verilated import run_bench

PINS = Path(verbena.boards.__file__).parent / "native" / "ecp5_pins.v"


@pytest.mark.slow
@pytest.mark.verilator
@pytest.mark.parametrize("slow", [0, 1])
def test_rgmii(slow, tmp_path, monkeypatch):
    variables = {"MAC_PINS": "rgmii", "MAC_WIDTH": 64, "MAC_WHOLE": 1, "MAC_SLOW": slow}
    seed = make_rng().seed_value
    run_bench("mac_bench", RgmiiMac(64), tmp_path, monkeypatch, [PINS], MAC_SEED=seed, **variables)


def test_delays():
    assert Rgmii(tx_clock_delay=2e-9, rx_delay=0.5e-9).taps == {"tx_clock_delay": 80, "rx_delay": 20}
    with pytest.raises(ValueError, match="rx_delay must be"):
        Rgmii(rx_delay=4e-9)
    with pytest.raises(ValueError, match="tx_clock_delay must be"):
        Rgmii(tx_clock_delay=-1e-9)
