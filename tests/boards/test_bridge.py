"""Arbiter, decoder and register port together, with the node's registers behind."""

import pytest
from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from streams import make_rng, pause, plain, receive_all, send_all, simulate
from verbena.boards.bridge import ENGINE, MEMORY, NODE, BridgeArbiter, BridgeDecoder, RegisterPort
from verbena.boards.bridge_bus import BridgeBus
from verbena.boards.memory import BlockMemory
from verbena.boards.node_registers import COUNTERS, MAGIC, REGISTERS, NodeRegisters
from verbena.hdl.abi.registers import ADDRESS_WIDTH
from verbena.hdl.dma.axi import AxiLite

MAC, IP = 0x0256420000AB, 0x0A000042
SIZE = 4096
UART, ETHERBONE = 1, 0


class Top(wiring.Component):
    def __init__(self):
        super().__init__(
            {
                "i": In(BridgeBus()).array(2),
                "axil": Out(AxiLite(ADDRESS_WIDTH)),
                "count_mac_rx_frames": In(1),
                "mdio": Out(NodeRegisters(memory_base=0, memory_size=0, clock=0).mdio.signature),
            }
        )
        self.registers = NodeRegisters(memory_base=MEMORY, memory_size=SIZE, clock=125_000_000, allowed=[7])

    def elaborate(self, platform):
        m = Module()
        m.submodules.arbiter = arbiter = BridgeArbiter()
        m.submodules.decoder = decoder = BridgeDecoder()
        m.submodules.port = port = RegisterPort(MAC, IP)
        m.submodules.registers = registers = self.registers
        m.submodules.memory = memory = BlockMemory(64, SIZE, MEMORY)
        for outer, inner in zip(self.i, arbiter.i):
            wiring.connect(m, wiring.flipped(outer), inner)
        wiring.connect(m, arbiter.o, decoder.i)
        wiring.connect(m, decoder.engine, port.bus)
        wiring.connect(m, decoder.node, registers.bus)
        wiring.connect(m, decoder.memory, memory.bus)
        wiring.connect(m, port.axil, wiring.flipped(self.axil))
        wiring.connect(m, registers.mdio, wiring.flipped(self.mdio))
        m.d.comb += [registers.trusted.eq(arbiter.second), registers.count_mac_rx_frames.eq(self.count_mac_rx_frames)]
        return m


async def access(ctx, port, rng, address, value=None):
    await send_all(ctx, port.request, [{"address": address, "data": value or 0, "write": value is not None}], rng)
    (answer,) = await receive_all(ctx, port.answer, 1, rng)
    return None if answer.error else answer.data


async def engine(ctx, axil, rng, model, writes):
    """An AXI4-Lite subordinate that takes address and data together, as the engine does."""
    while True:
        await pause(ctx, rng, 0.5)
        if ctx.get(axil.awvalid) and ctx.get(axil.wvalid):
            address, data = ctx.get(axil.awaddr), ctx.get(axil.wdata)
            model[address] = data
            writes.append((address, data))
            ctx.set(axil.awready, 1)
            ctx.set(axil.wready, 1)
            await ctx.tick()
            ctx.set(axil.awready, 0)
            ctx.set(axil.wready, 0)
            await pause(ctx, rng, 0.5)
            ctx.set(axil.bvalid, 1)
            await ctx.tick()
            ctx.set(axil.bvalid, 0)
        elif ctx.get(axil.arvalid):
            data = model.get(ctx.get(axil.araddr), 0)
            ctx.set(axil.arready, 1)
            await ctx.tick()
            ctx.set(axil.arready, 0)
            await pause(ctx, rng, 0.5)
            ctx.set(axil.rdata, data)
            ctx.set(axil.rvalid, 1)
            await ctx.tick()
            ctx.set(axil.rvalid, 0)
        else:
            await ctx.tick()


def test_two_bridges_and_three_targets():
    """The engine's addresses are written before all else; each bridge gets its own answers."""
    rng = make_rng()
    dut = Top()
    model, writes = {}, []

    def user(number):
        async def run(ctx):
            mine = {}
            for _ in range(120):
                base = rng.choice([ENGINE + 0x100_0000 * number + 0x1000, MEMORY + 2048 * number])
                address = base + rng.randrange(0, 512, 4)
                if rng.random() < 0.5:
                    mine[address] = rng.getrandbits(32)
                    assert await access(ctx, dut.i[number], rng, address, mine[address]) is not None
                elif address in mine:
                    assert await access(ctx, dut.i[number], rng, address) == mine[address]
                if rng.random() < 0.2:
                    wrong = rng.choice([address + 1, MEMORY + SIZE, NODE + 0x1000, 0xFFFFFFFC, MEMORY - 4])
                    assert await access(ctx, dut.i[number], rng, wrong, rng.choice([None, 3])) is None

        return run

    async def subordinate(ctx):
        await engine(ctx, dut.axil, rng, model, writes)

    simulate(dut, user(0), user(1), background=[subordinate], seed=rng.seed_value, deadline=100_000)
    assert writes[:4] == [(0x20, MAC & 0xFFFFFFFF), (0x24, MAC >> 32), (0x28, IP), (0x0C, 1)]


def test_the_nodes_registers():
    rng = make_rng()
    dut = Top()
    requests = []

    async def host(ctx):
        async def read(name, extra=0, port=ETHERBONE):
            return await access(ctx, dut.i[port], rng, NODE + REGISTERS[name] + extra)

        async def write(name, value, port=ETHERBONE):
            await access(ctx, dut.i[port], rng, NODE + REGISTERS[name], value)

        shown = {"magic": MAGIC, "version": 1, "memory_base": MEMORY, "memory_size": SIZE, "clock": 125_000_000}
        for name, value in shown.items():
            await write(name, 0)
            assert await read(name) == value
        registers = dut.registers
        assert (ctx.get(registers.slow), ctx.get(registers.link), await read("control")) == (0, 1, 2)
        await write("control", 1)
        assert (ctx.get(registers.slow), ctx.get(registers.link), await read("control")) == (1, 0, 1)
        # Whom the network's side lets in is not for the network to say.
        await write("allowed_0", 99)
        await write("allowed_1", 99)
        assert [ctx.get(allowed) for allowed in registers.allowed] == [7, 0]
        await write("allowed_1", 99, UART)
        assert [await read("allowed_0"), await read("allowed_1")] == [7, 99]
        assert [ctx.get(allowed) for allowed in registers.allowed] == [7, 99]
        for _ in range(5):
            ctx.set(dut.count_mac_rx_frames, 1)
            await ctx.tick()
            ctx.set(dut.count_mac_rx_frames, 0)
            await ctx.tick().repeat(9)
        await ctx.tick().repeat(20)
        counted = [await read("counters", 4 * n) for n in range(len(COUNTERS))]
        assert dict(zip(COUNTERS, counted)) == dict.fromkeys(COUNTERS, 0) | {"mac_rx_frames": 5}
        assert await read("counters", 4 * len(COUNTERS)) == 0

        await write("mdio", 5 << 26 | 2 << 21)
        assert await read("mdio") >> 31
        await write("mdio", 1 << 31 | 9 << 26)  # it is busy
        (request,) = await receive_all(ctx, dut.mdio, 1, rng)
        requests.append(plain(request))
        await send_all(ctx, registers.mdio_answer, [{"data": 0x1234, "missing": 1}], rng)
        assert await read("mdio") == 1 << 30 | 0x1234
        await write("mdio", 1 << 31 | 3 << 26 | 4 << 21 | 0xABCD)
        requests.extend(await receive_all(ctx, dut.mdio, 1, rng))

    async def subordinate(ctx):
        await engine(ctx, dut.axil, rng, {}, [])

    simulate(dut, host, background=[subordinate], seed=rng.seed_value)
    assert requests == [
        {"write": 0, "phy": 5, "register": 2, "data": 0},
        {"write": 1, "phy": 3, "register": 4, "data": 0xABCD},
    ]


def test_arguments():
    with pytest.raises(ValueError, match="allowed must be"):
        NodeRegisters(memory_base=0, memory_size=0, clock=0, allowed=[1, 2, 3])
