"""Simulated adapters as devices of the driver: ``sim0`` and ``sim1`` on one wire, in the default world.

Other worlds give contexts on their own adapters (:meth:`.world.World.context`). The default world is built when the
first of its devices is opened, with the options that :func:`configure` was given before, or those of the environment:
``VERBENA_DATA_WIDTH`` (of the engines, in bits), ``VERBENA_QPS`` and ``VERBENA_SLOTS`` (queue pairs, and those that are
on chip at a time), ``VERBENA_SWAP_EVERY`` (for tests: so many cycles after the last a queue pair must leave its slot),
``VERBENA_SEED`` (of all that is random; without it a seed is drawn, and told on stderr),
``VERBENA_MEMORY_LATENCY``, ``VERBENA_TRACE`` (prefix of the waveforms' files, and of their views),
``VERBENA_CAPTURE`` (a pcapng file for the frames), ``VERBENA_CAPTURE_FRAMES`` (where they are taken: ``sent``,
``received`` or ``both``; by default ``sent``, so that each stands in it once, but ``both`` where the adapter is alone
in its world), ``VERBENA_CAPTURE_BUS`` (not empty: host-bus transactions, too), ``VERBENA_TICK`` (cycles that timers
take for 4.096 us).

If a network is at hand (:mod:`.attach`), the devices are its adapters instead, and each that is opened is a world of
its own, whose wire leads there. Its time moves while the program waits inside a call; when the program is elsewhere for
more than ``VERBENA_GRACE_MS`` (50), a thread moves it, unless ``VERBENA_EXACT`` is set. A program that calls
:func:`configure` has a world of its own in any case. Such a thread moves the default world, too, once its program has
asked for a file that tells of events.
"""

import atexit
import errno
import functools
import os
import random
import sys

from verbena.hdl.abi.registers import REGISTERS
from verbena.sw import host_memory
from verbena.sw.gids import link_local

from .device_memory import DeviceMemory

__all__ = ["SimPort", "configure", "default_tick", "ports", "second_ns", "tick_text", "world"]

ADAPTERS = 2
GRACE_MS = 50
MAC = 0x02_56_42_00_00_01
"""Of ``sim0``, locally administered; that of ``sim1`` is the next one."""

IP = 0x0A_00_00_01
"""Of ``sim0``, 10.0.0.1; that of ``sim1`` is the next one."""

STATUS = REGISTERS["status"].offset
_options = {}

TICK = 16
"""Cycles that a simulated adapter's timers take for 4.096 us, unless the option ``tick`` says otherwise. True time
would be 640, but a hundred thousand cycles a second are simulated, and nobody wants to wait minutes for a timeout."""

TICKS_A_SECOND = 1 / 4.096e-6

_world = None


def second_ns(tick, clock_hz):
    """Nanoseconds of simulated time that count as a second, at ``tick`` cycles of ``clock_hz`` for 4.096 us: as much
    less than a true second as the tick is shorter than a true one.
    """
    return round(tick * TICKS_A_SECOND * 1e9 / clock_hz)


ENGINE = {
    "data_width": "VERBENA_DATA_WIDTH",
    "qps": "VERBENA_QPS",
    "slots": "VERBENA_SLOTS",
    "swap_every": "VERBENA_SWAP_EVERY",
}
"""What the engines may be made with, and the variables for it."""


def setting(name, default=None, kind=int):
    """A number of the environment, or ``default`` if it is not set. ``OSError`` (EINVAL) if it is not a number."""
    text = os.environ.get(name)
    try:
        return kind(text) if text else default
    except ValueError:
        what = "a whole number" if kind is int else "a number"
        raise OSError(errno.EINVAL, f"{name} must be {what}, not {text!r}") from None


def default_tick():
    """``VERBENA_TICK`` of the environment, or :data:`TICK`."""
    return setting("VERBENA_TICK", TICK)


def tick_text(tick, clock_hz):
    """What timers take, in words: which tick was used, and which is the true one."""
    true = round(clock_hz * 4.096e-6)
    return f"timers: {tick} cycles for 4.096 µs" + (" (true)" if tick == true else f" (true: VERBENA_TICK={true})")


def configure(**options):
    """Options of :class:`.world.World` for the devices, and ``data_width``, ``qps``, ``slots`` and ``swap_every`` of
    their engines, which have the standard configuration else; before the first of them is opened, or after the world
    was closed. ``RuntimeError`` while it exists.
    """
    if _world is not None and not _world.closed:
        raise RuntimeError("the simulated world exists already: configure it before a device is opened")
    _options.update(options)


def world():
    """The world of ``sim0`` and ``sim1``, built at the first call, and anew if it was closed."""
    global _world
    if _world is None or _world.closed:
        _world = _make({"adapters": ADAPTERS})
    return _world


def _make(options):
    from .model import rnic
    from .world import World

    settings = {key: value for key, value in _options.items() if key not in ENGINE}
    for name, key in (("VERBENA_SEED", "seed"), ("VERBENA_MEMORY_LATENCY", "memory_latency")):
        if (value := setting(name)) is not None:
            options[key] = value
    sizes = {key: value for key, name in ENGINE.items() if (value := _options.get(key) or setting(name))}
    if sizes:
        options["design"] = rnic(**sizes)
    if "seed" not in options | _options:
        options["seed"] = seed = random.SystemRandom().randrange(1 << 32)
        print(f"verbena: VERBENA_SEED={seed} repeats this simulation", file=sys.stderr, flush=True)
    waves, capture = os.environ.get("VERBENA_TRACE"), os.environ.get("VERBENA_CAPTURE")
    made = World(**({"trace": bool(waves)} | options | settings))
    if waves:
        made.waves(waves)
        atexit.register(_save_views, made, waves, os.getpid())
    if capture:
        environ = os.environ
        frames = environ.get("VERBENA_CAPTURE_FRAMES") or ("sent" if len(made.adapters) > 1 else "both")
        made.capture(capture, bus=bool(environ.get("VERBENA_CAPTURE_BUS")), frames=frames)
    return made


def _save_views(world, prefix, process):
    """At the end of the program, not of a child: the waves, and beside them their views for GTKWave and Surfer."""
    from .waves import save_all

    if os.getpid() != process:
        return
    if not world.closed:
        world.waves(None)
    save_all(prefix, world.model.design)


def ports():
    """Device names and their openers, for the entry point ``verbena.devices``."""
    if not _options:
        from .attach import find

        if (network := find()) is not None:
            free = network.free
            return {name: _Opener(network, name, name in free) for name in network.adapters}
    first = _options.get("first", 0)
    return {f"sim{first + i}": _Own(first + i) for i in range(_options.get("adapters", ADAPTERS))}


class _Own:
    """Opens adapter ``number`` of the default world."""

    def __init__(self, number):
        self._number = number
        self.mac, self.ip = MAC + number, IP + number

    def __call__(self):
        return world().ports[f"sim{self._number}"]


class _Opener:
    """Opens an adapter of a network; ``listed`` is whether it was free when the devices were listed."""

    def __init__(self, network, name, listed):
        self._network, self._name, self.listed = network, name, listed
        self.mac, self.ip = MAC + network.adapters[name].number, network.adapters[name].ip

    def __call__(self):
        from .attach import Mover
        from .model import build, rnic
        from .stat_socket import Teller

        network, name = self._network, self._name
        grace = setting("VERBENA_GRACE_MS", GRACE_MS, float)
        adapter = network.adapters[name]
        if not os.environ.get("VERBENA_DATA_WIDTH"):
            build(rnic())  # before the others wait for this one
        world = _make({"adapters": 1, "first": adapter.number, "link": network.link(name)})
        port = world.ports[name]
        port.ip, port.mtu = adapter.ip, network.mtu
        for other in network.adapters.values():
            port.add_neighbour(other.ip, MAC + other.number)
        if not os.environ.get("VERBENA_EXACT"):
            Mover(world, grace)
            if hasattr(network, "shown_at"):
                Teller(port, network.shown_at(name))
        return port

    def glass(self):
        """Looks at the adapter of another program that has it; None if none shows it."""
        from .stat_socket import Glass

        try:
            return Glass(self._network.shown_at(self._name))
        except (OSError, AttributeError):
            return None


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
        if not busy and not self._told and self.world is _world:
            self._tell_if_alone()
        return busy

    def _tell_if_alone(self):
        """Nothing can happen any more: says so, if what a QP waits for is in another process."""
        mine = {port.ip: port._driver.qps if port._driver is not None else {} for port in self.world.ports.values()}
        self._known.update((ip, number) for ip, qps in mine.items() for number in qps)
        for reference in [reference for qps in mine.values() for reference in qps.values()]:
            peer = getattr(reference(), "peer", None)
            if peer is not None and peer[0] in mine and peer not in self._known:
                SimPort._told = True
                print(ALONE, file=sys.stderr, flush=True)
                return

    @property
    def linked(self):
        """Another simulator is at the other end of the wire, and may send any time."""
        return getattr(self.world, "link", None) == "up"

    def follow(self):
        """A thread gives the default world time while the program calls nothing, unless ``VERBENA_EXACT`` is set; a
        world of a network has such a thread anyway.
        """
        from .attach import Mover

        if self.world is _world and not self.world.followed and not os.environ.get("VERBENA_EXACT"):
            Mover(self.world, setting("VERBENA_GRACE_MS", GRACE_MS, float))

    def linger(self):
        """Lets acknowledgements go that the peer in another process needs, before a QP goes."""
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
