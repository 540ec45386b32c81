"""Memory that the caller gives by its address, or as an object that has it."""

import ctypes
import errno
import operator

from .base import refuse
from .limits import MAX_MR_SIZE
from .number import within
from .pyverbs_error import PyverbsUserError

__all__ = ["UserMemory", "address_of"]


class _Buffer(ctypes.Structure):
    """``Py_buffer``."""

    _fields_ = [
        ("buf", ctypes.c_void_p),
        ("obj", ctypes.py_object),
        ("len", ctypes.c_ssize_t),
        ("itemsize", ctypes.c_ssize_t),
        ("readonly", ctypes.c_int),
        ("ndim", ctypes.c_int),
        ("format", ctypes.c_char_p),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("suboffsets", ctypes.c_void_p),
        ("internal", ctypes.c_void_p),
    ]


def _view(source):
    """A memoryview of an object with the buffer protocol, and the address of its first byte."""
    try:
        view = memoryview(source)
    except TypeError:
        raise PyverbsUserError(f"an address is an integer, a pointer or a buffer, not {source!r}") from None
    if not view.c_contiguous:
        view.release()
        raise PyverbsUserError(f"a buffer must be contiguous, and this one is not: {source!r}")
    buffer = _Buffer()
    ctypes.pythonapi.PyObject_GetBuffer(ctypes.py_object(view), ctypes.byref(buffer), 0)
    address = buffer.buf or 0
    ctypes.pythonapi.PyBuffer_Release(ctypes.byref(buffer))
    return view, address


def _number(source):
    """The address that an integer or a pointer is, or None."""
    if isinstance(source, ctypes.c_void_p | ctypes._Pointer):
        return ctypes.cast(source, ctypes.c_void_p).value or 0
    try:
        return operator.index(source)
    except TypeError:
        return None


def address_of(source):
    """The address that ``source`` is or has: an integer, a ctypes pointer, or an object with the buffer protocol.

    ``PyverbsUserError`` for anything else, and for buffers that are not contiguous.
    """
    address = _number(source)
    if address is None:
        view, address = _view(source)
        view.release()
    return address


class UserMemory:
    """``length`` bytes of ``source`` (as of :func:`address_of`), reachable and kept alive until :meth:`release`.

    What is given as a number its owner must keep; a buffer is held, and can be neither resized nor closed meanwhile.

    Parameters
    ----------
    memory : object
        Host memory, as a :class:`verbena.sw.port.Port` has it.
    source : int, pointer or buffer
    length : int
        0 with a buffer: all of it.
    writable : bool
        Whether the device may write.
    failed : str
        Begins each :class:`PyverbsRDMAError`: EINVAL if the buffer is shorter or the range is none of 64 bits, EFAULT
        if a page is not there, or may not be written.
    """

    def __init__(self, memory, source, length, writable, failed):
        self.source = source
        self._memory = memory
        self._view = None
        self._pinned = False
        address = _number(source)
        if address is None:
            self._view, address = _view(source)
            length = length or self._view.nbytes
        self.address, self.length = address, length
        try:
            if not within(length, 0, MAX_MR_SIZE) or not 0 <= address <= (1 << 64) - length:
                refuse(f"{failed}: {length!r} bytes at {address:#x}", errno.EINVAL)
            if self._view is not None and length > self._view.nbytes:
                refuse(f"{failed}: the buffer has {self._view.nbytes} bytes", errno.EINVAL)
            if writable and self.readonly:
                refuse(f"{failed}: the buffer is read-only", errno.EFAULT)
            if length and hasattr(memory, "pin"):
                try:
                    memory.pin(address, length, writable=bool(writable))
                except ValueError as error:
                    refuse(f"{failed}: {error}", errno.EFAULT)
                self._pinned = True
        except Exception:
            self.release()
            raise

    @property
    def readonly(self):
        """Whether the owner has said that it may not be written."""
        return self._view is not None and self._view.readonly

    def release(self):
        """Lets go of it."""
        if self._pinned:
            self._pinned = False
            self._memory.unpin(self.address, self.length)
        if self._view is not None:
            self._view.release()
            self._view = None
