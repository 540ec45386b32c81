"""How resets reach flip-flops, on circuits small enough to count by hand."""

import json

import pytest
from amaranth.hdl import ClockDomain, ClockSignal, Module, ResetInserter, ResetSignal, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from test_synthesis import Reader, cells, netlist
from verbena.boards import resets
from verbena.boards.resets import FASTEST, FEWEST, MOST, reset_by_clock_network, reset_globally
from verbena.boards.synthesis import finish


@pytest.mark.parametrize(("kind", "count"), [("plain", 0), ("reset", 36)])
def test_global_reset(kind, count, tmp_path):
    """Registers leave the wire for the network of the chip; those that are not reset stay as they are."""
    design = netlist(Reader(kind), tmp_path)
    before = [cell["connections"]["Q"] for cell in cells(design, "TRELLIS_FF")]
    bits = {name: design["modules"]["top"]["ports"][name]["bits"] for name in ("clk", "rst")}
    assert reset_globally(design, "top") == count
    registers = cells(design, "TRELLIS_FF")
    assert [cell["connections"]["Q"] for cell in registers] == before
    assert [cell["parameters"]["GSR"] for cell in registers].count("ENABLED") == count
    assert not any(cell["connections"].get("LSR") == bits["rst"] for cell in registers)
    (network,) = cells(design, "SGSR")
    assert network["connections"]["CLK"] == bits["clk"]
    (inverter,) = [cell for cell in cells(design, "LUT4") if cell["connections"]["Z"] == network["connections"]["GSR"]]
    assert inverter["connections"]["A"] == bits["rst"]  # the network's input is active low
    assert reset_globally(design, "top") == 0


class Domains(wiring.Component):
    """Registers of two clocks: each bit of ``o`` with a reset, or a clock, of its own."""

    i: In(5)
    other: In(1)
    o: Out(5)

    def elaborate(self, platform):
        m = Module()
        m.domains.second = ClockDomain(local=True)
        m.domains.mixed = ClockDomain(local=True)
        m.domains.late = ClockDomain(local=True, async_reset=True)
        m.domains.free = ClockDomain(local=True, reset_less=True)
        m.d.comb += [
            ClockSignal("second").eq(self.other),
            ResetSignal("second").eq(ResetSignal()),
            ClockSignal("mixed").eq(ClockSignal()),
            ResetSignal("mixed").eq(ResetSignal() | self.other),
            ClockSignal("late").eq(self.other),
            ResetSignal("late").eq(ResetSignal()),
            ClockSignal("free").eq(ClockSignal()),
        ]
        for bit, domain in enumerate(("sync", "second", "mixed", "late", "free")):
            m.d[domain] += self.o[bit].eq(self.i[bit])
        return m


def test_only_registers_with_this_clock_and_this_reset(tmp_path):
    """Another clock's registers, and those that something else resets as well, keep what resets them."""
    design = netlist(Domains(), tmp_path)
    outputs = design["modules"]["top"]["ports"]["o"]["bits"]
    registers = {cell["connections"]["Q"][0]: cell for cell in cells(design, "TRELLIS_FF")}
    before = [dict(registers[bit]["connections"]) for bit in outputs]
    assert reset_globally(design, "top", release="other") == 1
    after = [registers[bit] for bit in outputs]
    assert [cell["parameters"]["GSR"] for cell in after] == ["ENABLED"] + 4 * ["DISABLED"]
    assert [cell["connections"] for cell in after[1:]] == before[1:]
    (network,) = cells(design, "SGSR")
    assert network["connections"]["CLK"] == design["modules"]["top"]["ports"]["other"]["bits"]


class Cleared(wiring.Component):
    """Registers that ``clear`` resets, as many as ``widths`` says of each of its bits; and a LUT that looks at it."""

    def __init__(self, *widths):
        self.widths = widths
        super().__init__({"i": In(max(widths)), "clear": In(len(widths)), "o": Out(sum(widths)), "cleared": Out(1)})

    def elaborate(self, platform):
        m = Module()
        place = 0
        for number, width in enumerate(self.widths):
            part = Module()
            register = Signal(width)
            part.d.sync += register.eq(self.i)
            m.submodules[f"part_{number}"] = ResetInserter(self.clear[number])(part)
            m.d.comb += self.o[place : place + width].eq(register)
            place += width
        m.d.comb += self.cleared.eq(self.clear[0] & self.i[0])
        return m


def test_reset_by_clock_network(tmp_path):
    """Each reset of enough flip-flops gets a network of its own, and only the flip-flops leave the wire."""
    design = netlist(Cleared(9, 20, 8), tmp_path)
    before = [cell["connections"] | {} for cell in cells(design, "TRELLIS_FF")]
    wires = {tuple(connections["LSR"]) for connections in before}
    assert len(wires) == 3
    assert reset_by_clock_network(design, "top", 9) == 29
    buffers = {tuple(cell["connections"]["CLKO"]): cell["connections"]["CLKI"] for cell in cells(design, "DCCA")}
    assert len(buffers) == 2
    assert not wires & set(buffers)
    for old, cell in zip(before, cells(design, "TRELLIS_FF"), strict=True):
        new = cell["connections"]
        assert buffers.get(tuple(new["LSR"]), new["LSR"]) == old["LSR"]
        assert new | {"LSR": None} == old | {"LSR": None}
    assert sum(tuple(cell["connections"]["LSR"]) in wires for cell in cells(design, "TRELLIS_FF")) == 8
    # The LUT stays where it was.
    assert not any(tuple(bits) in buffers for cell in cells(design, "LUT4") for bits in cell["connections"].values())


def test_few_flip_flops_are_not_worth_a_network(tmp_path):
    design = netlist(Cleared(8), tmp_path)
    assert FEWEST > 8
    assert reset_by_clock_network(design, "top") == 0
    assert not cells(design, "DCCA")


def test_there_are_not_networks_for_all(tmp_path):
    """The largest come first."""
    design = netlist(Cleared(*range(2, MOST + 4)), tmp_path)
    assert reset_by_clock_network(design, "top", 1) == sum(range(4, MOST + 4))
    assert len(cells(design, "DCCA")) == MOST


@pytest.mark.parametrize(("more", "networks"), [(0, 1), (1, 0)])
def test_of_a_fast_clock_it_stays_a_wire(more, networks, tmp_path, monkeypatch):
    monkeypatch.setattr(resets, "FEWEST", 8)
    netlist(Cleared(8), tmp_path)
    finish(tmp_path / "top.json", "top", FASTEST + more)
    assert len(cells(json.loads((tmp_path / "top.json").read_text()), "DCCA")) == networks
