"""The numbers of queue pairs: which are taken, which place on the device each has, and whom the device has lost."""

import errno
from collections import deque

from .errors import AdapterError

__all__ = ["QPN_BITS", "QpNumbers"]

QPN_BITS = 24


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
        Places that are free; the next one first.
    """

    def __init__(self, count, random):
        self.count = count
        self._random = random
        self.free = deque(random.sample(range(count), count))
        self._placed = {}  # number of the QP in each place that is taken
        self._lost = set()

    def take(self):
        """A number that is not taken. ``AdapterError`` (ENOMEM) if all places are."""
        if not self.free:
            raise AdapterError(errno.ENOMEM, f"all {self.count} QPs are in use")
        place = self.free.popleft()
        (high,) = self._random.sample(range(1, (1 << QPN_BITS) // self.count), 1)
        self._placed[place] = number = high * self.count + place
        return number

    def give_back(self, number):
        """Its place is free, and it is lost no more."""
        place = self.place(number)
        del self._placed[place]
        self._lost.discard(number)
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
