"""An SDRAM controller behind an ECP5's pin registers."""

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from verbena.boards.sdram import Sdram
from verbena.boards.sdram_pins import SdramChip, SdramPads
from verbena.hdl.dma.axi import Axi4

__all__ = ["BASE", "CHIP", "CLOCK", "SdramTop"]

CHIP = SdramChip(banks=4, rows=2048, columns=256, width=32, power_up=2e-6)
CLOCK = 50_000_000
BASE = 0x4000_0000


class SdramTop(wiring.Component):
    def __init__(self):
        self.pads = SdramPads(CHIP)
        members = {name: member for name, member in self.pads.signature.members.items() if name != "pins"}
        super().__init__({"axi": In(Axi4(64)), **members})

    def elaborate(self, platform):
        m = Module()
        m.submodules.pads = pads = self.pads
        m.submodules.sdram = sdram = Sdram(64, CHIP, BASE, CLOCK)
        wiring.connect(m, wiring.flipped(self.axi), sdram.axi)
        wiring.connect(m, sdram.pins, pads.pins)
        for name, member in self.signature.members.items():
            if name != "axi":
                inner = getattr(pads, name)
                m.d.comb += getattr(self, name).eq(inner) if member.flow == Out else inner.eq(getattr(self, name))
        return m
