"""What boards share: their description, and a node on their pins."""

from dataclasses import dataclass, field

from amaranth.hdl import Elaboratable, Module, Signal
from amaranth.lib import io, wiring
from verbena.hdl.config import Config
from verbena.hdl.ethernet.rgmii import Rgmii

from .clocking import FASTEST, Clocking, clock_network, pll_settings
from .node import Node
from .sdram_pins import STROBES, SdramPads

__all__ = ["Board", "Top"]

GIGABIT = 125e6
PHY_RESET_CYCLES = 1 << 21
"""16 ms at 125 MHz; PHYs want 10."""


@dataclass(frozen=True)
class Board:
    """A board, and what of the engine fits it.

    Members
    -------
    name : str
    platform : callable
        Makes its platform of amaranth-boards.
    core : int
        Hz of the engine, at most, and not above :data:`.clocking.FASTEST`. 1 Gb/s asks for 15.6 MHz of 64 bits.
    config : Config
    memory_size : int
        Bytes of block RAM that are host memory.
    sdram : SdramChip or None
        These chips, its ``sdram``, are host memory instead.
    memories : dict
        Options of :func:`.synthesis.place_memories`, for a device with little block RAM.
    port : int
        Number of its ``eth_rgmii``.
    tx_clock_delay, rx_delay : float
        Seconds by which the FPGA delays, because the PHY does not.
    minutes : int
        How long its bitstream usually takes.
    loader : tuple of str
        By which options openFPGALoader finds it.
    """

    name: str
    platform: object
    core: int
    config: Config = field(default_factory=Config)
    memory_size: int = 65536
    sdram: object = None
    memories: dict = field(default_factory=dict)
    port: int = 0
    tx_clock_delay: float = 0.0
    rx_delay: float = 0.0
    minutes: int = 30
    loader: tuple = ()

    def __post_init__(self):
        if self.core > FASTEST:
            raise ValueError(f"the engine of {self.name} can have {FASTEST} Hz, not {self.core}")


class Top(Elaboratable):
    """A node on a board's pins: its clock, its PHY, its LEDs, and its serial line, if it has one.

    Light number n of the node is the board's ``led`` n, or the green of its ``rgb_led`` n, if there is one.

    Parameters
    ----------
    board : Board
    mac, ip : int
        Own addresses.
    allowed : sequence of int
        Who may use Etherbone.
    """

    def __init__(self, board, *, mac, ip, allowed=()):
        self.board = board
        self.mac = mac
        self.ip = ip
        self.allowed = allowed

    def elaborate(self, platform):
        m = Module()
        board = self.board
        settings = pll_settings(round(platform.default_clk_frequency), board.core)
        m.submodules.clocking = clocking = Clocking(settings)
        m.domains += clocking.domains
        node = Node(
            board.config,
            mac=self.mac,
            ip=self.ip,
            clock=settings.core,
            memory_size=board.memory_size,
            sdram=board.sdram,
            allowed=self.allowed,
            spread=clock_network,
        )
        m.submodules.node = node
        m.submodules.rgmii = rgmii = Rgmii(tx_clock_delay=board.tx_clock_delay, rx_delay=board.rx_delay)
        wiring.connect(m, node.gmii, rgmii.gmii)

        pins = Pins(m, platform)
        m.d.comb += clocking.reference.eq(pins.input("clock", platform.request(platform.default_clk, dir="-")))
        ethernet = pins.group("eth_rgmii", board.port)
        # A constraint on a net without a name would be lost, and yosys drops names that are one of several of a net.
        received = Signal(name="ethernet_rx_pin", attrs={"keep": 1})
        m.d.comb += [received.eq(pins.input("rx_clk", ethernet["rx_clk"])), clocking.received.eq(received)]
        platform.add_clock_constraint(received, GIGABIT)
        m.d.comb += [
            rgmii.pins.rx_control.eq(pins.input("rx_ctl", ethernet["rx_ctl"])),
            rgmii.pins.rx_data.eq(pins.input("rx_data", ethernet["rx_data"])),
        ]
        pins.output("tx_clk", ethernet["tx_clk"], rgmii.pins.tx_clock)
        pins.output("tx_ctl", ethernet["tx_ctl"], rgmii.pins.tx_control)
        pins.output("tx_data", ethernet["tx_data"], rgmii.pins.tx_data)
        pins.output("mdc", ethernet["mdc"], node.mdio_clock)
        m.d.comb += node.mdio_i.eq(pins.both("mdio", ethernet["mdio"], node.mdio_o, node.mdio_oe))
        if "rst" in ethernet:
            left = Signal(range(PHY_RESET_CYCLES), init=PHY_RESET_CYCLES - 1)
            with m.If(left != 0):
                m.d.sync += left.eq(left - 1)
            pins.output("phy_reset", ethernet["rst"], left != 0)
        self._serial(m, platform, pins, node)
        self._lights(platform, pins, node)
        if board.sdram is not None:
            self._memory(m, pins, node)
        return m

    def _serial(self, m, platform, pins, node):
        if ("uart", 0) in platform.resources:
            uart = pins.group("uart", 0)
            m.d.comb += node.uart_rx.eq(pins.input("uart_rx", uart["rx"]))
            pins.output("uart_tx", uart["tx"], node.uart_tx)
        else:
            m.d.comb += node.uart_rx.eq(1)

    def _lights(self, platform, pins, node):
        for number, light in enumerate(node.lights):
            if ("led", number) in platform.resources:
                pins.output(f"led{number}", platform.request("led", number, dir="-"), light)
            elif ("rgb_led", number) in platform.resources:
                for name, port in pins.group("rgb_led", number).items():
                    pins.output(f"led{number}_{name}", port, light if name == "g" else 0)

    def _memory(self, m, pins, node):
        m.submodules.sdram_pads = pads = SdramPads(self.board.sdram)
        wiring.connect(m, node.sdram, pads.pins)
        ports = pins.group("sdram", 0)
        outputs = {"clk": pads.clock, "ba": pads.bank, "a": pads.address, "clk_en": 1, "cs": 1, "dqm": 0}
        for name, value in outputs.items():
            if name in ports:
                pins.output(f"sdram_{name}", ports[name], value)
        for name in STROBES:  # a register in the pin cannot be followed by an inverter
            pins.output(f"sdram_{name}", ~ports[name.removesuffix("_n")], getattr(pads, name))
        m.d.comb += pads.dq_i.eq(pins.both("sdram_dq", ports["dq"], pads.dq_o, pads.dq_oe))


class Pins:
    """Buffers on a platform's pins."""

    def __init__(self, m, platform):
        self.m = m
        self.platform = platform

    def group(self, name, number):
        """Ports of a resource's subsignals, by name; ``ctrl`` is called ``ctl``."""
        parts = self.platform.lookup(name, number).ios
        ports = self.platform.request(name, number, dir={part.name: "-" for part in parts})
        return {part.name.replace("ctrl", "ctl"): getattr(ports, part.name) for part in parts}

    def _buffer(self, direction, name, port):
        self.m.submodules[f"{name}_buffer"] = buffer = io.Buffer(direction, port)
        return buffer

    def input(self, name, port):
        return self._buffer("i", name, port).i

    def output(self, name, port, value):
        self.m.d.comb += self._buffer("o", name, port).o.eq(value)

    def both(self, name, port, value, enable):
        buffer = self._buffer("io", name, port)
        self.m.d.comb += [buffer.o.eq(value), buffer.oe.eq(enable)]
        return buffer.i
