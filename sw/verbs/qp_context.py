"""A queue pair as the engine has it: its context, and what a transition makes the engine do."""

from verbena.hdl.abi.commands import QpAction

from .libibverbs_enums import ibv_qp_state, ibv_qp_type

__all__ = ["FIRST_UDP_PORT", "action_of", "context_of", "source_port"]

S = ibv_qp_state
RAW_MTU = 5
"""Path MTU of a raw packet queue, 4096: the most bytes that a frame has."""
RAW_PKEY = 0xFFFF
"""What the engine says of raw frames, which have no P_Key."""
_ACCESS = 14
"""Access flags that the engine looks at; others, such as FLUSH, are ignored."""
FIRST_UDP_PORT = 0xC000


def context_of(qp, attr):
    """Fields of the context of ``qp`` with the attributes ``attr``."""
    route = attr.ah_attr.gr
    datagrams, raw = (qp.qp_type == kind for kind in (ibv_qp_type.IBV_QPT_UD, ibv_qp_type.IBV_QPT_RAW_PACKET))
    return {
        "state": attr.qp_state,
        "type": qp.qp_type,
        "path_mtu": RAW_MTU if raw else qp._port_mtu if datagrams else attr.path_mtu,
        "access": attr.qp_access_flags & _ACCESS,
        "min_rnr_timer": attr.min_rnr_timer,
        "timeout": attr.timeout,
        "retry_count": attr.retry_cnt,
        "rnr_retry": attr.rnr_retry,
        "pd": qp.pd.handle,
        "dest_qpn": qp._qpn if datagrams else attr.dest_qp_num,
        "traffic_class": route.traffic_class,
        "pkey": RAW_PKEY if raw else qp._adapter.pkeys[attr.pkey_index],
        "source_port": source_port(route.flow_label, qp._qpn, attr.dest_qp_num),
        "dest_mac": qp._dest_mac,
        "hop_limit": route.hop_limit,
        "dest_ip": int(route._dgid) & 0xFFFFFFFF,
        "dest_gid_middle": int(route._dgid) >> 32 & 0xFFFFFFFF,
        "dest_gid_high": int(route._dgid) >> 64,
        "flow_label": route.flow_label,
        "sgid_index": route.sgid_index,
        "sq_base": qp._sq.bus,
        "log_sq_size": qp._sq.log_size,
        "log_sq_stride": qp._sq.log_stride,
        "sq_cqn": qp._scq._number,
        "rq_cqn": qp._rcq._number,
        "rq_base": qp._rq.bus,
        "log_rq_size": qp._rq.log_size,
        "log_rq_stride": qp._rq.log_stride,
        "srq": qp._srq is not None,
        "srqn": 0 if qp._srq is None else qp._srq._number,
        "max_rd_atomic": attr.max_rd_atomic,
        "max_dest_rd_atomic": attr.max_dest_rd_atomic,
        "qkey": attr.qkey,
        "sq_psn": attr.sq_psn,
        "rq_psn": attr.rq_psn,
    }


def source_port(flow_label, qpn, dest_qpn):
    """UDP source port of a connection, as Linux chooses it, on both sides the same: routers spread flows by it. Without
    a flow label (20 bits) the numbers of both QPs make one (kernel ``rdma_calc_flow_label``,
    ``rdma_flow_label_to_udp_sport``).
    """
    if not flow_label:
        product = qpn * dest_qpn
        product ^= product >> 20
        flow_label = (product ^ product >> 40) & 0xFFFFF
    return FIRST_UDP_PORT | (flow_label & 0x3FFF) ^ flow_label >> 14


def action_of(current, new):
    """What the engine has to do besides taking the attributes."""
    if new == S.IBV_QPS_RESET:
        return QpAction.RESET
    if new == S.IBV_QPS_ERR:
        return QpAction.ERROR
    if (current, new) == (S.IBV_QPS_INIT, S.IBV_QPS_RTR):
        return QpAction.START_RECEIVE
    if (current, new) == (S.IBV_QPS_RTR, S.IBV_QPS_RTS):
        return QpAction.START_SEND
    if (current, new) == (S.IBV_QPS_RTS, S.IBV_QPS_SQD):
        return QpAction.DRAIN
    if (current, new) == (S.IBV_QPS_SQD, S.IBV_QPS_RTS):
        return QpAction.RESUME
    if (current, new) == (S.IBV_QPS_SQE, S.IBV_QPS_RTS):
        return QpAction.RESTART_SEND
    return QpAction.NONE
