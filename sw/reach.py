"""Host memory of which the device reaches only a part."""

import errno

from .errors import AdapterError

__all__ = ["Reach"]


class Reach:
    """``memory``, as a :class:`.port.Port` has it, less what is beyond the bus addresses of so many ``bits``: the
    device would take it for what is at the address's low bits.
    """

    def __init__(self, memory, bits):
        self._memory = memory
        self._bits = bits
        for name in ("alloc", "free", "read", "write", "pin", "unpin"):
            if hasattr(memory, name):
                setattr(self, name, getattr(memory, name))

    def alloc_contiguous(self, size, *alignment):
        """As of ``memory``; ``AdapterError`` (EFAULT) if that is beyond."""
        address, bus = self._memory.alloc_contiguous(size, *alignment)
        if bus + size > 1 << self._bits:
            self._memory.free(address)
            raise AdapterError(errno.EFAULT, self._complaint(bus + size - 1))
        return address, bus

    def bus_pages(self, address, length):
        """As of ``memory``; ``ValueError`` if one is beyond."""
        pages = self._memory.bus_pages(address, length)
        if (last := max(pages)) >> self._bits:
            raise ValueError(self._complaint(last))
        return pages

    def _complaint(self, bus):
        return f"the device reaches bus addresses of {self._bits} bits, not {bus:#x}"
