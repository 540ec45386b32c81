"""Work requests that change keys: local invalidation, fast registration, and binding of memory windows."""

import errno

from verbena.hdl.abi.wqe import KEY_WQE, SendOpcode

from .base import inc_rkey, must_be, refuse
from .libibverbs_enums import ibv_access_flags, ibv_mw_type, ibv_qp_type, ibv_send_flags
from .number import within
from .utils import qp_type_to_str
from .wr import SendRequest

__all__ = ["KEY_OPCODES", "bind_request", "check_bind", "key_wqe", "posted"]

KEY_OPCODES = (SendOpcode.LOCAL_INV, SendOpcode.BIND_MW, SendOpcode.REG_MR)

A = ibv_access_flags
_FLAGS = ibv_send_flags.IBV_SEND_FENCE | ibv_send_flags.IBV_SEND_SIGNALED | ibv_send_flags.IBV_SEND_SOLICITED
_OF_WINDOWS = A.IBV_ACCESS_REMOTE_WRITE | A.IBV_ACCESS_REMOTE_READ | A.IBV_ACCESS_REMOTE_ATOMIC


def bind_request(failed, qp, mw, mw_bind):
    """The request that binds a window of type 1; errors as of :meth:`.QP.bind_mw`."""
    if not qp._adapter.control.key_operations:
        refuse(f"{failed}: the device has no memory windows", errno.EOPNOTSUPP)
    if mw is None or mw_bind is None:
        refuse(f"{failed}: there is no window, or nothing to bind it to", errno.EINVAL)
    must_be("MW", "mw", mw)
    must_be("MWBind", "mw_bind", mw_bind)
    mw._check_open()
    mw._settle()
    request = SendRequest(mw_bind.wr_id, SendOpcode.BIND_MW, 0, 0, None, mw_bind.send_flags, None)
    request.mw, request.bind_info, request.rkey = mw, mw_bind.info, inc_rkey(mw.rkey)
    check_bind(failed, qp, request, ibv_mw_type.IBV_MW_TYPE_1)
    return request


def check_bind(failed, qp, request, mw_type):
    """Whether a window of that type can be bound so; errors as of :meth:`.QP.bind_mw`. EINVAL, too: the new key is not
    one of the window, or the one that it has; a window of type 2 is bound to no bytes.
    """
    mw, info = request.mw, request.bind_info
    if mw is None or info is None:
        refuse(f"{failed}: there is no window, or nothing to bind it to", errno.EINVAL)
    mr, addr, length, access = info.mr, info.addr, info.length, int(info.mw_access_flags)
    mw._check_open()
    mw._settle()
    if mw.type != mw_type:
        refuse(f"{failed}: the window is of type {mw.type}", errno.EINVAL)
    if request.rkey >> 8 != mw.handle or request.rkey == mw.rkey:
        refuse(f"{failed}: {request.rkey:#x} is not a new key of {mw}", errno.EINVAL)
    if mw_type == ibv_mw_type.IBV_MW_TYPE_2 and not length:
        refuse(f"{failed}: a window of type 2 is not bound to nothing", errno.EINVAL)
    if mw.pd.handle != qp.pd.handle or mw.pd.context is not qp.context:
        refuse(f"{failed}: the window is of another PD than the QP", errno.EPERM)
    if length:
        if mr is None:
            refuse(f"{failed}: there is no region", errno.EINVAL)
        mr._check_open()
        if mr.pd.handle != mw.pd.handle or mr.pd.context is not mw.pd.context:
            refuse(f"{failed}: the region is of another PD than the window", errno.EPERM)
        if access & ~_OF_WINDOWS:
            refuse(f"{failed}: access flags {access}", errno.EINVAL)
        if not mr.access & A.IBV_ACCESS_MW_BIND or mr.access & A.IBV_ACCESS_ZERO_BASED:
            refuse(f"{failed}: windows cannot be bound to {mr}", errno.EINVAL)
        if access & ~A.IBV_ACCESS_REMOTE_READ and not mr.access & A.IBV_ACCESS_LOCAL_WRITE:
            refuse(f"{failed}: the region has no LOCAL_WRITE", errno.EINVAL)
        offset = addr - mr._start
        if not within(offset, 0, mr.length) or not within(length, 0, mr.length - offset):
            refuse(f"{failed}: {length} bytes at {addr:#x} are not within {mr}", errno.EINVAL)


def posted(qp, request, ticket):
    """A request will be in the send queue, with this ticket of it: if it gives a window or region a key, that is its
    key from now on. Returns a call that takes this back.
    """
    if request.opcode == SendOpcode.BIND_MW:
        return request.mw._ask(qp, ticket, request.rkey)
    if request.opcode == SendOpcode.REG_MR:
        return request.reg_mr._ask(qp, ticket, request.rkey, request.access)
    return _nothing


def _nothing():
    pass


def key_wqe(failed, qp, wr):
    """Bytes of the send WQE of a request that changes a key."""
    flags = int(wr.send_flags)
    if flags & ~_FLAGS:
        refuse(f"{failed}: flags {flags:#x}", errno.EINVAL)
    if qp.qp_type in (ibv_qp_type.IBV_QPT_UD, ibv_qp_type.IBV_QPT_RAW_PACKET):
        refuse(f"{failed}: a {qp_type_to_str(qp.qp_type)} QP cannot change keys", errno.EINVAL)
    if wr.num_sge:
        refuse(f"{failed}: {wr.num_sge} SGEs", errno.EINVAL)
    if wr.opcode == SendOpcode.LOCAL_INV:
        fields = {"key": wr.imm_data}
    elif wr.opcode == SendOpcode.BIND_MW:
        info = wr.bind_info
        fields = {"key": wr.rkey, "old_key": wr.mw.rkey, "length": info.length}
        if info.length:
            fields |= {"region": info.mr.lkey, "address": info.addr, "access": int(info.mw_access_flags)}
    else:
        fields = _registration(failed, qp, wr)
    signaled = flags & ibv_send_flags.IBV_SEND_SIGNALED or qp._sq_sig_all
    flags = ibv_send_flags.IBV_SEND_SIGNALED if signaled else 0
    return KEY_WQE.pack(opcode=int(wr.opcode), flags=int(flags), **fields)


def _registration(failed, qp, wr):
    mr = wr.reg_mr
    if mr is None:
        refuse(f"{failed}: there is no region", errno.EINVAL)
    mr._check_open()
    if mr.pd.handle != qp.pd.handle or mr.pd.context is not qp.context:
        refuse(f"{failed}: the region is of another PD than the QP", errno.EPERM)
    if wr.rkey >> 8 != mr.handle:
        refuse(f"{failed}: key {wr.rkey:#x} is not one of {mr}", errno.EINVAL)
    if not mr.mapped:
        refuse(f"{failed}: {mr} has no memory", errno.EINVAL)
    access = mr._rights(failed, wr.access)
    return {"key": wr.rkey, "address": mr.iova, "length": mr.length, "access": access}
