"""The clock by which the connection manager repeats messages, and gives up.

Its second is the port's (``second_ns`` of :class:`verbena.sw.port.Port`) where that is a true one. In simulation, where
the timers of adapters are shorter than true ones, it is shorter still (:data:`SHORTER`): somebody sits and waits for a
repetition. And where a simulated world has nothing to do, and nobody else can act, the clocks of all its adapters go on
to what is due next (:func:`skip`): nothing could come before it.
"""

import weakref

from ..events import driven

__all__ = ["Clock", "skip"]

SECOND_NS = 10**9
SHORTER = 16
"""By so much: a second is a quarter of a million cycles then, and a program simulates a hundred thousand or more in a
second of the wall's clock. Who decides on a request takes less.
"""
_skipped = weakref.WeakKeyDictionary()  # world: ms that its clocks have gone on


class Clock:
    """Of an adapter's port."""

    def __init__(self, port):
        self._port = port
        second = getattr(port, "second_ns", SECOND_NS)
        self._ms = (second / SHORTER if second < SECOND_NS else second) / 1000
        self._key = getattr(port, "world", None) or port

    @property
    def now(self):
        """Milliseconds from any start."""
        return self._port.time_ns() / self._ms + _skipped.get(self._key, 0)

    def go_on(self, ms):
        """From now on it is so much later in the whole world."""
        _skipped[self._key] = _skipped.get(self._key, 0) + ms


def skip(adapter):
    """Brings the clocks of the adapter's world to what is due next there, and has it done; whether there was something.
    Never where time is true, or where others may act at any time.
    """
    port = adapter.port
    if not hasattr(port, "second_ns") or getattr(port, "linked", False):
        return False
    agents = [each.agent for each in driven(getattr(port, "world", None)) if each.agent is not None]
    due = [(agent.due, agent) for agent in agents if agent.due is not None]
    if not due:
        return False
    first, agent = min(due, key=lambda pair: pair[0])
    agent.clock.go_on(max(0, first - agent.clock.now))
    for agent in agents:
        agent.work()
    return True
