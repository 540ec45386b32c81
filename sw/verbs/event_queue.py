"""Events that wait for the program, and a file that tells of them."""

import os
import select
import threading

from .owned_queue import OwnedQueue

__all__ = ["EventQueue"]


class EventQueue:
    """Events in order. Any thread may put and take them.

    :meth:`fileno` gives a file descriptor that is readable while there is an event: for ``select``, ``poll``, ``epoll``
    and ``asyncio``. It is made when it is asked for, and not meant to be read from: :meth:`take` does that.
    """

    def __init__(self):
        self._events = OwnedQueue()
        self._fd = None
        self._lock = threading.RLock()

    def __len__(self):
        return len(self._events)

    def __iter__(self):
        """The events that wait, the oldest first; they stay."""
        with self._lock:
            return iter(list(self._events))

    def put(self, event, owner=None):
        """Adds an event about ``owner``, which it does not keep alive."""
        with self._lock:
            self._events.put(id(owner), event)
            self._tell()

    def take(self):
        """The oldest event, which leaves the queue; None if there is none."""
        with self._lock:
            event = self._events.take() if self._events else None
            self._tell()
            return event

    def drop(self, owner):
        """Forgets all events about ``owner``, which is about to go."""
        with self._lock:
            self._events.drop(id(owner))
            self._tell()

    def clear(self):
        """Forgets all events."""
        with self._lock:
            self._events.clear()
            self._tell()

    def fileno(self):
        """The file's descriptor, which belongs to the queue."""
        with self._lock:
            if self._fd is None:
                self._fd = os.eventfd(0, os.EFD_CLOEXEC)
                self._tell()
            return self._fd

    @property
    def has_file(self):
        """Whether it has been asked for a file."""
        return self._fd is not None

    @property
    def blocking(self):
        """Whether the file is as it was made. A program says that it does not want to wait by
        ``os.set_blocking(fd, False)``.
        """
        return self._fd is None or os.get_blocking(self._fd)

    def close(self):
        """Forgets all events and closes the file."""
        with self._lock:
            self._events.clear()
            if self._fd is not None:
                os.close(self._fd)
                self._fd = None

    def _tell(self):
        """Makes the file readable if there are events, and not readable otherwise."""
        if self._fd is None:
            return
        poll = select.poll()
        poll.register(self._fd, select.POLLIN)
        readable = bool(poll.poll(0))
        if self._events and not readable:
            os.eventfd_write(self._fd, 1)
        elif readable and not self._events:
            os.eventfd_read(self._fd)
