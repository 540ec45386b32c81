"""The ports of the switch: adapters, with registers and host memory, and taps; and the faults of the wire."""

import ctypes
from dataclasses import dataclass

from .library import FAULTS, MemorySettings, fault_settings

__all__ = ["Adapter", "BusError", "Faults", "Tap"]

ACCESS_LIMIT = 10_000
"""Cycles after which a register access counts as unanswered."""


WAITS = -3
"""The response while the peer of the link does not come on."""


class BusError(OSError):
    """A register access was refused or not answered."""


@dataclass
class Faults:
    """Probabilities, each for every frame, by which the wire harms what a port sends.

    Parameters
    ----------
    lose, duplicate, reorder, corrupt, delay : float
        ``corrupt`` flips one to three bits without a wrong FCS: only the ICRC can tell. Where a frame is ``delay``-ed
        those behind it wait, where it is ``reorder``-ed they overtake it.
    damage : float
        The frame arrives with ``error``, as one with a wrong FCS.
    reorder_cycles, delay_cycles : int
        At most so late.
    """

    lose: float = 0.0
    duplicate: float = 0.0
    reorder: float = 0.0
    corrupt: float = 0.0
    delay: float = 0.0
    damage: float = 0.0
    reorder_cycles: int = 2000
    delay_cycles: int = 2000

    def __post_init__(self):
        for name in FAULTS:
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} must be a probability, not {getattr(self, name)!r}")
        for name in ("reorder_cycles", "delay_cycles"):
            if not 1 <= getattr(self, name) < 1 << 32:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)!r}")


class _Port:
    """A port of the switch: an adapter's or a tap's."""

    def __init__(self, world, index, mac):
        self._world = world
        self.index = index
        self.mac = mac

    @property
    def mac(self):
        """The address by which the switch knows the port, as a number (first byte on the wire most significant)."""
        return self._mac

    @mac.setter
    def mac(self, value):
        self._world._call("port_mac", self.index, value.to_bytes(6, "big"))
        self._mac = value

    @property
    def faults(self):
        """The :class:`Faults` of frames that leave this port; assign to change them."""
        return self._faults

    @faults.setter
    def faults(self, faults):
        self._world._call("faults", self.index, fault_settings(faults))
        self._faults = faults

    _faults = Faults()

    @property
    def link(self):
        """Whether the cable is plugged in. Without it nothing leaves or arrives."""
        return self._link

    @link.setter
    def link(self, up):
        self._world._call("link", self.index, bool(up))
        self._link = bool(up)

    _link = True

    def fault_at(self, number, fault):
        """Does ``fault`` ("lose", "corrupt", ...) to the frame of this number that the port sends, counted from 0."""
        if fault not in FAULTS:
            raise ValueError(f"fault must be one of {', '.join(FAULTS)}, not {fault!r}")
        if not self._world._call("fault_at", self.index, number, FAULTS.index(fault)):
            raise ValueError(f"frame {number} has been sent already")

    @property
    def fault_counters(self):
        """How many frames had each fault."""
        return dict(zip(FAULTS, self._world._counters("fault_counters", self.index, len(FAULTS))))

    @property
    def counters(self):
        names = ("sent_frames", "sent_bytes", "received_frames", "received_bytes")
        return dict(zip(names, self._world._counters("port_counters", self.index, len(names))))


class Adapter(_Port):
    """One engine with its host bus."""

    def write32(self, offset, value):
        """Writes a register, through the AXI-Lite handshakes. :class:`BusError` if the engine refuses."""
        with self._world._lock:
            response = self._world._call("write32", self.index, offset, value, ACCESS_LIMIT)
            self._check(self._end(response, ctypes.c_uint32()), "write", offset)

    def read32(self, offset):
        """Value of a register. :class:`BusError` if the engine refuses."""
        value = ctypes.c_uint32()
        with self._world._lock:
            response = self._world._call("read32", self.index, offset, value, ACCESS_LIMIT)
            self._check(self._end(response, value), "read", offset)
        return value.value

    def _end(self, response, value):
        """The response, once the peer of the link has let the access come to its end."""
        while response == WAITS:
            response = self._world._call("resume", self.index, value)
        return response

    def _check(self, response, what, offset):
        self._world._raise_violations()
        if response:
            answer = {-1: "no answer", 2: "SLVERR", 3: "DECERR"}.get(response, str(response))
            raise BusError(f"register {what} at {offset:#x} of adapter {self.index}: {answer}")

    @property
    def interrupt(self):
        """Levels of the interrupts: a bit for each event queue."""
        return self._world._call("interrupt", self.index)

    def inject(self, frame, *, error=False):
        """Sends a frame to this adapter alone, past the switch and its faults."""
        self._world._call("inject", self.index, bytes(frame), len(frame), error)

    def reset(self, cycles=8):
        """Holds the engine, and its ends of bus and wire, in reset for the next cycles."""
        self._world._call("reset", self.index, cycles)

    @property
    def memory(self):
        """Settings of the host memory behind this adapter, those of :meth:`set_memory`."""
        return {name: getattr(self._memory, name) for name, _ in MemorySettings._fields_}

    def set_memory(self, **settings):
        """Changes some of ``read_latency``, ``write_latency``, ``read_bandwidth``, ``write_bandwidth`` (beats in 16
        cycles), ``outstanding`` (bursts), ``stall`` (probability of back pressure, each cycle and channel),
        ``shuffle`` (ids are answered out of order), ``silent_reads`` and ``silent_writes`` (what is asked for is never
        answered, nor what comes behind it with the same id; see :meth:`answer_silent`).
        """
        for name, value in settings.items():
            if name not in self.memory:
                raise ValueError(f"there is no memory setting {name!r}")
            setattr(self._memory, name, value)
        self._world._call("memory_settings", self.index, self._memory)

    def answer_silent(self):
        """Answers, late, what was asked for while the memory was silent."""
        self._world._call("answer_silent", self.index)

    @property
    def bus_counters(self):
        names = ("read_bursts", "write_bursts", "read_beats", "write_beats", "decode_errors")
        return dict(zip(names, self._world._counters("memory_counters", self.index, len(names))))


class Tap(_Port):
    """A port whose owner is the program: an emulated peer, or a bridge to another network."""

    def send(self, frame, *, error=False):
        """Sends a frame (Ethernet header first, no FCS) into the switch."""
        self._world._call("send", self.index, bytes(frame), len(frame), error)

    def receive(self):
        """The oldest frame that came to this tap, or None. Frames with a wrong FCS are left out."""
        error = ctypes.c_int()
        while True:
            size = self._world._call("receive", self.index, self._buffer, len(self._buffer), error)
            if size < 0:
                return None
            if size > len(self._buffer):
                self._buffer = ctypes.create_string_buffer(size)
            elif not error.value:
                return self._buffer.raw[:size]

    _buffer = ctypes.create_string_buffer(16384)
