"""The device port: all that the driver needs of a device, and how devices are found.

A *provider* is a callable in the entry-point group ``verbena.devices``; it returns a dictionary from device name to an
opener, and opening gives a :class:`Port`. A name that ends with a colon stands for all that begin with it; its opener
gets the rest. An opener with a false attribute ``listed`` opens a device that is known to be in use, and stays out of
lists; one with ``mac`` and ``ip``, and ``gids`` if there are, tells the device's addresses before it is opened; one
with ``glass()`` looks at a device that another process has, or returns None. Nothing is built or opened before a
:class:`verbena.sw.verbs.device.Context` asks for it.
"""

import errno
import importlib.metadata
import os
import threading
import warnings
from typing import Protocol, runtime_checkable

from .errors import AdapterError
from .gids import port_gids

__all__ = ["GonePort", "Port", "addresses", "glass_on", "has_port", "mac_of", "open_port", "port_names", "provide"]


@runtime_checkable
class Port(Protocol):
    """A device as the driver sees it.

    ``memory`` is the host memory that the device reaches: :mod:`verbena.sw.host_memory` or an object with its functions
    ``alloc``, ``free``, ``read``, ``write``, ``bus_pages`` and ``alloc_contiguous``. If it has ``pin`` and ``unpin``,
    other memory of the process becomes reachable by them. ``tick`` is what the device's
    timers take for 4.096 us, in its cycles.

    A port that other processes can open, too, has ``key``: a string by which all of this host know the device
    (:mod:`.owner`).

    A port may have ``pushes``, a bool: whether some ten writes of registers take less time than a read of the device
    from host memory, so that it pays to push send WQEs. A port without it says yes; one that carries each write over a
    network or a serial line says no; such a port may also have ``read_block(offset, count)`` and
    ``write_block(offset, values)``, which do with consecutive registers at once what ``read32`` and ``write32`` do with
    one. A port of little memory has ``log_mpt_size``, ``log_cqc_size`` and ``log_eq_size``: the base-2 logarithms of
    how many regions, CQs and events there is room for. A device that can go away has ``gone``, a bool: whether it has.
    Then nothing is asked of it any more. A simulated device has ``random``, a ``random.Random`` from which the driver
    draws keys and numbers of QPs, so that a simulation can be repeated; for a port without it the driver asks the
    operating system.

    A port whose time passes together with that of others has ``world``, the same object for all of them: who gives time
    to one of them also takes those events of the others that a file is to tell of.

    A port may have ``device_memory``: memory of the device that is not the host's, an object with ``bus``, the bus
    address of its first byte, a multiple of 4096, ``size``, and ``read(offset, length)`` and ``write(offset, data)``.

    It may have ``follow()``, which is called once a program has a file that tells of events: the program may sleep
    until one does, and the device's time must pass without its calls.

    A port may have ``second_ns``: how much of ``time_ns`` counts as a second where the driver waits for other hosts, as
    for the answer to an ARP request. A port without it counts true seconds. In simulation a second is as much shorter
    than a true one as ``tick`` is shorter than 4.096 us: 244,141 ticks.

    A port whose ``time_ns`` is not true time has ``clock_text``: what it is, in words, for tools that print times. A
    port may have ``clock_hz``: the device's cycles in a second.

    A port may have ``gids``: further GIDs, numbers, of IPv6 addresses or IPv4-mapped, besides its IPv4 address and the
    link-local one that its MAC address makes. It may have ``vlans``: for some of these ``gids`` the VLAN and the
    priority of their frames, ``{gid: (vlan, priority)}``. It may have ``roce_v1``, a bool: each of its GIDs has a row
    of type RoCEv1, too, if the engine knows that.

    A port may have ``pkeys``: its table of P_Keys, up to 8 numbers of 16 bits, 0 for an empty row. A port without it
    has the default one, 0xffff, alone (IBA 10.9).

    A port may have ``mtu``, the largest that its network carries, and ``linger()``, which is called before a QP is
    destroyed and lets acknowledgements go. ``linked``, a bool, says that others act upon the device at any time, even
    when it has nothing to do itself; who waits for an event then goes on waiting. ``cut``, a bool, says that those have
    gone for good.
    """

    name: str
    memory: object
    mac: int
    ip: int
    tick: int

    def read32(self, offset: int) -> int:
        """Value of the register at ``offset``."""

    def write32(self, offset: int, value: int) -> None:
        """Writes a register or a doorbell. All host memory written before is visible to the device by then."""

    def advance(self, max_cycles: int) -> bool:
        """Lets the device work: in simulation, at most ``max_cycles``; on hardware, a short while. Returns whether it
        has anything left to do.
        """

    def time_ns(self) -> int:
        """Time as the device has it, in nanoseconds from any start: in simulation, simulated time."""

    def watch(self, address: int, length: int) -> int:
        """Asks that :meth:`advance` end early when the device writes to this host memory; returns what :meth:`unwatch`
        wants. A device that runs by itself does nothing here.
        """

    def unwatch(self, watch: int) -> None:
        """Takes that back."""

    def resolve(self, ip: int) -> int:
        """MAC address of the neighbour with the IPv4 address ``ip``, if it is known without asking the network;
        ``KeyError`` otherwise. ``ip`` may be an IPv6 address, too, a number of more than 32 bits.
        """


class GonePort:
    """What a driver has in the place of a port that it has given up: a device that is gone. Time and memory are those
    of ``port``. It takes what is said, reads as 0, and gives nothing new: ``AdapterError`` (ENODEV).
    """

    gone = True

    def __init__(self, port):
        self.name, self.memory, self.time_ns = getattr(port, "name", None), port.memory, port.time_ns

    def read32(self, offset):
        return 0

    def write32(self, offset, value):
        pass

    def advance(self, max_cycles):
        return False

    def unwatch(self, watch):
        pass

    def watch(self, address, length):
        raise self._error()

    def resolve(self, address):
        raise self._error()

    def _error(self):
        return AdapterError(errno.ENODEV, f"device {self.name!r} has been given up")


_lock = threading.RLock()


def _free_lock():
    """In a child process: who had the lock there is a thread of its parent. Opening a device may take long, so that a
    fork does not wait for it.
    """
    global _lock
    _lock = threading.RLock()


os.register_at_fork(after_in_child=_free_lock)

_openers = {}
_open = {}
_loaded = False


def provide(name, opener):
    """Adds the device ``name``, or replaces it; ``opener()`` gives its port."""
    with _lock:
        _openers[name] = opener
        _open.pop(name, None)


def _load():
    global _loaded
    if _loaded:
        return
    _loaded = True
    for entry in importlib.metadata.entry_points(group="verbena.devices"):
        try:
            found = entry.load()()
        except Exception as error:
            # One broken provider must not take the devices of all others away.
            warnings.warn(f"devices of {entry.name!r} are left out: {error!r}", RuntimeWarning, stacklevel=4)
            continue
        for name, opener in found.items():
            _openers.setdefault(name, opener)


def port_names():
    """Names of all devices that can be opened."""
    with _lock:
        _load()
        return sorted(name for name in _openers if not name.endswith(":") and getattr(_openers[name], "listed", True))


def _opener(name):
    """What opens the device of this name, or None."""
    scheme, colon, rest = name.partition(":")
    if scheme + colon in _openers and rest and name not in _openers:
        return lambda: _openers[scheme + colon](rest)
    return None if name.endswith(":") else _openers.get(name)


def has_port(name):
    """Whether there is a device of this name, or somebody who opens all names that begin like it."""
    with _lock:
        _load()
        return _opener(name) is not None


def mac_of(name):
    """The MAC address of the device ``name``, which is opened only if its opener does not know it. ``OSError`` as of
    :func:`open_port`.
    """
    with _lock:
        _load()
        known = None if name in _open else getattr(_opener(name), "mac", None)
        return open_port(name).mac if known is None else known


def addresses():
    """The GIDs of devices, lists of numbers (:func:`.gids.port_gids`) by name, and whether each is open here: of those
    that are open, or whose openers know them, also if another process has them.
    """
    with _lock:
        _load()
        found = {}
        for name in sorted(_openers):
            port = _open.get(name)
            known = port is not None and not getattr(port, "gone", False)
            if gids := port_gids(port if known else _openers[name]):
                found[name] = gids, known
        return found


def glass_on(name=None):
    """Something whose ``look()`` tells the counters of device ``name``, or of the first one, that another process has,
    and which is to be closed. None if there is nothing to look at, :class:`LookupError` if another process would have
    to show it, and none does.
    """
    with _lock:
        _load()
        glasses = [getattr(_opener(each), "glass", None) for each in (sorted(_openers) if name is None else [name])]
        glasses = [glass for glass in glasses if glass is not None]
        for glass in glasses:
            if (found := glass()) is not None:
                return found
        if glasses:
            raise LookupError(f"no program shows counters of {name or 'a device'} now")
        return None


def open_port(name):
    """The port of device ``name``, the same object for each caller. ``OSError`` (ENODEV) if there is none."""
    with _lock:
        if not has_port(name):
            raise OSError(errno.ENODEV, f"no device {name!r}; there are: {', '.join(sorted(_openers)) or 'none'}")
        if name not in _open or getattr(_open[name], "gone", False):
            _open[name] = _opener(name)()
        return _open[name]
