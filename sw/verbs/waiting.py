"""Waiting for what the device, or another thread of the program, brings about."""

import errno
import os
import threading

from ..cm.clock import skip
from .base import refuse

__all__ = ["EVENT_QUANTUM", "glance", "wait_for"]

EVENT_QUANTUM = 4096
"""Cycles that a simulated device is given between two looks for an event."""

GLANCE = 64
"""The same while the device is idle, and only another thread can change that."""

NAP = 0.01
"""Seconds between two looks then; an event that another thread takes from the device ends it early."""

_lock = threading.Lock()
_idle = {}  # ident of a thread that waits at an idle device: whether what it waits for has come


def _forget():
    """In a child process: those who wait are threads of its parent."""
    global _lock
    _lock = threading.Lock()
    _idle.clear()


os.register_at_fork(after_in_child=_forget)


def _another_may_act():
    """Whether a thread is alive that does not wait here itself, or is about to go on. One of Verbena's own
    (``brings_nothing``) does not count: it gives time, as this thread does itself, and makes no calls.
    """
    me = threading.get_ident()
    for thread in threading.enumerate():
        # Threads that `threading` did not start never leave its list.
        if thread.ident == me or not thread.is_alive() or isinstance(thread, threading._DummyThread):
            continue
        if getattr(thread, "brings_nothing", False):
            continue
        if thread.ident not in _idle or _idle[thread.ident]():
            return True
    return False


def wait_for(adapter, ready, take, failed):
    """Lets the device of ``adapter`` work until ``take()`` returns something, and returns that.

    ``ready()`` says whether ``take`` probably would. While the device is idle, and its port is not ``linked`` to
    others, whatever comes must be brought about by another thread: as long as one is alive that does not wait here,
    too, this waits. Otherwise what the connection manager waits for is due at once (:func:`verbena.sw.cm.clock.skip`).
    If it does not, nothing can come any more: EDEADLK, with a text that begins with ``failed``.
    """
    adapter.process_events()
    me = threading.get_ident()
    quantum = EVENT_QUANTUM
    try:
        while True:
            if (found := take()) is not None:
                return found
            if adapter.advance(quantum) or ready() or getattr(adapter.port, "linked", False):
                quantum = EVENT_QUANTUM
                continue
            with _lock:
                alone = not _another_may_act()
                if not alone:
                    _idle[me] = ready
            if alone:
                if skip(adapter):
                    continue
                refuse(f"{failed}: the device is idle", errno.EDEADLK)
            quantum = GLANCE
            with adapter.news:
                if not ready():
                    adapter.news.wait(NAP)
    finally:
        _idle.pop(me, None)


def glance(adapter, take, failed):
    """What ``take()`` returns, at once, or after one quantum of the device's time. EAGAIN if that is None."""
    adapter.process_events()
    if (found := take()) is None:
        adapter.advance(EVENT_QUANTUM)
        found = take()
    if found is None:
        refuse(failed, errno.EAGAIN)
    return found
