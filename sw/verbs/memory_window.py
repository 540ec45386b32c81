"""Memory windows, which the engine does not have; :mod:`.mr` hands these out."""

import errno

from .base import PyverbsObject, refuse
from .libibverbs_enums import ibv_mw_type
from .naming import name_of

__all__ = ["MW", "MWBind", "MWBindInfo", "mwtype2str"]


class MWBindInfo(PyverbsObject):
    """What a window is to be bound to: ``struct ibv_mw_bind_info``."""

    def __init__(self, mr, addr, length, mw_access_flags):
        self.mr = mr
        self.addr = addr
        self.length = length
        self.mw_access_flags = mw_access_flags

    def __str__(self):
        return f"MWBindInfo: addr {self.addr:#x}, length {self.length}, mw_access_flags {self.mw_access_flags}"


class MWBind(PyverbsObject):
    """A request that binds a window of type 1: ``struct ibv_mw_bind``."""

    def __init__(self, info, send_flags, wr_id=0):
        self.info = info
        self.send_flags = send_flags
        self.wr_id = wr_id

    def __str__(self):
        return f"MWBind: wr_id {self.wr_id}, send_flags {self.send_flags}"


class MW(PyverbsObject):
    """A memory window. EOPNOTSUPP, or EINVAL if ``mw_type`` is none."""

    def __init__(self, pd, mw_type):
        known = mw_type in set(ibv_mw_type)
        refuse(f"Failed to allocate MW of type {mw_type}", errno.EOPNOTSUPP if known else errno.EINVAL)


def mwtype2str(mw_type):
    """Name of a window's type."""
    return name_of(ibv_mw_type, mw_type) if mw_type in set(ibv_mw_type) else f"Unknown MW type ({mw_type})"
