"""What a person sees while a build runs: its stages, each with the time since the beginning."""

import sys
import threading
import time

__all__ = ["Stages"]

PAUSE = 60.0
"""Seconds between two lines about the same stage, where lines cannot be written over."""


class Stages:
    """Says what a build is doing, on standard error.

    On a terminal the line of a stage that goes on is written over. Elsewhere a stage has a line when it begins, and one
    a minute if it has news. Several builds may run side by side, each with an instance of its own; then no line is
    written over.

    Parameters
    ----------
    name : str
        Of the build; it stands in each line.
    alone : bool
        No other build writes to the terminal.
    """

    _lock = threading.Lock()

    def __init__(self, name, alone=True):
        self.name = name
        self._over = alone and sys.stderr.isatty()
        self._start = time.monotonic()
        self._stage = None
        self._said = 0.0
        self._open = False

    @property
    def seconds(self):
        """Since the beginning."""
        return time.monotonic() - self._start

    def __call__(self, text):
        """``text`` is the stage, and behind a comma what is new of it."""
        stage, passed = text.partition(",")[0], self.seconds
        if stage == self._stage and not self._over and passed - self._said < PAUSE:
            return
        line = f"{int(passed) // 60:3}:{int(passed) % 60:02}  {self.name}: {text}"
        with self._lock:
            if self._over:
                end = "\r\x1b[K" if self._open and stage == self._stage else "\n" if self._open else ""
                print(f"{end}{line}", end="", file=sys.stderr, flush=True)
                self._open = True
            else:
                print(line, file=sys.stderr, flush=True)
        self._stage, self._said = stage, passed

    def close(self):
        """Ends the last line."""
        if self._open:
            print(file=sys.stderr, flush=True)
            self._open = False
