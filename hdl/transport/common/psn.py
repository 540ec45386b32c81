"""Packet sequence numbers: 24 bits that go round, and what *before* means among them."""

from amaranth.lib import data

__all__ = ["PSN_BITS", "Sent", "psn_before", "psn_difference", "psn_next"]

PSN_BITS = 24

Sent = data.StructLayout({"qp": 12, "psn": PSN_BITS})
"""Requester to completer, never stalled: the packet with this PSN is about to be sent, and may be acknowledged."""


def psn_difference(a, b):
    """``a - b`` as a signed number of 24 bits: how far ``a`` is ahead of ``b``, from ``-2**23`` to ``2**23 - 1``.

    Numbers that are 2**23 or more apart cannot be told from ones on the other side: whoever compares must know that
    both lie within that distance.

    Parameters
    ----------
    a, b : unsigned value of 24 bits
        Sequence numbers.
    """
    for value in (a, b):
        if not isinstance(value, int) and len(value) > PSN_BITS:
            raise ValueError(f"a PSN has at most {PSN_BITS} bits, not {len(value)!r}")
    return (a - b)[:PSN_BITS].as_signed()


def psn_before(a, b):
    """1 if ``a`` comes before ``b``; 0 if it is ``b`` or comes after it."""
    return psn_difference(a, b)[PSN_BITS - 1]


def psn_next(a, step=1):
    """The number ``step`` packets after ``a``."""
    return (a + step)[:PSN_BITS]
