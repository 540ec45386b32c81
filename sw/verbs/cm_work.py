"""The QP of an identifier of the connection manager, and what is done with it."""

import errno
import weakref

from verbena.sw.cm.identifier import UDP_QKEY

from .base import attempt, must_be, refuse
from .cm_enums import rdma_port_space
from .cm_qp import ManagedQP, attributes, initial
from .libibverbs_enums import (
    ibv_access_flags,
    ibv_qp_attr_mask,
    ibv_qp_state,
    ibv_qp_type,
    ibv_send_flags,
    ibv_wr_opcode,
)
from .mr import MR
from .qp import QPAttr
from .wr import SGE, RecvWR, SendWR

__all__ = ["Work"]

A, S = ibv_access_flags, ibv_qp_state
QP_TYPES = {rdma_port_space.RDMA_PS_TCP: ibv_qp_type.IBV_QPT_RC, rdma_port_space.RDMA_PS_UDP: ibv_qp_type.IBV_QPT_UD}


def _part(mr, length):
    return SGE(mr.buf, length or mr.length, mr.lkey)


class Work:
    """Part of :class:`.cmid.CMID`, which has ``pd``, ``_identifier``, ``_qp``, the CQs of that, those of them that are
    its own (``_owned``), and the regions (``_mrs``).
    """

    def create_qp(self, qp_init):
        """Makes a QP, in INIT (of UD: in RTS), with CQs of its own where ``qp_init`` has none. EINVAL: it has one
        already, has no device yet, or the type does not fit the port space.
        """
        self._check_open()
        failed = "Failed to Create QP"
        must_be("QPInitAttr", "qp_init", qp_init)
        if self._qp is not None or self.pd is None:
            refuse(f"{failed}: {'it has one' if self._qp is not None else 'it has no device yet'}", errno.EINVAL)
        kind = QP_TYPES[self._identifier.port_space]
        if qp_init.qp_type != kind:
            refuse(f"{failed}: its port space wants {kind.name}, not {qp_init.qp_type!r}", errno.EINVAL)
        init, self._owned = initial(qp_init, self.pd.context)
        self._qp = ManagedQP(self.pd, init, weakref.ref(self._identifier))
        self._send_cq, self._recv_cq = init.send_cq, init.recv_cq
        attr, mask = self.init_qp_attr(S.IBV_QPS_INIT)
        if self._identifier.datagrams:
            self._qp.to_rts(attr)
        else:
            self._qp.modify(attr, mask)

    def _bring_up(self):
        for state in (S.IBV_QPS_INIT, S.IBV_QPS_RTR, S.IBV_QPS_RTS):
            self._qp.modify(*self.init_qp_attr(state))

    def _to_error(self):
        if self._qp is not None and self._qp.qp_state not in (S.IBV_QPS_RESET, S.IBV_QPS_ERR):
            attr = QPAttr(qp_state=S.IBV_QPS_ERR)
            self._qp.modify(attr, ibv_qp_attr_mask.IBV_QP_STATE)

    def query_qp(self, attr_mask):
        """As :meth:`.QP.query`; EINVAL if there is none."""
        return self._some_qp("Failed to query QP").query(attr_mask)

    def init_qp_attr(self, qp_state):
        """``(QPAttr, mask)`` that bring a QP that no CMID has made to INIT, RTR or RTS. EINVAL: there is no connection,
        or the peer has not answered yet.
        """
        self._check_open()
        failed = "Failed to get QP attributes"
        if self._identifier.manager is None:
            refuse(f"{failed}: it has no device yet", errno.EINVAL)
        with attempt(failed):
            return attributes(failed, self._identifier, qp_state, UDP_QKEY)

    def _some_qp(self, failed):
        self._check_open()
        if self._qp is None:
            refuse(f"{failed}: it has no QP", errno.EINVAL)
        return self._qp

    def _register(self, size, access):
        self._check_open()
        if self.pd is None:
            refuse("Failed to register a MR: the CM ID has no device yet", errno.EINVAL)
        mr = MR(self.pd, size, access)
        self._mrs.add(mr)
        return mr

    def reg_msgs(self, size):
        """A region for messages; closed with the CMID."""
        return self._register(size, A.IBV_ACCESS_LOCAL_WRITE)

    def reg_read(self, size=0):
        """A region that the peer may read, too."""
        return self._register(size, A.IBV_ACCESS_LOCAL_WRITE | A.IBV_ACCESS_REMOTE_READ)

    def reg_write(self, size=0):
        """A region that the peer may write to, too."""
        return self._register(size, A.IBV_ACCESS_LOCAL_WRITE | A.IBV_ACCESS_REMOTE_WRITE)

    def post_recv(self, mr, length=None):
        """Posts a receive into the beginning of a region, or all of it."""
        self._some_qp("Failed to Post Receive").post_recv(RecvWR(num_sge=1, sg=[_part(mr, length)]))

    def post_send(self, mr, flags=ibv_send_flags.IBV_SEND_SIGNALED, length=None):
        """Sends the beginning of a region, or all of it."""
        qp = self._some_qp("Failed to Post Send")
        qp.post_send(SendWR(num_sge=1, sg=[_part(mr, length)], send_flags=flags))

    def post_read(self, mr, length, remote_addr, rkey, flags=0):
        """Reads from the peer's memory."""
        self._post_rdma("Failed to Post Read", ibv_wr_opcode.IBV_WR_RDMA_READ, mr, length, remote_addr, rkey, flags)

    def post_write(self, mr, length, remote_addr, rkey, flags=0):
        """Writes to the peer's memory."""
        self._post_rdma("Failed to Post Write", ibv_wr_opcode.IBV_WR_RDMA_WRITE, mr, length, remote_addr, rkey, flags)

    def _post_rdma(self, failed, opcode, mr, length, remote_addr, rkey, flags):
        qp = self._some_qp(failed)
        wr = SendWR(opcode=opcode, num_sge=1, sg=[SGE(mr.buf, length, mr.lkey)], send_flags=flags)
        wr.set_wr_rdma(rkey, remote_addr)
        qp.post_send(wr)

    def post_ud_send(self, mr, ah, rqpn=0, flags=ibv_send_flags.IBV_SEND_SIGNALED, length=None):
        """Sends the beginning of a region, or all of it, to a QP of rdma_cm, which has the port space's Q_Key."""
        qp = self._some_qp("Failed to Post Send")
        wr = SendWR(num_sge=1, sg=[_part(mr, length)], send_flags=flags)
        wr.set_wr_ud(ah, rqpn, UDP_QKEY)
        qp.post_send(wr)

    def get_recv_comp(self):
        """Waits for a completion of a receive, and returns it."""
        return self._completion("Failed to retrieve receive completion", self._recv_cq)

    def get_send_comp(self):
        """Waits for a completion of a send, and returns it."""
        return self._completion("Failed to retrieve send completion", self._send_cq)

    def _completion(self, failed, cq):
        self._some_qp(failed)
        if cq not in self._owned:
            refuse(f"{failed}: its QP has no CQ of its own for that", errno.EINVAL)
        while True:
            if found := cq._take(1):
                return found[0]
            cq.req_notify()
            if found := cq._take(1):
                return found[0]
            cq.comp_channel.get_cq_event(cq)
            cq.ack_events(1)
