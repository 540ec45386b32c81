"""An example: the engine in a system of your own, with block RAM for memory. A CPU has ``axil`` and ``bus``."""

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from verbena.hdl.abi.registers import ADDRESS_WIDTH
from verbena.hdl.dma.axi import AxiLite
from verbena.hdl.ethernet.mac import Gmii, Mac
from verbena.hdl.rnic import Rnic

from .bridge_bus import BridgeBus
from .memory import BlockMemory

__all__ = ["Soc"]


class Soc(wiring.Component):
    """Clock domains: ``sync``, and the two of :mod:`verbena.hdl.ethernet.mac`.

    Members
    -------
    axil : ``AxiLite``, flipped
        Registers and doorbells, as docs/interface.md has them.
    bus : ``BridgeBus``, flipped
        The memory, for the CPU; at ``base`` for the engine, too.
    gmii : ``Gmii``
    interrupt : 1
    """

    def __init__(self, config, *, mac=0x02_56_42_00_00_01, memory_size=65536, base=0x4000_0000):
        self.rnic = Rnic(config)
        self.memory = BlockMemory(config.data_width, memory_size, base)
        self.ethernet = Mac(config.data_width, receive_depth=None)
        self.mac = mac
        ports = {"axil": In(AxiLite(ADDRESS_WIDTH)), "bus": In(BridgeBus()), "gmii": Out(Gmii()), "interrupt": Out(1)}
        super().__init__(ports)

    def elaborate(self, platform):
        m = Module()
        m.submodules.rnic = rnic = self.rnic
        m.submodules.memory = memory = self.memory
        m.submodules.ethernet = ethernet = self.ethernet
        wiring.connect(m, wiring.flipped(self.axil), rnic.axil)
        wiring.connect(m, wiring.flipped(self.bus), memory.bus)
        wiring.connect(m, rnic.axi, memory.axi)
        wiring.connect(m, rnic.tx, ethernet.tx)
        wiring.connect(m, ethernet.rx, rnic.rx)
        wiring.connect(m, ethernet.gmii, wiring.flipped(self.gmii))
        m.d.comb += [ethernet.mac.eq(self.mac), rnic.link.eq(1), self.interrupt.eq(rnic.interrupt.any())]
        return m
