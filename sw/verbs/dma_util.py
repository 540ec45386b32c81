"""Order of accesses to memory and registers, for programs that ring doorbells by hand."""

from .mem_alloc import writebe64

__all__ = ["mmio_write64_as_be", "udma_from_dev_barrier", "udma_to_dev_barrier"]


def udma_to_dev_barrier():
    """What was written before is visible to devices before what is written later: it is, in program order."""


def udma_from_dev_barrier():
    """What a device has written is visible from now on: it is, as soon as a call tells of it."""


def mmio_write64_as_be(addr, val):
    """Writes a number of 64 bits in network order."""
    writebe64(addr, val)
