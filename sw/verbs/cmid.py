"""rdma_cm: connections by IP address and port, and the QPs that are brought up for them.

An identifier (:class:`CMID`) that is made of an :class:`AddrInfo` is synchronous: its calls return when all is done.
One that is made of a :class:`CMEventChannel` is told of each step by a :class:`CMEvent`.
"""

import contextlib
import errno
import weakref
from typing import NamedTuple

from verbena.sw.cm.connection import WrongState
from verbena.sw.cm.identifier import ANY, ANY_IPV4, Identifier
from verbena.sw.cm.parameters import Parameters

from .base import DeviceHolder, PyverbsCM, attempt, must_be, refuse
from .cm_device import manager_at
from .cm_enums import (
    RAI_PASSIVE,
    RDMA_OPTION_ID,
    RDMA_OPTION_ID_ACK_TIMEOUT,
    RDMA_OPTION_ID_TOS,
    rdma_cm_event_type,
    rdma_port_space,
)
from .cm_event import CMEvent, CMEventChannel, Told
from .cm_groups import Groups
from .cm_param import AddrInfo, ConnParam, JoinMCAttrEx, UDParam
from .cm_work import Work
from .number import within
from .pd import PD
from .pyverbs_error import PyverbsRDMAError, PyverbsUserError
from .unsupported import unsupported

__all__ = ["CMID", "AddrInfo", "CMEvent", "CMEventChannel", "ConnParam", "JoinMCAttrEx", "UDParam"]

E = rdma_cm_event_type
OPTIONS = {
    (RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT): ("ack_timeout", 31),
    (RDMA_OPTION_ID, RDMA_OPTION_ID_TOS): ("tos", 255),
}
"""Of an identifier, by level and name: what each sets, and the most that it may be."""

ENDS = (E.RDMA_CM_EVENT_DISCONNECTED, E.RDMA_CM_EVENT_REJECTED, E.RDMA_CM_EVENT_UNREACHABLE)
"""Events after which there is no connection."""


class _Request(NamedTuple):
    """What a CMID is made of that stands for a request to ``listener``."""

    listener: object
    identifier: Identifier
    events: CMEventChannel


class CMID(Groups, Work, DeviceHolder, PyverbsCM):
    """An identifier of the connection manager: of a listener, or of one side of a connection.

    ``creator`` is an :class:`AddrInfo` (synchronous: with RAI_PASSIVE it has that address then, else the peer is
    resolved), a :class:`CMEventChannel`, or the :class:`CMEvent` of a request, which came to ``listen_id``. With
    ``qp_init_attr`` a synchronous one gets a QP, and one that listens gives one to each of its requests, on ``pd``.

    ``context``, Verbena's own, names the device, which otherwise follows from the addresses: it is the one that has the
    own address; without one, a device that the process has opened, or the first that is free.
    """

    _rank = 0

    def __init__(
        self,
        creator=None,
        qp_init_attr=None,
        pd=None,
        port_space=rdma_port_space.RDMA_PS_TCP,
        listen_id=None,
        *,
        context=None,
    ):
        super().__init__()
        self._qp = self._send_cq = self._recv_cq = None
        self._owned = []  # CQs and channels that were made with the QP
        self._wanted = None  # a Context that was made of it
        self._over = False  # it is known that its connection has ended
        self._joining, self._attached = set(), set()
        self._mrs = weakref.WeakSet()
        self._pd, self._init_attr = pd, qp_init_attr
        self._context = pd.context if pd is not None and context is None else context
        self._sync = isinstance(creator, AddrInfo)
        if isinstance(creator, CMEvent):
            creator = _requested(creator, listen_id)
        if isinstance(creator, _Request):
            self._follow(*creator)
        elif isinstance(creator, (AddrInfo, CMEventChannel)):
            self._events = CMEventChannel() if self._sync else creator
            self._events._check_open()
            with attempt("Failed to create CM ID"):
                self._own(Identifier(creator.port_space if self._sync else port_space, self._events._tell))
        else:
            raise PyverbsUserError(f"Cannot create CM ID from {type(creator)}")
        self._opened()
        if isinstance(creator, AddrInfo):
            try:
                self._set_up(creator)
            except Exception:
                self._end()
                raise

    def _own(self, identifier):
        self._identifier = identifier
        identifier.owner = weakref.ref(self)

    def _set_up(self, info):
        if info.passive:
            self.bind_addr(info)
            return
        self.resolve_addr(info)
        self.resolve_route()
        if self._init_attr is not None:
            self.create_qp(self._init_attr)

    def _follow(self, listener, identifier, events):
        """Becomes that of a request to ``listener``."""
        self._events = events
        self._sync = listener._sync
        self._pd, self._context = listener._pd, listener._context
        self._own(identifier)
        self._settle()

    # What it has

    @property
    def event_channel(self):
        """Its :class:`CMEventChannel`, None if it is synchronous."""
        return None if self._sync else self._events

    @property
    def context(self):
        """The :class:`.Context` of its device, None before it has one: that which was made of it, or one that all CMIDs
        of the device share.
        """
        manager = self._identifier.manager
        if self._pd is not None:
            return self._pd.context
        return None if manager is None else self._wanted or manager.context

    @property
    def pd(self):
        """The :class:`.PD` of its QP, None before it has a device. Where none was given, all CMIDs of a device share
        one.
        """
        manager = self._identifier.manager
        if self._pd is None and manager is not None:
            if self._wanted is not None:
                self._pd = PD(self._wanted)
            else:
                if manager.pd is None:
                    manager.pd = PD(manager.context)
                self._pd = manager.pd
        return self._pd

    def use_context(self, context):
        """A Context has been made of it: its PD will be of that one, if it has none yet."""
        self._wanted = context

    @property
    def qp(self):
        """Verbena's own name for what C has here: the QP that :meth:`create_qp` made, or None."""
        return self._qp

    @property
    def qpn(self):
        """Number of that QP, or None."""
        return None if self._qp is None else self._qp.qp_num

    @property
    def port(self):
        """Verbena's own: the port that it has, 0 before it has one."""
        return self._identifier.port

    # Addresses

    def bind_addr(self, lai):
        """Takes the address and the port of an :class:`AddrInfo`. ENODEV: no device has that address; EADDRINUSE: the
        port is taken.
        """
        self._check_open()
        must_be("AddrInfo", "lai", lai)
        self._bind("Failed to Bind ID", lai)

    def _bind(self, failed, info):
        gid, port = info.src
        manager = manager_at(failed, gid, info.dst[0], self._context, info.device)
        with attempt(failed):
            self._identifier.bind(manager, port, gid)
        self._settle()

    def _settle(self):
        """It lives as long as its device's context."""
        context = self._identifier.manager.context
        self._events._serve(context._adapter)
        self._belong(context)

    def resolve_addr(self, rai, timeout_ms=2000):
        """Finds the peer, by ARP or neighbour discovery if need be, which takes up to three of the port's seconds, and
        ``timeout_ms`` of its milliseconds. Synchronous: EHOSTUNREACH if nobody has the address, ETIMEDOUT if the time
        is over, ENETUNREACH if the device has no address of that kind; else RDMA_CM_EVENT_ADDR_RESOLVED or ADDR_ERROR
        follows. EINVAL: it listens, or has a connection, already.
        """
        self._check_open()
        failed = "Failed to Resolve Address"
        must_be("AddrInfo", "rai", rai)
        self._check_timeout(failed, timeout_ms)
        gid, port = rai.dst
        if gid in (ANY, ANY_IPV4):
            refuse(f"{failed}: there is no peer in {rai}", errno.EINVAL)
        if self._identifier.manager is None:
            self._bind(failed, rai)
        with attempt(failed):
            self._identifier.must_be_free()
        kind, status = E.RDMA_CM_EVENT_ADDR_RESOLVED, 0
        try:
            with attempt(failed):
                self._identifier.resolve(gid, port, timeout_ms)
        except PyverbsRDMAError as error:
            if self._sync:
                raise
            kind, status = E.RDMA_CM_EVENT_ADDR_ERROR, -error.error_code
        if not self._sync:
            self._events._put(Told(kind, status, owner=weakref.ref(self)))

    def resolve_route(self, timeout_ms=2000):
        """On Ethernet the way is known with the address, and it takes no time: RDMA_CM_EVENT_ROUTE_RESOLVED follows,
        unless synchronous.
        """
        self._check_open()
        self._check_timeout("Failed to Resolve Route", timeout_ms)
        if self._identifier.vector is None:
            refuse("Failed to Resolve Route: the address is not resolved", errno.EINVAL)
        if not self._sync:
            self._events._put(Told(E.RDMA_CM_EVENT_ROUTE_RESOLVED, owner=weakref.ref(self)))

    @staticmethod
    def _check_timeout(failed, timeout_ms):
        if not within(timeout_ms, 0, (1 << 31) - 1):
            refuse(f"{failed}: timeout_ms must be 0 to 2^31 - 1, not {timeout_ms!r}", errno.EINVAL)

    # The side that is asked

    def listen(self, backlog=0):
        """Takes requests from now on; more undecided ones than ``backlog`` are refused (0: 1024)."""
        self._check_open()
        failed = "Listen Failed"
        if self._identifier.manager is None:
            self._bind(failed, AddrInfo(flags=RAI_PASSIVE))
        with attempt(failed):
            self._identifier.listen(backlog)

    def get_request(self):
        """Waits for the next request to a synchronous listener: its CMID. EDEADLK if none can come."""
        self._check_open()
        failed = "Failed to get request, no connection established"
        if not self._sync:
            refuse(f"{failed}: it has an event channel", errno.EINVAL)
        while (told := self._events._get(failed)).kind != E.RDMA_CM_EVENT_CONNECT_REQUEST:
            pass
        identifier, events = told.note.identifier, CMEventChannel()
        identifier.tell = events._tell
        made = CMID(_Request(self, identifier, events))
        if self._init_attr is not None:
            try:
                made.create_qp(self._init_attr)
            except Exception:
                made._end()
                raise
        return made

    def accept(self, param=None):
        """Says yes. Its QP is brought to RTS before, of RC; a synchronous one waits until the peer is ready, too.

        Without ``param`` it agrees to what the peer has asked for. EINVAL: nobody has asked; ECONNREFUSED: the peer has
        said no; ETIMEDOUT: it says nothing.
        """
        self._check_open()
        failed = "Failed to Accept Connection"
        given = self._given(failed, param)
        identifier = self._identifier
        with attempt(failed):
            identifier.check_accept(given)
            if self._qp is not None and not identifier.datagrams:
                identifier.agreed(given)
                self._bring_up()
            identifier.accept(given)
        if self._sync and not identifier.datagrams:
            self._complete(failed, E.RDMA_CM_EVENT_ESTABLISHED)

    def reject(self, private_data=None, private_data_len=0):
        """Says no, with up to 148 bytes for the peer's program (of UD 136). EINVAL: nobody has asked."""
        self._check_open()
        data = private_data.encode() if isinstance(private_data, str) else bytes(private_data or b"")
        data = data[: private_data_len or len(data)]
        with attempt("Failed to Reject Connection"):
            self._identifier.reject(data)

    # The side that asks

    def connect(self, param=None):
        """Asks the peer for a connection, or for the QP of its service (RDMA_PS_UDP). A synchronous one waits for the
        answer: ECONNREFUSED if it is no, ETIMEDOUT if there is none.
        """
        self._check_open()
        failed = "Failed to Connect"
        given = self._given(failed, param)
        identifier = self._identifier
        with attempt(failed):
            identifier.connect(given, 0 if self.context is None else self.context.query_port(1).active_mtu)
        if self._sync:
            self._complete(failed, E.RDMA_CM_EVENT_ESTABLISHED, E.RDMA_CM_EVENT_CONNECT_RESPONSE)

    def establish(self):
        """Ends what :meth:`connect` has begun, after RDMA_CM_EVENT_CONNECT_RESPONSE: for a QP that no CMID has made,
        once it can receive.
        """
        self._check_open()
        with attempt("Failed to Complete an active connection request"):
            self._identifier.establish()

    def disconnect(self):
        """Ends the connection, or agrees that the peer does: the QP goes to ERR. A synchronous one waits until both
        sides know. Again, or when the connection is over for another reason: nothing.
        """
        self._check_open()
        failed = "Failed to Disconnect"
        with attempt(failed):
            self._identifier.disconnect()
        self._to_error()
        if self._sync and not self._over:
            self._complete(failed, E.RDMA_CM_EVENT_DISCONNECTED)

    def _given(self, failed, param):
        must_be("ConnParam", "param", param, none=True)
        own = self.qpn or 0
        if param is None:
            return Parameters(qp_num=own)
        return param._parameters(failed, own)

    def _complete(self, failed, *kinds):
        """Waits for an event of these kinds. Errors as ``rdma_connect`` has them."""
        while True:
            told = self._events._get(failed)
            if told.kind == E.RDMA_CM_EVENT_REJECTED:
                refuse(f"{failed}: {told.why}", errno.ECONNREFUSED)
            if told.status and told.kind != E.RDMA_CM_EVENT_DISCONNECTED:
                code = -told.status if told.status < 0 else errno.ECONNREFUSED
                refuse(f"{failed}: {told.kind.name}, {told.why}", code)
            if told.kind in kinds:
                return

    def _finish(self, told):
        """An event of this CMID is taken: its QP follows."""
        self._over = self._over or told.kind in ENDS
        if self._closed:
            return
        if told.kind == E.RDMA_CM_EVENT_CONNECT_RESPONSE and self._qp is not None:
            try:
                self._bring_up()
                with attempt("Failed to connect"):
                    self._identifier.establish()
                told.kind = E.RDMA_CM_EVENT_ESTABLISHED
            except PyverbsRDMAError as error:
                told.kind, told.status = E.RDMA_CM_EVENT_CONNECT_ERROR, -error.error_code
                with contextlib.suppress(WrongState):  # it is over already
                    self._identifier.reject()
        elif told.kind == E.RDMA_CM_EVENT_REJECTED:
            self._to_error()
        elif told.kind == E.RDMA_CM_EVENT_MULTICAST_JOIN:
            self._attach(told)

    def set_option(self, level, optname, optval, optlen):
        """Before :meth:`connect`: RDMA_OPTION_ID_ACK_TIMEOUT, the code of the time (4.096 us * 2^code, up to 31) after
        which both sides repeat what is not acknowledged; 19 otherwise, two seconds. RDMA_OPTION_ID_TOS, which pyverbs
        does not take: the traffic class, up to 255.
        """
        self._check_open()
        name, most = OPTIONS.get((level, optname), (None, 0))
        if name is None:
            raise PyverbsUserError("Currently only RDMA_OPTION_ID_ACK_TIMEOUT and RDMA_OPTION_ID_TOS are supported")
        if not within(optval, 0, most) or optlen != 1:
            refuse(f"Failed to set option: {optval!r} of {optlen!r} bytes", errno.EINVAL)
        setattr(self._identifier, name, optval)

    # What it cannot

    @unsupported("Failed to set local ECE")
    def set_local_ece(self, ece):
        """Says how enhanced a connection may be."""

    @unsupported("Failed to get remote ECE")
    def get_remote_ece(self):
        """How enhanced a connection the peer wants."""

    def _destroy(self):
        self._leave_all("Failed to close CMID")
        for mine in (self._qp, *self._owned, *self._mrs):
            if mine is not None:
                mine._end()
        with attempt("Failed to close CMID"):
            self._identifier.close()
        self._events._forget(self)
        if self._sync:
            self._events.close()

    def __str__(self):
        return f"CMID of {self._identifier}"


def _requested(event, listen_id):
    """The request that an event tells of."""
    if listen_id is None:
        raise PyverbsUserError("listen ID not provided")
    listen_id._check_open()
    note = event._told.note if event._told is not None else None
    if note is None or note.listener is not listen_id._identifier or note.identifier.owner() is not None:
        raise PyverbsUserError(f"{event.event_str() or 'a closed event'} is no request to that CM ID")
    return _Request(listen_id, note.identifier, listen_id._events)
