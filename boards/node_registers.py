"""The registers of a node: what a bridge finds besides the engine's."""

from amaranth.hdl import Cat, Const, Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from verbena.hdl.ethernet.mac import COUNTERS as MAC_COUNTERS
from verbena.hdl.ethernet.mdio import MdioAnswer, MdioRequest

from .bridge_bus import BridgeBus
from .event_counters import EventCounters

__all__ = ["COUNTERS", "MAGIC", "REGISTERS", "NodeRegisters"]

MAGIC = 0x56524E44
VERSION = 1

COUNTERS = {
    **{f"mac_{name}": doc for name, doc in MAC_COUNTERS.items()},
    "bridge_served": "Etherbone packets that were served",
    "bridge_denied": "Etherbone packets from an address that is not allowed",
    "bridge_refused": "Etherbone packets that are malformed or to an address at which nothing is",
}

REGISTERS = {
    "magic": 0x00,
    "version": 0x04,
    "memory_base": 0x08,
    "memory_size": 0x0C,
    "clock": 0x10,  # Hz
    "control": 0x14,  # bit 0: 100 Mb/s; bit 1: the port has a link
    "allowed_0": 0x18,  # addresses that may use Etherbone; only the UART can change them
    "allowed_1": 0x1C,
    "mdio": 0x20,  # written: bit 31: write; 30:26 PHY; 25:21 register; 15:0 data. Read: bit 31: busy; 30: no PHY
    "counters": 0x40,  # 32 bits each, in the order of COUNTERS
}
"""Byte offsets."""

FIRST_COUNTER = REGISTERS["counters"] // 4
CONTROL_LINK = 2


class NodeRegisters(wiring.Component):
    """See :data:`REGISTERS`. Unknown addresses read as 0.

    Parameters
    ----------
    memory_base, memory_size, clock : int
        Shown.
    allowed : sequence of int
        At most 2 IPv4 addresses that may use Etherbone from the beginning.

    Members
    -------
    bus : ``BridgeBus``, flipped
    trusted : 1
        The request comes from the UART.
    mdio, mdio_answer : streams of ``MdioRequest``, ``MdioAnswer``
    allowed : 2 of 32
    slow, link : 1
        What ``control`` holds; at first 1 Gb/s, with a link.
    count_<name> : 1
        Strobes of :data:`COUNTERS`.
    """

    def __init__(self, *, memory_base, memory_size, clock, allowed=()):
        self.shown = {"magic": MAGIC, "version": VERSION, "clock": clock}
        self.shown |= {"memory_base": memory_base, "memory_size": memory_size}
        self.first = [*allowed, 0, 0][:2]
        if len(allowed) > 2:
            raise ValueError(f"allowed must be 2 addresses at most, not {allowed!r}")
        super().__init__(
            {
                "bus": In(BridgeBus()),
                "trusted": In(1),
                "mdio": Out(stream.Signature(MdioRequest)),
                "mdio_answer": In(stream.Signature(MdioAnswer)),
                "allowed": Out(32).array(2),
                "slow": Out(1),
                "link": Out(1),
                **{f"count_{name}": In(1) for name in COUNTERS},
            }
        )

    def elaborate(self, platform):
        m = Module()
        request, answer = self.bus.request, self.bus.answer
        number, data = request.payload.address[2:12], request.payload.data
        m.submodules.counters = counters = EventCounters(len(COUNTERS))
        m.d.comb += counters.strobe.eq(Cat(getattr(self, f"count_{name}") for name in COUNTERS))

        allowed = [Signal(32, init=value, name=f"allowed{n}") for n, value in enumerate(self.first)]
        control = Signal(2, init=CONTROL_LINK)
        m.d.comb += [port.eq(value) for port, value in zip(self.allowed, allowed)]
        m.d.comb += [self.slow.eq(control[0]), self.link.eq(control[1])]

        busy, missing, seen = Signal(), Signal(), Signal(16)
        mdio = self.mdio
        m.d.comb += self.mdio_answer.ready.eq(1)
        with m.If(mdio.ready):
            m.d.sync += mdio.valid.eq(0)
        with m.If(self.mdio_answer.valid):
            m.d.sync += [
                busy.eq(0),
                missing.eq(self.mdio_answer.payload.missing),
                seen.eq(self.mdio_answer.payload.data),
            ]

        shown = {name: Const(value, 32) for name, value in self.shown.items()}
        shown |= {f"allowed_{n}": value for n, value in enumerate(allowed)}
        shown |= {"control": control, "mdio": Cat(seen, Const(0, 14), missing, busy)}
        with m.FSM():
            with m.State("IDLE"):
                with m.If(request.valid):
                    m.d.sync += answer.payload.data.eq(0)
                    with m.Switch(number):
                        for name, value in shown.items():
                            with m.Case(REGISTERS[name] // 4):
                                m.d.sync += answer.payload.data.eq(value)
                    with m.If(request.payload.write):
                        self._write(m, number, data, control, allowed, busy)
                    m.next = "ANSWER"
                    with m.If((number >= FIRST_COUNTER) & (number < FIRST_COUNTER + len(COUNTERS))):
                        m.next = "COUNTER"
            with m.State("COUNTER"):
                m.d.sync += answer.payload.data.eq(counters.value)
                with m.If(counters.scan == (number - FIRST_COUNTER)[: len(counters.scan)]):
                    m.next = "ANSWER"
            with m.State("ANSWER"):
                m.d.comb += [answer.valid.eq(1), request.ready.eq(answer.ready)]
                with m.If(answer.ready):
                    m.next = "IDLE"
        return m

    def _write(self, m, number, data, control, allowed, busy):
        with m.Switch(number):
            with m.Case(REGISTERS["control"] // 4):
                m.d.sync += control.eq(data)
            for n, register in enumerate(allowed):
                with m.Case(REGISTERS[f"allowed_{n}"] // 4):
                    with m.If(self.trusted):
                        m.d.sync += register.eq(data)
            with m.Case(REGISTERS["mdio"] // 4):
                with m.If(~busy):
                    m.d.sync += [
                        busy.eq(1),
                        self.mdio.valid.eq(1),
                        self.mdio.payload.write.eq(data[31]),
                        self.mdio.payload.phy.eq(data[26:31]),
                        self.mdio.payload.register.eq(data[21:26]),
                        self.mdio.payload.data.eq(data[:16]),
                    ]
