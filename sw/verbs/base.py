"""What all resources share: their life, and how what the device says becomes an exception."""

import atexit
import collections
import contextlib
import errno
import itertools
import os
import threading
import weakref
from abc import ABC, abstractmethod

from ..adapter import AdapterError
from .pyverbs_error import PyverbsRDMAError

__all__ = ["PyverbsCM", "PyverbsObject", "PyverbsRDMAErrno", "close_all", "inc_rkey"]

_last = threading.local()
_serials = itertools.count()
_forgotten = collections.deque()
_roots = weakref.WeakSet()
_family = threading.Lock()
"""Of who is whose child, and how many children there are."""


def inc_rkey(rkey):
    """The same key index with the next variant."""
    return rkey & 0xFFFFFF00 | rkey + 1 & 0xFF


def PyverbsRDMAErrno(msg):
    """A :class:`PyverbsRDMAError` with the errno of the last failure in this thread, EIO if there was none."""
    return PyverbsRDMAError(msg, getattr(_last, "errno", errno.EIO))


def refuse(msg, code):
    """Raises :class:`PyverbsRDMAError` with errno ``code``."""
    _last.errno = abs(code)
    raise PyverbsRDMAError(msg, code)


def must_be(kind, name, value, none=False):
    """``TypeError``, as pyverbs has it, if the argument ``name`` is not of the class that is called ``kind``, nor None
    where that may be.
    """
    if not (none and value is None) and kind not in (each.__name__ for each in type(value).__mro__):
        got = type(value).__name__
        raise TypeError(f"Argument '{name}' has incorrect type (expected {kind}, got {got})")


@contextlib.contextmanager
def attempt(msg):
    """Makes an error of the adapter or of host memory a :class:`PyverbsRDMAError` that begins with ``msg``."""
    try:
        yield
    except MemoryError:
        refuse(msg, errno.ENOMEM)
    except AdapterError as error:
        refuse(f"{msg}: {error.strerror}", error.errno)


def bury():
    """Closes what garbage collection has found, children before their parents."""
    for _ in range(len(_forgotten)):
        try:
            resource = _forgotten.popleft()
        except IndexError:  # another thread was faster
            return
        with _family:
            resource._orphaned = orphaned = bool(resource._living)
        if not orphaned:  # else its children are garbage too, and take it with them
            # Whoever could have been told of a failure has forgotten the object.
            with contextlib.suppress(Exception):
                resource._end()


class PyverbsObject:
    """Root of the classes."""

    def __repr__(self):
        name = type(self).__name__
        if type(self).__str__ is object.__str__:
            text = ", ".join(f"{key} {value}" for key, value in vars(self).items() if not key.startswith("_"))
        else:
            text = ", ".join(" ".join(line.split()) for line in str(self).splitlines())
        if text.startswith(name):
            return f"<{text}>"
        return f"<{name}: {text}>" if text else f"<{name}>"


class DeviceHolder(PyverbsObject):
    """What has a device and a protection domain by an address: a CMID. ``context`` and ``pd`` are None before."""

    context = pd = None

    def use_context(self, context):
        """From now on its objects are made on this context of its device."""
        raise NotImplementedError


class HoldsNothing(PyverbsObject):
    """What has nothing to take back: a context manager, and closed, as pyverbs' is, without effect."""

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        return False

    def close(self):
        """Nothing."""


class PyverbsCM(PyverbsObject, ABC):
    """A resource: context manager, closed once, its children before it.

    A subclass begins with ``super().__init__(*parents)``, which refuses parents that are closed, and ends with
    ``_opened()``; ``_destroy()`` takes back what lies between. It may refuse to be closed in ``_may_close()``, which
    is not asked when a parent goes.

    Garbage collection closes what is forgotten. As it may come at any time, also in the midst of a command, ``__del__``
    only takes note; the next call that creates, closes, polls or waits does the work.
    """

    _rank = 0
    """Children are closed in this order, and among equals in that of their creation."""

    _closed = True

    def __init__(self, *parents):
        bury()
        self._parents = tuple(dict.fromkeys(parents))
        for parent in self._parents:
            parent._check_open()
        self._life = threading.RLock()  # one thread ends it; taken after the parents', if at all
        self._children = weakref.WeakSet()
        self._living = 0  # children; unlike the set it survives that garbage collection clears weak references
        self._orphaned = False

    def _opened(self):
        self._serial = next(_serials)
        self._closed = False
        for parent in self._parents:
            parent._adopt(self)
        if not self._parents:
            with _family:
                _roots.add(self)

    def _belong(self, *parents):
        """What has had no parents until now has these, whether it is opened already or not."""
        self._parents = parents
        if not self._closed:
            with _family:
                _roots.discard(self)
            for parent in parents:
                parent._adopt(self)

    def __repr__(self):
        return f"<{type(self).__name__}, closed>" if self._closed else super().__repr__()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()
        return False

    def __del__(self):
        if not self._closed:
            _forgotten.append(self)

    def close(self):
        """Destroys the object and, before it, its children. Again: nothing."""
        bury()
        if not self._closed:
            self._may_close()
            self._end()

    def _end(self):
        if self._closed:
            return
        with self._life:
            if self._closed:  # another thread was faster
                return
            with _family:
                children = list(self._children)
            for child in sorted(children, key=lambda c: (c._rank, c._serial)):
                child._end()
            with attempt(f"Failed to destroy {type(self).__name__}"):
                self._destroy()
            self._closed = True
        for parent in self._parents:
            parent._leave(self)

    def _may_close(self):
        pass

    @abstractmethod
    def _destroy(self):
        """Gives back what the object holds; its children are gone."""

    def _check_open(self):
        if self._closed:
            refuse(f"{type(self).__name__} is closed", errno.EINVAL)

    def _adopt(self, child):
        with _family:
            self._children.add(child)
            self._living += 1

    def _leave(self, child):
        with _family:
            self._children.discard(child)
            self._living -= 1
            alone = self._orphaned and not self._living
        if alone:
            self._end()


@atexit.register
def close_all():
    """A device must not write into the memory of a process that is gone."""
    bury()
    with _family:
        roots = list(_roots)
    for root in sorted(roots, key=lambda r: r._serial):
        with contextlib.suppress(Exception):
            root._end()


def _abandon(resource):
    for child in list(resource._children):
        _abandon(child)
    resource._closed = True


def abandon_all():
    """Makes all objects count as closed, without a word to their devices: those belong to another process."""
    global _family
    _family = threading.Lock()  # a thread of the parent may have had it
    _forgotten.clear()
    for root in list(_roots):
        _abandon(root)


os.register_at_fork(after_in_child=abandon_all)
