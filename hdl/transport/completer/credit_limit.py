"""End-to-end credits: how many messages an ACK allows."""

from amaranth.hdl import Cat

__all__ = ["NO_CREDITS", "credit_count"]

NO_CREDITS = 31
"""Code of an ACK that gives no credits: the peer takes what comes."""


def credit_count(code):
    """16 bits: the receive WQEs that stand behind a credit code, 0 to 30. Two levels of LUT4.

    The codes are 0, 1, 2, 3, and from there on 4, 6, 8, 12 and so on up to 32768: powers of two, and one and a half
    times a power of two (InfiniBand volume 1, table "End-to-End flow control credit encoding").

    Parameters
    ----------
    code : value of 5 bits
        Low bits of an ACK's syndrome; for 31 the result means nothing.
    """
    bits = [code == 1]  # of the number `2 ** (code // 2)`, plus half of it if `code` is odd
    bits[0] |= code == 3
    for place in range(1, 16):
        bits.append((code[1:] == place) | (code == 2 * place + 3))
    return Cat(*bits)
