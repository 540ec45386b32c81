"""The switch of several programs, each with its own adapter: ``native/switch.cpp``, and a folder with its sockets.

In the folder stand ``network.json``, which tells what there is; ``lock``, which the living switch holds; and a socket
of SimBricks' interface for each adapter that is free. One that is in use has no socket of that kind, but one for its
counters (:mod:`.stat_socket`). Nothing else in the folder is touched.
"""

import contextlib
import ctypes
import errno
import fcntl
import json
import os
import re
import select
from ctypes import POINTER, Structure, c_char_p, c_double, c_int, c_uint32, c_uint64, c_void_p
from dataclasses import dataclass, field
from pathlib import Path

from .library import FaultSettings, LinkSettings, capture_frames, fault_settings
from .link import LATENCY_NS, MTU, LinkError, Listener
from .model import build_switch
from .ports import Faults

__all__ = ["COUNTERS", "AdapterOptions", "Network", "Switch", "alive"]

COUNTERS = ("received", "received_bytes", "sent", "sent_bytes", "dropped", "marked", "damaged")
"""Frames and bytes of a port; received is what its program sent."""

TURN_MS = 20
"""Milliseconds after which the switch looks for new programs."""

GREETING = 2.0
"""Seconds that a program has for its introduction."""


LOCK, TOLD = "lock", "network.json"

_SOCKET = re.compile(r"sim\d+(\.counters)?")


class _PortSettings(Structure):
    _fields_ = [("rate", c_double), ("queue_bytes", c_uint64), ("ecn_bytes", c_uint64)]


_FUNCTIONS = {
    "create": (c_void_p, c_int, c_uint64),
    "destroy": (None, c_void_p),
    "attach": (c_int, c_void_p, c_int, POINTER(LinkSettings)),
    "detach": (None, c_void_p, c_int),
    "up": (c_int, c_void_p, c_int),
    "time": (c_uint64, c_void_p),
    "run": (c_int, c_void_p, c_uint32),
    "settings": (None, c_void_p, c_int, POINTER(_PortSettings)),
    "faults": (None, c_void_p, c_int, POINTER(FaultSettings)),
    "counters": (None, c_void_p, c_int, POINTER(c_uint64)),
    "capture_open": (c_int, c_void_p, c_char_p, c_int),
    "capture_close": (None, c_void_p),
    "capture_flush": (None, c_void_p),
}


class Switch:
    """The native switch with ``ports`` ports, none of them in use; ``seed`` decides what faults do."""

    def __init__(self, ports, seed=1):
        library = ctypes.CDLL(str(build_switch()))
        for name, (result, *arguments) in _FUNCTIONS.items():
            function = getattr(library, f"vs_{name}")
            function.restype, function.argtypes = result, arguments
        self._library = library
        self._handle = library.vs_create(ports, seed)
        self.ports = ports

    def _call(self, name, *arguments):
        return getattr(self._library, f"vs_{name}")(self._handle, *arguments)

    def attach(self, port, link):
        """The :class:`~verbena.sim.link.Link` leads to a port from now on. The clock of its other end starts now."""
        if not self._call("attach", port, link.settings()):
            raise LinkError(errno.ENOMEM, "the memory of the link cannot be mapped")

    def detach(self, port):
        """Ends the link of a port."""
        self._call("detach", port)

    def up(self, port):
        return bool(self._call("up", port))

    @property
    def time_ns(self):
        return self._call("time") / 1000

    def run(self, milliseconds=TURN_MS):
        """Switches for about so long. Returns early, and True, if a port went down."""
        return bool(self._call("run", milliseconds))

    def set_port(self, port, *, rate_gbps=0.0, queue_bytes=0, ecn_bytes=0):
        """Of the line towards a port: its rate (0: as fast as frames come), how many bytes may wait for it (0: any
        number), and from how many on frames are marked (0: never).
        """
        self._call("settings", port, _PortSettings(rate_gbps * 1e9, queue_bytes, ecn_bytes))

    def set_faults(self, port, faults):
        """The :class:`~verbena.sim.ports.Faults` of what comes from a port; its cycles are nanoseconds here."""
        self._call("faults", port, fault_settings(faults))

    def counters(self, port):
        values = (c_uint64 * len(COUNTERS))()
        self._call("counters", port, values)
        return dict(zip(COUNTERS, values))

    def capture(self, path, *, frames="sent"):
        """Records all frames, of the switch's own time, in a pcapng file; None stops.

        ``frames`` says where a frame is recorded: as an adapter ``"sent"`` it, as adapters ``"received"`` it, or
        ``"both"``.
        """
        frames = capture_frames(frames)
        if path is None:
            self._call("capture_close")
        elif not self._call("capture_open", str(path).encode(), frames):
            raise OSError(f"cannot write {path}")

    def flush(self):
        self._call("capture_flush")

    def close(self):
        if self._handle:
            for port in range(self.ports):
                self.detach(port)
            self._library.vs_destroy(self._handle)
            self._handle = None


@dataclass
class AdapterOptions:
    """One adapter of the network and its cable. ``delay_ns`` is that of the cable, each way."""

    address: str
    delay_ns: float = LATENCY_NS
    rate_gbps: float = 0.0
    queue_bytes: int = 0
    ecn_bytes: int = 0
    faults: Faults = field(default_factory=Faults)


def alive(folder):
    """Whether a switch runs in that folder."""
    try:
        lock = os.open(Path(folder) / "lock", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False


class Network:
    """A switch, and the sockets in ``folder`` by which programs take adapters ``sim0``, ``sim1``, ...; a context
    manager.

    What a killed switch has left in the folder is taken away. :class:`.link.LinkError`: one lives there (EADDRINUSE),
    or files of the switch's names stand there that are not its own (EEXIST).
    """

    def __init__(self, folder, adapters, *, mtu=MTU, seed=1, capture=None, capture_frames="sent", tell=print):
        self.folder = Path(folder)
        self.names = {f"sim{i}": i for i in range(len(adapters))}
        self._adapters = adapters
        self._mtu = mtu
        self._tell = tell
        self._listeners = {}
        self._lock = self._claim()
        try:
            self.switch = Switch(len(adapters), seed)
            for i, options in enumerate(adapters):
                self.switch.set_port(
                    i, rate_gbps=options.rate_gbps, queue_bytes=options.queue_bytes, ecn_bytes=options.ecn_bytes
                )
                self.switch.set_faults(i, options.faults)
            if capture is not None:
                self.switch.capture(capture, frames=capture_frames)
            for name in self.names:
                self._listen(name)
            self._describe()
        except BaseException:
            self.close()
            raise

    switch = None

    def _claim(self):
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._check()
        lock = os.open(self.folder / LOCK, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            raise LinkError(
                errno.EADDRINUSE, f"a switch runs at {self.folder} already: end it, or choose another folder"
            ) from None
        self._clear()
        return lock

    def _check(self):
        """Whether what has the names of the switch's files is from a switch."""
        lock, told = self.folder / LOCK, self.folder / TOLD
        right = not os.path.lexists(lock) or (lock.is_file() and not lock.stat().st_size)
        if os.path.lexists(told):
            try:
                network = json.loads(told.read_text())
                right &= isinstance(network, dict) and set(network) <= {"mtu", "adapters"}
            except (OSError, ValueError):
                right = False
        if not right:
            raise LinkError(errno.EEXIST, f"{LOCK} or {TOLD} in {self.folder} is not a switch's: choose another folder")

    def _clear(self):
        """Takes the files of a switch away, but the lock."""
        mine = [path for path in self.folder.iterdir() if _SOCKET.fullmatch(path.name) and path.is_socket()]
        for path in (*mine, self.folder / TOLD, self.folder / f"{TOLD}.part"):
            with contextlib.suppress(OSError):
                path.unlink()

    def _describe(self):
        adapters = {
            name: {"address": self._adapters[i].address, "delay_ns": self._adapters[i].delay_ns}
            for name, i in self.names.items()
        }
        part = self.folder / f"{TOLD}.part"
        part.write_text(json.dumps({"mtu": self._mtu, "adapters": adapters}, indent=1))
        part.rename(self.folder / TOLD)

    def _listen(self, name):
        options = self._adapters[self.names[name]]
        self._listeners[name] = Listener(self.folder / name, latency_ns=options.delay_ns, mtu=self._mtu)

    def step(self):
        """Takes those who came, and switches for :data:`TURN_MS`, or sleeps until somebody comes."""
        busy = any(self.switch.up(i) for i in self.names.values())
        ready, _, _ = select.select(list(self._listeners.values()), [], [], 0 if busy else 0.5)
        for listener in ready:
            self._take(listener)
        if not self.switch.run():
            return
        for name, i in self.names.items():
            if name not in self._listeners and not self.switch.up(i):
                self._tell(f"{name} is free again")
                self._listen(name)
        self.switch.flush()

    def _take(self, listener):
        name = listener.path.name
        try:
            link = listener.accept(GREETING)
        except LinkError as error:
            if error.errno != errno.ETIMEDOUT:
                self._tell(error.strerror)
            return
        self.switch.attach(self.names[name], link)
        listener.close()
        del self._listeners[name]
        self._tell(f"{name} is in use")

    def close(self):
        """Ends all links, and takes its files away, and the folder, if that is empty then. Again: nothing."""
        if self._lock is None:
            return
        for listener in self._listeners.values():
            listener.close()
        self._listeners = {}
        if self.switch is not None:
            self.switch.close()
        self._clear()
        with contextlib.suppress(OSError):
            (self.folder / LOCK).unlink()
            self.folder.rmdir()
        os.close(self._lock)
        self._lock = None

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()
