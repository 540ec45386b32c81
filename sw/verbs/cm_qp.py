"""QPs that the connection manager brings up, and what it tells them (Linux, cm_init_qp_attr and rdma_init_qp_attr)."""

import errno
from copy import copy

from .addr import GID, AHAttr, GlobalRoute
from .base import refuse
from .cq import CQ, CompChannel
from .libibverbs_enums import ibv_access_flags, ibv_qp_attr_mask, ibv_qp_state, ibv_wc_opcode
from .qp import QP, QPAttr
from .states import TRANSITIONS

__all__ = ["ManagedQP", "attributes", "initial"]

A, M, S = ibv_access_flags, ibv_qp_attr_mask, ibv_qp_state
HOP_LIMIT = 64
MIN_RNR_TIMER = 0
"""655.36 ms."""
BEFORE = {S.IBV_QPS_INIT: S.IBV_QPS_RESET, S.IBV_QPS_RTR: S.IBV_QPS_INIT, S.IBV_QPS_RTS: S.IBV_QPS_RTR}
RC, UD = 2, 4


class ManagedQP(QP):
    """A QP of a CMID. What it receives tells ``identifier``, a weak reference, that the peer is ready."""

    def __init__(self, pd, init_attr, identifier):
        self._identifier = identifier
        super().__init__(pd, init_attr)

    def _completed(self, entry):
        wr_id = super()._completed(entry)
        if entry["opcode"] & ibv_wc_opcode.IBV_WC_RECV and (identifier := self._identifier()) is not None:
            identifier.communicates()
        return wr_id


def initial(qp_init, context):
    """``(QPInitAttr, what was made)``: a copy of ``qp_init`` with new CQs, and their channels, where it has none."""
    init, made = copy(qp_init), []
    for name, depth in (("send_cq", qp_init.cap.max_send_wr), ("recv_cq", qp_init.cap.max_recv_wr)):
        if getattr(init, name) is None:
            channel = CompChannel(context)
            cq = CQ(context, max(1, depth), channel=channel)
            setattr(init, name, cq)
            made += [cq, channel]
    return init, made


def attributes(failed, identifier, state, qkey):
    """``(QPAttr, mask)`` for the way to ``state``; EINVAL for another state than INIT, RTR and RTS. Of RC and UD."""
    if state not in BEFORE:
        refuse(f"{failed}: state {state!r}", errno.EINVAL)
    kind = UD if identifier.datagrams else RC
    attr = QPAttr(qp_state=state)
    mask = M.IBV_QP_STATE | TRANSITIONS[kind][BEFORE[state], state][0]
    if identifier.datagrams:
        attr.qkey = qkey
        return attr, mask
    # The peer is not known yet when the QP is made; nobody can do anything to it then.
    path = identifier.path() if state != S.IBV_QPS_INIT or identifier.answered else None
    if path is not None:
        attr.qp_access_flags = A.IBV_ACCESS_REMOTE_WRITE
        if path.responder_resources:
            attr.qp_access_flags |= A.IBV_ACCESS_REMOTE_READ | A.IBV_ACCESS_REMOTE_ATOMIC
        dgid, index = GID.of(path.vector.dgid), path.vector.sgid_index
        route = GlobalRoute(dgid, path.flow_label, index, HOP_LIMIT, traffic_class=path.traffic_class)
        attr.ah_attr = AHAttr(is_global=1, port_num=1, gr=route)
        attr.path_mtu, attr.dest_qp_num = path.mtu, path.dest_qpn
        attr.rq_psn, attr.sq_psn = path.rq_psn, path.sq_psn
        attr.max_dest_rd_atomic, attr.max_rd_atomic = path.responder_resources, path.initiator_depth
        attr.min_rnr_timer, attr.timeout = MIN_RNR_TIMER, path.ack_timeout
        attr.retry_cnt, attr.rnr_retry = path.retry_count, path.rnr_retry
    return attr, mask
