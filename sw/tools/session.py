"""Sessions: generators that yield when they wait, so that one thread runs several.

A session yields ``WORKED`` after a call that may have let simulated time pass, such as a poll. One that measures a
latency does not yield before it has answered what came: another one's poll would let time pass meanwhile. Who waits
for something else than the device just yields; it is told whether another session lets time pass, and if none does, it
must. So the ends of a simulated test keep no delays that hardware would not have.
"""

import time

__all__ = ["WORKED", "Patience", "ToolError", "run"]

WORKED = True


class ToolError(Exception):
    """A tool cannot go on; the text says why."""


class Patience:
    """How long a session waits in vain, in seconds of the wall's clock; None: for ever."""

    def __init__(self, seconds=None):
        self.seconds = seconds
        self.renew()

    def renew(self):
        """Something came: the time starts again."""
        self._end = None if self.seconds is None else time.monotonic() + self.seconds

    @property
    def over(self):
        """Whether that time has passed."""
        return self._end is not None and time.monotonic() > self._end

    def check(self, what):
        """Raises :class:`ToolError` if the wait for ``what`` has been too long."""
        if self.over:
            raise ToolError(f"waited {self.seconds:g} s in vain for {what}")


def run(*sessions):
    """Runs sessions in turns until all have ended, and returns what they return, in order. If one of them raises, the
    others are closed.
    """
    results = [None] * len(sessions)
    working = dict.fromkeys(range(len(sessions)))  # None until the first turn
    try:
        while working:
            for i in list(working):
                others = None if working[i] is None else any(w for j, w in working.items() if j != i)
                try:
                    working[i] = sessions[i].send(others) is WORKED
                except StopIteration as stop:
                    results[i] = stop.value
                    del working[i]
    finally:
        for session in sessions:
            session.close()
    return results
