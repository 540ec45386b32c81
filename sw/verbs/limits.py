"""Limits: those that all engines share, and those that follow from the size of an engine's WQEs."""

from verbena.hdl.abi.wqe import SGE, SRQ_WQE, receive_bytes, send_sges

from ..regions import MAX_REGIONS

__all__ = [
    "MAX_AH",
    "MAX_CQE",
    "MAX_MR",
    "MAX_MR_SIZE",
    "MAX_MSG_SZ",
    "MAX_PD",
    "MAX_QP_WR",
    "MAX_RD_ATOMIC",
    "MAX_SRQ_WR",
    "max_recv_sge",
    "max_sge",
    "max_srq_sge",
]

MAX_QP_WR = 1 << 14
MAX_CQE = 1 << 15  # half of what a free-running index of 16 bits can tell apart
MAX_SRQ_WR = 1 << 14
MAX_MSG_SZ = 1 << 31
MAX_MR = MAX_REGIONS
MAX_MR_SIZE = 1 << 40
MAX_PD = 1 << 16
MAX_RD_ATOMIC = 16
"""READs and atomics that a QP may have outstanding, in either direction."""
MAX_AH = (1 << 31) - 1
"""Address handles live in the program alone; this is the largest number that the attribute holds."""


def max_recv_sge(wqe_bytes):
    """Scatter/gather entries of a receive request, at most; ``wqe_bytes`` is the device's."""
    return receive_bytes(wqe_bytes) // SGE.size


def max_sge(wqe_bytes):
    """The same of any request to a connected QP."""
    return min(send_sges(wqe_bytes), max_recv_sge(wqe_bytes))


def max_srq_sge(wqe_bytes):
    """The same of a receive request to an SRQ."""
    return (receive_bytes(wqe_bytes) - SRQ_WQE.size) // SGE.size
