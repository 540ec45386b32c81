"""Ports for the synchronous driver inside of a cocotb test bench.

The driver blocks, cocotb awaits: a test runs it with ``await bridge(function)()``, in a thread that takes turns with
the simulation, and each call of a port that needs time hands over to cocotb until that time has passed.
"""

import os
import random

from cocotb.task import resume
from cocotb.triggers import ClockCycles

from ..hdl.abi.registers import REGISTERS
from ..sw import host_memory
from ..sw.port import provide
from .ticks import TICK, second_ns
from .world import BusError

__all__ = ["AxiPort", "Heap", "WorldPort", "provide_ports"]

STATUS = REGISTERS["status"].offset
CHUNK = 32
"""Cycles between two looks for an event."""


class _Port:
    memory = host_memory

    def __init__(self, dut, world, index, name):
        self.world = world
        self.index = index
        self.name = name
        self.mac = world.adapters[index].mac
        self.ip = 0x0A000001 + index
        self.tick = TICK
        self.random = random.Random(f"{os.environ.get('VERBENA_SEED')} {index}")
        self._dut = dut

    def read32(self, offset):
        return resume(self.read)(offset)

    def write32(self, offset, value):
        resume(self.write)(offset, value)

    def advance(self, max_cycles):
        """Ends early at an interrupt of any adapter, or when an engine writes to watched memory."""
        return resume(self.wait)(max_cycles)

    def time_ns(self):
        return round(self.world.time_ns)

    @property
    def second_ns(self):
        return second_ns(self.tick, self.world.clock_hz)

    def watch(self, address, length):
        return self.world.watch(address, length)

    def unwatch(self, watch):
        self.world.unwatch(watch)

    def resolve(self, ip):
        index = ip - 0x0A000001
        if not 0 <= index < len(self.world.adapters):
            raise KeyError(ip)
        return self.world.adapters[index].mac

    async def wait(self, max_cycles):
        """What :meth:`advance` does, for coroutines."""
        while max_cycles > 0 and not self.world.take_events():
            cycles = min(max_cycles, CHUNK)
            await ClockCycles(self._dut.clk, cycles)
            max_cycles -= cycles
        self.world.check()
        return not self.world.idle or not await self.read(STATUS) & 1


class WorldPort(_Port):
    """Adapter ``index`` of a :class:`.cocotb_world.CocotbWorld`, whose registers the world drives, as a
    :class:`verbena.sw.port.Port`.
    """

    async def read(self, offset):
        return await self.world.read32(offset, adapter=self.index)

    async def write(self, offset, value):
        await self.world.write32(offset, value, adapter=self.index)


class AxiPort(_Port):
    """The adapter that cocotb sees, through an ``AxiLiteMaster`` of cocotbext-axi and, if given, other host memory.

    ``read`` and ``write`` raise :class:`.world.BusError` where the engine answers with an error.
    """

    def __init__(self, dut, world, name, master, memory=host_memory):
        super().__init__(dut, world, 0, name)
        self.memory = memory
        self._master = master

    async def read(self, offset):
        answer = await self._master.read(offset, 4)
        if answer.resp:
            raise BusError(f"register read at {offset:#x}: {answer.resp!r}")
        return int.from_bytes(answer.data, "little")

    async def write(self, offset, value):
        answer = await self._master.write(offset, value.to_bytes(4, "little"))
        if answer.resp:
            raise BusError(f"register write at {offset:#x}: {answer.resp!r}")

    def watch(self, address, length):
        """Nothing is told of writes to this memory: waits end at interrupts and at their limits."""
        return 0

    def unwatch(self, watch):
        pass


class Heap:
    """Host memory in ``ram``, an object with ``read(address, length)`` and ``write(address, data)`` such as an
    ``AxiRam``, with the functions of :mod:`verbena.sw.host_memory`. Addresses are those of the bus. Free pieces are not
    merged: enough for a test.
    """

    def __init__(self, ram, size, base=0x1000):
        self.read, self.write = ram.read, ram.write
        self._free = [(base, size)]
        self._used = {}

    def alloc(self, size, alignment=8):
        size = max(1, size)
        for i, (start, end) in enumerate(self._free):
            at = -(-start // alignment) * alignment
            if at + size <= end:
                self._free[i : i + 1] = [(a, b) for a, b in ((start, at), (at + size, end)) if a < b]
                self._used[at] = size
                return at
        raise MemoryError(f"no room for {size} bytes")

    def alloc_contiguous(self, size, alignment=4096):
        address = self.alloc(size, alignment)
        return address, address

    def free(self, address):
        self._free.append((address, address + self._used.pop(address)))

    def bus_pages(self, address, length):
        return list(range(address & -4096, address + max(1, length), 4096))


def provide_ports(dut, world):
    """Makes all adapters devices of the driver: ``cocotb0``, ``cocotb1``, ... Returns their names."""
    names = [f"cocotb{i}" for i in range(len(world.adapters))]
    for i, name in enumerate(names):
        provide(name, lambda i=i, name=name: WorldPort(dut, world, i, name))
    return names
