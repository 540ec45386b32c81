"""Limits that all engines share; what differs between them, the adapter's capability register tells."""

from ..regions import MAX_REGIONS

__all__ = [
    "MAX_AH",
    "MAX_CQE",
    "MAX_INLINE",
    "MAX_MR",
    "MAX_MR_SIZE",
    "MAX_MSG_SZ",
    "MAX_PD",
    "MAX_QP_WR",
    "MAX_RD_ATOMIC",
    "MAX_SGE",
    "MAX_SRQ_SGE",
    "MAX_SRQ_WR",
]

MAX_QP_WR = 1 << 14
MAX_CQE = 1 << 15  # half of what a free-running index of 16 bits can tell apart
MAX_SGE = 6
MAX_SRQ_WR = 1 << 14
MAX_SRQ_SGE = 7
MAX_INLINE = 96
MAX_MSG_SZ = 1 << 31
MAX_MR = MAX_REGIONS
MAX_MR_SIZE = 1 << 40
MAX_PD = 1 << 16
MAX_RD_ATOMIC = 16
"""READs and atomics that a QP may have outstanding, in either direction."""
MAX_AH = (1 << 31) - 1
"""Address handles live in the program alone; this is the largest number that the attribute holds."""
