"""The event ring in host memory, and who is asked to look at it when time passes."""

import os
import threading
import weakref

from verbena.hdl.abi.eqe import EQE

__all__ = ["EventRing", "driven", "phase_at", "take_events", "watch_events"]

_driven = weakref.WeakSet()  # adapters that are up
_driven_lock = threading.RLock()


def _forget():
    """In a child process: the adapters are its parent's, of which a thread may have had the lock."""
    global _driven_lock
    _driven_lock = threading.RLock()
    _driven.clear()


os.register_at_fork(after_in_child=_forget)


def phase_at(memory, address, record):
    """The phase bit of the entry at ``address``. What it vouches for must be read after it."""
    bit = record.fields["phase"].offset
    return memory.read(address + bit // 8, 1)[0] >> bit % 8 & 1


class EventRing:
    """The ring of ``2**log_size`` entries to which the device writes events, empty at first.

    ``bus`` is its address for the device, ``consumer`` the index of the next entry, modulo 2^16, as the device's
    register has it.
    """

    def __init__(self, memory, log_size):
        self._memory = memory
        self.log_size = log_size
        self.address, self.bus = memory.alloc_contiguous(EQE.size << log_size)
        memory.write(self.address, bytes(EQE.size << log_size))
        self.consumer = 0

    def take(self):
        """The oldest event, a dictionary of the fields of an EQE; None if there is none."""
        at = self.address + EQE.size * (self.consumer & (1 << self.log_size) - 1)
        if phase_at(self._memory, at, EQE) == self.consumer >> self.log_size & 1:
            return None
        self.consumer = self.consumer + 1 & 0xFFFF
        return EQE.unpack(self._memory.read(at, EQE.size))

    def close(self):
        """Gives the memory back."""
        self._memory.free(self.address)


def watch_events(adapter, on):
    """From now on, or not any more, :func:`take_events` asks ``adapter``."""
    with _driven_lock:
        (_driven.add if on else _driven.discard)(adapter)


def driven(world):
    """Those adapters of this process that are up and whose port is in ``world``; none if that is None."""
    if world is None:
        return []
    with _driven_lock:
        adapters = list(_driven)
    return [adapter for adapter in adapters if getattr(adapter.port, "world", None) is world]


def take_events(world):
    """Hands out the events of those adapters of this process whose port is in ``world`` and that have ``files``: a
    program may sleep until one tells of an event, and then nobody else looks for it. Their agents work, too. Who moves
    the time of a world without :meth:`.adapter.Adapter.advance` calls this after it. Returns whether an agent has done
    anything.
    """
    did = False
    for adapter in driven(world):
        if adapter.files:
            adapter.process_events(wait=False)
        if adapter.agent is not None:
            did = adapter.agent.work() or did
    return did
