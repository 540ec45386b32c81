"""What stands behind the bridges: who comes first, and where an address leads."""

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from verbena.hdl.abi.registers import ADDRESS_WIDTH, REGISTERS
from verbena.hdl.dma.axi import AxiLite
from verbena.hdl.stream.arbiter import StreamArbiter

from .bridge_bus import BridgeBus, BridgeRequest

__all__ = ["ENGINE", "MEMORY", "NODE", "BridgeArbiter", "BridgeDecoder", "RegisterPort"]

ENGINE, NODE, MEMORY = 0x0000_0000, 0x1000_0000, 0x4000_0000
"""Where things are for a bridge: the engine's registers and doorbells, the node's own registers, the memory. The memory
is at the same address for the engine."""


class BridgeArbiter(wiring.Component):
    """Two bridges on one bus; each has one request under way at most, and gets its answer.

    Members
    -------
    i : 2 of ``BridgeBus``, flipped
    o : ``BridgeBus``
    second : 1
        The request at ``o`` is that of ``i[1]``.
    """

    def __init__(self):
        super().__init__({"i": In(BridgeBus()).array(2), "o": Out(BridgeBus()), "second": Out(1)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.arbiter = arbiter = StreamArbiter(BridgeRequest, 2)
        busy, whose = Signal(), Signal()
        for port, turn in zip(self.i, arbiter.i):
            wiring.connect(m, wiring.flipped(port).request, turn)
        request, answer = self.o.request, self.o.answer
        m.d.comb += [
            request.payload.eq(arbiter.o.payload),
            request.valid.eq(arbiter.o.valid & ~busy),
            arbiter.o.ready.eq(request.ready & ~busy),
            self.second.eq(arbiter.grant),
        ]
        with m.If(request.valid & request.ready):
            m.d.sync += [busy.eq(1), whose.eq(arbiter.grant)]
        for number, port in enumerate(self.i):
            m.d.comb += port.answer.payload.eq(answer.payload)
            with m.If(whose == number):
                m.d.comb += [port.answer.valid.eq(answer.valid), answer.ready.eq(port.answer.ready)]
        with m.If(answer.valid & answer.ready):
            m.d.sync += busy.eq(0)
        return m


class RegisterPort(wiring.Component):
    """AXI4-Lite for a bridge; and before it serves any, it writes the addresses that the engine begins with.

    Parameters
    ----------
    mac, ip : int

    Members
    -------
    bus : ``BridgeBus``, flipped
    axil : ``AxiLite``
    """

    def __init__(self, mac, ip):
        self.mac = mac
        self.ip = ip
        super().__init__({"bus": In(BridgeBus()), "axil": Out(AxiLite(ADDRESS_WIDTH))})

    def elaborate(self, platform):
        m = Module()
        axil, request, answer = self.axil, self.bus.request, self.bus.answer
        first = [("mac_low", self.mac & 0xFFFFFFFF), ("mac_high", self.mac >> 32), ("ip", self.ip), ("control", 1)]
        step = Signal(range(len(first) + 1))
        booted = step == len(first)
        m.d.comb += [axil.wstrb.eq(0xF), axil.rready.eq(1), axil.bready.eq(1)]
        with m.If(axil.awready):
            m.d.sync += axil.awvalid.eq(0)
        with m.If(axil.wready):
            m.d.sync += axil.wvalid.eq(0)
        with m.If(axil.arready):
            m.d.sync += axil.arvalid.eq(0)
        with m.FSM():
            with m.State("IDLE"):
                m.d.sync += [
                    axil.awaddr.eq(request.payload.address),
                    axil.araddr.eq(request.payload.address),
                    axil.wdata.eq(request.payload.data),
                ]
                with m.If(~booted):
                    with m.Switch(step):
                        for number, (name, value) in enumerate(first):
                            with m.Case(number):
                                m.d.sync += [axil.awaddr.eq(REGISTERS[name].offset), axil.wdata.eq(value)]
                    m.d.sync += [axil.awvalid.eq(1), axil.wvalid.eq(1)]
                    m.next = "WAIT"
                with m.Elif(request.valid):
                    m.d.comb += request.ready.eq(1)
                    with m.If(request.payload.write):
                        m.d.sync += [axil.awvalid.eq(1), axil.wvalid.eq(1)]
                    with m.Else():
                        m.d.sync += axil.arvalid.eq(1)
                    m.next = "WAIT"
            with m.State("WAIT"):
                with m.If(axil.bvalid | axil.rvalid):
                    m.d.sync += answer.payload.data.eq(axil.rdata)
                    m.next = "ANSWER"
                    with m.If(~booted):
                        m.d.sync += step.eq(step + 1)
                        m.next = "IDLE"
            with m.State("ANSWER"):
                m.d.comb += answer.valid.eq(1)
                with m.If(answer.ready):
                    m.next = "IDLE"
        return m


class BridgeDecoder(wiring.Component):
    """Leads requests to the engine, the node's registers or the memory; others, and odd addresses, are errors.

    Members
    -------
    i : ``BridgeBus``, flipped
    engine, node, memory : ``BridgeBus``
    """

    def __init__(self):
        super().__init__({"i": In(BridgeBus()), **{name: Out(BridgeBus()) for name in ("engine", "node", "memory")}})

    def elaborate(self, platform):
        m = Module()
        i = self.i
        address = i.request.payload.address
        held = Signal(BridgeRequest)
        targets = {
            self.engine: address >> ADDRESS_WIDTH == ENGINE >> ADDRESS_WIDTH,
            self.node: address >> 12 == NODE >> 12,
            self.memory: address[30:] == MEMORY >> 30,
        }
        chosen = Signal(len(targets))
        with m.FSM():
            with m.State("IDLE"):
                m.d.comb += i.request.ready.eq(1)
                with m.If(i.request.valid):
                    m.d.sync += held.eq(i.request.payload)
                    for number, (target, here) in enumerate(targets.items()):
                        m.d.sync += [
                            chosen[number].eq(here & (address[:2] == 0)),
                            target.request.valid.eq(here & (address[:2] == 0)),
                        ]
                    m.next = "WAIT"
            with m.State("WAIT"):
                with m.If(chosen == 0):
                    m.d.comb += [i.answer.valid.eq(1), i.answer.payload.error.eq(1)]
                for number, target in enumerate(targets):
                    with m.If(target.request.ready):
                        m.d.sync += target.request.valid.eq(0)
                    with m.If(chosen[number]):
                        wiring.connect(m, wiring.flipped(target).answer, wiring.flipped(i).answer)
                with m.If(i.answer.valid & i.answer.ready):
                    m.next = "IDLE"
        for target in targets:
            m.d.comb += target.request.payload.eq(held)
        return m
