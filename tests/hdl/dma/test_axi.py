"""Names and directions of the buses."""

import pytest
from verbena.hdl.dma.axi import Axi4, AxiLite

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
