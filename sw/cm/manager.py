"""The connection manager of an adapter: what comes to its QP1 goes to whom it concerns, and time to all."""

import os
import random
import threading

from ..verbs.device_attr import guid_of
from ..verbs.pyverbs_error import PyverbsRDMAError
from .address_vector import AddressVector, source_index
from .clock import Clock
from .connection import Connection, State
from .frame_port import FramePort
from .ip_header import IpAddresses
from .management_qp import MadPort
from .membership import Membership
from .messages import Drep, Dreq, Rej, Req, SidrRep, SidrReq, unpack
from .reasons import RejReason, SidrStatus, What
from .sidr import Inquiry, Question

__all__ = ["Manager", "manager_of"]

RC = 0
"""Transport of a REQ that asks for a reliable connection."""
GID_BYTES = 16
_lock = threading.Lock()


def _free_lock():
    """In a child process: who had the lock there is a thread of its parent."""
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_free_lock)


def manager_of(adapter, make_context):
    """The manager of an adapter, made when it is first asked for. ``make_context`` gives a :class:`.Context` of the
    adapter, which stays open as long as the manager. ``PyverbsRDMAError`` (EBUSY) if there is no room for QP1.
    """
    with _lock:
        agent = adapter.agent
        if agent is None or not agent.open:
            context, port = make_context(), adapter.port
            source = getattr(port, "random", None) or random.SystemRandom()
            ways = MadPort(context, source), FramePort(context)
            agent = Manager(*ways, Clock(port), adapter.gids, guid_of(port.mac), source)
            agent.context = context
            adapter.agent = agent
        return agent


class Manager:
    """Runs on the QP1 of an adapter. It works whenever the adapter's time passes, and in the calls of those who use it.

    A listener, in ``listeners`` by its service ID, has ``requested(exchange, addresses)``, which gets a
    :class:`.connection.Connection` or :class:`.sidr.Question` before anything has happened to it, sets its ``tell`` and
    returns whether it takes it; and ``hears(gid)``, whether it is asked at that of the own addresses.

    Parameters
    ----------
    mads : MadPort
    frames : FramePort
    clock : Clock
    gids : list of OwnGid
        Of the adapter, None where there is none.
    guid : int
        Of the adapter.
    random : random.Random
        Draws IDs.

    Attributes
    ----------
    context : Context
        On which its QP1 is; users may have their objects there, too.
    pd : PD
        Of those users who have no other; None before the first.
    lock : threading.RLock
        Who calls a connection, an inquiry or a question holds it.
    """

    context = pd = None

    def __init__(self, mads, frames, clock, gids, guid, random):
        self._mads, self._frames, self.clock = mads, frames, clock
        self.gids, self.guid, self.random = gids, guid, random
        self.lock = threading.RLock()
        self.connections = {}  # by own communication ID
        self.listeners = {}  # by service ID
        self.bound = {}  # own addresses that are taken at each port of a port space
        self._inquiries = {}  # by request ID
        self._questions = {}  # by way and request ID of who asks
        self._memberships = {}  # by way
        self._did = False

    @property
    def open(self):
        """Its context may be closed with the world that it is in."""
        return self._mads.open

    @property
    def now(self):
        return self.clock.now

    def send(self, mad, vector):
        """Sends a MAD, unless QP1 is gone."""
        self._did = True
        if self.open:
            self._mads.send(mad, vector)

    def send_frame(self, packet, group, row):
        """Sends an IP packet to a group, as :meth:`.FramePort.send`, unless QP1 is gone."""
        self._did = True
        if self.open:
            self._frames.send(packet, group, row)

    # For who uses it

    def number(self, bits=32):
        """A random one, not 0."""
        return self.random.randrange(1, 1 << bits)

    def tid(self):
        """A transaction ID."""
        return self.number(64)

    def numbers_in_use(self):
        """Numbers of QPs whose connections are not over, timewait among them: no other QP may have one (IBA 12.9.8)."""
        return {each.local_qpn for each in list(self.connections.values()) if each.state != State.IDLE}

    def vector(self, peer, own=0):
        """The :class:`.AddressVector` to the GID ``peer``, from the GID ``own`` if that is not 0; errors are those of
        :func:`.source_index`.
        """
        return AddressVector(source_index(self.gids, peer, own), peer)

    def own_gid(self, vector):
        """The own GID at the beginning of a way."""
        return self.gids[vector.sgid_index].gid

    def connection(self, vector, tell):
        """A new :class:`.connection.Connection` with the peer at the end of a way."""
        return self._connection(vector, tell, self.tid())

    def _connection(self, vector, tell, tid):
        while (own := self.number()) in self.connections:
            pass
        self.connections[own] = made = Connection(self, vector, tell, own, tid)
        return made

    def inquire(self, vector, tell, service, private_data):
        """An :class:`.sidr.Inquiry`, which is asked at once."""
        with self.lock:
            while (number := self.number()) in self._inquiries:
                pass
            self._inquiries[number] = made = Inquiry(self, vector, tell)
            request = SidrReq(request_id=number, pkey=0xFFFF, service_id=service, private_data=private_data)
            made.ask(request, self.tid())
            return made

    def join(self, vector):
        """One more is in the multicast group at the end of a way; a :class:`.membership.Membership` tells of it."""
        with self.lock:
            self._memberships.setdefault(vector, Membership(self, vector)).join()

    def leave(self, vector):
        """One has left it."""
        with self.lock:
            self._memberships[vector].leave()

    # What comes

    def work(self):
        """Takes what has come, and does what is due. Returns whether anything was sent. Nothing while another thread
        is at it.
        """
        if not self.lock.acquire(blocking=False):
            return False
        try:
            if not self.open:
                return False
            self._did = False
            for mad, vector in self._mads.receive():
                self._take(mad, vector)
            self._look_at_the_clock()
            return self._did
        except PyverbsRDMAError:
            if self.open:
                raise
            return False
        finally:
            self.lock.release()

    @property
    def due(self):
        """Time at which something is to be done if nothing comes before; None: never."""
        with self.lock:
            times = [each.deadline for each in self._timed() if each.deadline is not None]
        return min(times, default=None)

    def _timed(self):
        return [*self.connections.values(), *self._inquiries.values(), *self._memberships.values()]

    def _look_at_the_clock(self):
        now = self.now
        for each in self._timed():
            if each.deadline is not None and each.deadline <= now:
                each.expire()
        for each in self._memberships.values():
            each.remind()
        self.connections = {own: each for own, each in self.connections.items() if self._is_kept(each)}
        self._inquiries = {number: each for number, each in self._inquiries.items() if each.open}
        self._questions = {key: each for key, each in self._questions.items() if each.open}
        self._memberships = {vector: each for vector, each in self._memberships.items() if not each.over}

    @staticmethod
    def _is_kept(connection):
        return connection.state != State.IDLE or (connection.tell is not None and connection.req is None)

    def _take(self, mad, vector):
        found = unpack(mad)
        if found is None:
            return
        tid, message = found
        if isinstance(message, Req):
            self._take_req(message, tid, vector)
        elif isinstance(message, SidrReq):
            self._take_sidr_req(message, tid, vector)
        elif isinstance(message, SidrRep):
            inquiry = self._inquiries.get(message.request_id)
            if inquiry is not None and inquiry.open:
                inquiry.hear(message)
        else:
            connection = self._whose(message)
            if connection is not None and connection.vector == vector:
                connection.hear(message, tid)
            elif connection is None and isinstance(message, Dreq):
                # Who ends a connection that is forgotten here needs not repeat it.
                self.send(Drep(local_id=message.remote_id, remote_id=message.local_id).pack(tid), vector)

    def _whose(self, message):
        """The connection that a message is about; a side that has received none from the other yet says so by its
        GUID.
        """
        if isinstance(message, Rej) and message.reason == RejReason.TIMEOUT and not message.remote_id:
            guid = message.ari >> 8 * (72 - 8)
            return self._of_peer(guid, message.local_id)
        return self.connections.get(message.remote_id)

    def _of_peer(self, guid, remote_id):
        for each in self.connections.values():
            if (each.remote_guid, each.remote_id) == (guid, remote_id) and not each.active:
                return each
        return None

    def _take_req(self, req, tid, vector):
        known = self._of_peer(req.ca_guid, req.local_id)
        if known is not None:
            known.asked_again()
            return
        if req.local_gid != vector.dgid:
            return  # nobody at the address that it gives has sent it
        for each in self.connections.values():
            same = (each.remote_guid, each.remote_qpn) == (req.ca_guid, req.qpn)
            if same and each.state in (State.REP_SENT, State.ESTABLISHED, State.DREQ_SENT, State.TIMEWAIT):
                self._refuse(req, tid, vector, RejReason.STALE_CONN)
                if each.state == State.ESTABLISHED:
                    each.disconnect(self.tid())
                return
        if req.pkey & 0x7FFF != 0x7FFF or req.remote_gid != self.own_gid(vector):
            own = self.own_gid(vector).to_bytes(GID_BYTES, "big")
            self._refuse(req, tid, vector, RejReason.INVALID_GID, own)
            return
        listener = self.listeners.get(req.service_id)
        if listener is None:
            self._refuse(req, tid, vector, RejReason.INVALID_SERVICE_ID)
            return
        addresses = self._addresses(req, listener, vector)
        if addresses is None or req.transport != RC:
            self._refuse(req, tid, vector, RejReason.CONSUMER_DEFINED)
            return
        connection = self._connection(vector, None, tid)
        if listener.requested(connection, addresses):
            connection.asked(req)
        else:
            del self.connections[connection.local_id]
            self._refuse(req, tid, vector, RejReason.CONSUMER_DEFINED)

    def _refuse(self, req, tid, vector, reason, ari=b""):
        number = int.from_bytes(ari.ljust(72, b"\0"), "big")
        rej = Rej(remote_id=req.local_id, what=What.REQ, reason=reason, ari=number, ari_length=len(ari))
        self.send(rej.pack(tid), vector)

    def _addresses(self, message, listener, vector):
        """What its private data begin with, if that is a request to this listener; None otherwise."""
        try:
            addresses = IpAddresses.unpack(message.private_data)
        except ValueError:
            return None
        own = self.own_gid(vector)
        return addresses if addresses.destination == own and listener.hears(own) else None

    def _take_sidr_req(self, req, tid, vector):
        key = vector, req.request_id
        if key in self._questions and self._questions[key].open:
            return
        listener = self.listeners.get(req.service_id)
        addresses = None if listener is None else self._addresses(req, listener, vector)
        question = Question(self, vector, None, req, tid)
        if listener is None:
            question.answer(SidrStatus.UNSUPPORTED)
        elif addresses is None or not listener.requested(question, addresses):
            question.answer(SidrStatus.REJECTED)
        else:
            self._questions[key] = question
            question.begin()
