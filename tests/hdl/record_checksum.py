"""The checksum of a record, by long division."""

POLYNOMIAL = 1 << 64 | 0x1B
"""Of the CRC of 64 bits in ISO 3309."""


def remainder(polynomial):
    """What ``POLYNOMIAL`` leaves of it."""
    while polynomial.bit_length() > 64:
        polynomial ^= POLYNOMIAL << polynomial.bit_length() - 65
    return polynomial
