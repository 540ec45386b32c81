"""The MAC at GMII against cocotbext-eth."""

import pytest
from streams import make_rng
from verbena.hdl.ethernet.mac import Mac
from verilated import run_bench

pytestmark = pytest.mark.verilator


@pytest.mark.slow  # make test has the one at RGMII
@pytest.mark.parametrize(("width", "whole", "core_ps"), [(64, True, 8000), (128, False, 15_500)])
def test_gmii(width, whole, core_ps, tmp_path, monkeypatch):
    mac = Mac(width, transmit_depth=65536 // width, receive_depth=65536 // width if whole else None)
    variables = {"MAC_PINS": "gmii", "MAC_WIDTH": width, "MAC_WHOLE": int(whole), "MAC_CORE_PS": core_ps}
    run_bench("mac_bench", mac, tmp_path, monkeypatch, MAC_SEED=make_rng().seed_value, **variables)
