"""Latency: one message at a time, there and back."""

import math
import statistics
from collections import deque
from dataclasses import dataclass
from itertools import pairwise

from ...verbs.libibverbs_enums import ibv_wc_opcode
from ..endpoint import chain
from ..session import WORKED, ToolError
from .options import MIN_ITERATIONS
from .progress import unheard

__all__ = ["Latency", "ask", "post_receives", "send_and_receive", "write_and_watch"]

TAIL = 2
"""The largest values, left out as perftest does."""


@dataclass(frozen=True)
class Latency:
    """What a latency test measured, in microseconds or in cycles; ``samples`` are all values, in their order.

    ``mean`` is that of all samples, ``rate`` how many of them a second has, each there and back.
    """

    size: int
    iterations: int
    least: float
    most: float
    typical: float
    average: float
    deviation: float
    percentile_99: float
    percentile_99_9: float
    mean: float
    rate: float
    samples: tuple[float, ...] = ()

    @classmethod
    def of(cls, size, times, *, ways, clock_hz=None):
        """From the times, in ns, at which messages were posted; each took ``ways`` ways to the next. With ``clock_hz``
        in cycles of that clock, of which each time is a whole number.
        """
        ticks, unit = times, 1000 * ways
        if clock_hz is not None:
            ticks, unit = [round(time * clock_hz / 1e9) for time in times], ways
        steps = [later - earlier for earlier, later in pairwise(ticks)]
        samples = tuple(step / unit for step in steps)
        values = sorted(samples)
        kept = values[:-TAIL]

        def percentile(share):
            return values[math.ceil(len(kept) * share)]

        return cls(
            size,
            len(times),
            values[0],
            values[-TAIL],
            _middle(sorted(steps)[:-TAIL]) / unit,
            statistics.fmean(kept),
            statistics.pstdev(kept),
            percentile(0.99),
            percentile(0.999),
            statistics.fmean(samples),
            len(samples) * 1e9 / max(1, times[-1] - times[0]),
            samples,
        )


def _middle(steps):
    """The median of sorted whole numbers, as a whole number: perftest's."""
    return (steps[(len(steps) - 1) // 2] + steps[len(steps) // 2]) // 2


class _Completions:
    """Completions of either kind, each in the order in which they came."""

    def __init__(self, end):
        self._end = end
        self._found = {True: deque(), False: deque()}

    def next(self, *, receive, ends=lambda: False):
        """A session that returns the next completion of a receive, or of a send; None if there is none and ``ends()``
        has said, before it was looked for, that none will come.
        """
        waiting = self._found[receive]
        while not waiting:
            over = ends()
            for wc in self._end.poll():
                self._found[bool(wc.opcode & ibv_wc_opcode.IBV_WC_RECV)].append(wc)
            if not waiting:  # else there is something to be done at once
                if over:
                    return None
                yield WORKED
        return waiting.popleft()


def _late(end, options, times, *, early=0):
    """Whether a test of a duration has gone on so long, but for the time of ``early`` messages, with enough times."""
    if options.duration is None or len(times) < MIN_ITERATIONS:
        return False
    passed = end.context.time_ns() - times[0] + early * (times[-1] - times[0]) / (len(times) - 1)
    return passed >= options.duration * 1e9


def ask(end, messages, options, progress=unheard):
    """The client of a READ or atomic test, a session: returns when each message was posted, in ns. ``progress`` hears
    of each message, here and below.
    """
    times = []
    completions = _Completions(end)
    for number in range(options.iterations):
        if _late(end, options, times):
            break
        times.append(end.context.time_ns())
        end.qps[0].post_send(messages.send(0, number))
        yield from completions.next(receive=False)
        progress(1)
        yield WORKED  # a server has nothing to do, but may go
    return times


def post_receives(end, messages, options):
    """Posts the first receives of :func:`send_and_receive`."""
    end.receives[0].post_recv(chain(messages.receive(0, number) for number in range(options.rx_depth)))


def send_and_receive(end, messages, options, progress=unheard, *, server):
    """Either side of a SEND test, a session: the client sends first, and ends a test of a duration. Returns as
    :func:`ask`.
    """

    def ends():
        return server and options.duration is not None and end.channel.speaks()

    times = []
    completions = _Completions(end)
    received = 0
    while len(times) < options.iterations or received < options.iterations:
        if received < options.iterations and (times or server):
            wc = yield from completions.next(receive=True, ends=ends)
            if wc is None:
                break
            if wc.byte_len != end.header + options.size or wc.wr_id != received:
                raise ToolError(f"message {received} of {options.size} bytes should be here: {wc!r}")
            if received + options.rx_depth < options.iterations:
                end.receives[0].post_recv(messages.receive(0, received + options.rx_depth))
            received += 1
        if not server and _late(end, options, times):
            break
        if len(times) < options.iterations:
            number = len(times)
            times.append(end.context.time_ns())
            end.qps[0].post_send(messages.send(0, number))
            yield from completions.next(receive=False)
            progress(1)
    return times


def write_and_watch(end, messages, options, layout, progress=unheard, *, server):
    """Either side of a WRITE test, a session: the server writes first. The last byte of a message counts the messages;
    each side watches the memory that the peer writes to, and ends a test of a duration by its own clock. Returns as
    :func:`ask`.
    """

    def arrived(number):
        return end.mr.read(1, layout.target(0) + last)[0] == number % 256

    def check():
        """Whether the peer has ended because its time is over: its clock began up to a message before this one's."""
        try:
            end.check()
        except ToolError:
            if not _late(end, options, times, early=2):
                raise
            return True
        return False

    times = []
    completions = _Completions(end)
    last = options.size - 1
    seen = 0
    with end.context.watching(end.mr.buf + layout.target(0) + last, 1):
        if server:
            yield  # to a client in this program, which is not there yet
        while len(times) < options.iterations or seen < options.iterations:
            if seen < options.iterations and (times or not server):
                seen += 1
                while not arrived(seen):
                    end.context.advance()
                    over = check() or _late(end, options, times)
                    if not arrived(seen):
                        if over:
                            return times
                        yield WORKED
            if _late(end, options, times):
                return times
            if len(times) < options.iterations:
                number = len(times)
                times.append(end.context.time_ns())
                end.mr.write(bytes([(number + 1) % 256]), 1, layout.source(0) + last)
                end.qps[0].post_send(messages.send(0, number))
                yield from completions.next(receive=False)
                progress(1)
    return times
