"""Memory of simulated devices themselves, beside the host's."""

import ctypes
import mmap

from verbena.sw.host_memory import Window

__all__ = ["SIZE", "DeviceMemory"]

SIZE = 1 << 20
BUS = 0x3C_0000_0000
"""Bus address of the first adapter's, where no host memory is."""


class DeviceMemory:
    """:data:`SIZE` bytes at the bus address ``bus``, which engines of ``world`` reach; the host has no address of it.

    ``number`` is that of the adapter. It begins as zeros.
    """

    size = SIZE

    def __init__(self, world, number):
        self.bus = BUS + number * SIZE
        self._bytes = mmap.mmap(-1, SIZE)
        address = ctypes.addressof(ctypes.c_char.from_buffer(self._bytes))
        world.window(True, Window(self.bus, address, SIZE, 0))

    def read(self, offset, length):
        return self._bytes[offset : offset + length]

    def write(self, offset, data):
        self._bytes[offset : offset + len(data)] = bytes(data)
