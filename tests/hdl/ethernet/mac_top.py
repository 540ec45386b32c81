"""A MAC with RGMII pins, for the simulator."""

from amaranth.hdl import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from verbena.hdl.ethernet.mac import COUNTERS, Mac
from verbena.hdl.ethernet.rgmii import Rgmii, RgmiiPins
from verbena.hdl.stream.packet import PacketBeat

__all__ = ["RgmiiMac"]


class RgmiiMac(wiring.Component):
    """:class:`Mac` behind pins; the other members are the MAC's."""

    def __init__(self, data_width, **options):
        self.mac_core = Mac(data_width, **options)
        beat = stream.Signature(PacketBeat(data_width))
        super().__init__(
            {
                "tx": In(beat),
                "rx": Out(beat),
                "pins": Out(RgmiiPins()),
                "mac": In(48),
                "slow": In(1),
                "pause": In(1),
                **{f"count_{name}": Out(1) for name in COUNTERS},
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.core = core = self.mac_core
        m.submodules.rgmii = rgmii = Rgmii()
        wiring.connect(m, core.gmii, rgmii.gmii)
        wiring.connect(m, rgmii.pins, wiring.flipped(self.pins))
        wiring.connect(m, wiring.flipped(self.tx), core.tx)
        wiring.connect(m, core.rx, wiring.flipped(self.rx))
        m.d.comb += [core.mac.eq(self.mac), core.slow.eq(self.slow), core.pause.eq(self.pause)]
        m.d.comb += [getattr(self, f"count_{name}").eq(getattr(core, f"count_{name}")) for name in COUNTERS]
        return m
