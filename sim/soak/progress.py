"""How far a soak has come, and how long it will take."""

import time

from ..console import BarColumn, Progress, TextColumn, TimeElapsedColumn

__all__ = ["EVERY", "Ahead"]

EVERY = 60
"""Seconds between two lines where there is no terminal."""


class Ahead:
    """Shows progress while it is entered: a bar on a terminal, else a line a minute.

    Parameters
    ----------
    console : rich.console.Console
    operations : int or None
        The goal.
    minutes : float or None
        The goal, if ``operations`` is None.
    clock : function
        Returns seconds.
    """

    def __init__(self, console, operations, minutes=None, clock=time.monotonic):
        self.console, self.operations, self.minutes, self.clock = console, operations, minutes, clock
        columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
        self._progress = Progress(*columns, console=console, transient=True)
        self._done = 0

    def __enter__(self):
        self._began = self._told = self.clock()
        if self.console.is_terminal:
            self._task = self._progress.add_task("")
            self._progress.start()
        return self

    def __exit__(self, *exception):
        if self.console.is_terminal:
            self._progress.stop()

    @property
    def _fraction(self):
        if self.operations is not None:
            return min(1, self._done / self.operations)
        return min(1, (self.clock() - self._began) / (60 * self.minutes)) if self.minutes > 0 else 1

    @property
    def reached(self):
        """Whether enough is done."""
        return self._fraction >= 1

    def update(self, done, cycles):
        """``done`` operations are complete after ``cycles`` cycles."""
        self._done = done
        self._show(f"{self.text}, {cycles:,} cycles")

    def drain(self, left, cycles):
        """Nothing more is posted; ``left`` operations are open."""
        self._show(f"{self._done:,} operations, the last {left:,} are coming in, {cycles:,} cycles")

    @property
    def text(self):
        """Operations, of how many, and what is left."""
        fraction, took = self._fraction, self.clock() - self._began
        goal = f" of {self.operations:,}" if self.operations is not None else ""
        left = ", about " + _duration(took / fraction - took) + " left" if fraction > 0 and took >= 1 else ""
        return f"{self._done:,}{goal} operations{left}"

    def _show(self, text):
        if self.console.is_terminal:
            self._progress.update(self._task, description=text, completed=100 * self._fraction)
        elif self.clock() - self._told >= EVERY:
            self._told = self.clock()
            self.console.print(text, highlight=False)


def _duration(seconds):
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} minutes"
