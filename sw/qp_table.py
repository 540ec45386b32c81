"""The table of QP records in host memory: the driver's words in each of them."""

import threading

from verbena.hdl.abi.qpc import QP_DOORBELLS, QPC_DRIVER, qpc_bytes
from verbena.hdl.abi.registers import QpDoorbell

__all__ = ["QpTable"]

WORD = 4
INDEX = 0xFFFF
SQ_BIT, RQ_BIT = (QP_DOORBELLS.fields[name].offset for name in ("sq_producer", "rq_producer"))
LEAST = 4096
"""Bytes to which the table is aligned at least."""


class QpTable:
    """``count`` records, of QPs of which each has at most ``window`` WQEs unacknowledged. A QP's place is its number's
    low bits.

    The device writes all of a record but the first :data:`QPC_DRIVER` bytes, and reads none that it has not written:
    so the memory is not cleared. Both producer indices of a QP stand in one word of 4 bytes, which is written whole:
    memory behind a network is not written in smaller pieces. Any thread may tell of any queue.

    ``MemoryError`` if there is no room, ``AdapterError`` (EFAULT) if the device does not reach the memory.
    """

    def __init__(self, memory, count, window):
        self.memory = memory
        self.count = count
        self.record = qpc_bytes(window)
        self.address, self.bus = memory.alloc_contiguous(count * self.record, max(LEAST, self.record))
        self._lock = threading.Lock()
        self._words = [0] * count  # what stands in memory

    def close(self):
        """Gives the memory back."""
        self.memory.free(self.address)

    def clear(self, number):
        """Nothing is posted to a QP: it is about to be created, or to go to RESET."""
        place = number % self.count
        with self._lock:
            self._words[place] = 0
            self.memory.write(self._at(place), bytes(QPC_DRIVER))

    def post(self, number, doorbell, index):
        """WQEs before ``index``, a free-running one, are posted to the queue of ``doorbell``, which is rung next."""
        place = number % self.count
        bit = RQ_BIT if doorbell == QpDoorbell.RQ_PRODUCER else SQ_BIT
        with self._lock:
            word = self._words[place] & ~(INDEX << bit) | (index & INDEX) << bit
            self._words[place] = word
            self.memory.write(self._at(place), word.to_bytes(WORD, "little"))

    def _at(self, place):
        return self.address + place * self.record
