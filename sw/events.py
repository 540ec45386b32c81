"""The event ring in host memory, and who is asked to look at it when time passes."""

import os
import threading
import weakref

from verbena.hdl.abi.eqe import EQE, EventType

__all__ = ["EventRing", "driven", "phase_at", "take_events", "watch_events"]

IN_FLIGHT = 15
"""Events that the device writes at a time: so many may be lost one behind the other, and the next one is there."""

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

    The device writes events in their order. One whose write has failed leaves its entry as it was, with later ones
    behind it: it counts as DEVICE_FATAL, as nobody knows what it has told.
    """

    def __init__(self, memory, log_size):
        self._memory = memory
        self.log_size = log_size
        self.address, self.bus = memory.alloc_contiguous(EQE.size << log_size)
        memory.write(self.address, bytes(EQE.size << log_size))
        self.consumer = 0
        self._ahead = 0

    def _at(self, index):
        """Address of the entry that the event ``index`` has, and whether that is there."""
        at = self.address + EQE.size * (index & (1 << self.log_size) - 1)
        return at, phase_at(self._memory, at, EQE) != index >> self.log_size & 1

    def take(self):
        """The oldest event, a dictionary of the fields of an EQE; None if there is none."""
        at, here = self._at(self.consumer)
        if here:
            event = EQE.unpack(self._memory.read(at, EQE.size))
        elif self._is_lost():
            event = {"type": EventType.DEVICE_FATAL, "number": 0}
        else:
            return None
        self.consumer = self.consumer + 1 & 0xFFFF
        return event

    def _is_lost(self):
        """Whether the next event is not there, and one behind it is: of those that may be one is looked at a call."""
        self._ahead = self._ahead % min(IN_FLIGHT, (1 << self.log_size) - 1) + 1
        _, behind = self._at(self.consumer + self._ahead & 0xFFFF)
        return behind and not self._at(self.consumer)[1]  # it has not come meanwhile

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
