"""Host memory that any adapter can reach, without a Context."""

from .. import host_memory
from .pyverbs_error import PyverbsError

__all__ = ["free", "malloc", "posix_memalign", "read", "write"]


def malloc(size):
    """Address of ``size`` bytes."""
    return posix_memalign(size, 16)


def posix_memalign(size, alignment=8):
    """Address of ``size`` bytes, a multiple of ``alignment`` (a power of two)."""
    if size < 0 or alignment < 1 or alignment & alignment - 1:
        raise PyverbsError(f"Failed to allocate {size!r} bytes with alignment {alignment!r}")
    try:
        return host_memory.alloc(size, alignment)
    except MemoryError as error:
        raise PyverbsError(f"Failed to allocate {size} bytes: {error}") from error


def free(address):
    """Returns what :func:`malloc` or :func:`posix_memalign` gave."""
    host_memory.free(address)


def write(address, data, length=None):
    """Writes ``data`` (str or bytes), or its first ``length`` bytes."""
    data = data.encode() if isinstance(data, str) else bytes(data)
    host_memory.write(address, data if length is None else data[:length])


def read(address, length):
    """``length`` bytes from ``address``."""
    return host_memory.read(address, length)
