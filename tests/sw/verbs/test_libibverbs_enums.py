"""Numbers of ``<infiniband/verbs.h>``, written out by hand."""

import pytest
from verbena.sw.verbs import enums, libibverbs_enums

VALUES = {
    "IBV_ACCESS_LOCAL_WRITE": 1,
    "IBV_ACCESS_REMOTE_WRITE": 2,
    "IBV_ACCESS_REMOTE_READ": 4,
    "IBV_ACCESS_REMOTE_ATOMIC": 8,
    "IBV_ACCESS_MW_BIND": 16,
    "IBV_ACCESS_ZERO_BASED": 32,
    "IBV_ACCESS_ON_DEMAND": 64,
    "IBV_ACCESS_HUGETLB": 128,
    "IBV_ACCESS_FLUSH_GLOBAL": 256,
    "IBV_ACCESS_FLUSH_PERSISTENT": 512,
    "IBV_ACCESS_RELAXED_ORDERING": 1 << 20,
    "IBV_WR_RDMA_WRITE": 0,
    "IBV_WR_RDMA_WRITE_WITH_IMM": 1,
    "IBV_WR_SEND": 2,
    "IBV_WR_SEND_WITH_IMM": 3,
    "IBV_WR_RDMA_READ": 4,
    "IBV_WR_ATOMIC_CMP_AND_SWP": 5,
    "IBV_WR_ATOMIC_FETCH_AND_ADD": 6,
    "IBV_WR_LOCAL_INV": 7,
    "IBV_WR_BIND_MW": 8,
    "IBV_WR_SEND_WITH_INV": 9,
    "IBV_WC_SEND": 0,
    "IBV_WC_RDMA_READ": 2,
    "IBV_WC_FETCH_ADD": 4,
    "IBV_WC_LOCAL_INV": 6,
    "IBV_WC_RECV": 128,
    "IBV_WC_RECV_RDMA_WITH_IMM": 129,
    "IBV_SEND_FENCE": 1,
    "IBV_SEND_SIGNALED": 2,
    "IBV_SEND_SOLICITED": 4,
    "IBV_SEND_INLINE": 8,
    "IBV_SEND_IP_CSUM": 16,
    "IBV_WC_GRH": 1,
    "IBV_WC_WITH_IMM": 2,
    "IBV_WC_WITH_INV": 8,
    "IBV_QPT_RC": 2,
    "IBV_QPT_UC": 3,
    "IBV_QPT_UD": 4,
    "IBV_QPS_RESET": 0,
    "IBV_QPS_RTS": 3,
    "IBV_QPS_SQD": 4,
    "IBV_QPS_SQE": 5,
    "IBV_QPS_ERR": 6,
    "IBV_MTU_256": 1,
    "IBV_MTU_4096": 5,
    "IBV_WC_SUCCESS": 0,
    "IBV_WC_LOC_LEN_ERR": 1,
    "IBV_WC_LOC_PROT_ERR": 4,
    "IBV_WC_WR_FLUSH_ERR": 5,
    "IBV_WC_LOC_ACCESS_ERR": 8,
    "IBV_WC_REM_INV_REQ_ERR": 9,
    "IBV_WC_REM_ACCESS_ERR": 10,
    "IBV_WC_REM_OP_ERR": 11,
    "IBV_WC_RETRY_EXC_ERR": 12,
    "IBV_WC_RNR_RETRY_EXC_ERR": 13,
    "IBV_WC_FATAL_ERR": 19,
    "IBV_WC_GENERAL_ERR": 21,
    "IBV_WC_TM_RNDV_INCOMPLETE": 23,
    "IBV_QP_STATE": 1,
    "IBV_QP_CUR_STATE": 2,
    "IBV_QP_AV": 128,
    "IBV_QP_DEST_QPN": 1 << 20,
    "IBV_QP_RATE_LIMIT": 1 << 25,
    "IBV_EVENT_CQ_ERR": 0,
    "IBV_EVENT_QP_ACCESS_ERR": 3,
    "IBV_EVENT_SQ_DRAINED": 5,
    "IBV_EVENT_PORT_ACTIVE": 9,
    "IBV_EVENT_SRQ_LIMIT_REACHED": 15,
    "IBV_EVENT_QP_LAST_WQE_REACHED": 16,
    "IBV_EVENT_WQ_FATAL": 19,
    "IBV_EVENT_DEVICE_SPEED_CHANGE": 20,
    "IBV_PORT_ACTIVE": 4,
    "IBV_ATOMIC_NONE": 0,
    "IBV_REREG_MR_CHANGE_TRANSLATION": 1,
    "IBV_REREG_MR_CHANGE_PD": 2,
    "IBV_REREG_MR_CHANGE_ACCESS": 4,
    "IBV_NODE_CA": 1,
    "IBV_TRANSPORT_IB": 0,
    "IBV_LINK_LAYER_ETHERNET": 2,
    "IBV_GID_TYPE_ROCE_V2": 2,
    "IBV_GID_TYPE_SYSFS_ROCE_V2": 1,
}


@pytest.mark.parametrize("module", [enums, libibverbs_enums])
def test_flat_names(module):
    assert {name: getattr(module, name) for name in VALUES} == VALUES
    assert VALUES.keys() <= set(libibverbs_enums.__all__)


def test_classes():
    assert libibverbs_enums.ibv_qp_type.IBV_QPT_RC is enums.IBV_QPT_RC
    assert enums.ibv_qp_state(3).name == "IBV_QPS_RTS"


def test_names_are_told_once():
    names = libibverbs_enums.__all__
    assert len(names) == len(set(names))
    assert all(hasattr(libibverbs_enums, name) for name in names)
