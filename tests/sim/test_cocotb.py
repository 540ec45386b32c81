"""The compiled model under cocotb."""

import pytest
from stand_in import stand_in
from verbena.sim.cocotb_runner import run

pytestmark = pytest.mark.verilator


def test_a_test_bench_with_the_world(tmp_path):
    run("cocotb_bench", stand_in(), adapters=2, folder=tmp_path, capture=tmp_path / "all.pcapng")
    assert (tmp_path / "all.pcapng").stat().st_size > 1000


def test_a_test_bench_that_drives_the_registers(tmp_path):
    run("cocotb_bench_axi", stand_in(), world=("memory", "wire"), folder=tmp_path)


@pytest.mark.slow
def test_waves(tmp_path):
    run(
        "cocotb_bench", stand_in(), adapters=2, folder=tmp_path, waves=tmp_path / "w.vcd", environment={"CYCLES": "100"}
    )
    assert "interrupt" in (tmp_path / "w.vcd").read_text()[:20000]


def test_wrong_arguments_are_refused():
    with pytest.raises(ValueError, match="not 'clock'"):
        run("cocotb_bench", stand_in(), world=("clock",))
