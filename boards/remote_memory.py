"""A node's memory as the driver wants host memory: addresses are those of the node's bus."""

import struct
import threading

from verbena.sw.host_memory import PAGE, Heap

__all__ = ["RemoteMemory"]


class RemoteMemory:
    """``size`` bytes at ``base``, read and written through a client.

    What is allocated begins and ends with whole words, so a write never disturbs what the node writes beside it.

    Parameters
    ----------
    client : EtherboneClient
        Or an object with its ``read`` and ``write``.
    base, size : int
    """

    def __init__(self, client, base, size):
        self.client = client
        self.base = base
        self.size = size
        self._heap = Heap(size)
        self._sizes = {}
        self._lock = threading.RLock()

    def alloc(self, size, alignment=8):
        """Address of ``size`` bytes. ``MemoryError`` if there is no room."""
        with self._lock:
            size = -(-max(size, 1) // 16) * 16
            at = self._heap.take(size, max(alignment, 16))
            self._sizes[at] = size
            return self.base + at

    def alloc_contiguous(self, size, alignment=PAGE):
        """Address and bus address, which are the same here."""
        address = self.alloc(size, alignment)
        return address, address

    def free(self, address):
        with self._lock:
            at = address - self.base
            if at not in self._sizes:
                raise ValueError(f"{address:#x} is not allocated")
            self._heap.give(at, self._sizes.pop(at))

    def bus_pages(self, address, length):
        """Bus addresses of the pages of ``[address, address + length)``. ``ValueError`` outside of the memory."""
        last = address + max(length, 1) - 1
        if address < self.base or last >= self.base + self.size:
            raise ValueError(f"the node does not reach {address:#x}")
        return [page * PAGE for page in range(address // PAGE, last // PAGE + 1)]

    def read(self, address, length):
        if not length:
            return b""
        start, end = address // 4 * 4, -(-(address + length) // 4) * 4
        words = self.client.read(range(start, end, 4))
        return struct.pack(f"<{len(words)}I", *words)[address - start :][:length]

    def write(self, address, data):
        data = bytes(memoryview(data).cast("B"))
        if not data:
            return
        head, tail = address % 4, -(address + len(data)) % 4
        if head:
            data = self.read(address - head, head) + data
        if tail:
            data += self.read(address - head + len(data), tail)
        self.client.write(address - head, struct.unpack(f"<{len(data) // 4}I", data))
