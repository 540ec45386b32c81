"""Events of the connection manager, and the channels that they come through; :mod:`.cmid` hands them out."""

import errno
import os
import weakref

from verbena.sw.cm.events import Happened
from verbena.sw.cm.messages import SidrRep
from verbena.sw.cm.reasons import RejReason, SidrStatus, why

from .base import PyverbsObject, bury, must_be, refuse
from .cm_enums import rdma_cm_event_type
from .event_queue import EventQueue
from .waiting import EVENT_QUANTUM, glance, wait_for

__all__ = ["CMEvent", "CMEventChannel", "Told"]

E = rdma_cm_event_type
KINDS = {
    Happened.REQUEST: E.RDMA_CM_EVENT_CONNECT_REQUEST,
    Happened.RESPONSE: E.RDMA_CM_EVENT_CONNECT_RESPONSE,
    Happened.ESTABLISHED: E.RDMA_CM_EVENT_ESTABLISHED,
    Happened.REJECTED: E.RDMA_CM_EVENT_REJECTED,
    Happened.UNREACHABLE: E.RDMA_CM_EVENT_UNREACHABLE,
    Happened.DISCONNECTED: E.RDMA_CM_EVENT_DISCONNECTED,
    Happened.TIMEWAIT_EXIT: E.RDMA_CM_EVENT_TIMEWAIT_EXIT,
}


class Told:
    """An event in a channel: its type, its status, the note that came from :mod:`verbena.sw.cm`, if one did, a weak
    reference to the CMID that it is about, which returns None if there is none, and of UD where datagrams go: way,
    number and Q_Key of the QP, and traffic class.
    """

    def __init__(self, kind, status=0, note=None, owner=lambda: None, ud=None):
        self.kind, self.status, self.note, self.owner, self.ud = kind, status, note, owner, ud

    @property
    def why(self):
        """What ``status`` is: the peer's reason, an errno, or 0."""
        if self.status < 0:
            return f"errno {-self.status}, {os.strerror(-self.status)}"
        if self.kind == E.RDMA_CM_EVENT_REJECTED:
            return f"reason {why(RejReason, self.status)}"
        return f"status {why(SidrStatus, self.status)}" if self.status else "status 0"

    def discard(self):
        """Nobody will take it: a request is refused."""
        if self.note is not None and self.note.listener is not None and self.note.identifier.owner() is None:
            self.note.identifier.close()


class CMEventChannel(PyverbsObject):
    """Events of the CMIDs that were made with it, in order.

    ``blocking``, Verbena's own, may be set to False: then who takes an event does not wait, but is told EAGAIN if there
    is none after a short while of the device's time.
    """

    def __init__(self):
        self.blocking = True
        self._events = EventQueue()
        self._adapters = weakref.WeakSet()  # of its CMIDs
        self._closed = False

    @property
    def fd(self):
        """Verbena's own name for what C has here: a file descriptor that is readable while there is an event; as of
        :attr:`.cq.CompChannel.fd`. After ``os.set_blocking(fd, False)`` who takes an event does not wait: EAGAIN.
        """
        self._check_open()
        for adapter in self._adapters:
            adapter.tell_by_files()
        return self._events.fileno()

    def __str__(self):
        return "closed" if self._closed else f"{self.pending} events"

    @property
    def pending(self):
        """Verbena's own: how many events wait."""
        return len(self._events)

    def close(self):
        """Forgets the events that wait; requests among them are refused. Again: nothing."""
        if not self._closed:
            self._closed = True
            while (told := self._events.take()) is not None:
                told.discard()
            self._events.close()

    def _check_open(self):
        if self._closed:
            refuse("CMEventChannel is closed", errno.EINVAL)

    def _serve(self, adapter):
        """A CMID of this channel is on that adapter now."""
        self._adapters.add(adapter)
        if self._events.has_file:
            adapter.tell_by_files()

    def _get(self, failed):
        """Waits for the next event, a :class:`Told`. EDEADLK if none can come (:func:`.waiting.wait_for`)."""
        bury()
        self._check_open()
        if (told := self._take()) is not None:
            return told
        first, *others = list(self._adapters) or [None]
        if first is None:
            refuse(f"{failed}: no CMID of this channel has an address", errno.EDEADLK)

        def take():
            for other in others:
                if not self._events:
                    other.advance(EVENT_QUANTUM)
            return self._take()

        if not (self.blocking and self._events.blocking):
            return glance(first, take, failed)
        return wait_for(first, lambda: bool(self._events), take, failed)

    def _take(self):
        self._check_open()
        told = self._events.take()
        if told is not None and (cmid := told.owner()) is not None:
            cmid._finish(told)
        return told

    def _put(self, told):
        if self._closed:
            told.discard()
        else:
            listener = None if told.note is None else told.note.listener
            self._events.put(told, told.owner() or listener)

    def _forget(self, cmid):
        """A CMID that goes takes the events with it that wait, requests to it among them."""
        self._events.drop(cmid)
        self._events.drop(cmid._identifier)

    def _tell(self, note):
        """Something has happened to an identifier."""
        happening, identifier = note.happening, note.identifier
        reply, ud = happening.message, None
        if isinstance(reply, SidrRep) and not happening.status:
            ud = identifier.vector, reply.qpn, reply.qkey, identifier.tos
        self._put(Told(KINDS[happening.kind], happening.status, note, identifier.owner, ud))


class CMEvent(PyverbsObject):
    """The next event of a channel, for which this waits.

    ``status`` and ``id``, the CMID that it is about, are Verbena's own names for what C has here; of a request ``id``
    is None, and ``CMID(creator=event, listen_id=...)`` makes it. ``status`` is 0, the negative of an errno, or the
    peer's reason (of a refusal, or of the UNREACHABLE of RDMA_PS_UDP). ``private_data`` are bytes, as many as the
    message has room for, None if it is not one that carries any.
    """

    def __init__(self, channel):
        must_be("CMEventChannel", "channel", channel)
        self._told = told = channel._get("Failed to create CMEvent")
        self.event_type = told.kind
        self.status = told.status
        note = told.note
        self.id = told.owner()
        self._why = told.why
        message = None if note is None else note.happening.message
        self.private_data = None if message is None else note.private_data
        self._ud = told.ud
        self._parameters = None if note is None else note.parameters

    def __str__(self):
        return f"{self.event_type.name}, {self._why}, of {self.id or 'no CMID'}"

    @property
    def conn_param(self):
        """Verbena's own name for what C has here: the :class:`verbena.sw.cm.parameters.Parameters` of a request or an
        answer of RC; None of other events.
        """
        return self._parameters

    def ack_cm_event(self):
        """Tells that the event has been dealt with; a request that no CMID was made of is refused. Again: nothing."""
        told, self._told = self._told, None
        if told is not None:
            told.discard()

    def event_str(self):
        """The name of the event, nothing once it was acknowledged."""
        return "" if self._told is None else self.event_type.name

    def close(self):
        """As :meth:`ack_cm_event`."""
        self.ack_cm_event()
