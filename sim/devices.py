"""The simulated adapters as devices of the driver: ``sim0`` and ``sim1`` on one wire, in one world.

The world is built when the first of them is opened, with the options that :func:`configure` was given before, or those
of the environment: ``VERBENA_SEED``, ``VERBENA_MEMORY_LATENCY``, ``VERBENA_TRACE`` (prefix of the waveforms' files),
``VERBENA_CAPTURE`` (a pcapng file for the frames), ``VERBENA_TICK`` (cycles that timers take for 4.096 us).
"""

import os

from verbena.hdl.abi.registers import REGISTERS
from verbena.sw import host_memory

__all__ = ["SimPort", "configure", "ports", "world"]

ADAPTERS = 2
STATUS = REGISTERS["status"].offset
_options = {}

TICK = 16
"""Cycles that a simulated adapter's timers take for 4.096 us, unless the option ``tick`` says otherwise. True time
would be 640, but a hundred thousand cycles a second are simulated, and nobody wants to wait minutes for a timeout."""

_world = None


def configure(**options):
    """Options of :class:`.world.World` for the devices; before the first of them is opened. ``RuntimeError`` after."""
    if _world is not None:
        raise RuntimeError("the simulated world exists already: configure it before a device is opened")
    _options.update(options)


def world():
    """The world of ``sim0`` and ``sim1``, built at the first call."""
    global _world
    if _world is None:
        from .world import World

        options = {"adapters": ADAPTERS}
        settings = {key: value for key, value in _options.items() if key != "tick"}
        for name, key in (("VERBENA_SEED", "seed"), ("VERBENA_MEMORY_LATENCY", "memory_latency")):
            if os.environ.get(name):
                options[key] = int(os.environ[name])
        waves, capture = os.environ.get("VERBENA_TRACE"), os.environ.get("VERBENA_CAPTURE")
        _world = World(**({"trace": bool(waves)} | options | settings))
        if waves:
            _world.waves(waves)
        if capture:
            _world.capture(capture)
    return _world


def ports():
    """Device names and their openers, for the entry point ``verbena.devices``."""
    return {f"sim{i}": lambda i=i: SimPort(world(), i) for i in range(_options.get("adapters", ADAPTERS))}


class SimPort:
    """Adapter ``index`` of ``world`` as a :class:`verbena.sw.port.Port`."""

    memory = host_memory

    def __init__(self, world, index):
        self.world = world
        self.index = index
        self.name = f"sim{index}"
        self._adapter = world.adapters[index]
        self.mac = self._adapter.mac
        self.tick = int(_options.get("tick") or os.environ.get("VERBENA_TICK") or TICK)
        self.ip = 0x0A000001 + index
        self._neighbours = {0x0A000001 + i: a.mac for i, a in enumerate(world.adapters)}

    def read32(self, offset):
        return self._adapter.read32(offset)

    def write32(self, offset, value):
        self._adapter.write32(offset, value)

    def advance(self, max_cycles):
        """Ends early at an interrupt of any adapter, or when an engine writes to watched memory."""
        self.world.advance(max_cycles)
        return not self.world.idle or any(not a.read32(STATUS) & 1 for a in self.world.adapters)

    def time_ns(self):
        return round(self.world.time_ns)

    def watch(self, address, length):
        return self.world.watch(address, length)

    def unwatch(self, watch):
        self.world.unwatch(watch)

    def resolve(self, ip):
        return self._neighbours[ip]

    def add_neighbour(self, ip, mac):
        """Makes the address ``ip`` known, for a peer that is not an adapter of this world."""
        self._neighbours[ip] = mac
