"""What a person sees while a build runs: its stages, each with the time since the beginning."""

import sys
import time

__all__ = ["Stages"]

PAUSE = 60.0
"""Seconds between two lines about the same stage."""


class Stages:
    """Says what the build ``name`` is doing, on standard error: a stage has a line when it begins, and one a minute if
    it has news. Several builds may run side by side, each with an instance of its own.
    """

    def __init__(self, name):
        self.name = name
        self._start = time.monotonic()
        self._stage = None
        self._said = 0.0

    @property
    def seconds(self):
        """Since the beginning."""
        return time.monotonic() - self._start

    def __call__(self, text):
        """``text`` is the stage, and behind a comma what is new of it."""
        stage, passed = text.partition(",")[0], self.seconds
        if stage != self._stage or passed - self._said >= PAUSE:
            minutes, seconds = divmod(int(passed), 60)
            sys.stderr.write(f"{minutes:3}:{seconds:02}  {self.name}: {text}\n")
            self._stage, self._said = stage, passed
