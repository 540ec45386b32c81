"""A node with its RGMII pins, for the simulator."""

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from verbena.hdl.ethernet.rgmii import Rgmii, RgmiiPins

from .node import Node

__all__ = ["PinNode"]


class PinNode(wiring.Component):
    """A :class:`.node.Node`, whose parameters these are, behind :class:`verbena.hdl.ethernet.rgmii.Rgmii`. The clocks
    come from outside.
    """

    def __init__(self, **options):
        self.node = Node(**options)
        super().__init__({"pins": Out(RgmiiPins()), "uart_rx": In(1), "uart_tx": Out(1), "mdio_i": In(1)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.node = node = self.node
        m.submodules.rgmii = rgmii = Rgmii()
        wiring.connect(m, node.gmii, rgmii.gmii)
        wiring.connect(m, rgmii.pins, wiring.flipped(self.pins))
        m.d.comb += [node.uart_rx.eq(self.uart_rx), self.uart_tx.eq(node.uart_tx), node.mdio_i.eq(self.mdio_i)]
        return m
