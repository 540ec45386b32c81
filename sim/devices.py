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
import os
import random
import sys

from .library import FRAMES
from .settings import setting
from .sim_port import GRACE_MS, IP, MAC

__all__ = ["configure", "ports", "world"]

ADAPTERS = 2

LONGEST_LATENCY = 1 << 20
"""Cycles: more would look as if nothing answered."""

_options = {}

_world = None


ENGINE = {
    "data_width": "VERBENA_DATA_WIDTH",
    "qps": "VERBENA_QPS",
    "slots": "VERBENA_SLOTS",
    "swap_every": "VERBENA_SWAP_EVERY",
}
"""What the engines may be made with, and the variables for it."""


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
        _world.is_default = True
    return _world


def _make(options):
    from .model import rnic
    from .world import World

    settings = {key: value for key, value in _options.items() if key not in ENGINE}
    for name, key, most in (
        ("VERBENA_SEED", "seed", (1 << 63) - 1),
        ("VERBENA_MEMORY_LATENCY", "memory_latency", LONGEST_LATENCY),
    ):
        if (value := setting(name, most=most)) is not None:
            options[key] = value
    told = {key: value for key, name in ENGINE.items() if (value := setting(name)) is not None}
    sizes = told | {key: value for key in ENGINE if (value := _options.get(key)) is not None}
    if sizes:
        try:
            options["design"] = rnic(**sizes)
        except ValueError as error:
            if not told:
                raise
            names = ", ".join(ENGINE[key] for key in told)
            raise OSError(errno.EINVAL, f"{names}: {error}") from None
    if "seed" not in options | _options:
        options["seed"] = seed = random.SystemRandom().randrange(1 << 32)
        print(f"verbena: VERBENA_SEED={seed} repeats this simulation", file=sys.stderr, flush=True)
    waves, capture = os.environ.get("VERBENA_TRACE"), os.environ.get("VERBENA_CAPTURE")
    frames = os.environ.get("VERBENA_CAPTURE_FRAMES")
    if frames and frames not in FRAMES:
        raise OSError(errno.EINVAL, f"VERBENA_CAPTURE_FRAMES must be {', '.join(FRAMES)}, not {frames!r}")
    made = World(**({"trace": bool(waves)} | options | settings))
    if waves:
        made.waves(waves)
        atexit.register(_save_views, made, waves, os.getpid())
    if capture:
        frames = frames or ("sent" if len(made.adapters) > 1 else "both")
        made.capture(capture, bus=bool(os.environ.get("VERBENA_CAPTURE_BUS")), frames=frames)
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
