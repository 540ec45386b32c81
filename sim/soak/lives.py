"""First PSNs of connections that begin anew, while frames of their former lives may still be under way."""

from collections import deque

__all__ = ["Lives"]

APART = 1 << 17
"""PSNs that a life may use before those of another one begin."""

REMEMBERED = 16
"""Lives of a QP number after which a frame of the oldest has died out."""

PSNS = 1 << 24


class Lives:
    """The PSNs that each QP number's lives have used, in both directions.

    Nobody can tell a frame of a former life from one of the new life if the PSN fits; whoever connects by InfiniBand's
    connection manager waits until such frames have died out (TimeWait). Here a life begins where none of the last ones
    of its two QP numbers has been.

    Parameters
    ----------
    random : random.Random
    """

    def __init__(self, random):
        self.random = random
        self._used = {}  # key of a QP number: (first, count)

    def choose(self, *keys):
        """A first PSN for a connection between the QP numbers that ``keys`` name, often next to where PSNs wrap."""
        used = [span for key in keys for span in self._used.get(key, ())]
        for _ in range(10_000):
            psn = self.random.choice((0, PSNS - 16, self.random.randrange(PSNS), self.random.randrange(PSNS)))
            if all((psn - first) % PSNS >= count and (first - psn) % PSNS >= APART for first, count in used):
                return psn
        raise ValueError(f"the lives of {keys} have used up all PSNs")

    def ended(self, first, count, *keys):
        """A life between these QP numbers has used ``count`` PSNs from ``first`` on, in one direction."""
        for key in keys:
            self._used.setdefault(key, deque(maxlen=2 * REMEMBERED)).append((first, count + 1))
