"""Bandwidth: as many messages at a time as the queues hold."""

import contextlib
from dataclasses import replace

from ...verbs.libibverbs_enums import ibv_wc_opcode
from ..endpoint import chain
from ..exchange.perftest import Report
from ..session import WORKED, ToolError
from .progress import unheard

__all__ = ["Receiver", "Sender", "receiving", "transfer"]

MIB = 1 << 20
PEAK_WORK = 2_000_000
"""Pairs of post and completion that the search for the peak looks at; where there are more, there is no peak."""


class Sender:
    """Posts and counts the messages of one side, on all queue pairs; ``progress`` hears how many have gone. ``cuts``:
    after a duration it does not wait for what is under way (:attr:`done`).
    """

    def __init__(self, end, messages, options, progress=unheard, *, cuts=False):
        self._progress = progress
        self._end = end
        self._messages = messages
        self._options = options
        self.cuts = cuts and options.duration is not None
        self._posted = [0] * options.qps
        self._completed = [0] * options.qps
        self._posts = []  # time of each message
        self._completions = []  # (messages complete, time)

    @property
    def done(self):
        """Whether all is complete. What the peer may have no receives for, as its own duration is over, counts for
        nothing, as in perftest.
        """
        if self._options.duration is not None:
            enough = bool(self._completions) if self.cuts else self._completed == self._posted
            return self._over and enough
        return sum(self._completed) == self._options.iterations * self._options.qps

    @property
    def _over(self):
        """Whether the test's duration has passed."""
        passed = self._end.context.time_ns() - self._posts[0] if self._posts else 0
        return self._options.duration is not None and passed >= self._options.duration * 1e9

    def post(self):
        """Posts what there is room for."""
        options = self._options
        if self._over:
            return
        now = self._end.context.time_ns()
        for index, qp in enumerate(self._end.qps):
            first = self._posted[index]
            last = min(options.iterations, self._completed[index] + options.tx_depth)
            if last < options.iterations:
                last -= (last - first) % options.batch
            if first < last:
                qp.post_send(chain(self._message(index, number) for number in range(first, last)))
                self._posted[index] = last
                self._posts += [now] * (last - first)

    def _message(self, index, number):
        behind = number + 1
        signaled = behind % self._options.cq_mod == 0 or behind == self._options.iterations
        return self._messages.send(index, number, signaled=signaled)

    def complete(self, wc):
        index = self._end.index[wc.qp_num]
        self._progress(wc.wr_id + 1 - self._completed[index])
        self._completed[index] = wc.wr_id + 1
        self._completions.append((sum(self._completed), self._end.context.time_ns()))

    def report(self):
        """The :class:`.Report` of what has been sent."""
        count, end = self._completions[-1]
        report = _report(self._options, count, end - self._posts[0], self._peak())
        return report if self._options.duration is None else replace(report, iterations=count)

    def _peak(self):
        """Bytes in a nanosecond, from any message's post to any later one's completion; None if that is not
        wanted, or takes too long.
        """
        if not self._options.peak or self._options.duration is not None:
            return None
        if len(self._posts) * len(self._completions) > PEAK_WORK:
            return None
        size = self._options.size
        return max(
            (count - first) * size / max(1, end - start)
            for count, end in self._completions
            for first, start in enumerate(self._posts[:count])
        )


class Receiver:
    """Posts and counts the receives of one side, on all queue pairs or on the queue that they share; ``progress`` hears
    of each message.
    """

    def __init__(self, end, messages, options, progress=unheard):
        self._progress = progress
        self._end = end
        self._messages = messages
        self._options = options
        self._shared = end.srq is not None
        self._count = options.iterations * (options.qps if self._shared else 1)  # of each queue
        self._posted = [0] * len(end.receives)
        self._received = [0] * len(end.receives)
        self._times = None  # of the first and the last completion
        self._over = False

    @property
    def begun(self):
        return self._times is not None

    @property
    def done(self):
        return self._over or sum(self._received) == self._options.iterations * self._options.qps

    def ends(self):
        """Whether there is no number of messages, and the sender has gone on to what comes after them."""
        return self._options.duration is not None and self._end.channel.speaks()

    def end(self):
        """All that was sent has been received."""
        self._over = True

    def post(self):
        """Posts what there is room for."""
        for index, queue in enumerate(self._end.receives):
            first = self._posted[index]
            last = min(self._count, self._received[index] + self._options.rx_depth)
            if first < last:
                queue.post_recv(chain(self._receive(index, number) for number in range(first, last)))
                self._posted[index] = last

    def _receive(self, index, number):
        if not self._shared:
            return self._messages.receive(index, number)
        number, index = divmod(number, self._options.qps)  # a buffer of each queue pair in turn
        return self._messages.receive(index, number)

    def complete(self, wc):
        index = 0 if self._shared else self._end.index[wc.qp_num]
        # Of several queue pairs that share receives the messages are complete in any order.
        due = self._received[index] if len(self._end.receives) == self._options.qps else wc.wr_id
        if wc.byte_len != self._end.header + self._options.size or wc.wr_id != due:
            raise ToolError(f"message {self._received[index]} of {self._options.size} bytes should be here: {wc!r}")
        self._received[index] += 1
        self._progress(1)
        now = self._end.context.time_ns()
        self._times = (now if self._times is None else self._times[0], now)

    def report(self):
        """The :class:`.Report` of what has been received after the first message, whose beginning nobody here knows."""
        start, end = self._times
        received = sum(self._received)
        report = _report(self._options, received - 1, end - start, None)
        return report if self._options.duration is None else replace(report, iterations=received)


def _report(options, count, passed, peak):
    seconds = max(1, passed) / 1e9
    return Report(
        options.size,
        options.iterations * options.qps,
        0.0 if peak is None else peak * 1e9 / MIB,
        options.size * count / seconds / MIB,
        count / seconds / 1e6,
    )


def transfer(end, sender=None, receiver=None, *, answer=False):
    """A session that moves all messages of this side, and of the peer's if they need receives, which must have been
    posted before. With ``answer`` the first one is not sent before one has come. A sender that ``cuts`` ends it alone.
    """
    parts = [sender] if sender is not None and sender.cuts else [p for p in (sender, receiver) if p is not None]
    while not all(part.done for part in parts):
        if sender is not None and (not answer or receiver.begun):
            sender.post()
        ends = receiver is not None and receiver.ends()  # a sender has completions of all before it goes on
        found = end.poll()
        for wc in found:
            (receiver if wc.opcode & ibv_wc_opcode.IBV_WC_RECV else sender).complete(wc)
        if ends and not found:
            receiver.end()
        elif receiver is not None:
            receiver.post()
        yield WORKED


def receiving(session, end, receiver):
    """The ``session``, a conversation with the peer, during which what it still sends is received."""
    with contextlib.closing(session):
        try:
            session.send(None)
            while True:
                for wc in end.poll():
                    if wc.opcode & ibv_wc_opcode.IBV_WC_RECV:
                        receiver.complete(wc)
                receiver.post()
                yield WORKED
                session.send(True)  # time has passed
        except StopIteration as stop:
            return stop.value
