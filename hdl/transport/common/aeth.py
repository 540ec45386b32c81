"""What the ACK extended transport header says."""

from enum import IntEnum

from amaranth.hdl import Cat, Const, Mux

__all__ = ["CREDITS", "NO_CREDITS", "AethSyndrome", "credit_code", "credit_count", "decode_credits", "encode_credits"]

CREDITS = (0, 1, *(count for power in range(1, 15) for count in (1 << power, 3 << power - 1)), 1 << 15)
"""Receive WQEs that the low 5 bits of an ACK's syndrome stand for: 0, 1, 2, 3, 4, 6, 8, 12 to 32768, codes 0 to 30.

Source: InfiniBand Architecture Specification volume 1, table "End-to-end flow control credit field encoding".
"""

NO_CREDITS = 31
"""The code that limits nothing: the responder cannot tell how many receive WQEs there are (a shared receive queue)."""


class AethSyndrome(IntEnum):
    """Syndromes of the AETH: bits 6:5 are 0 for an ACK, whose other bits are a credit code, 1 for an RNR NAK, whose
    other bits are its timer, 3 for a NAK."""

    ACK = 0x00
    RNR = 0x20
    NAK_SEQUENCE = 0x60
    NAK_INVALID_REQUEST = 0x61
    NAK_REMOTE_ACCESS = 0x62
    NAK_REMOTE_OPERATION = 0x63


def credit_code(count):
    """The largest code that promises no more than ``count`` receive WQEs."""
    if not isinstance(count, int) or count < 0:
        raise ValueError(f"count must be an int of at least 0, not {count!r}")
    return max(code for code, promised in enumerate(CREDITS) if promised <= count)


def credit_count(code):
    """Receive WQEs that ``code`` promises; None for the one that limits nothing."""
    if not isinstance(code, int) or not 0 <= code <= NO_CREDITS:
        raise ValueError(f"code must be 0 to {NO_CREDITS}, not {code!r}")
    return None if code == NO_CREDITS else CREDITS[code]


def encode_credits(count):
    """:func:`credit_code` of a value of 16 bits, at most 32768, as an expression.

    Above 1, a code is twice the place of the leading one, plus the bit behind that: found among four bits at a time.
    """
    if len(count) != 16:
        raise ValueError(f"count must have 16 bits, not {len(count)!r}")
    below = Cat(Const(0, 1), count)  # bit `place` and the one before it are `below[place : place + 2]`
    code = Const(0, 5)
    for group in range(4):
        start = 4 * group
        window = below[start : start + 5]
        inside = Const(0, 3)
        for place in range(4):
            inside = Mux(window[place + 1], Cat(window[place], Const(place, 2)), inside)
        if group == 0:
            inside = Mux(count[:4] == 1, 1, inside)
        code = Mux(count[start : start + 4].any(), Cat(inside, Const(group, 2)), code)
    return Mux(count[15], 30, code)


def decode_credits(code):
    """:func:`credit_count` of a value of 5 bits, as an expression of 16 bits; meaningless for :data:`NO_CREDITS`."""
    if len(code) != 5:
        raise ValueError(f"code must have 5 bits, not {len(code)!r}")
    return Mux(code == 0, 0, (Cat(code[0], Const(1, 1)) << code[1:]) >> 1)[:16]
