"""What the ACK extended transport header says."""

from enum import IntEnum

__all__ = ["AethSyndrome"]


class AethSyndrome(IntEnum):
    """Syndromes of the AETH: bits 6:5 are 0 for an ACK, 1 for an RNR NAK (the others are its timer), 3 for a NAK.

    An ACK's other bits are a credit. 31 says that it is invalid: there is no end-to-end flow control.
    """

    ACK = 0x1F
    RNR = 0x20
    NAK_SEQUENCE = 0x60
    NAK_INVALID_REQUEST = 0x61
    NAK_REMOTE_ACCESS = 0x62
    NAK_REMOTE_OPERATION = 0x63
