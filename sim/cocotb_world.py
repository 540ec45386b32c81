"""The world from inside of a cocotb test bench: the same library is already in the process.

Time is cocotb's here: :meth:`~verbena.sim.world.World.advance` must not be called, and register accesses are awaited.
"""

import ctypes
import os

from cocotb.triggers import RisingEdge

from .library import load
from .world import BusError, World

__all__ = ["CocotbWorld", "attach"]


class CocotbWorld(World):
    """The world around ``dut``; taps, faults, memory settings, watches and captures as in plain Python."""

    def __init__(self, dut):
        library = load(os.environ["VERBENA_MODEL"])
        handle = library.shared()
        if not handle:
            raise RuntimeError("this process is not one of verbena.sim.cocotb_runner")
        self._dut = dut
        self._attach(library, handle, 156.25e6, owner=False)

    def advance(self, max_cycles, stop=0):
        raise RuntimeError("cocotb advances time: await a trigger")

    def check(self):
        """Raises what the engines did wrong so far (:class:`verbena.sim.world.ProtocolError`)."""
        self._raise_violations()

    def take_events(self):
        """What happened since the last call: a sum of ``INTERRUPT``, ``WATCH`` and ``TAP``."""
        return self._call("take_events")

    async def write32(self, offset, value, *, adapter=0):
        """Writes a register, if the world drives the registers of this adapter."""
        self._call("start_write", adapter, offset, value)
        await self._answer(adapter)

    async def read32(self, offset, *, adapter=0):
        """Value of a register."""
        self._call("start_read", adapter, offset)
        return await self._answer(adapter)

    async def _answer(self, adapter, limit=10_000):
        value = ctypes.c_uint32()
        for _ in range(limit):
            await RisingEdge(self._dut.clk)
            response = self._call("access_result", adapter, value)
            if response == 0:
                return value.value
            if response > 0:
                raise BusError(f"the engine refused the access, response {response}")
        raise BusError("no answer")


_attached = None


def attach(dut):
    """The :class:`CocotbWorld` of this simulation: one, for all tests that run in it."""
    global _attached
    if _attached is None:
        _attached = CocotbWorld(dut)
    return _attached
