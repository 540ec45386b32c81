"""Multicast groups of an identifier of the connection manager."""

import errno
import weakref

from verbena.sw.cm.identifier import UDP_QKEY

from .addr import GID
from .base import attempt, refuse
from .cm_enums import rdma_cm_event_type, rdma_cm_join_mc_attr_mask, rdma_cm_mc_join_flags
from .cm_event import Told
from .cm_param import AddrInfo
from .pyverbs_error import PyverbsRDMAError

__all__ = ["Groups"]

E = rdma_cm_event_type

EVERYBODY = 0xFFFFFF
"""Number of the QP that stands for all in a group (IBA 10.5.1)."""
ALL_ATTRIBUTES = sum(rdma_cm_join_mc_attr_mask)


class Groups:
    """Part of :class:`.cmid.CMID`, which has ``_identifier``, ``_events``, ``_sync``, ``_qp``, and the GIDs of groups
    that the QP is to follow into (``_joining``) and of those that it is in (``_attached``).
    """

    def join_multicast(self, addr=None, mc_attr=None, context=0):
        """Joins the multicast group, of IPv4 or IPv6, whose address is the ``src`` of ``addr``, an :class:`AddrInfo`;
        or as a :class:`JoinMCAttrEx` says. Switches and routers hear of it by IGMPv3 or MLDv2, unless it only sends.
        RDMA_CM_EVENT_MULTICAST_JOIN follows, of which :class:`UDParam` tells the way to the group, unless synchronous.
        Then the QP, if there is one, is in the group, unless it only sends; else RDMA_CM_EVENT_MULTICAST_ERROR follows,
        with the errno of :meth:`.QP.attach_mcast`. ``context`` is taken, and nothing is done with it.

        EINVAL: another port space than RDMA_PS_UDP, no device yet, no multicast address, wrong attributes; EADDRINUSE:
        it has joined already; ENETUNREACH: the device has no address of that kind.
        """
        self._check_open()
        failed = "Failed to Join multicast"
        gid, send_only = _group(failed, addr, mc_attr)
        identifier = self._identifier
        with attempt(failed):
            vector = identifier.join(gid, send_only)
        ud = vector, EVERYBODY, UDP_QKEY, identifier.tos
        told = Told(E.RDMA_CM_EVENT_MULTICAST_JOIN, owner=weakref.ref(self), ud=ud)
        if not send_only:
            self._joining.add(gid)
        if not self._sync:
            self._events._put(told)
            return
        self._finish(told)
        if told.status:
            refuse(f"{failed}: {told.kind.name}", -told.status)

    def leave_multicast(self, addr):
        """Leaves a multicast group; so does a CMID that is closed. EADDRNOTAVAIL: it has not joined that one."""
        self._check_open()
        gid, _ = _group("Failed to leave multicast", addr)
        self._leave("Failed to leave multicast", gid)

    def _leave(self, failed, gid):
        with attempt(failed):
            self._identifier.leave(gid)
        self._joining.discard(gid)
        if gid in self._attached:
            self._attached.remove(gid)
            self._qp.detach_mcast(GID.of(gid), 0)

    def _leave_all(self, failed):
        for gid in list(self._attached):
            self._leave(failed, gid)

    def _attach(self, told):
        """The QP follows into the group that an event is of."""
        gid = told.ud[0].dgid
        if gid not in self._joining:
            return
        self._joining.remove(gid)
        if self._qp is None:
            return
        try:
            self._qp.attach_mcast(GID.of(gid), 0)
            self._attached.add(gid)
        except PyverbsRDMAError as error:
            self._identifier.leave(gid)
            told.kind, told.status, told.ud = E.RDMA_CM_EVENT_MULTICAST_ERROR, -error.error_code, None


def _group(failed, addr, mc_attr=None):
    """``(GID, whether it only sends)`` of how a group is to be joined."""
    send_only = False
    if mc_attr is not None:
        if mc_attr.comp_mask != ALL_ATTRIBUTES or mc_attr.join_flags not in tuple(rdma_cm_mc_join_flags):
            refuse(f"{failed}: comp_mask {mc_attr.comp_mask!r}, join_flags {mc_attr.join_flags!r}", errno.EINVAL)
        addr, send_only = (
            mc_attr.addr,
            mc_attr.join_flags == rdma_cm_mc_join_flags.RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER,
        )
    if not isinstance(addr, AddrInfo):
        refuse(f"{failed}: an AddrInfo is needed, not {addr!r}", errno.EINVAL)
    return addr.src[0], send_only
