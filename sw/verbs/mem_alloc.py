"""Host memory that any adapter can reach, without a Context."""

import ctypes
import os

from .. import host_memory
from .pyverbs_error import PyverbsUserError

__all__ = ["free", "madvise", "malloc", "mmap", "munmap", "posix_memalign", "read", "write"]

_mappings = {}  # length by address
_libc = ctypes.CDLL(None, use_errno=True)


def malloc(size):
    """Address of ``size`` bytes of any content. ``MemoryError`` if there is no room."""
    return host_memory.alloc(size, 16)


def posix_memalign(size, alignment=8):
    """Address of ``size`` zeros, a multiple of ``alignment`` (a power of two). ``MemoryError`` if there is no room."""
    if size < 0 or alignment < 1 or alignment & alignment - 1:
        raise PyverbsUserError(f"Failed to allocate {size!r} bytes with alignment {alignment!r}")
    address = host_memory.alloc(size, alignment)
    host_memory.write(address, bytes(size))
    return address


def free(ptr):
    """Gives back what :func:`malloc` or :func:`posix_memalign` returned; 0 is nothing."""
    if not ptr:
        return
    try:
        host_memory.free(ptr)
    except ValueError as error:
        raise PyverbsUserError(f"Failed to free memory: {error}") from None


def mmap(addr=0, length=100):
    """Address of whole pages of zeros, ``length`` bytes or more; ``addr`` is a hint that is not taken."""
    if length < 1:
        raise PyverbsUserError(f"Failed to map {length!r} bytes")
    length = -(-length // host_memory.PAGE) * host_memory.PAGE
    address = posix_memalign(length, host_memory.PAGE)
    _mappings[address] = length
    return address


def munmap(addr, length):
    """Gives back a whole mapping."""
    if _mappings.get(addr) != -(-length // host_memory.PAGE) * host_memory.PAGE:
        raise PyverbsUserError(f"Failed to unmap {length!r} bytes at {addr:#x}: no such mapping")
    del _mappings[addr]
    host_memory.free(addr)


def madvise(addr, length, flags):
    """Advice to the kernel about whole pages."""
    if _libc.madvise(ctypes.c_void_p(addr), ctypes.c_size_t(length), ctypes.c_int(flags)):
        raise PyverbsUserError(f"Failed to advise on memory: {os.strerror(ctypes.get_errno())}")


def write(addr, data, length=None, offset=0):
    """Writes ``data`` (str or bytes), or its first ``length`` bytes."""
    data = data.encode() if isinstance(data, str) else bytes(data)
    host_memory.write(addr + offset, data if length is None else data[:length])


def read(addr, length, offset=0):
    """``length`` bytes from ``addr + offset``."""
    return host_memory.read(addr + offset, length)
