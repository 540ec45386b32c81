"""How long the simulation of a test takes, in the computer's time, and how far it is."""

import sys
import time

from ..endpoint import clock_hz, clock_text

__all__ = ["FIRST", "LAST", "SPEED", "Progress", "begin", "span", "unheard"]

SPEED = 100_000
"""Cycles that are simulated in a second, roughly."""

BYTES = 8
"""Of payload in a cycle, at 64 bits."""

SHORT, ROUND_TRIP = 14, 600
"""Cycles that a message takes at least in a bandwidth test, and one to and fro in a latency test."""

LONG = 60
"""Seconds from which on it is told beforehand how long a simulation takes."""

FIRST, LAST = 5.0, 60.0
"""Seconds until progress is told first, and at most from then on; each time takes twice the one before."""


def unheard(count):
    """Progress that nobody wants to hear of."""


def begin(progress, options, parts=1):
    """:meth:`Progress.round`; of no progress one that nobody hears of."""
    return unheard if progress is None else progress.round(options, parts)


def span(seconds):
    """A time of which minutes count, in words."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _cycles(kind, options):
    """What a message takes: one way in a bandwidth test, to and fro in a latency test."""
    payload = options.size / BYTES
    if kind.latency:
        return ROUND_TRIP + payload * (2 if kind.symmetric else 1)
    return SHORT + payload


class Progress:
    """Of a side's test: ``options`` are resolved; ``tell`` is called with each line. The clock is the computer's.

    It counts in cycles: those that pass, in a test of a duration, or else those that messages take, by a rough rule.
    """

    def __init__(self, kind, options, context, *, tell=None, clock=time.monotonic):
        self._kind = kind
        self._context = context
        self._tell = tell or (lambda line: print(line, file=sys.stderr, flush=True))
        self._clock = clock
        self._lasting = options.duration is not None
        if self._lasting:
            self.total = options.duration * clock_hz(context)
        else:
            self.total = sum(_cycles(kind, each) * each.iterations * each.qps for each in options.rounds())
        self._done = 0.0
        self._start, self._wait = clock(), FIRST
        self._next = self._start + self._wait

    @classmethod
    def of(cls, kind, options, context):
        """For a simulated device; None for one whose time is the computer's."""
        return None if clock_text(context) is None else cls(kind, options, context)

    def announce(self):
        """Tells how long the test will take, if that is a minute or more; returns whether it is."""
        seconds = self.total / SPEED
        if seconds >= LONG:
            shorter = "-D makes it less" if self._lasting else "-n or -s make it less, on both sides"
            million = f"{self.total / 1e6:.0f} million"
            self._tell(f"verbena: {million} cycles are simulated, which takes about {span(seconds)}; {shorter}")
        return seconds >= LONG

    def round(self, options, parts=1):
        """What is to be called with the number of messages that have gone or come, in one of the test's rounds, by each
        of the ``parts`` that count them.
        """
        if self._lasting:
            begun = self._context.time_ns()
            hz = clock_hz(self._context)
            return lambda count: self._reach((self._context.time_ns() - begun) * hz / 1e9)
        share = _cycles(self._kind, options) / max(1, parts)
        return lambda count: self._reach(self._done + share * count)

    def _reach(self, done):
        self._done = done
        now = self._clock()
        if now < self._next or not 0 < done < self.total:
            return
        left = (now - self._start) * (self.total - done) / done
        self._tell(f"verbena: {done / self.total:.0%} is done, about {span(left)} left")
        self._wait = min(2 * self._wait, LAST)
        self._next = now + self._wait
