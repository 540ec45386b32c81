"""What all resources share."""

import errno
import weakref

from ..adapter import AdapterError
from .pyverbs_error import PyverbsRDMAError, PyverbsUserError

__all__ = ["PyverbsCM", "PyverbsObject", "PyverbsRDMAErrno", "inc_rkey"]


def inc_rkey(rkey):
    """The same key index with the next variant."""
    return rkey & 0xFFFFFF00 | rkey + 1 & 0xFF


def PyverbsRDMAErrno(msg):
    """A :class:`PyverbsRDMAError` for a failure of the device itself."""
    return PyverbsRDMAError(msg, errno.EIO)


def refuse(msg, code):
    """Raises :class:`PyverbsRDMAError` with errno ``code``."""
    raise PyverbsRDMAError(msg, code)


def attempt(msg, function, *args, **kwargs):
    """Calls ``function``; an error of the adapter or of host memory becomes a :class:`PyverbsRDMAError` that begins
    with ``msg``.
    """
    try:
        return function(*args, **kwargs)
    except MemoryError:
        raise PyverbsRDMAError(msg, errno.ENOMEM) from None
    except AdapterError as error:
        raise PyverbsRDMAError(f"{msg}: {error.strerror}", error.errno) from error


class PyverbsObject:
    """Root of the classes."""


class PyverbsCM(PyverbsObject):
    """A resource: context manager, closed once, its children before it.

    Subclasses set ``_closers`` (called by :meth:`close` in order) through :meth:`_own`; children register with their
    parents.
    """

    # Destroying a parent destroys its children in this order.
    _rank = 0

    def __init__(self, *parents):
        self._children = weakref.WeakSet()
        self._parents = parents
        self._closed = False
        for parent in parents:
            parent._children.add(self)

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()
        return False

    def __del__(self):
        if not getattr(self, "_closed", True):
            self.close()

    def close(self):
        """Destroys the object and, before it, its children. Again: nothing."""
        if self._closed:
            return
        for child in sorted(self._children, key=lambda c: c._rank):
            child.close()
        self._closed = True
        self._destroy()
        for parent in self._parents:
            parent._children.discard(self)

    def _destroy(self):
        raise PyverbsUserError(f"{type(self).__name__} cannot be destroyed")
