"""The numbers of queue pairs: which are taken, which place on the device each has, and whom the device has lost."""

import errno
from collections import deque

from .errors import AdapterError

__all__ = ["QP1", "QPN_BITS", "QpNumbers"]

QPN_BITS = 24
QP1 = 1
"""Number of the general services' queue pair (IBA 3.9.2), and its place."""


class QpNumbers:
    """Numbers for up to ``count`` QPs. The low bits of a number are the place that the device gives it.

    A number is random: peers learn it, and packets and events of those before it may still be on their way. Its place
    is that of those that are free which has been free for longest. A number is never less than ``count``: such a one in
    an event names a place.

    A QP that the device has lost keeps its number until that is given back. Who takes, gives back or loses holds the
    adapter's lock.

    Parameters
    ----------
    count : int
        Places, a power of two.
    random : random.Random

    Attributes
    ----------
    free : deque
        Places that are free, without QP1's; the next one first.
    """

    def __init__(self, count, random):
        self.count = count
        self._random = random
        self.free = deque(place for place in random.sample(range(count), count) if place != QP1)
        self._placed = {}  # number of the QP in each place that is taken
        self._lost = set()

    def take(self, resting=frozenset()):
        """A number that is not taken, and none of ``resting``. ``AdapterError`` (ENOMEM) if all places are taken."""
        if not self.free and QP1 in self._placed:
            raise AdapterError(errno.ENOMEM, f"all {self.count} QPs are in use")
        place = self.free.popleft() if self.free else QP1
        number = None
        while number is None or number in resting:
            (high,) = self._random.sample(range(1, (1 << QPN_BITS) // self.count), 1)
            number = high * self.count + place
        self._placed[place] = number
        return number

    def take_qp1(self):
        """The number of QP1. ``AdapterError`` (EBUSY) if it is taken, or its place is."""
        if QP1 in self._placed:
            raise AdapterError(errno.EBUSY, f"the place of QP1 is that of QP {self._placed[QP1]:#x}")
        self._placed[QP1] = QP1
        return QP1

    def give_back(self, number):
        """Its place is free, and it is lost no more."""
        place = self.place(number)
        del self._placed[place]
        self._lost.discard(number)
        if place != QP1:
            self.free.append(place)

    def place(self, number):
        """The place of a number."""
        return number % self.count

    def lose(self, place):
        """The device has lost the QP in that place. Its number; None if nobody is there, or it is lost already."""
        number = self._placed.get(place)
        if number is None or number in self._lost:
            return None
        self._lost.add(number)
        return number

    def is_lost(self, number):
        return number in self._lost
