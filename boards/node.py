"""A memory node: the engine, its MAC, host memory, and the bridges by which a driver reaches it all."""

from dataclasses import replace

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from verbena.hdl.ethernet.mac import COUNTERS as MAC_COUNTERS
from verbena.hdl.ethernet.mac import Gmii, Mac
from verbena.hdl.ethernet.mdio import Mdio
from verbena.hdl.rnic import Rnic

from . import etherbone
from .bridge import MEMORY, BridgeArbiter, BridgeDecoder, RegisterPort
from .etherbone import Etherbone
from .lights import LIGHTS, Lights
from .memory import BlockMemory
from .node_registers import NodeRegisters
from .sdram import Sdram
from .sdram_pins import SdramPins
from .uart import UartBridge

__all__ = ["Node"]

MDC_HZ = 2_500_000
BAUD = 115_200
BRIDGE_COUNTERS = ("served", "denied", "refused")


class Node(wiring.Component):
    """Instances and connections, no logic. Clock domains: ``sync``, and the two of :mod:`verbena.hdl.ethernet.mac`.

    ARP and ping are answered, and Etherbone to the port of LiteX, from the first moment on.

    Parameters
    ----------
    config : Config
        The engine's sizes.
    mac, ip : int
        Own addresses, as numbers; the driver may change them.
    clock : int
        Hz of ``sync``.
    memory_size : int
        Bytes of host memory in block RAM, a power of two; it stands at 0x40000000 of the engine's bus.
    sdram : SdramChip or None
        These chips are the host memory instead.
    allowed : sequence of int
        At most 2 IPv4 addresses that may use Etherbone from the beginning. The serial line may always.
    spread : callable
        Of :class:`verbena.hdl.rnic.Rnic`.

    Members
    -------
    gmii : ``Gmii``
    mdio_clock, mdio_o, mdio_oe, mdio_i : 1
    uart_rx, uart_tx : 1
        115200 bits a second.
    lights : 4
        See :class:`.lights.Lights`.
    sdram : ``SdramPins``
        Only with ``sdram``.
    """

    def __init__(self, config, *, mac, ip, clock, memory_size=65536, sdram=None, allowed=(), spread=None):
        config = replace(config, udp_port=etherbone.PORT)
        if sdram is None:
            memory = BlockMemory(config.data_width, memory_size, MEMORY)
        else:
            memory, memory_size = Sdram(config.data_width, sdram, MEMORY, clock), sdram.size
        self.parts = {
            "rnic": Rnic(config, spread),
            # The depacketizer stores frames itself: what is damaged is dropped there.
            "mac": Mac(config.data_width, receive_depth=None),
            "memory": memory,
            "etherbone": Etherbone(),
            "uart": UartBridge(round(clock / BAUD)),
            "mdio": Mdio(max(2, -(-clock // (2 * MDC_HZ)))),
            "arbiter": BridgeArbiter(),
            "decoder": BridgeDecoder(),
            "engine_port": RegisterPort(mac, ip),
            "registers": NodeRegisters(memory_base=MEMORY, memory_size=memory_size, clock=clock, allowed=allowed),
            "lights": Lights(clock),
        }
        self.station_mac = mac
        super().__init__(
            {
                "gmii": Out(Gmii()),
                "mdio_clock": Out(1),
                "mdio_o": Out(1),
                "mdio_oe": Out(1),
                "mdio_i": In(1),
                "lights": Out(len(LIGHTS)),
                "uart_rx": In(1),
                "uart_tx": Out(1, init=1),
                **({} if sdram is None else {"sdram": Out(SdramPins(sdram))}),
            }
        )

    def elaborate(self, platform):
        m = Module()
        for name, part in self.parts.items():
            m.submodules[name] = part
            setattr(self, f"_{name}", part)
        self._frames(m)
        self._bridges(m)
        return m

    def _frames(self, m):
        rnic, mac, registers = self._rnic, self._mac, self._registers
        wiring.connect(m, rnic.tx, mac.tx)
        wiring.connect(m, mac.rx, rnic.rx)
        wiring.connect(m, mac.gmii, wiring.flipped(self.gmii))
        wiring.connect(m, rnic.axi, self._memory.axi)
        if "sdram" in self.signature.members:
            wiring.connect(m, self._memory.pins, wiring.flipped(self.sdram))
        m.d.comb += [
            mac.mac.eq(self.station_mac),
            mac.slow.eq(registers.slow),
            rnic.link.eq(registers.link),
        ]
        m.d.comb += [
            self._lights.received.eq(mac.count_rx_frames),
            self._lights.sent.eq(mac.count_tx_frames),
            self._lights.damaged.eq(mac.count_rx_error | mac.count_rx_fcs),
            self.lights.eq(self._lights.lights),
        ]
        m.d.comb += [getattr(registers, f"count_mac_{name}").eq(getattr(mac, f"count_{name}")) for name in MAC_COUNTERS]

    def _bridges(self, m):
        registers, etherbone_, mdio = self._registers, self._etherbone, self._mdio
        arbiter, decoder = self._arbiter, self._decoder
        wiring.connect(m, self._rnic.service, etherbone_.service)
        wiring.connect(m, etherbone_.bus, arbiter.i[0])
        wiring.connect(m, self._uart.bus, arbiter.i[1])
        wiring.connect(m, arbiter.o, decoder.i)
        wiring.connect(m, decoder.engine, self._engine_port.bus)
        wiring.connect(m, decoder.node, registers.bus)
        wiring.connect(m, decoder.memory, self._memory.bus)
        wiring.connect(m, self._engine_port.axil, self._rnic.axil)
        wiring.connect(m, registers.mdio, mdio.request)
        wiring.connect(m, mdio.answer, registers.mdio_answer)
        m.d.comb += [
            self._uart.rx.eq(self.uart_rx),
            self.uart_tx.eq(self._uart.tx),
            registers.trusted.eq(arbiter.second),
            *(mine.eq(theirs) for mine, theirs in zip(etherbone_.allowed, registers.allowed)),
            *(getattr(registers, f"count_bridge_{n}").eq(getattr(etherbone_, f"count_{n}")) for n in BRIDGE_COUNTERS),
            self.mdio_clock.eq(mdio.clock),
            self.mdio_o.eq(mdio.o),
            self.mdio_oe.eq(mdio.oe),
            mdio.i.eq(self.mdio_i),
        ]
