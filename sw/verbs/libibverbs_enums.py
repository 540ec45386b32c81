"""Enumerations of ``<infiniband/verbs.h>``, as classes and, as in C, as flat names."""

from enum import IntEnum

__all__ = [
    "ibv_access_flags",
    "ibv_atomic_cap",
    "ibv_event_type",
    "ibv_gid_type",
    "ibv_gid_type_sysfs",
    "ibv_mig_state",
    "ibv_mtu",
    "ibv_node_type",
    "ibv_port_state",
    "ibv_qp_attr_mask",
    "ibv_qp_state",
    "ibv_qp_type",
    "ibv_rereg_mr_flags",
    "ibv_send_flags",
    "ibv_transport_type",
    "ibv_wc_flags",
    "ibv_wc_opcode",
    "ibv_wc_status",
    "ibv_wr_opcode",
]


def _enum(name, prefix, members):
    kind = IntEnum(name, {prefix + k: v for k, v in members.items()}, module=__name__)
    globals().update(kind.__members__)
    __all__.extend(kind.__members__)
    return kind


def _count(names, start=0):
    return {name: i for i, name in enumerate(names.split(), start)}


def _bits(names, start=0):
    return {name: 1 << i for i, name in enumerate(names.split(), start)}


ibv_node_type = _enum("ibv_node_type", "IBV_NODE_", _count("CA SWITCH ROUTER RNIC USNIC USNIC_UDP UNSPECIFIED", 1))
ibv_transport_type = _enum(
    "ibv_transport_type", "IBV_TRANSPORT_", {"UNKNOWN": -1, **_count("IB IWARP USNIC USNIC_UDP UNSPECIFIED")}
)
ibv_gid_type = _enum("ibv_gid_type", "IBV_GID_TYPE_", _count("IB ROCE_V1 ROCE_V2"))
ibv_gid_type_sysfs = _enum("ibv_gid_type_sysfs", "IBV_GID_TYPE_SYSFS_", _count("IB_ROCE_V1 ROCE_V2"))
ibv_qp_type = _enum(
    "ibv_qp_type",
    "IBV_QPT_",
    {"RC": 2, "UC": 3, "UD": 4, "RAW_PACKET": 8, "XRC_SEND": 9, "XRC_RECV": 10, "DRIVER": 255},
)
ibv_qp_state = _enum("ibv_qp_state", "IBV_QPS_", _count("RESET INIT RTR RTS SQD SQE ERR UNKNOWN"))
ibv_mtu = _enum("ibv_mtu", "IBV_MTU_", _count("256 512 1024 2048 4096", 1))
ibv_access_flags = _enum(
    "ibv_access_flags",
    "IBV_ACCESS_",
    {
        **_bits(
            "LOCAL_WRITE REMOTE_WRITE REMOTE_READ REMOTE_ATOMIC MW_BIND ZERO_BASED ON_DEMAND HUGETLB FLUSH_GLOBAL "
            "FLUSH_PERSISTENT"
        ),
        "RELAXED_ORDERING": 1 << 20,
    },
)
ibv_wr_opcode = _enum(
    "ibv_wr_opcode",
    "IBV_WR_",
    _count(
        "RDMA_WRITE RDMA_WRITE_WITH_IMM SEND SEND_WITH_IMM RDMA_READ ATOMIC_CMP_AND_SWP ATOMIC_FETCH_AND_ADD "
        "LOCAL_INV BIND_MW SEND_WITH_INV TSO"
    ),
)
ibv_send_flags = _enum("ibv_send_flags", "IBV_SEND_", _bits("FENCE SIGNALED SOLICITED INLINE IP_CSUM"))
ibv_wc_status = _enum(
    "ibv_wc_status",
    "IBV_WC_",
    _count(
        "SUCCESS LOC_LEN_ERR LOC_QP_OP_ERR LOC_EEC_OP_ERR LOC_PROT_ERR WR_FLUSH_ERR MW_BIND_ERR BAD_RESP_ERR "
        "LOC_ACCESS_ERR REM_INV_REQ_ERR "
        "REM_ACCESS_ERR REM_OP_ERR RETRY_EXC_ERR RNR_RETRY_EXC_ERR LOC_RDD_VIOL_ERR REM_INV_RD_REQ_ERR "
        "REM_ABORT_ERR INV_EECN_ERR "
        "INV_EEC_STATE_ERR FATAL_ERR RESP_TIMEOUT_ERR GENERAL_ERR TM_ERR TM_RNDV_INCOMPLETE"
    ),
)
ibv_wc_opcode = _enum(
    "ibv_wc_opcode",
    "IBV_WC_",
    {
        **_count("SEND RDMA_WRITE RDMA_READ COMP_SWAP FETCH_ADD BIND_MW LOCAL_INV TSO"),
        "RECV": 128,
        "RECV_RDMA_WITH_IMM": 129,
    },
)
ibv_wc_flags = _enum("ibv_wc_flags", "IBV_WC_", {"GRH": 1, "WITH_IMM": 2, "IP_CSUM_OK": 4, "WITH_INV": 8})
ibv_qp_attr_mask = _enum(
    "ibv_qp_attr_mask",
    "IBV_QP_",
    {
        **_bits(
            "STATE CUR_STATE EN_SQD_ASYNC_NOTIFY ACCESS_FLAGS PKEY_INDEX PORT QKEY AV PATH_MTU TIMEOUT RETRY_CNT "
            "RNR_RETRY RQ_PSN MAX_QP_RD_ATOMIC "
            "ALT_PATH MIN_RNR_TIMER SQ_PSN MAX_DEST_RD_ATOMIC PATH_MIG_STATE CAP DEST_QPN"
        ),
        "RATE_LIMIT": 1 << 25,
    },
)
ibv_event_type = _enum(
    "ibv_event_type",
    "IBV_EVENT_",
    _count(
        "CQ_ERR QP_FATAL QP_REQ_ERR QP_ACCESS_ERR COMM_EST SQ_DRAINED PATH_MIG PATH_MIG_ERR DEVICE_FATAL "
        "PORT_ACTIVE PORT_ERR LID_CHANGE "
        "PKEY_CHANGE SM_CHANGE SRQ_ERR SRQ_LIMIT_REACHED QP_LAST_WQE_REACHED CLIENT_REREGISTER GID_CHANGE WQ_FATAL "
        "DEVICE_SPEED_CHANGE"
    ),
)
ibv_port_state = _enum("ibv_port_state", "IBV_PORT_", _count("NOP DOWN INIT ARMED ACTIVE ACTIVE_DEFER"))
ibv_atomic_cap = _enum("ibv_atomic_cap", "IBV_ATOMIC_", _count("NONE HCA GLOB"))
ibv_rereg_mr_flags = _enum("ibv_rereg_mr_flags", "IBV_REREG_MR_CHANGE_", _bits("TRANSLATION PD ACCESS"))

ibv_mig_state = _enum("ibv_mig_state", "IBV_MIG_", _count("MIGRATED REARM ARMED"))

IBV_LINK_LAYER_UNSPECIFIED, IBV_LINK_LAYER_INFINIBAND, IBV_LINK_LAYER_ETHERNET = range(3)
__all__ += ["IBV_LINK_LAYER_ETHERNET", "IBV_LINK_LAYER_INFINIBAND", "IBV_LINK_LAYER_UNSPECIFIED"]
