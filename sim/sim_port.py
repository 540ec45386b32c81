"""A simulated adapter as the driver has it."""

import functools
import os
import random
import sys

from verbena.hdl.abi.registers import REGISTERS
from verbena.sw import host_memory
from verbena.sw.gids import link_local

from .device_memory import DeviceMemory
from .settings import setting
from .ticks import default_tick, second_ns, tick_text

__all__ = ["GRACE_MS", "IP", "MAC", "SimPort"]

GRACE_MS = 50
MAC = 0x02_56_42_00_00_01
"""Of ``sim0``, locally administered; that of ``sim1`` is the next one."""

IP = 0x0A_00_00_01
"""Of ``sim0``, 10.0.0.1; that of ``sim1`` is the next one."""

STATUS = REGISTERS["status"].offset

ALONE = (
    "verbena: this program is alone: its peer is in another process, and no switch runs. Type `verbena sim` in another "
    "terminal, and start both programs again"
)
LINGER, LINGER_QUANTUM = 16, 2048
"""How often, and for how many cycles at a time, a program that ends lets its adapter work."""


class SimPort:
    """Adapter ``index`` of ``world`` as a :class:`verbena.sw.port.Port`; ``random`` follows from the world's seed."""

    memory = host_memory
    owners = ()
    _driver = None
    _told = False
    _known = set()
    """Addresses and numbers of the QPs that this process has had."""

    def __init__(self, world, index):
        self.world = world
        self.index = index
        self._number = number = getattr(world, "first", 0) + index
        self.name = f"sim{number}"
        self._adapter = world.adapters[index]
        self.mac = self._adapter.mac
        self.random = random.Random(f"{world.random_seed} {number}")
        self.tick = int(getattr(world, "tick", None) or default_tick())
        self.ip = IP + number
        self.roce_v1 = True
        self._neighbours = {}
        for other, adapter in enumerate(world.adapters):
            self.add_neighbour(IP + number - index + other, adapter.mac)

    @functools.cached_property
    def device_memory(self):
        return DeviceMemory(self.world, self._number)

    def read32(self, offset):
        return self._adapter.read32(offset)

    def write32(self, offset, value):
        self._adapter.write32(offset, value)

    def advance(self, max_cycles):
        """Ends early at an interrupt of any adapter, or when an engine writes to watched memory."""
        self.world.advance(max_cycles)
        cut = getattr(self.world, "cut", False)  # the engines have not told it yet
        busy = cut or not self.world.idle or any(not a.read32(STATUS) & 1 for a in self.world.adapters)
        if not busy and not self._told and getattr(self.world, "is_default", False):
            self._tell_if_alone()
        return busy

    def _tell_if_alone(self):
        """Nothing can happen any more: says so, if what a QP waits for is in another process."""
        mine = self._remember()
        for reference in [reference for qps in mine.values() for reference in qps.values()]:
            peer = getattr(reference(), "peer", None)
            if peer is not None and peer[0] in mine and peer not in self._known:
                SimPort._told = True
                print(ALONE, file=sys.stderr, flush=True)
                return

    def _remember(self):
        """Queue pairs of this process by the address of their adapter; all that there were are ``_known``."""
        mine = {port.ip: port._driver.qps if port._driver is not None else {} for port in self.world.ports.values()}
        self._known.update((ip, number) for ip, qps in mine.items() for number in qps)
        return mine

    @property
    def linked(self):
        """Another simulator is at the other end of the wire, and may send any time."""
        return getattr(self.world, "link", None) == "up"

    @property
    def cut(self):
        """The other simulator has ended, or is gone."""
        return getattr(self.world, "link", None) in ("ended", "gone")

    def follow(self):
        """A thread gives the default world time while the program calls nothing, unless ``VERBENA_EXACT`` is set; a
        world of a network has such a thread anyway.
        """
        from .attach import Mover

        if getattr(self.world, "is_default", False) and not self.world.followed and not os.environ.get("VERBENA_EXACT"):
            Mover(self.world, setting("VERBENA_GRACE_MS", GRACE_MS, float))

    def linger(self):
        """Before a QP goes: it is remembered, and acknowledgements go that the peer in another process needs."""
        self._remember()
        if self.linked:
            for _ in range(LINGER):
                if not self.advance(LINGER_QUANTUM):
                    break

    def time_ns(self):
        return round(self.world.time_ns)

    @property
    def second_ns(self):
        return second_ns(self.tick, self.world.clock_hz)

    @property
    def clock_hz(self):
        return self.world.clock_hz

    @property
    def clock_text(self):
        """What its times are, in words, for tools that print some."""
        return f"simulated; {tick_text(self.tick, self.world.clock_hz)}"

    def watch(self, address, length):
        return self.world.watch(address, length)

    def unwatch(self, watch):
        if not self.gone:
            self.world.unwatch(watch)

    @property
    def gone(self):
        """The world is closed."""
        return getattr(self.world, "closed", False)

    def resolve(self, ip):
        return self._neighbours[ip]

    def add_neighbour(self, ip, mac):
        """Makes the IPv4 address ``ip`` known, and the link-local IPv6 address that follows from ``mac``."""
        self._neighbours[ip] = self._neighbours[link_local(mac)] = mac
