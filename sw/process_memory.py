"""What memory this process has."""

import ctypes
import errno
import os
from pathlib import Path

__all__ = ["NoMemory", "check_pages", "read", "write"]

MAPS = Path("/proc/self/maps")
_libc = ctypes.CDLL(None, use_errno=True)


class NoMemory(ValueError):
    """The process does not have this memory, or may not use it so."""


class _Span(ctypes.Structure):
    """``struct iovec``."""

    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]


def read(address, length):
    """``length`` bytes of the process. :class:`NoMemory` where it has none: an address that is wrong must not be its
    end.
    """
    copy = ctypes.create_string_buffer(max(1, length))
    if not _moved("process_vm_readv", copy, address, length):
        return ctypes.string_at(address, length)
    return copy.raw[:length]


def write(address, data):
    """Puts bytes at an address of the process; errors as of :func:`read`."""
    if not _moved("process_vm_writev", ctypes.create_string_buffer(data, max(1, len(data))), address, len(data)):
        ctypes.memmove(address, data, len(data))


def _moved(call, copy, address, length):
    """Whether the system has moved them, which looks at what it touches; False if it does not do that here."""
    if not length:
        return True
    if not 0 <= address <= (1 << 64) - length:
        raise NoMemory(f"the process has no memory at {address:#x}")
    here, there = _Span(ctypes.addressof(copy), length), _Span(address, length)
    try:
        move = getattr(_libc, call)
    except AttributeError:
        return False
    move.restype = ctypes.c_ssize_t
    one, none = ctypes.c_ulong(1), ctypes.c_ulong(0)
    done = move(os.getpid(), ctypes.byref(here), one, ctypes.byref(there), one, none)
    if done < 0 and ctypes.get_errno() != errno.EFAULT:
        return False
    if done != length:
        raise NoMemory(f"the process has no memory at {address:#x}, or may not use it")
    return True


def check_pages(start, end, writable):
    """``ValueError`` if the process may not read, or with ``writable`` not write, all of ``[start, end)``. Where the
    system does not tell (there is no ``/proc``) nothing is found wrong.
    """
    try:
        lines = MAPS.read_text().splitlines()
    except FileNotFoundError:
        return
    at = start
    for line in lines:
        span, rights = line.split(maxsplit=2)[:2]
        first, last = (int(edge, 16) for edge in span.split("-"))
        if last <= at:
            continue
        if first > at:
            break
        if rights[0] != "r" or (writable and rights[1] != "w"):
            raise ValueError(f"the process may not {'write' if rights[0] == 'r' else 'read'} its memory at {at:#x}")
        at = last
        if at >= end:
            return
    raise ValueError(f"the process has no memory at {at:#x}")
