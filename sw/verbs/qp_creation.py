"""What a queue pair is made of: checks of its QPInitAttr, and the size of its WQEs."""

import errno

from verbena.hdl.abi.wqe import SGE_OFFSET, UD_ROUTE, send_sges

from .base import must_be, refuse
from .device import Context
from .libibverbs_enums import ibv_qp_type
from .limits import MAX_QP_WR, max_recv_sge
from .number import within
from .pd import PD
from .pyverbs_error import PyverbsUserError
from .qp_attr import QPInitAttrEx, check_init_attr_ex
from .srq import SRQ
from .states import TRANSITIONS

__all__ = ["check_init_attr", "log_strides", "pd_of", "send_capacities"]

_MOST = {
    "max_send_wr": MAX_QP_WR,
    "max_recv_wr": MAX_QP_WR,
}


def send_capacities(qp_type, adapter):
    """Scatter/gather entries, and bytes of inline data, that a send WQE holds, by the logarithm of its size. With a
    table of GIDs a datagram's ends in its route.
    """
    route = UD_ROUTE.size if qp_type == ibv_qp_type.IBV_QPT_UD and adapter.control.has_gids else 0
    log_strides = range(6, adapter.control.wqe_bytes.bit_length())
    return {log: (send_sges((1 << log) - route), (1 << log) - SGE_OFFSET - route) for log in log_strides}


def log_strides(cap, most):
    """Of send and receive WQEs that hold what ``cap`` asks for; ``most`` as of :func:`send_capacities`."""
    fits = (log for log, (sges, inline) in most.items() if cap.max_send_sge <= sges and cap.max_inline_data <= inline)
    return next(fits), 4 + (max(1, cap.max_recv_sge) - 1).bit_length()


def pd_of(failed, creator, init_attr):
    """The PD of a QP that ``creator`` is to make."""
    if isinstance(creator, PD):
        return creator
    if not isinstance(creator, Context):
        raise PyverbsUserError(f"{failed}: by a PD or a Context, not {type(creator)}")
    if not isinstance(init_attr, QPInitAttrEx):
        raise PyverbsUserError(f"{failed}: a Context makes it of a QPInitAttrEx, not {type(init_attr)}")
    check_init_attr_ex(failed, creator, init_attr)
    return init_attr.pd


def check_init_attr(failed, pd, init_attr):
    """Refuses what no QP of ``pd`` can be made of: EINVAL, EOPNOTSUPP for a type that the device does not have. With an
    SRQ the capacities of receives do not count.
    """
    if init_attr.qp_type not in set(ibv_qp_type):
        refuse(f"{failed}: type {init_attr.qp_type!r}", errno.EINVAL)
    if init_attr.qp_type not in TRANSITIONS.keys() & pd.context._adapter.control.qp_types:
        refuse(f"{failed}: type {init_attr.qp_type!r}", errno.EOPNOTSUPP)
    if init_attr.send_cq is None or init_attr.recv_cq is None:
        refuse(f"{failed}: it needs two CQs", errno.EINVAL)
    must_be("CQ", "scq", init_attr.send_cq)
    must_be("CQ", "rcq", init_attr.recv_cq)
    if any(cq.context is not pd.context for cq in (init_attr.send_cq, init_attr.recv_cq)):
        refuse(f"{failed}: a CQ of another context", errno.EINVAL)
    cap, srq = init_attr.cap, init_attr.srq
    if srq is not None:
        if not isinstance(srq, SRQ):
            refuse(f"{failed}: srq must be an SRQ, not {type(srq)}", errno.EINVAL)
        if (srq.context, srq.pd.handle) != (pd.context, pd.handle):
            refuse(f"{failed}: {srq} is of another PD", errno.EINVAL)
    adapter = pd.context._adapter
    sges, inline = list(send_capacities(init_attr.qp_type, adapter).values())[-1]
    sizes = {"max_send_sge": sges, "max_recv_sge": max_recv_sge(adapter.control.wqe_bytes), "max_inline_data": inline}
    for name, most in (_MOST | sizes).items():
        value = getattr(cap, name)
        if not within(value, 0, most) and not (srq is not None and "recv" in name):
            refuse(f"{failed}: {name} must be 0 to {most}, not {value!r}", errno.EINVAL)
