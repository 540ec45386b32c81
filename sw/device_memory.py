"""Memory of the device itself, shared out to those who ask for some."""

import threading

from .host_memory import PAGE, Heap

__all__ = ["DeviceMemory"]


class DeviceMemory:
    """What ``window``, a port's ``device_memory``, has, in parts of whole pages.

    Attributes
    ----------
    bus, size : int
        Bus address of the first byte, and bytes.
    """

    PAGE = PAGE

    def __init__(self, window):
        self.bus, self.size = window.bus, window.size
        self.read, self.write = window.read, window.write
        self._heap = Heap(window.size)
        self._sizes = {}
        self._lock = threading.Lock()

    def alloc(self, size, alignment=PAGE):
        """Offset of ``size`` bytes; ``MemoryError`` if there is no room. The alignment is that of the bus address."""
        size, alignment = -(-size // PAGE) * PAGE, max(alignment, PAGE)
        with self._lock:
            if self.bus % alignment:
                raise MemoryError(f"no part of the device's memory is aligned to {alignment} bytes for sure")
            at = self._heap.take(size, alignment)
            self._sizes[at] = size
            return at

    def free(self, at):
        """Gives back what :meth:`alloc` returned."""
        with self._lock:
            self._heap.give(at, self._sizes.pop(at))
