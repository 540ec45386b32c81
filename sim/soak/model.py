"""What memory must hold: a plain model of one direction of a connection, which knows nothing of packets."""

from collections import deque
from dataclasses import dataclass, field

__all__ = ["Difference", "Operation", "Peer", "first_difference"]

BLOCK = 4096


class Difference(AssertionError):
    """Memory, a completion or a message is not what it must be."""


@dataclass
class Operation:
    """A send work request, and what must have come of it when it is complete."""

    number: int
    name: str
    signaled: bool
    remote: tuple = ()  # (offset, length) of the peer's slice
    result: bytes | None = None  # of a READ or atomic
    pieces: list = field(default_factory=list)  # (address, length) of the scatter/gather entries
    before: bytes = b""  # what the operation changes in the slice, and into what
    data: bytes = b""
    fates: frozenset = frozenset()  # statuses with which it must fail, if it comes so far

    @property
    def reads(self):
        return self.result is not None


def first_difference(expected, actual):
    """Offset of the first byte in which two byte strings of equal length differ; None if they do not."""
    if expected == actual:
        return None
    return next(i for i, (a, b) in enumerate(zip(expected, actual)) if a != b)


class Peer:
    """The slice of the peer's memory that one direction of a connection writes and reads, and the messages it sends.

    Operations of a queue pair are executed in order, so each acts on the model when it is posted. What may be executed
    again, or late, is a READ: an operation that changes what an incomplete READ or atomic covers must be fenced.
    """

    def __init__(self, size):
        self.memory = bytearray(size)
        self.open = deque()  # operations posted and not complete
        self.messages = deque()  # (data, immediate or None) that receives must see

    def fence(self, at, length):
        """Whether an operation that changes these bytes must wait for a READ or atomic."""
        return any(
            op.reads and op.remote[0] < at + length and at < op.remote[0] + op.remote[1]
            for op in self.open
            if op.remote
        )

    def write(self, at, data):
        """Returns what was there."""
        before = self.read(at, len(data))
        self.memory[at : at + len(data)] = data
        return before

    def read(self, at, length):
        return bytes(self.memory[at : at + length])

    def fetch_add(self, at, addend):
        """The original value, as it lies in memory."""
        before = int.from_bytes(self.read(at, 8), "little")
        return self.write(at, (before + addend & (1 << 64) - 1).to_bytes(8, "little"))

    def compare_swap(self, at, compare, swap):
        before = self.read(at, 8)
        if int.from_bytes(before, "little") == compare:
            self.write(at, swap.to_bytes(8, "little"))
        return before

    def check(self, actual, what):
        """Nothing is under way: memory is the model's."""
        at = first_difference(bytes(self.memory), actual)
        if at is not None:
            raise Difference(f"{what}: byte {at:#x} is {actual[at]:#04x}, not {self.memory[at]:#04x}")

    def settle(self, actual, what):
        """The connection broke: of the operations that are open, each may have had its effect or not, or in part. Takes
        over what memory holds, if every byte of it can be explained.
        """
        changes = [op for op in self.open if op.data and op.before]
        for start in range(0, len(actual), BLOCK):
            if self.memory[start : start + BLOCK] != actual[start : start + BLOCK]:
                self._explain(start, actual[start : start + BLOCK], changes, what)
        self.memory[:] = actual
        self.open.clear()
        self.messages.clear()

    def _explain(self, start, actual, changes, what):
        for at, found in enumerate(actual, start):
            if self.memory[at] == found:
                continue
            possible = (op for op in changes if op.remote[0] <= at < op.remote[0] + op.remote[1])
            if not any(found in (op.before[at - op.remote[0]], op.data[at - op.remote[0]]) for op in possible):
                raise Difference(f"{what}: byte {at:#x} is {found:#04x}, which nobody wrote")
