"""What the whole-adapter tests of keys share: requests that register, bind and invalidate, and what comes of them."""

from contextlib import contextmanager

import pytest
from ends import End, completion, connect
from verbena.hdl.abi.tables import MPT
from verbena.sw.verbs.libibverbs_enums import (
    ibv_access_flags,
    ibv_qp_attr_mask,
    ibv_qp_state,
    ibv_wc_status,
    ibv_wr_opcode,
)
from verbena.sw.verbs.mr import MWBind, MWBindInfo
from verbena.sw.verbs.pyverbs_error import PyverbsRDMAError
from verbena.sw.verbs.qp import QPAttr
from verbena.sw.verbs.wr import IBV_WR_REG_MR, SGE, SendWR

__all__ = [
    "ALL",
    "LOCAL_WRITE",
    "OP",
    "REG_MR",
    "REMOTE_READ",
    "REMOTE_WRITE",
    "SIZE",
    "A",
    "S",
    "W",
    "bind",
    "bind_2",
    "entry_of",
    "invalidate",
    "refused",
    "register",
    "reset",
    "reset_pairs",
    "send_inv",
    "success",
    "two_ends",
    "write",
]

A, OP, W, S = ibv_access_flags, ibv_wr_opcode, ibv_wc_status, ibv_qp_state
SIZE = 65536
LOCAL_WRITE, REMOTE_WRITE, REMOTE_READ = A.IBV_ACCESS_LOCAL_WRITE, A.IBV_ACCESS_REMOTE_WRITE, A.IBV_ACCESS_REMOTE_READ
ALL = 1 | 2 | 4 | 8
REG_MR = 10
"""Opcode of its completion."""


@contextmanager
def two_ends(**options):
    """Connected; all of ``b`` may have windows."""
    with End("sim0", SIZE, access=31, **options) as a, End("sim1", SIZE, access=31, **options) as b:
        connect(a, b, mtu=256)
        yield a, b


def refused(code, call, *args, **named):
    with pytest.raises(PyverbsRDMAError) as error:
        call(*args, **named)
    assert error.value.error_code == code, error.value
    return str(error.value)


def register(end, region, access=ALL, *, key=None, flags=2, wr_id=0, qp=None):
    wr = SendWR(wr_id, IBV_WR_REG_MR, send_flags=flags)
    wr.set_reg_wr(region, access, key)
    (qp or end.qp).post_send(wr)


def invalidate(end, key, *, flags=2, wr_id=0, qp=None):
    (qp or end.qp).post_send(SendWR(wr_id, OP.IBV_WR_LOCAL_INV, imm_data=key, send_flags=flags))


def bind(end, window, offset, length, access=6, *, mr=None, wr_id=0, flags=2, qp=None):
    mr = mr or end.mr
    (qp or end.qp).bind_mw(window, MWBind(MWBindInfo(mr, mr.buf + offset, length, access), flags, wr_id))


def bind_2(end, window, offset, length, access=6, *, mr=None, wr_id=0, flags=2, qp=None):
    """Binds a window of type 2; its new key."""
    mr = mr or end.mr
    wr = SendWR(wr_id, OP.IBV_WR_BIND_MW, send_flags=flags)
    wr.set_bind_wr(window, MWBindInfo(mr, mr.buf + offset, length, access))
    (qp or end.qp).post_send(wr)
    return wr.rkey


def send_inv(end, key, sges, *, wr_id=0, flags=2, qp=None):
    (qp or end.qp).post_send(
        SendWR(wr_id, OP.IBV_WR_SEND_WITH_INV, num_sge=len(sges), sg=sges, imm_data=key, send_flags=flags)
    )


def write(a, key, address, length=300, *, opcode=OP.IBV_WR_RDMA_WRITE, flags=2, wr_id=0, offset=0, qp=None):
    wr = SendWR(wr_id, opcode, num_sge=1, sg=[SGE(a.mr.buf + offset, length, a.mr.lkey)], send_flags=flags)
    wr.set_wr_rdma(key, address)
    (qp or a.qp).post_send(wr)


def success(cq, opcode=None):
    wc = completion(cq)
    assert wc.status == W.IBV_WC_SUCCESS, wc
    assert opcode is None or wc.opcode == opcode
    return wc


def entry_of(end, region):
    regions = end.context._adapter.regions
    return MPT.unpack(regions.memory.read(regions.address + MPT.size * region.handle, MPT.size))


def reset(a, b):
    """Both ends begin anew."""
    for end in (a, b):
        attr = QPAttr(qp_state=S.IBV_QPS_RESET)
        end.qp.modify(attr, ibv_qp_attr_mask.IBV_QP_STATE)
    connect(a, b, mtu=256)
    while a.cq.poll(16)[0] or b.cq.poll(16)[0]:
        pass


def reset_pairs(a, b, **attributes):
    for end in (a, b):
        for qp in end.qps:
            qp.modify(QPAttr(qp_state=S.IBV_QPS_RESET), ibv_qp_attr_mask.IBV_QP_STATE)
    connect(a, b, mtu=256, **attributes)
