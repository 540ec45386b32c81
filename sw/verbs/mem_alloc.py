"""Host memory that any adapter can reach, without a Context."""

import ctypes
import mmap as _system
import os
import sys

from .. import host_memory
from .pyverbs_error import PyverbsUserError

__all__ = [
    "free",
    "madvise",
    "malloc",
    "mmap",
    "munmap",
    "posix_memalign",
    "read",
    "read32",
    "read64",
    "write",
    "writebe32",
    "writebe64",
]

_mappings = {}  # length by address, negative if the system has mapped it
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_FAILED = ctypes.c_void_p(-1).value

# pyverbs has the constants of <sys/mman.h> with an underscore.
PROT_NONE_ = 0
PROT_READ_ = _system.PROT_READ
PROT_WRITE_ = _system.PROT_WRITE
PROT_EXEC_ = _system.PROT_EXEC
MAP_SHARED_ = _system.MAP_SHARED
MAP_PRIVATE_ = _system.MAP_PRIVATE
MAP_FIXED_ = 0x10
MAP_ANONYMOUS_ = _system.MAP_ANONYMOUS
MAP_GROWSDOWN_ = 0x100
MAP_LOCKED_ = 0x2000
MAP_NORESERVE_ = 0x4000
MAP_POPULATE_ = 0x8000
MAP_STACK_ = 0x20000
MAP_HUGETLB_ = 0x40000
MADV_DONTNEED_ = _system.MADV_DONTNEED
__all__ += [name for name in dir() if name.endswith("_") and name.startswith(("PROT_", "MAP_", "MADV_"))]

_USUAL = PROT_READ_ | PROT_WRITE_, MAP_PRIVATE_ | MAP_ANONYMOUS_


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


def mmap(addr=0, length=100, prot=_USUAL[0], flags=_USUAL[1], fd=0, offset=0):
    """Address of whole pages, ``length`` bytes or more.

    By default they are zeros of the memory that devices reach anyway, and ``addr`` is a hint that is not taken. With
    other ``prot`` or ``flags``, or a file, it is ``mmap`` of the system; a region pins what it needs of them.
    ``MemoryError`` if that fails.
    """
    if length < 1:
        raise PyverbsUserError(f"Failed to map {length!r} bytes")
    size = -(-length // host_memory.PAGE) * host_memory.PAGE
    if (prot, flags, fd, offset) == (*_USUAL, 0, 0):
        address = posix_memalign(size, host_memory.PAGE)
    else:
        address = _libc.mmap(addr, length, prot, flags, fd, offset)
        if address == _FAILED:
            raise MemoryError(f"Failed to mmap memory: {os.strerror(ctypes.get_errno())}")
        size = -size
    _mappings[address] = size
    return address


def munmap(addr, length):
    """Gives back a whole mapping."""
    size = -(-length // host_memory.PAGE) * host_memory.PAGE
    if abs(_mappings.get(addr, 0)) != size or not size:
        raise PyverbsUserError(f"Failed to unmap {length!r} bytes at {addr:#x}: no such mapping")
    if _mappings.pop(addr) > 0:
        host_memory.free(addr)
    else:
        _libc.munmap(addr, length)


def madvise(addr, length, flags):
    """Advice to the kernel about whole pages."""
    if _libc.madvise(ctypes.c_void_p(addr), ctypes.c_size_t(length), ctypes.c_int(flags)):
        raise PyverbsUserError(f"Failed to advise on memory: {os.strerror(ctypes.get_errno())}")


def write(addr, data, length=None, offset=0):
    """Writes ``data`` (str or bytes), or its first ``length`` bytes. ``PyverbsUserError``: the process has no memory
    there, or may not write it.
    """
    data = data.encode() if isinstance(data, str) else bytes(data)
    try:
        host_memory.write(addr + offset, data if length is None else data[:length])
    except host_memory.NoMemory as error:
        raise PyverbsUserError(f"Failed to write: {error}") from None


def read(addr, length, offset=0):
    """``length`` bytes from ``addr + offset``. ``PyverbsUserError``: the process has no memory there."""
    try:
        return host_memory.read(addr + offset, length)
    except host_memory.NoMemory as error:
        raise PyverbsUserError(f"Failed to read: {error}") from None


def read32(addr, offset=0):
    """The number of 32 bits in the host's order, ``offset`` numbers from ``addr``."""
    return int.from_bytes(read(addr, 4, 4 * offset), sys.byteorder)


def read64(addr, offset=0):
    """The number of 64 bits in the host's order, ``offset`` numbers from ``addr``."""
    return int.from_bytes(read(addr, 8, 8 * offset), sys.byteorder)


def writebe32(addr, val, offset=0):
    """Writes a number of 32 bits in network order, ``offset`` numbers from ``addr``."""
    write(addr, val.to_bytes(4, "big"), offset=4 * offset)


def writebe64(addr, val, offset=0):
    """Writes a number of 64 bits in network order, ``offset`` numbers from ``addr``."""
    write(addr, val.to_bytes(8, "big"), offset=8 * offset)
