"""Attributes of queue pairs; :mod:`.qp` hands these out."""

import errno
from copy import copy

from ..pkeys import PKEY_COUNT
from .addr import AHAttr, routable
from .base import PyverbsObject, refuse
from .libibverbs_enums import (
    ibv_mtu,
    ibv_qp_attr_mask,
    ibv_qp_create_flags,
    ibv_qp_create_send_ops_flags,
    ibv_qp_init_attr_mask,
    ibv_qp_state,
    ibv_qp_type,
)
from .limits import MAX_RD_ATOMIC
from .naming import flags_of
from .number import within
from .utils import qp_state_to_str, qp_type_to_str

__all__ = [
    "FIELDS",
    "SEND_OPS",
    "QPAttr",
    "QPCap",
    "QPInitAttr",
    "QPInitAttrEx",
    "check_init_attr_ex",
    "check_values",
]

M = ibv_qp_attr_mask
S = ibv_qp_state
GIVEN = ibv_qp_init_attr_mask
OPS = ibv_qp_create_send_ops_flags

SEND_OPS = (
    OPS.IBV_QP_EX_WITH_RDMA_WRITE
    | OPS.IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM
    | OPS.IBV_QP_EX_WITH_SEND
    | OPS.IBV_QP_EX_WITH_SEND_WITH_IMM
    | OPS.IBV_QP_EX_WITH_RDMA_READ
    | OPS.IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP
    | OPS.IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD
    | OPS.IBV_QP_EX_WITH_LOCAL_INV
    | OPS.IBV_QP_EX_WITH_BIND_MW
    | OPS.IBV_QP_EX_WITH_SEND_WITH_INV
)
"""Operations that an extended QP has."""

KEY_OPS = OPS.IBV_QP_EX_WITH_LOCAL_INV | OPS.IBV_QP_EX_WITH_BIND_MW | OPS.IBV_QP_EX_WITH_SEND_WITH_INV
"""Of these, what devices have whose work requests change keys."""

SEND_OPS_OF = {
    ibv_qp_type.IBV_QPT_UC: OPS.IBV_QP_EX_WITH_RDMA_WRITE
    | OPS.IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM
    | OPS.IBV_QP_EX_WITH_SEND
    | OPS.IBV_QP_EX_WITH_SEND_WITH_IMM
    | OPS.IBV_QP_EX_WITH_LOCAL_INV
    | OPS.IBV_QP_EX_WITH_BIND_MW,
    ibv_qp_type.IBV_QPT_UD: OPS.IBV_QP_EX_WITH_SEND | OPS.IBV_QP_EX_WITH_SEND_WITH_IMM,
    ibv_qp_type.IBV_QPT_RAW_PACKET: OPS.IBV_QP_EX_WITH_SEND,
}
"""Of these, what types have that have less."""


class QPCap(PyverbsObject):
    """Capacities: asked for at creation; :meth:`.qp.QP.query` tells what there is."""

    def __init__(self, max_send_wr=1, max_recv_wr=10, max_send_sge=1, max_recv_sge=1, max_inline_data=0):
        self.max_send_wr = max_send_wr
        self.max_recv_wr = max_recv_wr
        self.max_send_sge = max_send_sge
        self.max_recv_sge = max_recv_sge
        self.max_inline_data = max_inline_data

    def __str__(self):
        return ", ".join(f"{name} {value}" for name, value in vars(self).items())


def _capacity(name):
    """A property that reads and writes one capacity of ``_cap``."""

    def read(self):
        return getattr(self._cap, name)

    def write(self, value):
        setattr(self._cap, name, value)

    return property(read, write)


class QPInitAttr(PyverbsObject):
    """What a QP is made of. Creation puts the true capacities here; ``cap`` reads as a copy."""

    def __init__(
        self, qp_type=ibv_qp_type.IBV_QPT_UD, qp_context=None, scq=None, rcq=None, srq=None, cap=None, sq_sig_all=1
    ):
        self.qp_type = qp_type
        self.qp_context = qp_context
        self.send_cq = scq
        self.recv_cq = rcq
        self.srq = srq
        self._cap = copy(cap) if cap is not None else QPCap()
        self.sq_sig_all = sq_sig_all

    @property
    def cap(self):
        return copy(self._cap)

    @cap.setter
    def cap(self, value):
        self._cap = copy(value)

    max_send_wr = _capacity("max_send_wr")
    max_recv_wr = _capacity("max_recv_wr")
    max_send_sge = _capacity("max_send_sge")
    max_recv_sge = _capacity("max_recv_sge")
    max_inline_data = _capacity("max_inline_data")

    def __str__(self):
        return f"{qp_type_to_str(self.qp_type)}, sq_sig_all {self.sq_sig_all}, {self._cap}"


class QPInitAttrEx(QPInitAttr):
    """What a QP is made of by a Context: ``struct ibv_qp_init_attr_ex``. What ``comp_mask`` does not name does not
    count.
    """

    def __init__(
        self,
        qp_type=ibv_qp_type.IBV_QPT_UD,
        qp_context=None,
        scq=None,
        rcq=None,
        srq=None,
        cap=None,
        sq_sig_all=0,
        comp_mask=0,
        pd=None,
        xrcd=None,
        create_flags=0,
        max_tso_header=0,
        source_qpn=0,
        hash_conf=None,
        ind_table=None,
        send_ops_flags=0,
    ):
        super().__init__(qp_type, qp_context, scq, rcq, srq, cap, sq_sig_all)
        self.comp_mask = comp_mask
        self.pd = pd
        self.xrcd = xrcd
        self.create_flags = create_flags
        self.max_tso_header = max_tso_header
        self.source_qpn = source_qpn
        self.hash_conf = hash_conf
        self.ind_table = ind_table
        self.send_ops_flags = send_ops_flags


def check_init_attr_ex(failed, context, attr):
    """Refuses a :class:`QPInitAttrEx` that no engine of ``context`` can take: EINVAL, EOPNOTSUPP for what there is
    elsewhere.
    """
    mask = int(attr.comp_mask)
    if mask & ~sum(GIVEN):
        refuse(f"{failed}: comp_mask {mask:#x}", errno.EINVAL)
    if absent := mask & ~(
        GIVEN.IBV_QP_INIT_ATTR_PD | GIVEN.IBV_QP_INIT_ATTR_SEND_OPS_FLAGS | GIVEN.IBV_QP_INIT_ATTR_CREATE_FLAGS
    ):
        refuse(f"{failed}: {flags_of(GIVEN, absent)}", errno.EOPNOTSUPP)
    if mask & GIVEN.IBV_QP_INIT_ATTR_CREATE_FLAGS and attr.create_flags:
        refuse(f"{failed}: create_flags {flags_of(ibv_qp_create_flags, attr.create_flags)}", errno.EOPNOTSUPP)
    served = SEND_OPS_OF.get(attr.qp_type, SEND_OPS)
    if not context._adapter.control.key_operations:
        served &= ~KEY_OPS
    if mask & GIVEN.IBV_QP_INIT_ATTR_SEND_OPS_FLAGS and (absent := attr.send_ops_flags & ~served):
        refuse(f"{failed}: send_ops_flags {flags_of(ibv_qp_create_send_ops_flags, absent)}", errno.EOPNOTSUPP)
    if not mask & GIVEN.IBV_QP_INIT_ATTR_PD or getattr(attr.pd, "context", None) is not context:
        refuse(f"{failed}: it needs a PD of its context", errno.EINVAL)


class QPAttr(PyverbsObject):
    """``struct ibv_qp_attr``."""

    def __init__(
        self, qp_state=S.IBV_QPS_INIT, cur_qp_state=S.IBV_QPS_RESET, port_num=1, path_mtu=ibv_mtu.IBV_MTU_1024
    ):
        self.qp_state = qp_state
        self.cur_qp_state = cur_qp_state
        self.port_num = port_num
        self.path_mtu = path_mtu
        self.path_mig_state = self.qkey = self.rq_psn = self.sq_psn = self.dest_qp_num = self.qp_access_flags = 0
        self.cap = QPCap()
        self.ah_attr = AHAttr()
        self.alt_ah_attr = AHAttr()
        self.pkey_index = self.alt_pkey_index = self.alt_port_num = self.alt_timeout = 0
        self.en_sqd_async_notify = self.sq_draining = 0
        self.max_rd_atomic = self.max_dest_rd_atomic = 0
        self.min_rnr_timer = self.timeout = self.retry_cnt = self.rnr_retry = self.rate_limit = 0

    def __str__(self):
        formats = {"qp_state": qp_state_to_str, "cur_qp_state": qp_state_to_str}
        return "\n".join(f"{name:<20}: {formats.get(name, str)(value)}" for name, value in vars(self).items())


FIELDS = {
    M.IBV_QP_ACCESS_FLAGS: "qp_access_flags",
    M.IBV_QP_PKEY_INDEX: "pkey_index",
    M.IBV_QP_PORT: "port_num",
    M.IBV_QP_AV: "ah_attr",
    M.IBV_QP_PATH_MTU: "path_mtu",
    M.IBV_QP_TIMEOUT: "timeout",
    M.IBV_QP_RETRY_CNT: "retry_cnt",
    M.IBV_QP_RNR_RETRY: "rnr_retry",
    M.IBV_QP_RQ_PSN: "rq_psn",
    M.IBV_QP_MAX_QP_RD_ATOMIC: "max_rd_atomic",
    M.IBV_QP_MIN_RNR_TIMER: "min_rnr_timer",
    M.IBV_QP_SQ_PSN: "sq_psn",
    M.IBV_QP_MAX_DEST_RD_ATOMIC: "max_dest_rd_atomic",
    M.IBV_QP_DEST_QPN: "dest_qp_num",
    M.IBV_QP_QKEY: "qkey",
}
"""Attribute behind each bit of a mask that a transport knows."""

_UNSUPPORTED = M.IBV_QP_ALT_PATH | M.IBV_QP_PATH_MIG_STATE
"""There is one port and one path."""


_RANGES = {
    M.IBV_QP_ACCESS_FLAGS: (0, (1 << 32) - 1),
    M.IBV_QP_PORT: (1, 1),
    M.IBV_QP_PKEY_INDEX: (0, PKEY_COUNT - 1),
    M.IBV_QP_PATH_MTU: (1, 5),
    M.IBV_QP_TIMEOUT: (0, 31),
    M.IBV_QP_RETRY_CNT: (0, 7),
    M.IBV_QP_RNR_RETRY: (0, 7),
    M.IBV_QP_MIN_RNR_TIMER: (0, 31),
    M.IBV_QP_DEST_QPN: (0, (1 << 24) - 1),
    M.IBV_QP_QKEY: (0, (1 << 32) - 1),
    M.IBV_QP_RQ_PSN: (0, (1 << 24) - 1),
    M.IBV_QP_SQ_PSN: (0, (1 << 24) - 1),
    M.IBV_QP_MAX_QP_RD_ATOMIC: (0, MAX_RD_ATOMIC),
    M.IBV_QP_MAX_DEST_RD_ATOMIC: (0, MAX_RD_ATOMIC),
}
"""What the attribute behind a bit may be, from and to."""


def check_values(attr, mask, gids, pkeys):
    """Refuses values of ``attr`` that an adapter with these GIDs and P_Keys cannot take: EINVAL, EOPNOTSUPP for a
    second path.
    """
    failed = "Failed to modify QP"
    if mask & _UNSUPPORTED:
        refuse(f"{failed}: no alternate path", errno.EOPNOTSUPP)
    for bit, (low, high) in _RANGES.items():
        value = getattr(attr, FIELDS[bit])
        if mask & bit and not within(value, low, high):
            refuse(f"{failed}: {bit.name}: {FIELDS[bit]} must be {low} to {high:#x}, not {value!r}", errno.EINVAL)
    if mask & M.IBV_QP_PKEY_INDEX and not pkeys[attr.pkey_index]:
        refuse(f"{failed}: IBV_QP_PKEY_INDEX: row {attr.pkey_index} of the P_Keys is empty", errno.EINVAL)
    if mask & M.IBV_QP_AV and not routable(attr.ah_attr, gids):
        refuse(f"{failed}: IBV_QP_AV: {attr.ah_attr}", errno.EINVAL)
