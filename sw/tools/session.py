"""Sessions: generators that yield when they wait."""

import time

__all__ = ["Patience", "ToolError", "run"]


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

    def check(self, what):
        """Raises :class:`ToolError` if the wait for ``what`` has been too long."""
        if self._end is not None and time.monotonic() > self._end:
            raise ToolError(f"waited {self.seconds:g} s in vain for {what}")


def run(*sessions):
    """Runs sessions in turns until all have ended, and returns what they return, in order. If one of them raises, the
    others are closed.
    """
    results = [None] * len(sessions)
    left = dict(enumerate(sessions))
    try:
        while left:
            for i, session in list(left.items()):
                try:
                    next(session)
                except StopIteration as stop:
                    results[i] = stop.value
                    del left[i]
    finally:
        for session in left.values():
            session.close()
    return results
