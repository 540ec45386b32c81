"""What rdma_cm calls an identifier: an address, and a listener, a connection, or an inquiry at it."""

import errno
import math
from dataclasses import dataclass

from ..errors import AdapterError
from ..gids import ipv4_of, mapped
from ..groups import is_group
from .connection import Connection, State, WrongState
from .events import Happened, Happening
from .ip_header import PORT_SPACE_TCP, PORT_SPACE_UDP, IpAddresses, endpoint_text, service_id
from .listeners import Listeners
from .messages import Rep, Req
from .parameters import Parameters, Path
from .reasons import RejReason, SidrStatus
from .timers import ACK_TIMEOUT, REQ_RETRIES, RESPONSE_TIMEOUT

__all__ = ["ANY", "ANY_IPV4", "MAX_BACKLOG", "UDP_QKEY", "Identifier", "Note"]

UDP_QKEY = 0x01234567
"""Of rdma_cm's UD QPs (Linux, RDMA_UDP_QKEY)."""
MAX_BACKLOG = 1024
"""Requests that can be undecided, unless the program wants fewer (Linux, ``max_backlog``)."""
EPHEMERAL = range(32768, 61000)
"""Ports for who does not choose one (Linux, ``ip_local_port_range``)."""
HOP_LIMIT = 64
NO_LID = 0xFFFF
ACK_DELAY = 15
ANY, ANY_IPV4 = 0, mapped(0)
"""Own addresses that stand for all, and for all of IPv4."""
ROOM = {"REQ": 56, "REP": 196, "REJ": 148, "RTU": 224, "SIDR_REQ": 180, "SIDR_REP": 136}
"""Bytes of private data that a program may send."""


def _covers(own, gid):
    """Whether the own address ``own`` stands for ``gid``."""
    return own in (ANY, gid) or (own == ANY_IPV4 and ipv4_of(gid) is not None)


def _overlap(one, other):
    """Whether two own addresses stand for a common one."""
    return _covers(one, other) or _covers(other, one)


@dataclass(frozen=True)
class Note:
    """Tells the owner of ``identifier`` what has happened to it. A request comes with a new identifier for it, and the
    ``listener`` that was asked.
    """

    happening: Happening
    identifier: object
    listener: object = None

    @property
    def private_data(self):
        """What the peer's program has sent: all the room that there is for it, with zeros behind."""
        data = self.happening.private_data
        return data[36:] if self.listener is not None else data

    @property
    def parameters(self):
        """What a REQ or REP says, None of other events."""
        message = self.happening.message
        return Parameters.of(message) if isinstance(message, (Req, Rep)) else None


class Identifier:
    """Of a port space, 0x0106 for RC or 0x0111 for UD. Errors are :class:`.AdapterError`.

    Parameters
    ----------
    port_space : int
    tell : callable
        Gets each :class:`Note`.
    """

    def __init__(self, port_space, tell):
        if port_space not in (PORT_SPACE_TCP, PORT_SPACE_UDP):
            raise AdapterError(errno.EOPNOTSUPP, f"port space {port_space!r}")
        self.port_space = port_space
        self.tell = tell
        self.owner = lambda: None
        """Returns whose it is, for who gets its notes."""
        self.manager = None
        self.port = self.peer_port = 0
        self.gid = ANY  # the own address
        self.vector = None  # to the peer, once that is known
        self.ack_timeout = ACK_TIMEOUT
        self.tos = 0  # traffic class of what the connection, or datagrams to the service, send
        self._groups = {}  # GID of each that it is in: the way, and whether that is reported
        self._listening = False
        self._backlog = MAX_BACKLOG
        self._children = []  # undecided requests
        self._parent = None
        self._exchange = None
        self._psn = 0
        self._own = None  # parameters that this side has asked for, or agreed to

    @property
    def datagrams(self):
        """Whether it is one of UD."""
        return self.port_space == PORT_SPACE_UDP

    # Addresses

    def bind(self, manager, port=0, gid=ANY):
        """Takes a port of an adapter, any free one if it is 0, at the own address ``gid``, by default at all of them;
        the IPv4-mapped GID of 0.0.0.0 is all of IPv4. EADDRINUSE if another one has the port there, EINVAL if this one
        has a port already.
        """
        if self.manager is not None:
            raise AdapterError(errno.EINVAL, f"it is bound to port {self.port} already")
        with manager.lock:
            if not port:
                free = [p for p in EPHEMERAL if (self.port_space, p) not in manager.bound]
                if not free:
                    raise AdapterError(errno.EADDRNOTAVAIL, "all ports are in use")
                port = manager.random.choice(free)
            taken = manager.bound.setdefault((self.port_space, port), [])
            if any(_overlap(gid, other) for other in taken):
                raise AdapterError(errno.EADDRINUSE, f"port {port}")
            taken.append(gid)
        self.manager, self.port, self.gid = manager, port, gid

    def resolve(self, gid, port, timeout_ms=math.inf):
        """Finds the way to the peer, from the own address or the one that fits best (:func:`.source_index`), and the
        peer's MAC address. EHOSTUNREACH if nobody has that address, ETIMEDOUT if nobody tells it in ``timeout_ms``,
        ENETUNREACH or EADDRNOTAVAIL if there is no such way. Must be bound, and neither listen nor have a connection.
        A multicast group has a MAC address of its own.
        """
        self.must_be_free()
        vector = self._way(gid)
        if not is_group(gid):
            self.manager.context._adapter.control.resolve_gid(gid, vector.sgid_index, timeout_ms)
        self.vector, self.peer_port = vector, port

    def _way(self, gid):
        return self.manager.vector(gid, 0 if self.gid in (ANY, ANY_IPV4) else self.gid)

    def join(self, gid, send_only=False):
        """Becomes a member of a multicast group, of UD, and tells switches and routers, unless it is ``send_only``. The
        way there. EINVAL: it is none of UD, has no address yet, or ``gid`` is no group's; EADDRINUSE: it is a member
        already; ENETUNREACH or EADDRNOTAVAIL: there is no such way.
        """
        self._must_be_bound()
        if not (self.datagrams and is_group(gid)):
            raise AdapterError(errno.EINVAL, "it is none of UD, or the address is no multicast group's")
        if gid in self._groups:
            raise AdapterError(errno.EADDRINUSE, "it is a member already")
        vector = self._way(gid)
        if not send_only:
            self.manager.join(vector)
        self._groups[gid] = vector, not send_only
        return vector

    def leave(self, gid):
        """Is a member no more. EADDRNOTAVAIL: it has not been."""
        if gid not in self._groups:
            raise AdapterError(errno.EADDRNOTAVAIL, "it is no member")
        vector, reported = self._groups.pop(gid)
        if reported:
            self.manager.leave(vector)

    def _must_be_bound(self):
        if self.manager is None:
            raise AdapterError(errno.EINVAL, "it has no address yet")

    def must_be_free(self):
        """EINVAL if it has no address yet, listens, or has a connection, also one that is over."""
        self._must_be_bound()
        if self._listening or self._exchange is not None:
            raise AdapterError(errno.EINVAL, "it listens, or has a connection, already")

    # The side that is asked

    def listen(self, backlog=0):
        """Takes requests from now on, as many undecided ones as ``backlog``; those beyond are refused."""
        self.must_be_free()
        self._backlog = backlog if 0 < backlog < MAX_BACKLOG else MAX_BACKLOG
        with self.manager.lock:
            self.manager.listeners.setdefault(service_id(self.port_space, self.port), Listeners()).add(self)
        self._listening = True

    def hears(self, gid):
        """Whether this listener is asked at the own address ``gid``."""
        return _covers(self.gid, gid)

    def requested(self, exchange, addresses):
        """The manager asks whether this listener takes a request."""
        self._children = [child for child in self._children if child._undecided]
        if len(self._children) >= self._backlog or isinstance(exchange, Connection) == self.datagrams:
            return False
        child = Identifier(self.port_space, self.tell)
        child.manager, child._exchange, child._parent = self.manager, exchange, self
        child.gid, child.vector = addresses.destination, exchange.vector
        child.port, child.peer_port = self.port, addresses.port
        exchange.tell = child._happened
        self._children.append(child)
        return True

    @property
    def _undecided(self):
        if self.datagrams:
            return self._exchange is not None and self._exchange.open
        return self._exchange is not None and self._exchange.state == State.REQ_RCVD

    def accept(self, parameters=None):
        """Says yes to the request; without ``parameters`` to what it asks for, as far as the adapter goes. The QP of
        ``parameters.qp_num`` must be able to receive.
        """
        self.check_accept(parameters or Parameters())
        if self.datagrams:
            given = parameters or Parameters()
            with self.manager.lock:
                self._exchange.answer(SidrStatus.SUCCESS, given.qp_num, UDP_QKEY, given.private_data)
            return
        given = self.agreed(parameters)
        rep = Rep(
            qpn=given.qp_num,
            starting_psn=self._psn_of_own(),
            responder_resources=given.responder_resources,
            initiator_depth=given.initiator_depth,
            ack_delay=ACK_DELAY,
            flow_control=given.flow_control & 1,
            rnr_retry=given.rnr_retry_count & 7,
            srq=given.srq & 1,
            ca_guid=self.manager.guid,
            private_data=given.private_data,
        )
        with self.manager.lock:
            self._exchange.accept(rep)

    def check_accept(self, parameters):
        """Errors of :meth:`accept`, before anything is done for it."""
        self._must_be_asked()
        self._exchange.must_be_undecided()
        self._check_room("SIDR_REP" if self.datagrams else "REP", parameters)

    def agreed(self, parameters=None):
        """What the side that is asked agrees to, of RC: no more READs and atomics than the other side."""
        asked = Parameters.of(self._exchange.req)
        wanted = Parameters() if parameters is None else parameters
        self._own = wanted.limited(asked)
        return self._own

    def reject(self, private_data=b""):
        """Says no to the request, or to what the peer has answered."""
        if self.datagrams:
            self._must_be_asked()
            self._check_room("SIDR_REP", Parameters(private_data=private_data))
            with self.manager.lock:
                self._exchange.answer(SidrStatus.REJECTED, private_data=private_data)
            return
        self._must_have_connection()
        self._check_room("REJ", Parameters(private_data=private_data))
        with self.manager.lock:
            self._exchange.reject(RejReason.CONSUMER_DEFINED, private_data)

    def _must_be_asked(self):
        if self._parent is None:
            raise AdapterError(errno.EINVAL, "nobody has asked")

    def _must_have_connection(self):
        if not isinstance(self._exchange, Connection):
            raise WrongState("there is no connection")

    # The side that asks

    def connect(self, parameters, mtu):
        """Asks the peer for a connection of RC, whose QP number is in ``parameters`` and whose path has ``mtu``, a
        code; or for the QP of a service, of UD.
        """
        self.must_be_free()
        if self.vector is None:
            raise AdapterError(errno.EINVAL, "its peer's address is not resolved")
        manager = self.manager
        own, peer = manager.own_gid(self.vector), self.vector.dgid
        header = IpAddresses(own, self.port, peer).pack()
        service = service_id(self.port_space, self.peer_port)
        self._check_room("SIDR_REQ" if self.datagrams else "REQ", parameters)
        if self.datagrams:
            self._exchange = manager.inquire(self.vector, self._happened, service, header + parameters.private_data)
            return
        self._own = given = parameters.limited()
        with manager.lock:
            connection = manager.connection(self.vector, self._happened)
            request = Req(
                local_id=connection.local_id,
                service_id=service,
                ca_guid=manager.guid,
                qpn=given.qp_num,
                responder_resources=given.responder_resources,
                initiator_depth=given.initiator_depth,
                remote_response_timeout=RESPONSE_TIMEOUT,
                flow_control=given.flow_control & 1,
                starting_psn=self._psn_of_own(),
                local_response_timeout=RESPONSE_TIMEOUT,
                retry_count=given.retry_count & 7,
                pkey=0xFFFF,
                path_mtu=mtu,
                rnr_retry=given.rnr_retry_count & 7,
                max_cm_retries=REQ_RETRIES,
                srq=given.srq & 1,
                local_lid=NO_LID,
                remote_lid=NO_LID,
                local_gid=own,
                remote_gid=peer,
                flow_label=manager.number(20),
                traffic_class=self.tos,
                hop_limit=HOP_LIMIT,
                ack_timeout=self.ack_timeout,
                private_data=header + given.private_data,
            )
            self._exchange = connection
            connection.connect(request)

    def establish(self):
        """The active side of RC can receive: says so."""
        self._must_have_connection()
        with self.manager.lock:
            self._exchange.establish()

    # Both

    def disconnect(self):
        """Ends a connection of RC, or agrees that the peer does."""
        self._must_have_connection()
        with self.manager.lock:
            self._exchange.disconnect(self.manager.tid())

    def communicates(self):
        """A packet has come for the QP: that is as good as the RTU. Not if another thread is at the manager: then the
        REP is repeated.
        """
        exchange = self._exchange
        waits = isinstance(exchange, Connection) and exchange.state == State.REP_SENT
        if waits and self.manager.lock.acquire(blocking=False):
            try:
                exchange.communicates()
            finally:
                self.manager.lock.release()

    @property
    def answered(self):
        """Whether the peer of a connection has said what it wants."""
        exchange = self._exchange
        return isinstance(exchange, Connection) and (not exchange.active or exchange.rep is not None)

    def path(self):
        """The :class:`.parameters.Path` of a connection whose peer is known. The REQ's MTU, times and retries hold for
        both sides; the RNR retries are the peer's.
        """
        self._must_have_connection()
        exchange = self._exchange
        if not self.answered:
            raise WrongState("the peer has not answered")
        req, heard = exchange.req, exchange.rep if exchange.active else exchange.req
        own = self._own.limited(Parameters.of(heard)) if exchange.active else self._own or self.agreed()
        return Path(
            vector=exchange.vector,
            dest_qpn=heard.qpn,
            rq_psn=self._psn_of_own(),
            sq_psn=heard.starting_psn,
            mtu=req.path_mtu,
            flow_label=req.flow_label,
            traffic_class=req.traffic_class,
            ack_timeout=req.ack_timeout,
            retry_count=req.retry_count,
            rnr_retry=heard.rnr_retry,
            responder_resources=own.responder_resources,
            initiator_depth=own.initiator_depth,
        )

    def close(self):
        """Nothing happens to it any more. The peer is told; requests that are undecided, and that nobody has taken, are
        refused.
        """
        if self.manager is None:
            return
        for gid in list(self._groups):
            self.leave(gid)
        manager, self.manager = self.manager, None
        with manager.lock:
            if self._parent is None:
                key = self.port_space, self.port
                manager.bound[key].remove(self.gid)
                if not manager.bound[key]:
                    del manager.bound[key]
            if self._listening:
                service = service_id(self.port_space, self.port)
                if not manager.listeners[service].remove(self):
                    del manager.listeners[service]
            for child in self._children:
                if child._undecided and child.owner() is None:
                    child.close()
            if isinstance(self._exchange, Connection):
                self._exchange.close(manager.tid())
            elif self._exchange is not None:
                self._exchange.close()

    def _psn_of_own(self):
        """The PSN from which the peer sends."""
        if not self._psn:
            self._psn = self.manager.number(24)
        return self._psn

    @staticmethod
    def _check_room(name, parameters):
        if len(parameters.private_data) > ROOM[name]:
            length = len(parameters.private_data)
            raise AdapterError(errno.EINVAL, f"{length} bytes of private data; a {name} has room for {ROOM[name]}")

    def _happened(self, happening):
        listener = self._parent if happening.kind == Happened.REQUEST else None
        self.tell(Note(happening, self, listener))

    def __str__(self):
        peer = "" if self.vector is None else f" to {endpoint_text(self.vector.dgid, self.peer_port)}"
        return f"{'UD' if self.datagrams else 'RC'} port {self.port}{peer}"
