"""Enumerations of ``<infiniband/verbs.h>`` (libibverbs 59), as classes and, as in C, as flat names."""

from enum import IntEnum

__all__ = []


def _enum(name, prefix, members):
    kind = IntEnum(name, {prefix + k: v for k, v in members.items()}, module=__name__)
    globals()[name] = kind
    __all__.append(name)
    _flat(kind.__members__)


def _flat(names):
    """Names without a class: in C they are of enumerations without a name, or of the preprocessor."""
    globals().update(names)
    __all__.extend(names)


def _count(names, start=0):
    return {name: i for i, name in enumerate(names.split(), start)}


def _bits(names, start=0):
    """One bit each, from ``start`` on; ``-`` is a bit without a name."""
    return {name: 1 << i for i, name in enumerate(names.split(), start) if name != "-"}


# Devices and ports

_enum(
    "ibv_node_type",
    "IBV_NODE_",
    {"UNKNOWN": -1, **_count("CA SWITCH ROUTER RNIC USNIC USNIC_UDP UNSPECIFIED", 1)},
)
_enum("ibv_transport_type", "IBV_TRANSPORT_", {"UNKNOWN": -1, **_count("IB IWARP USNIC USNIC_UDP UNSPECIFIED")})
_enum(
    "ibv_device_cap_flags",
    "IBV_DEVICE_",
    _bits(
        "RESIZE_MAX_WR BAD_PKEY_CNTR BAD_QKEY_CNTR RAW_MULTI AUTO_PATH_MIG CHANGE_PHY_PORT UD_AV_PORT_ENFORCE "
        "CURR_QP_STATE_MOD SHUTDOWN_PORT INIT_TYPE PORT_ACTIVE_EVENT SYS_IMAGE_GUID RC_RNR_NAK_GEN SRQ_RESIZE "
        "N_NOTIFY_CQ - - MEM_WINDOW UD_IP_CSUM - XRC MEM_MGT_EXTENSIONS - MEM_WINDOW_TYPE_2A MEM_WINDOW_TYPE_2B "
        "RC_IP_CSUM RAW_IP_CSUM - - MANAGED_FLOW_STEERING"
    ),
)
_flat({"IBV_DEVICE_RAW_SCATTER_FCS": 1 << 34, "IBV_DEVICE_PCI_WRITE_END_PADDING": 1 << 36})
_enum("ibv_fork_status", "IBV_FORK_", _count("DISABLED ENABLED UNNEEDED"))
_enum("ibv_atomic_cap", "IBV_ATOMIC_", _count("NONE HCA GLOB"))
_enum(
    "ibv_odp_transport_cap_bits",
    "IBV_ODP_SUPPORT_",
    _bits("SEND RECV WRITE READ ATOMIC SRQ_RECV FLUSH ATOMIC_WRITE"),
)
_enum("ibv_odp_general_caps", "IBV_ODP_SUPPORT", {"": 1, "_IMPLICIT": 2})
_enum("ibv_rx_hash_function_flags", "IBV_RX_HASH_FUNC_", {"TOEPLITZ": 1})
_enum(
    "ibv_rx_hash_fields",
    "IBV_RX_HASH_",
    {
        **_bits("SRC_IPV4 DST_IPV4 SRC_IPV6 DST_IPV6 SRC_PORT_TCP DST_PORT_TCP SRC_PORT_UDP DST_PORT_UDP IPSEC_SPI"),
        "INNER": 1 << 31,
    },
)
_enum("ibv_raw_packet_caps", "IBV_RAW_PACKET_CAP_", _bits("CVLAN_STRIPPING SCATTER_FCS IP_CSUM DELAY_DROP"))
_enum("ibv_tm_cap_flags", "IBV_TM_CAP_", {"RC": 1})
_enum(
    "ibv_pci_atomic_op_size",
    "IBV_PCI_ATOMIC_OPERATION_",
    _bits("4_BYTE_SIZE_SUP 8_BYTE_SIZE_SUP 16_BYTE_SIZE_SUP"),
)
_enum("ibv_mtu", "IBV_MTU_", _count("256 512 1024 2048 4096", 1))
_enum("ibv_port_state", "IBV_PORT_", _count("NOP DOWN INIT ARMED ACTIVE ACTIVE_DEFER"))
_flat(_count("IBV_LINK_LAYER_UNSPECIFIED IBV_LINK_LAYER_INFINIBAND IBV_LINK_LAYER_ETHERNET"))
_enum(
    "ibv_port_cap_flags",
    "IBV_PORT_",
    _bits(
        "SM NOTICE_SUP TRAP_SUP OPT_IPD_SUP AUTO_MIGR_SUP SL_MAP_SUP MKEY_NVRAM PKEY_NVRAM LED_INFO_SUP - "
        "SYS_IMAGE_GUID_SUP PKEY_SW_EXT_PORT_TRAP_SUP - EXTENDED_SPEEDS_SUP CAP_MASK2_SUP CM_SUP SNMP_TUNNEL_SUP "
        "REINIT_SUP DEVICE_MGMT_SUP VENDOR_CLASS_SUP DR_NOTICE_SUP CAP_MASK_NOTICE_SUP BOOT_MGMT_SUP "
        "LINK_LATENCY_SUP CLIENT_REG_SUP IP_BASED_GIDS",
        1,
    ),
)
_enum(
    "ibv_port_cap_flags2",
    "IBV_PORT_",
    _bits(
        "SET_NODE_DESC_SUP INFO_EXT_SUP VIRT_SUP SWITCH_PORT_STATE_TABLE_SUP LINK_WIDTH_2X_SUP LINK_SPEED_HDR_SUP "
        "- - - - LINK_SPEED_NDR_SUP - LINK_SPEED_XDR_SUP"
    ),
)
_enum(
    "ibv_event_type",
    "IBV_EVENT_",
    _count(
        "CQ_ERR QP_FATAL QP_REQ_ERR QP_ACCESS_ERR COMM_EST SQ_DRAINED PATH_MIG PATH_MIG_ERR DEVICE_FATAL "
        "PORT_ACTIVE PORT_ERR LID_CHANGE PKEY_CHANGE SM_CHANGE SRQ_ERR SRQ_LIMIT_REACHED QP_LAST_WQE_REACHED "
        "CLIENT_REREGISTER GID_CHANGE WQ_FATAL DEVICE_SPEED_CHANGE"
    ),
)
_enum("ibv_gid_type", "IBV_GID_TYPE_", _count("IB ROCE_V1 ROCE_V2"))
_enum("ibv_gid_type_sysfs", "IBV_GID_TYPE_SYSFS_", _count("IB_ROCE_V1 ROCE_V2"))
_enum("ibv_values_mask", "IBV_VALUES_MASK_", _bits("RAW_CLOCK RESERVED"))
_enum(
    "ibv_rate",
    "IBV_RATE_",
    {
        "MAX": 0,
        **{
            f"{name}_GBPS": value
            for name, value in _count(
                "2_5 10 30 5 20 40 60 80 120 14 56 112 168 25 100 200 300 28 50 400 600 800 1200", 2
            ).items()
        },
    },
)

# Memory

_enum(
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
_flat({"IBV_ACCESS_OPTIONAL_FIRST": 1 << 20, "IBV_ACCESS_OPTIONAL_RANGE": 0x3FF << 20})
_enum(
    "ibv_rereg_mr_flags",
    "IBV_REREG_MR_",
    {**_bits("CHANGE_TRANSLATION CHANGE_PD CHANGE_ACCESS"), "FLAGS_SUPPORTED": 7},
)
_enum(
    "ibv_rereg_mr_err_code",
    "IBV_REREG_MR_ERR_",
    {"INPUT": -1, "DONT_FORK_NEW": -2, "DO_FORK_OLD": -3, "CMD": -4, "CMD_AND_DO_FORK_NEW": -5},
)
_enum("ibv_mr_init_attr_mask", "IBV_REG_MR_MASK_", _bits("IOVA ADDR FD FD_OFFSET DMAH"))
_enum("ibv_dmah_init_attr_mask", "IBV_DMAH_INIT_ATTR_MASK_", _bits("CPU_ID PH TPH_MEM_TYPE"))
_enum("ibv_tph_mem_type", "IBV_TPH_MEM_TYPE_", _count("VM PM"))
_enum("ibv_dm_mask", "IBV_DM_MASK_", {"HANDLE": 1})
_enum("ibv_mw_type", "IBV_MW_", _count("TYPE_1 TYPE_2", 1))
_enum("ibv_parent_domain_init_attr_mask", "IBV_PARENT_DOMAIN_INIT_ATTR_", _bits("ALLOCATORS PD_CONTEXT"))
_ADVICE = {
    **{f"IBV_ADVISE_MR_ADVICE_{k}": v for k, v in _count("PREFETCH PREFETCH_WRITE PREFETCH_NO_FAULT").items()},
    "IBV_ADVISE_MR_FLAG_FLUSH": 1,
}
_flat(_ADVICE)
_flat({"IBV_ALLOCATOR_USE_DEFAULT": (1 << 64) - 1})
# pyverbs has these with an underscore.
_flat(
    {
        "_" + name: globals()[name]
        for name in (
            "IBV_DEVICE_RAW_SCATTER_FCS",
            "IBV_DEVICE_PCI_WRITE_END_PADDING",
            "IBV_ALLOCATOR_USE_DEFAULT",
            *_ADVICE,
        )
    }
)

# Completion queues

_enum(
    "ibv_wc_status",
    "IBV_WC_",
    _count(
        "SUCCESS LOC_LEN_ERR LOC_QP_OP_ERR LOC_EEC_OP_ERR LOC_PROT_ERR WR_FLUSH_ERR MW_BIND_ERR BAD_RESP_ERR "
        "LOC_ACCESS_ERR REM_INV_REQ_ERR REM_ACCESS_ERR REM_OP_ERR RETRY_EXC_ERR RNR_RETRY_EXC_ERR LOC_RDD_VIOL_ERR "
        "REM_INV_RD_REQ_ERR REM_ABORT_ERR INV_EECN_ERR INV_EEC_STATE_ERR FATAL_ERR RESP_TIMEOUT_ERR GENERAL_ERR "
        "TM_ERR TM_RNDV_INCOMPLETE"
    ),
)
_enum(
    "ibv_wc_opcode",
    "IBV_WC_",
    {
        **_count("SEND RDMA_WRITE RDMA_READ COMP_SWAP FETCH_ADD BIND_MW LOCAL_INV TSO FLUSH ATOMIC_WRITE"),
        **_count(
            "RECV RECV_RDMA_WITH_IMM TM_ADD TM_DEL TM_SYNC TM_RECV TM_NO_TAG DRIVER1 DRIVER2 DRIVER3",
            128,
        ),
    },
)
_enum(
    "ibv_wc_flags",
    "IBV_WC_",
    _bits("GRH WITH_IMM IP_CSUM_OK WITH_INV TM_SYNC_REQ TM_MATCH TM_DATA_VALID"),
)
_flat({"IBV_WC_IP_CSUM_OK_SHIFT": 2})
_enum(
    "ibv_create_cq_wc_flags",
    "IBV_WC_EX_WITH_",
    _bits(
        "BYTE_LEN IMM QP_NUM SRC_QP SLID SL DLID_PATH_BITS COMPLETION_TIMESTAMP CVLAN FLOW_TAG TM_INFO "
        "COMPLETION_TIMESTAMP_WALLCLOCK"
    ),
)
_flat({"IBV_WC_STANDARD_FLAGS": 127, "IBV_CREATE_CQ_SUP_WC_FLAGS": 4095})
_enum("ibv_cq_init_attr_mask", "IBV_CQ_INIT_ATTR_MASK_", _bits("FLAGS PD"))
_enum("ibv_create_cq_attr_flags", "IBV_CREATE_CQ_ATTR_", _bits("SINGLE_THREADED IGNORE_OVERRUN"))
_enum("ibv_cq_attr_mask", "IBV_CQ_ATTR_", _bits("MODERATE RESERVED"))

# Queue pairs

_enum(
    "ibv_qp_type",
    "IBV_QPT_",
    {"RC": 2, "UC": 3, "UD": 4, "RAW_PACKET": 8, "XRC_SEND": 9, "XRC_RECV": 10, "DRIVER": 255},
)
_enum("ibv_qp_state", "IBV_QPS_", _count("RESET INIT RTR RTS SQD SQE ERR UNKNOWN"))
_enum("ibv_mig_state", "IBV_MIG_", _count("MIGRATED REARM ARMED"))
_enum(
    "ibv_qp_attr_mask",
    "IBV_QP_",
    _bits(
        "STATE CUR_STATE EN_SQD_ASYNC_NOTIFY ACCESS_FLAGS PKEY_INDEX PORT QKEY AV PATH_MTU TIMEOUT RETRY_CNT "
        "RNR_RETRY RQ_PSN MAX_QP_RD_ATOMIC ALT_PATH MIN_RNR_TIMER SQ_PSN MAX_DEST_RD_ATOMIC PATH_MIG_STATE CAP "
        "DEST_QPN - - - - RATE_LIMIT"
    ),
)
_enum(
    "ibv_qp_init_attr_mask",
    "IBV_QP_INIT_ATTR_",
    _bits("PD XRCD CREATE_FLAGS MAX_TSO_HEADER IND_TABLE RX_HASH SEND_OPS_FLAGS"),
)
_enum(
    "ibv_qp_create_flags",
    "IBV_QP_CREATE_",
    {
        "BLOCK_SELF_MCAST_LB": 2,
        **_bits("SCATTER_FCS CVLAN_STRIPPING SOURCE_QPN PCI_WRITE_END_PADDING", 8),
    },
)
_enum(
    "ibv_qp_create_send_ops_flags",
    "IBV_QP_EX_WITH_",
    _bits(
        "RDMA_WRITE RDMA_WRITE_WITH_IMM SEND SEND_WITH_IMM RDMA_READ ATOMIC_CMP_AND_SWP ATOMIC_FETCH_AND_ADD "
        "LOCAL_INV BIND_MW SEND_WITH_INV TSO FLUSH ATOMIC_WRITE"
    ),
)
_enum("ibv_qp_open_attr_mask", "IBV_QP_OPEN_ATTR_", _bits("NUM XRCD CONTEXT TYPE RESERVED"))
_enum("ibv_query_qp_data_in_order_flags", "IBV_QUERY_QP_DATA_IN_ORDER_", _bits("RETURN_CAPS DEVICE_ONLY"))
_enum("ibv_query_qp_data_in_order_caps", "IBV_QUERY_QP_DATA_IN_ORDER_", _bits("WHOLE_MSG ALIGNED_128_BYTES"))
_flat({"IBV_QPF_GRH_REQUIRED": 1})

# Work requests

_enum(
    "ibv_wr_opcode",
    "IBV_WR_",
    {
        **_count(
            "RDMA_WRITE RDMA_WRITE_WITH_IMM SEND SEND_WITH_IMM RDMA_READ ATOMIC_CMP_AND_SWP ATOMIC_FETCH_AND_ADD "
            "LOCAL_INV BIND_MW SEND_WITH_INV TSO DRIVER1"
        ),
        **_count("FLUSH ATOMIC_WRITE", 14),
    },
)
_enum("ibv_send_flags", "IBV_SEND_", _bits("FENCE SIGNALED SOLICITED INLINE IP_CSUM"))
_enum("ibv_placement_type", "IBV_FLUSH_", _bits("GLOBAL PERSISTENT"))
_enum("ibv_selectivity_level", "IBV_FLUSH_", _count("RANGE MR"))
_enum("ibv_ops_wr_opcode", "IBV_WR_TAG_", _count("ADD DEL SYNC"))
_enum("ibv_ops_flags", "IBV_OPS_", _bits("SIGNALED TM_SYNC"))

# Shared receive queues, XRC domains, work queues

_enum("ibv_srq_attr_mask", "IBV_SRQ_", _bits("MAX_WR LIMIT"))
_enum("ibv_srq_type", "IBV_SRQT_", _count("BASIC XRC TM"))
_enum("ibv_srq_init_attr_mask", "IBV_SRQ_INIT_ATTR_", _bits("TYPE PD XRCD CQ TM RESERVED"))
_enum("ibv_xrcd_init_attr_mask", "IBV_XRCD_INIT_ATTR_", _bits("FD OFLAGS RESERVED"))
_enum("ibv_wq_type", "IBV_WQT_", {"RQ": 0})
_enum("ibv_wq_init_attr_mask", "IBV_WQ_INIT_ATTR_", _bits("FLAGS RESERVED"))
_enum("ibv_wq_flags", "IBV_WQ_FLAGS_", _bits("CVLAN_STRIPPING SCATTER_FCS DELAY_DROP PCI_WRITE_END_PADDING RESERVED"))
_enum("ibv_wq_state", "IBV_WQS_", _count("RESET RDY ERR UNKNOWN"))
_enum("ibv_wq_attr_mask", "IBV_WQ_ATTR_", _bits("STATE CURR_STATE FLAGS RESERVED"))
_enum("ibv_ind_table_init_attr_mask", "IBV_CREATE_IND_TABLE_", {"RESERVED": 1})

# Flows and counters

_enum("ibv_flow_flags", "IBV_FLOW_ATTR_FLAGS_", _bits("DONT_TRAP EGRESS", 1))
_enum("ibv_flow_attr_type", "IBV_FLOW_ATTR_", _count("NORMAL ALL_DEFAULT MC_DEFAULT SNIFFER"))
_enum(
    "ibv_flow_spec_type",
    "IBV_FLOW_SPEC_",
    {
        "ETH": 0x20,
        "IPV4": 0x30,
        "IPV6": 0x31,
        "IPV4_EXT": 0x32,
        "ESP": 0x34,
        "TCP": 0x40,
        "UDP": 0x41,
        "VXLAN_TUNNEL": 0x50,
        "GRE": 0x51,
        "MPLS": 0x60,
        "INNER": 0x100,
        **_count("ACTION_TAG ACTION_DROP ACTION_HANDLE ACTION_COUNT", 0x1000),
    },
)
_enum("ibv_flow_action_esp_mask", "IBV_FLOW_ACTION_ESP_MASK_", {"ESN": 1})
_flat(
    {
        "IBV_FLOW_ACTION_ESP_KEYMAT_AES_GCM": 0,
        "IBV_FLOW_ACTION_IV_ALGO_SEQ": 0,
        **_count("IBV_FLOW_ACTION_ESP_REPLAY_NONE IBV_FLOW_ACTION_ESP_REPLAY_BMP"),
        **{
            f"IBV_FLOW_ACTION_ESP_FLAGS_{name}": value
            for name, value in {
                "INLINE_CRYPTO": 0,
                "FULL_OFFLOAD": 1,
                "TUNNEL": 0,
                "TRANSPORT": 2,
                "DECRYPT": 0,
                "ENCRYPT": 4,
                "ESN_NEW_WINDOW": 8,
            }.items()
        },
    }
)
_enum("ibv_counter_description", "IBV_COUNTER_", _count("PACKETS BYTES"))
_enum("ibv_read_counters_flags", "IBV_READ_COUNTERS_ATTR_", {"PREFER_CACHED": 1})
