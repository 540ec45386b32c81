"""Memory windows; :mod:`.mr` hands these out."""

import errno

from verbena.hdl.abi.tables import KeyKind

from .base import HoldsNothing, PyverbsCM, attempt, must_be, refuse
from .libibverbs_enums import ibv_mw_type
from .naming import name_of
from .under_way import UnderWay

__all__ = ["MW", "Bindable", "MWBind", "MWBindInfo", "mwtype2str"]


class Bindable(PyverbsCM):
    """A region, to which windows may be bound: then it is not closed."""

    def _check_windows(self, failed):
        if self._adapter.has_windows(self._region):
            refuse(f"{failed}: a window is bound to it", errno.EBUSY)

    def _may_close(self):
        self._check_windows("Failed to deregister MR")


class MWBindInfo(HoldsNothing):
    """What a window is to be bound to: ``struct ibv_mw_bind_info``."""

    def __init__(self, mr, addr, length, mw_access_flags):
        self.mr = mr
        self.addr = addr
        self.length = length
        self.mw_access_flags = mw_access_flags

    def __str__(self):
        return f"MWBindInfo: addr {self.addr:#x}, length {self.length}, mw_access_flags {self.mw_access_flags}"


class MWBind(HoldsNothing):
    """A request that binds a window of type 1: ``struct ibv_mw_bind``."""

    def __init__(self, info, send_flags, wr_id=0):
        self.info = info
        self.send_flags = send_flags
        self.wr_id = wr_id

    def __str__(self):
        return f"MWBind: wr_id {self.wr_id}, send_flags {self.send_flags}"


class MW(PyverbsCM):
    """A memory window, bound to nothing at first. Peers use a part of a region by its ``rkey``, which changes with each
    binding. While it is bound the region cannot be closed.

    Type 1: bound by :meth:`.QP.bind_mw`, for the peers of all QPs of its PD, until it is bound anew. Type 2 (2B of the
    specification): bound by a request of a queue pair (:meth:`.SendWR.set_bind_wr`, :meth:`.QPEx.wr_bind_mw`), for the
    peer of that one; then LOCAL_INV of that queue pair, or a SEND with invalidate to it, makes it free again.

    EINVAL: ``mw_type`` is none; EOPNOTSUPP: the device has no windows; ENOMEM: no key is left.
    """

    _rank = 4
    _kinds = {ibv_mw_type.IBV_MW_TYPE_1: KeyKind.WINDOW, ibv_mw_type.IBV_MW_TYPE_2: KeyKind.WINDOW_2}

    def __init__(self, pd, mw_type):
        failed = f"Failed to allocate MW of type {mw_type}"
        must_be("PD", "pd", pd)
        super().__init__(pd)
        if mw_type not in self._kinds:
            refuse(failed, errno.EINVAL)
        self.pd = pd
        self.type = mw_type
        self._adapter = pd.context._adapter
        with attempt(failed):
            self._region = self._adapter.register_window(pd.handle, self._kinds[mw_type])
        self.rkey = self._region.key
        self._asked = UnderWay()  # each request that binds it
        self._opened()

    @property
    def handle(self):
        return self._region.index

    def _settle(self):
        """If nothing is under way, ``rkey`` is what the device has: what was posted last may have been flushed."""
        if not self._asked:
            self.rkey = self._adapter.last_key(self._region)

    def _ask(self, qp, ticket, key):
        """A request is posted that binds it. Returns a call that takes this back."""
        before, take_back = self.rkey, self._asked.add(qp, ticket)
        self.rkey = key

        def undo():
            self.rkey = before
            take_back()

        return undo

    def _destroy(self):
        self._adapter.deregister(self._region)

    def __str__(self):
        return f"MW: rkey {self.rkey:#x}, type {mwtype2str(self.type)}"


def mwtype2str(mw_type):
    """Name of a window's type."""
    return name_of(ibv_mw_type, mw_type) if mw_type in set(ibv_mw_type) else f"Unknown MW type ({mw_type})"
