"""The table of CQ records in host memory: which numbers are taken, and what the driver says in each record."""

import errno
import threading
from dataclasses import dataclass

from verbena.hdl.abi.cqc import ARMS_BITS, CQ_RECORD, CQC_BYTES, CQC_DRIVER

from .errors import AdapterError

__all__ = ["CqTable"]

ARMS = 1 << ARMS_BITS
WORD = 8
WORD_BIT = 8 * CQC_DRIVER
FIELDS = {name: field.offset - WORD_BIT for name, field in CQ_RECORD.fields.items() if field.offset >= WORD_BIT}


@dataclass
class _Told:
    """The driver's word, and how it was armed when its last completion event came."""

    consumer: int = 0
    arms: int = 0
    solicited_arms: int = 0
    consumer_ring: int = 0
    answered: tuple = (0, 0)

    def value(self):
        return sum(getattr(self, name) << bit for name, bit in FIELDS.items())


class CqTable:
    """``1 << log_size`` records of 64 bytes in ``memory``.

    The device has ``slots`` places on chip, and a CQ is in that of its number's low bits: so who takes a number gets
    one whose place few others share. The word of a CQ is told by one thread at a time.
    """

    def __init__(self, memory, log_size, slots):
        self.memory = memory
        self.log_size = log_size
        self.slots = min(slots, 1 << log_size)
        size = CQC_BYTES << log_size
        whole = max(4096, size)
        self.address, self.bus = memory.alloc_contiguous(whole, whole)
        memory.write(self.address, bytes(size))
        self._lock = threading.Lock()
        self._told = {}
        self._shared = [0] * self.slots  # CQs a place
        self._turn = [0] * self.slots  # of its numbers, the one that is next

    def close(self):
        self.memory.free(self.address)

    def take(self):
        """A number that is not taken; one that was given back rests as long as it can."""
        count = 1 << self.log_size
        if len(self._told) == count:
            raise AdapterError(errno.ENOMEM, f"all {count} CQs are in use")
        place = min(range(self.slots), key=self._shared.__getitem__)
        numbers = count // self.slots
        while (number := place + self._turn[place] * self.slots) in self._told:
            self._turn[place] = (self._turn[place] + 1) % numbers
        self._turn[place] = (self._turn[place] + 1) % numbers
        self._shared[place] += 1
        self._told[number] = _Told()
        self._write(number)
        return number

    def give_back(self, number):
        del self._told[number]
        self._shared[number % self.slots] -= 1

    def begin_ring(self, number):
        """The CQ has another ring, from whose first entry on it takes CQEs."""
        with self._lock:
            told = self._told[number]
            told.consumer, told.consumer_ring = 0, told.consumer_ring ^ 1
            self._write(number)

    def consume(self, number, consumer):
        """CQEs before ``consumer``, a free-running index, are taken. Returns what is to be rung."""
        with self._lock:
            self._told[number].consumer = consumer & 0xFFFF
            self._write(number)
        return consumer & 0xFFFF

    def arm(self, number, solicited_only):
        """Asks for an event once more. Returns what is to be rung.

        A count that is a whole round ahead of what the device has answered would look like it. So a count that is half
        a round ahead of what it was when an event came stays: that CQ is armed, or its event is on its way.
        """
        with self._lock:
            told = self._told[number]
            name, before = ("solicited_arms", told.answered[1]) if solicited_only else ("arms", told.answered[0])
            count = (getattr(told, name) + 1) % ARMS
            if (count - before) % ARMS < ARMS // 2:
                setattr(told, name, count)
            self._write(number)
            return told.arms | told.solicited_arms << ARMS_BITS

    def answered(self, number):
        """A completion event of the CQ has come."""
        with self._lock:
            if (told := self._told.get(number)) is not None:
                told.answered = told.arms, told.solicited_arms

    def die(self, number):
        """The device has said CQ_ERR. If it could not write the record, what stands there is old: with ``dead`` set the
        device takes nothing for the CQ when it reads it again.
        """
        byte, bit = divmod(CQ_RECORD.fields["dead"].offset, 8)
        at = self.address + CQC_BYTES * number + byte
        with self._lock:
            if number in self._told:
                self.memory.write(at, bytes([self.memory.read(at, 1)[0] | 1 << bit]))

    def _write(self, number):
        at = self.address + CQC_BYTES * number + CQC_DRIVER
        self.memory.write(at, self._told[number].value().to_bytes(WORD, "little"))
