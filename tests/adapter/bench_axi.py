"""An adapter whose host is cocotbext-axi, registers and memory alike; the peer's is the world's. By test_cocotb.py."""

import random
import warnings

import cocotb
from bench_common import exchange, start
from cocotb.task import bridge
from cocotb.triggers import ClockCycles, with_timeout
from verbena.hdl.abi import registers as reg
from verbena.hdl.abi.commands import COMMAND, Command, CommandStatus
from verbena.hdl.abi.contexts import QP_CONTEXT, QpState
from verbena.hdl.abi.counters import COUNTERS
from verbena.hdl.dma.axi import Response
from verbena.sim.cocotb_port import AxiPort, Heap, WorldPort
from verbena.sim.pair import End, connect
from verbena.sw.port import provide

with warnings.catch_warnings():
    # cocotbext-axi 0.1.28 uses names that cocotb 2 deprecates.
    warnings.simplefilter("ignore", DeprecationWarning)
    from cocotbext.axi import AxiBus, AxiLiteBus, AxiLiteMaster, AxiRam

SLVERR = Response.SLVERR
RAM = 1 << 26
BOUND = 400
"""Cycles: the engine's own, and what cocotbext-axi takes for the channels of two accesses."""


async def host(dut):
    """World, port and memory of the adapter that cocotb sees."""
    master = AxiLiteMaster(AxiLiteBus.from_prefix(dut, "axil_"), dut.clk, dut.rst)
    ram = AxiRam(AxiBus.from_prefix(dut, "axi_"), dut.clk, dut.rst, size=RAM)
    for interface in (master.write_if, master.read_if, ram.write_if, ram.read_if):
        interface.log.setLevel("WARNING")
    world = await start(dut)
    return world, AxiPort(dut, world, "axi0", master, Heap(ram, RAM)), master, ram


@cocotb.test()
async def registers_and_data(dut):
    world, port, master, ram = await host(dut)
    assert await port.read(reg.REGISTERS["magic"].offset) == reg.MAGIC
    assert await port.read(reg.REGISTERS["version"].offset) == reg.VERSION
    rng = random.Random(cocotb.RANDOM_SEED)
    words = {reg.MAILBOX + 4 * i: rng.randrange(1 << 32) for i in range(8)}
    for offset, value in words.items():
        await port.write(offset, value)
    for offset, value in words.items():
        assert await port.read(offset) == value
    # After its reset the engine empties its tables.
    for _ in range(20):
        if await port.read(reg.REGISTERS["status"].offset) & 1:
            break
        await ClockCycles(dut.clk, 1000)
    # Nothing is there, beyond the last QP, the last CQ and the last counter: accepted, without any effect.
    capabilities = await port.read(reg.REGISTERS["capabilities"].offset)
    qps, cqs = 1 << (capabilities & 15), 1 << (capabilities >> 4 & 15)
    for offset in (reg.QP_PAGES + qps * reg.PAGE, reg.CQ_PAGES + cqs * reg.PAGE, reg.COUNTERS + 8 * len(COUNTERS)):
        await port.write(offset, 0xFFFF)
        assert await port.read(offset) == 0
    await ClockCycles(dut.clk, 1000)
    assert await port.read(reg.REGISTERS["status"].offset) & 1, "a doorbell of nobody woke the engine"
    assert {offset: await port.read(offset) for offset in words} == words

    provide("axi0", lambda: port)
    provide("cocotb1", lambda: WorldPort(dut, world, 1, "cocotb1"))

    def program():
        with End("axi0", 16384, depth=16) as a, End("cocotb1", 16384, depth=16) as b:
            connect(a, b, psn=5)
            for near, far in ((a, b), (b, a)):
                exchange(world, near, far, rng)
            assert a.context.query_counters("bus_errors")["bus_errors"] == 0

    await bridge(program)()
    await commands_that_wait(dut, master, ram, rng)
    await bridge(program)()
    world.check()


def classes(qps):
    """An address of each kind; doorbells of a queue pair that nobody has."""
    page = reg.QP_PAGES + (qps - 1) * reg.PAGE
    return {
        "register": reg.REGISTERS["neighbour_mac_low"].offset,
        "status": reg.REGISTERS["command_status"].offset,
        "nothing": 0x700,
        "mailbox": reg.MAILBOX + 12,
        "counter": reg.COUNTERS + 8,
        "sq": page + reg.QpDoorbell.SQ_PRODUCER,
        "sq_push": page + reg.QpDoorbell.SQ_PUSH,
        "rq": page + reg.QpDoorbell.RQ_PRODUCER,
        "push": page + reg.QP_PUSH,
        "consumer": reg.CQ_PAGES + 3 * reg.PAGE + reg.CqDoorbell.CONSUMER,
        "arm": reg.CQ_PAGES + 3 * reg.PAGE + reg.CqDoorbell.ARM,
    }


async def commands_that_wait(dut, master, ram, rng):
    """A command waits for a bus that stands still; meanwhile every access is answered, reads and writes at once."""
    offsets = {name: register.offset for name, register in reg.REGISTERS.items()}

    def bounded(access):
        return with_timeout(access, 6400 * BOUND, "ps")

    async def word(offset):
        answer = await bounded(master.read(offset, 4))
        return answer.resp, int.from_bytes(answer.data, "little")

    _, capabilities = await word(offsets["capabilities"])
    qps = 1 << (capabilities & 15)
    assert (await word(offsets["command_status"]))[1] >> 31 == 0

    # A context whose ring is read by a doorbell, and the data does not come. RESET waits for that.
    context = QP_CONTEXT.words(state=QpState.RTS, rq_base=0x1000, log_rq_size=3, log_rq_stride=6)
    await master.write(reg.MAILBOX, b"".join(each.to_bytes(4, "little") for each in context))

    async def start(opcode):
        command = COMMAND.words(opcode=opcode, number=qps + 5)[0].to_bytes(4, "little")
        assert not (await bounded(master.write(offsets["command"], command))).resp

    async def ended():
        for _ in range(500):
            if (status := (await word(offsets["command_status"]))[1]) >> 31 == 0:
                return status
        raise AssertionError("the command does not end")

    await start(Command.CREATE_QP)
    assert await ended() == CommandStatus.OK
    channels = ram.read_if.ar_channel, ram.read_if.r_channel, ram.write_if.aw_channel, ram.write_if.b_channel
    for channel in channels[1:]:
        channel.pause = True
    doorbell = reg.QP_PAGES + 5 * reg.PAGE + reg.QpDoorbell.RQ_PRODUCER
    await bounded(master.write(doorbell, (1).to_bytes(4, "little")))
    await ClockCycles(dut.clk, 200)
    channels[0].pause = True
    await start(Command.DESTROY_QP)
    await ClockCycles(dut.clk, 200)

    kinds = classes(qps)
    for _ in range(60):
        (here, at), (there, to) = (rng.choice(list(kinds.items())) for _ in range(2))
        whole = rng.random() < 0.7
        content = rng.randbytes(4 if whole else rng.randrange(1, 4))
        skew = 0 if whole else rng.randrange(5 - len(content))
        reading = cocotb.start_soon(master.read(at, 4))
        answer = await bounded(master.write(to + skew, content))
        assert answer.resp == (SLVERR if not whole or there == "mailbox" else 0), (there, whole)
        answer = await bounded(reading)
        assert answer.resp == (SLVERR if here == "mailbox" else 0), here
    assert (await word(offsets["command_status"]))[1] >> 31, "it should still wait"
    for channel in channels:
        channel.pause = False
    assert await ended() == CommandStatus.OK
    assert await word(reg.MAILBOX) == (0, context[0]), "refused writes changed the mailbox"
