"""What a wire that loses so much allows: timeouts, lengths of messages, and how long nothing may complete."""

from ..ticks import default_tick

__all__ = ["BACKLOG", "HANG", "longest_for", "passing", "timeout_for"]

BACKLOG = 128 << 10
"""Bytes that a connection may have under way to one adapter, on a wire that loses little."""

LITTLE = 0.01
"""Probability of each kind of fault up to which a wire loses little."""

STOPPERS = 5
"""Kinds of faults after which a receiver waits for a packet to come again: all but the duplicate."""

ROUNDS = 216
"""Times that a message may have to go back, on average; 1 MiB at an MTU of 256 at 1 % goes back 211 times."""

HANG = 12_000_000
"""Cycles without any completion after which the engine counts as hung: thrice what a message takes that goes back
``ROUNDS`` times, with a timeout where a NAK is lost.
"""


def passing(loss):
    """Packets that arrive in a row, on average, before one does not; infinite without loss."""
    good = (1 - loss) ** STOPPERS
    return good / (1 - good) if good < 1 else float("inf")


def longest_for(loss, mtu, limit):
    """Bytes of the longest message, at most ``limit``: of so many packets that it goes back ``ROUNDS`` times."""
    return int(min(limit, max(1, ROUNDS * passing(loss)) * mtu))


def timeout_for(connections, data_width, loss=0.0):
    """Local ACK timeout: what all connections have under way passes an adapter within it. So what is not lost is
    answered in time, and a timeout tells of a loss.

    Where more than a little is lost, less is under way, and each NAK that is lost costs a timeout: it shrinks with the
    packets that arrive in a row.
    """
    backlog = BACKLOG * min(1, passing(loss) / passing(LITTLE))
    cycles = int(connections * backlog) // (data_width // 8)
    return max(9, (cycles // default_tick()).bit_length())
