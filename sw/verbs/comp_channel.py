"""Completion channels; :mod:`.cq` hands them out."""

import errno

from .base import PyverbsCM, bury, must_be, refuse
from .event_queue import EventQueue
from .waiting import glance, wait_for

__all__ = ["CompChannel"]


class CompChannel(PyverbsCM):
    """Delivers completion events of the CQs made with it.

    ``blocking``, Verbena's own, may be set to False: then who takes an event does not wait, but is told EAGAIN if there
    is none after a short while of the device's time. No file is needed for that, and so no thread gives time.
    """

    _rank = 4

    def __init__(self, context):
        must_be("Context", "context", context)
        super().__init__(context)
        self.context = context
        self.blocking = True
        self._events = EventQueue()  # weak references to CQs
        self._opened()

    @property
    def fd(self):
        """A file descriptor that is readable while there is an event for :meth:`get_cq_event`, for ``select``, ``poll``
        and ``asyncio``.

        Who asks for it may sleep in ``select``: from now on a thread gives a simulated device time while the program
        calls nothing, unless ``VERBENA_EXACT`` is set, or the device is in a world that the program has made itself.
        There another thread must do it, by a verb that polls or waits, or by :meth:`.Context.advance`.
        """
        self._check_open()
        self.context._adapter.tell_by_files()
        return self._events.fileno()

    def get_cq_event(self, expected_cq=None):
        """Waits for an event and returns its CQ, which must acknowledge it (:meth:`CQ.ack_events`).

        EDEADLK if none can come any more (:func:`.waiting.wait_for`); an event of another CQ than ``expected_cq`` is an
        error. EAGAIN if there is none and ``blocking`` is False, or :attr:`fd` does not block.
        """
        bury()
        self._check_open()
        must_be("CQ", "expected_cq", expected_cq, none=True)
        failed = "Failed to get CQ event"
        if self.blocking and self._events.blocking:
            cq = wait_for(self.context._adapter, lambda: bool(self._events), self._take, failed)
        else:
            cq = glance(self.context._adapter, self._take, failed)
        cq.num_events += 1
        if expected_cq is not None and cq is not expected_cq:
            refuse("Received event on an unexpected CQ", errno.EINVAL)
        return cq

    def _take(self):
        self._check_open()
        while (event := self._events.take()) is not None:
            if (cq := event()) is not None:
                return cq
        return None

    def _forget_events(self, cq):
        self._events.drop(cq)

    def _destroy(self):
        self._events.close()
