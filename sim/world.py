"""The simulated world for plain Python: adapters on a wire, host memory, captures and waves.

The caller owns time: nothing moves between two calls. A register access takes the cycles of its handshakes;
:meth:`World.advance` lets time pass until something happens. A process may have several worlds: each has its own
engines, wire and time, and all have the process's memory.
"""

import ctypes
import errno
import os
import threading
import time
import weakref

from ..sw import host_memory
from .library import MemorySettings, WireSettings, capture_frames, load
from .model import build, rnic
from .ports import Adapter, BusError, Faults, Tap
from .settings import setting
from .sim_port import MAC

__all__ = ["INTERRUPT", "LINK", "TAP", "WATCH", "Adapter", "BusError", "Faults", "ProtocolError", "Tap", "World"]

INTERRUPT, WATCH, TAP, _VIOLATION, _WAITS, LINK = 1, 2, 4, 8, 16, 32
"""What stops :meth:`World.advance`: an interrupt rose, an engine wrote to watched memory, a frame reached a tap, the
peer of the link is gone."""


WAIT_MS = 50
"""Milliseconds that a call waits for the peer of the link before it looks for Ctrl-C."""


_worlds = weakref.WeakSet()


def _abandon_all():
    """In a child process: worlds are its parent's. Their peers are told nothing, and what a capture has still to write
    is written there. A thread of the parent may be inside of one.
    """
    for world in list(_worlds):
        world._abandon()


os.register_at_fork(after_in_child=_abandon_all)


class ProtocolError(AssertionError):
    """An engine broke a rule of AXI or of the packet streams."""


class World:
    """Adapters on one wire, in lock step, with the host memory of :mod:`verbena.sw.host_memory` behind each.

    Parameters
    ----------
    adapters : int
    design : verbena.sim.model.Design, optional
        The engine; by default the standard configuration.
    data_width : int
        Instead: the standard configuration at this width.
    tick : int, optional
        Cycles that the drivers of its devices let timers take for 4.096 us; by default ``VERBENA_TICK`` of the
        environment, or 16.
    seed : int
        Of faults, stalls, shuffling and keys: the same seed and the same calls give the same cycles. It stays in
        ``random_seed``.
    memory_latency, write_latency : int
        Cycles from an AXI4 read's address to its first data, and from a write's last data to its response.
    first : int
        Number of the first adapter: it decides the names of the devices (``sim0``), and the addresses.
    clock_hz : float
        What one cycle stands for, in captures and waves.
    paced : bool
        The wire carries what a line of ``data_width * clock_hz`` bits a second can; otherwise all that engines send.
    wire_delay : int
        Cycles that a frame travels, beyond the single cycle of the switch.
    store : bool
        A frame goes on when its last beat has come, as over a link, not beat by beat.
    trace : bool
        Compile for waves.
    cores : int, optional
        Of the computer: with two of them a world of several adapters has a second thread, which takes part if it comes
        in time, and changes no result. By default ``VERBENA_CORES`` of the environment, or those of the process.
    link : verbena.sim.link.Link, optional
        The wire leads to another simulator. Then time passes only as far as the peer lets it, and all calls wait for
        the peer.
    **memory
        More settings of :meth:`Adapter.set_memory`, for all adapters.
    """

    def __init__(
        self,
        adapters=1,
        design=None,
        *,
        data_width=None,
        tick=None,
        seed=1,
        memory_latency=128,
        write_latency=32,
        first=0,
        clock_hz=156.25e6,
        paced=True,
        wire_delay=0,
        store=False,
        trace=False,
        cores=None,
        link=None,
        **memory,
    ):
        if adapters < 1:
            raise ValueError(f"adapters must be at least 1, not {adapters!r}")
        if data_width is not None:
            if design is not None:
                raise ValueError(f"either a design or a data_width, not {design!r} and {data_width!r}")
            design = rnic(data_width=data_width)
        self.tick = tick
        self.random_seed = seed
        self.first = first
        self.model = build(design, trace=trace)
        library = load(self.model.library)
        self._attach(library, library.create(adapters, clock_hz, seed), clock_hz, owner=True)
        self.set_wire(paced=paced, delay=wire_delay, store=store)
        for adapter in self.adapters:
            adapter.set_memory(read_latency=memory_latency, write_latency=write_latency, **memory)
        if cores is None:
            cores = setting("VERBENA_CORES", len(os.sched_getaffinity(0)))
        if adapters > 1 and cores > 1:
            self._call("set_helper", True)
        if link is not None:
            self._attach_link(link)

    _handle = None
    _devices = None
    _linked = False
    is_default = False
    """It is that of :func:`.devices.world`."""
    followed = False
    """A thread moves time while the program makes no call (:class:`.attach.Mover`)."""
    tick = None
    random_seed = 1
    first = 0
    entered = 0.0
    """Of a world that is linked or followed: when the last call ended, in seconds of ``time.monotonic``; those of who
    moves time meanwhile do not count."""
    inside = 0
    """Calls under way, of such a world."""

    def _attach(self, library, handle, clock_hz, *, owner):
        self._library = library
        self._handle = handle
        self._owner = owner
        self._lock = threading.RLock()
        self._wire = WireSettings(True, 0, 0.0, False)
        self.clock_hz = clock_hz
        self.events = 0
        for window in host_memory.windows():
            self.window(True, window)
        host_memory.subscribe(self)
        _worlds.add(self)
        # Locally administered addresses.
        self.adapters = [Adapter(self, i, MAC + self.first + i) for i in range(self._call("adapters"))]
        for adapter in self.adapters:
            adapter._memory = MemorySettings(128, 32, 16, 16, 64, 0.0, False, False, False)

    def _attach_link(self, link):
        settings = link.settings()
        self._call("set_wait", WAIT_MS)
        if not self._call("attach", settings):
            self.close()
            raise OSError(errno.ENOMEM, "the memory of the link cannot be mapped")
        self.entered = time.monotonic()
        self._linked = True

    @property
    def link(self):
        """``"up"``, ``"ended"`` if the peer has ended it, ``"gone"`` if the peer is gone without a word; None without a
        link.
        """
        state = self._call("link_state")
        return ("up", "ended", "gone")[state] if state >= 0 else None

    def close(self):
        """Ends the simulation, and closes all contexts on its adapters; captures and waves are complete then."""
        self._end()
        if self._devices is not None:
            self._devices.close()

    @property
    def closed(self):
        return self._handle is None

    def _end(self):
        if self._handle is None:
            return
        with self._lock:  # until another thread comes out
            handle, self._handle = self._handle, None
            if handle and self._linked:
                self._library.detach(handle)
            if handle and self._owner:
                self._library.destroy(handle)

    def _abandon(self):
        handle, self._handle = self._handle, None
        self._lock = threading.RLock()
        if handle and self._owner:
            self._library.abandon(handle)

    @property
    def ports(self):
        """The adapters as devices of the driver (:class:`.sim_port.SimPort`) by name: ``sim0``, ``sim1``, ..."""
        if self._devices is None:
            from .world_devices import WorldDevices

            self._call("cycle")  # it must be open
            self._devices = WorldDevices(self)
        return self._devices.ports

    def context(self, name="sim0", *, push=None):
        """A :class:`verbena.sw.verbs.device.Context` on adapter ``name`` of this world, which closes it.

        Contexts on one adapter share its driver.
        """
        from verbena.sw.verbs.base import refuse
        from verbena.sw.verbs.device import Context

        if self.closed:
            refuse(f"Failed to open device {name}: the world is closed", errno.EINVAL)
        if name not in self.ports:
            refuse(f"Failed to find device {name}: this world has {', '.join(self.ports)}", errno.ENODEV)
        return Context(port=self.ports[name], push=push)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __del__(self):
        # Who owns the contexts is forgotten, too, and ends the world after them.
        if self._devices is None:
            self._end()

    def _call(self, name, *arguments):
        if not (self._linked or self.followed):
            return self._locked(name, *arguments)
        self.inside += 1
        try:
            return self._locked(name, *arguments)
        finally:
            self.entered = time.monotonic()
            self.inside -= 1

    def _locked(self, name, *arguments):
        # ctypes lets go of the interpreter, so two threads could be inside at once.
        with self._lock:
            if self._handle is None:
                raise ValueError("the world is closed")
            return getattr(self._library, name)(self._handle, *arguments)

    def activity(self):
        """Changes with each frame that the first adapter sends or receives, and while its bus is busy."""
        values = (ctypes.c_uint64 * 4)()
        with self._lock:
            if self._handle is None:
                return None
            self._library.port_counters(self._handle, 0, values)
            return values[0], values[2], None if self._library.idle(self._handle) else self._library.cycle(self._handle)

    def move(self, cycles, wait_ms):
        """Lets up to ``cycles`` pass for a program that is elsewhere; waits at most ``wait_ms`` for the peer of the
        link. Events stay for the program's next :meth:`advance`. Returns the cycles that passed, None if the world is
        closed.
        """
        with self._lock:
            if self._handle is None:
                return None
            self._library.set_wait(self._handle, wait_ms)
            passed = self._library.advance(self._handle, cycles, 0)
            self._library.set_wait(self._handle, WAIT_MS)
            return passed

    def _counters(self, name, index, count):
        values = (ctypes.c_uint64 * count)()
        self._call(name, index, values)
        return list(values)

    def _raise_violations(self):
        text = ctypes.create_string_buffer(512)
        found = []
        while self._call("take_violation", text, len(text)):
            found.append(text.value.decode())
        if found:
            raise ProtocolError("; ".join(found[:5]))

    @property
    def cycles(self):
        """Cycles since the start."""
        return self._call("cycle")

    @property
    def time_ns(self):
        return self.cycles * 1e9 / self.clock_hz

    @property
    def idle(self):
        """Nothing is on the wire or on a host bus; what an engine still has to do it must say itself."""
        return bool(self._call("idle"))

    @property
    def cut(self):
        """The link went down since the last :meth:`advance` began."""
        return bool(self.events & LINK)

    def advance(self, max_cycles, stop=INTERRUPT | WATCH | TAP):
        """Lets up to ``max_cycles`` pass, less if an event of ``stop`` happens. Returns the cycles that passed.

        ``events`` then says what happened since the last ``advance``, register accesses included; an event that came in
        one of those ends the next call at once. :class:`ProtocolError` if an engine breaks a rule.
        """
        passed, self.events = 0, 0
        while True:
            passed += self._call("advance", max_cycles - passed, stop | LINK)
            self.events |= self._call("take_events")
            if not self.events & _WAITS:
                break
            # The peer does not come on: Ctrl-C has had its chance.
            self.events &= ~_WAITS
            if passed >= max_cycles or self.events & (stop | _VIOLATION):
                break
        if self.events & _VIOLATION:
            self._raise_violations()
        return passed

    def watch(self, address, length):
        """Makes a write of an engine to this host memory an event; returns a number for :meth:`unwatch`."""
        return self._call("watch", address, length)

    def unwatch(self, number):
        self._call("unwatch", number)

    def window(self, added, window):
        """A part of host memory comes or goes (:func:`verbena.sw.host_memory.subscribe`)."""
        if self._handle is None:
            return
        if not added:
            self._call("remove_window", window.bus)
        elif not self._call("add_window", window.bus, window.address, window.size, window.mask):
            raise ValueError(f"window overlaps another or is not made of pages: {window}")

    def set_wire(self, **settings):
        """Changes some of ``paced``, ``delay`` (cycles), ``stall`` (probability, each cycle) and ``store``."""
        for name, value in settings.items():
            if name not in [field for field, _ in WireSettings._fields_]:
                raise ValueError(f"there is no wire setting {name!r}")
            setattr(self._wire, name, value)
        self._call("wire_settings", self._wire)

    def set_faults(self, faults):
        """Sets the :class:`Faults` of all adapters."""
        for adapter in self.adapters:
            adapter.faults = faults

    def seed(self, seed):
        """Starts all random choices again."""
        self._call("seed", seed)

    def tap(self, mac):
        """A new :class:`Tap` with a MAC address of its own."""
        return Tap(self, self._call("add_tap"), mac)

    def capture(self, path, *, bus=False, frames="sent"):
        """Records all frames in a pcapng file, with ``bus`` also all host-bus transactions; None stops.

        ``frames`` says where a frame is recorded: as it was ``"sent"``, as it was ``"received"``, or ``"both"``. See
        ``native/capture.h`` for the format.
        """
        frames = capture_frames(frames)
        if path is None:
            self._call("capture_close")
        elif not self._call("capture_open", str(path).encode(), bus, frames):
            raise OSError(f"cannot write {path}")

    def flush(self):
        """Puts on disk what the capture holds so far."""
        self._call("capture_flush")

    def waves(self, prefix):
        """Records waves in ``prefix.<adapter>.vcd``; None stops. Needs ``trace=True``."""
        if prefix is None:
            self._call("trace_close")
        elif not self._call("trace_open", str(prefix).encode()):
            raise OSError(f"cannot write {prefix}" if self.model.trace else "the model is compiled without trace")
