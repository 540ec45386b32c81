"""How a program comes to a network: to a switch that runs (:mod:`.switch`), or straight to another program.

``VERBENA_SIM`` says which: the switch's folder, or ``listen:SOCKET`` and ``connect:SOCKET`` for two programs without a
switch, or nothing (the empty text) for a world of the program's own. If it is not set, a switch of this user at the
default place is taken, if one runs.
"""

import atexit
import errno
import ipaddress
import json
import os
import sys
import tempfile
import threading
import time
import weakref
from dataclasses import dataclass
from pathlib import Path

from verbena.sw.events import take_events

from .link import LATENCY_NS, MTU, LinkError, connect, listen
from .stat_socket import place

__all__ = ["Adapter", "Missing", "Mover", "Plug", "default_folder", "find"]

PATIENCE = 10.0
"""Seconds in which a switch answers."""

STARTING = 0.05
"""Seconds after which a program looks again for a switch that starts."""

ALONE = "verbena: {name} waits for the program at the other end: start it with VERBENA_SIM={other}"

STEP = 256
"""Cycles at a time that pass while the program is elsewhere; it may come back any moment."""
WAIT_MS = 2
LIVELY = 0.2
"""Seconds for which time passes at full speed after frames have passed."""
REST = 4
"""After that, a pause of so many times what the last cycles took."""
GLANCE = 0.005
FIRST_IP = "10.0.0.1"


def default_folder():
    """Where the switch of this user is, unless another place is named."""
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    return Path(runtime) / "verbena-sim" if runtime else Path(tempfile.gettempdir()) / f"verbena-sim-{os.getuid()}"


@dataclass(frozen=True)
class Adapter:
    """An adapter of the network: its number and address, and the delay of its cable."""

    number: int
    ip: int
    delay_ns: float = LATENCY_NS


class Plug:
    """A network: ``adapters`` by name, ``free`` names, and the ``mtu``."""

    def __init__(self, folder):
        self.folder = Path(folder)
        told = json.loads((self.folder / "network.json").read_text())
        self.mtu = told["mtu"]
        self.adapters = {
            name: Adapter(number, int(ipaddress.IPv4Address(entry["address"])), entry["delay_ns"])
            for number, (name, entry) in enumerate(told["adapters"].items())
        }

    @property
    def free(self):
        return [name for name in self.adapters if (self.folder / name).exists()]

    def shown_at(self, name):
        """Where the program that has adapter ``name`` shows its counters (:mod:`.stat_socket`)."""
        return place(self.folder, name)

    def link(self, name):
        """The :class:`.link.Link` of adapter ``name``; EBUSY if another program has it."""
        try:
            if (self.folder / name).exists():
                return connect(
                    self.folder / name, latency_ns=self.adapters[name].delay_ns, mtu=self.mtu, patience=PATIENCE
                )
        except LinkError as error:
            if error.errno not in (errno.ECONNRESET, errno.EPIPE, errno.ETIMEDOUT):
                raise
        free = ", ".join(self.free) or "none"
        raise LinkError(errno.EBUSY, f"another program has {name} of {self.folder}; free are: {free}")


class _Straight:
    """Two programs without a switch: who listens is ``sim0``, who connects ``sim1``."""

    mtu = MTU

    def __init__(self, role, path):
        self._role, self._path = role, path
        first = int(ipaddress.IPv4Address(FIRST_IP))
        self.adapters = {f"sim{i}": Adapter(i, first + i) for i in range(2)}
        self.free = ["sim0"] if role == "listen" else ["sim1"]

    def link(self, name):
        if name not in self.free:
            raise LinkError(errno.EBUSY, f"{name} is the other program's: this one has {self.free[0]}")
        meet, other = (listen, "connect") if self._role == "listen" else (connect, "listen")

        def tell():
            print(ALONE.format(name=name, other=f"{other}:{self._path}"), file=sys.stderr, flush=True)

        return meet(self._path, waiting=tell)


class Missing:
    """What was asked for is not there."""

    def __init__(self, text):
        self.adapters = {"sim0": Adapter(0, 0)}
        self.free = ["sim0"]
        self._text = text

    def link(self, name):
        raise LinkError(errno.ENOENT, self._text)


def find():
    """The network that the environment names, or the default one if it runs, or None."""
    from .switch import alive

    chosen = os.environ.get("VERBENA_SIM")
    if chosen == "":
        return None
    for role in ("listen", "connect"):
        if chosen and chosen.startswith(f"{role}:"):
            return _Straight(role, chosen.partition(":")[2])
    folder = Path(chosen) if chosen else default_folder()
    while alive(folder):
        if (folder / "network.json").exists():
            return Plug(folder)
        time.sleep(STARTING)  # it may have to be compiled first
    if chosen:
        return Missing(f"no switch runs at {folder}: type `verbena sim {folder}` in another terminal")
    return None


_moved = weakref.WeakSet()


class Mover(threading.Thread):
    """Moves the time of a world while its program makes no call: of a linked one, for which the others wait, or of one
    whose program may sleep until a file tells of an event.

    It begins ``grace_ms`` of the wall's clock after the last call, or at once if a call on another world of this
    process waits.
    """

    brings_nothing = True

    def __init__(self, world, grace_ms):
        super().__init__(name="verbena-mover", daemon=True)
        self._world = weakref.ref(world)
        self._grace = grace_ms / 1000
        _moved.add(world)
        world.entered, world.followed = time.monotonic(), True
        self.start()

    def run(self):
        lively, seen, moving = 0.0, None, False
        while True:
            world = self._world()
            if world is None or world.closed:
                return
            start = time.monotonic()
            away = start - world.entered > self._grace or any(w.inside and w is not world for w in list(_moved))
            if world.inside or not away:
                moving = False
                del world
                time.sleep(GLANCE if len(_moved) == 1 else GLANCE / 10)
                continue
            if not moving:
                moving, lively = True, start
            if world.move(STEP, WAIT_MS) is None:
                return
            try:
                take_events(world)
                activity = world.activity()
            except ValueError:
                if world.closed:  # by another thread, meanwhile
                    return
                raise
            end = time.monotonic()
            if activity != seen:
                seen, lively = activity, end
            pause = 0 if end - lively < LIVELY else REST * (end - start)
            del world
            time.sleep(pause)


@atexit.register
def _leave():
    """Tells the others that this program ends, once its contexts are closed."""
    from verbena.sw.verbs.base import close_all

    close_all()
    for world in list(_moved):
        world.close()
