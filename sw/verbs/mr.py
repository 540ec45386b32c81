"""Memory regions."""

import errno

from .. import host_memory
from .base import PyverbsCM, attempt, refuse
from .libibverbs_enums import ibv_access_flags, ibv_rereg_mr_flags
from .pyverbs_error import PyverbsUserError

__all__ = ["MR"]

A = ibv_access_flags
_GRANTED = (
    A.IBV_ACCESS_LOCAL_WRITE
    | A.IBV_ACCESS_REMOTE_WRITE
    | A.IBV_ACCESS_REMOTE_READ
    | A.IBV_ACCESS_REMOTE_ATOMIC
    | A.IBV_ACCESS_MW_BIND
)
_HINTS = A.IBV_ACCESS_RELAXED_ORDERING
_FAILED = "Failed to register a MR"


def _check_access(access):
    if access & ~(_GRANTED | _HINTS):
        refuse(f"{_FAILED}: access flags {access & ~(_GRANTED | _HINTS):#x}", errno.EOPNOTSUPP)
    if access & (A.IBV_ACCESS_REMOTE_WRITE | A.IBV_ACCESS_REMOTE_ATOMIC) and not access & A.IBV_ACCESS_LOCAL_WRITE:
        refuse(_FAILED, errno.EINVAL)
    return int(access & _GRANTED)


class MR(PyverbsCM):
    """A registered region: ``length`` zeroed bytes of its own, page-aligned, or memory at ``address``."""

    _rank = 5

    def __init__(self, pd, length=0, access=0, address=None, implicit=False):
        if implicit:
            refuse(f"{_FAILED}: implicit regions need paging on demand", errno.EOPNOTSUPP)
        if length < 0:
            refuse(_FAILED, errno.EINVAL)
        granted = _check_access(access)
        self._adapter = pd.context._adapter
        self._owned = None
        if address is None:
            self._owned = address = attempt(_FAILED, host_memory.alloc, max(1, length), 4096)
            host_memory.write(address, bytes(length))
        try:
            self._region = attempt(_FAILED, self._adapter.register, pd.handle, address, length, granted)
        except ValueError as error:
            refuse(f"{_FAILED}: {error}", errno.EFAULT)
        super().__init__(pd)
        self.pd = pd
        self.buf = address
        self.length = length
        self.access = access

    @property
    def lkey(self):
        return self._region.key

    @property
    def rkey(self):
        return self._region.key

    @property
    def handle(self):
        return self._region.index

    def write(self, data, length, offset=0):
        """Puts the first ``length`` bytes of ``data`` (str or bytes) at ``offset``."""
        data = data.encode() if isinstance(data, str) else bytes(data)
        self._check(length, offset)
        host_memory.write(self.buf + offset, data[:length])

    def read(self, length, offset):
        """``length`` bytes from ``offset``."""
        self._check(length, offset)
        return host_memory.read(self.buf + offset, length)

    def rereg(self, flags, pd=None, addr=0, length=0, access=0):
        """Changes protection domain, rights or memory; the keys stay."""
        failed = "Failed to reregister MR"
        known = sum(ibv_rereg_mr_flags)
        if not flags or flags & ~known:
            refuse(failed, errno.EINVAL)
        fields = {}
        if flags & ibv_rereg_mr_flags.IBV_REREG_MR_CHANGE_PD:
            if pd is None:
                raise PyverbsUserError("rereg with CHANGE_PD needs a PD")
            fields["pd"] = pd.handle
        if flags & ibv_rereg_mr_flags.IBV_REREG_MR_CHANGE_ACCESS:
            fields["access"] = _check_access(access)
        if flags & ibv_rereg_mr_flags.IBV_REREG_MR_CHANGE_TRANSLATION:
            try:
                fresh = attempt(
                    failed, self._adapter.register, self.pd.handle, addr, length, self._region.entry["access"]
                )
            except ValueError as error:
                refuse(f"{failed}: {error}", errno.EFAULT)
            fields.update({k: fresh.entry[k] for k in ("address", "length", "log_page_size", "mtt_address")})
            # The new table goes to the old key, and the old table leaves with the key that came with the new one.
            fresh.mtt, self._region.mtt = self._region.mtt, fresh.mtt
        attempt(failed, self._adapter.change_region, self._region, **fields)
        if flags & ibv_rereg_mr_flags.IBV_REREG_MR_CHANGE_TRANSLATION:
            self._adapter.deregister(fresh)
            if self._owned is not None:
                host_memory.free(self._owned)
                self._owned = None
            self.buf, self.length = addr, length
        if "pd" in fields:
            self.pd._children.discard(self)
            pd._children.add(self)
            self.pd, self._parents = pd, (pd,)
        if "access" in fields:
            self.access = access

    def _check(self, length, offset):
        if offset < 0 or length < 0 or offset + length > self.length:
            raise PyverbsUserError(f"{length} bytes from offset {offset} are not within the region of {self.length}")

    def _destroy(self):
        self._adapter.deregister(self._region)
        if self._owned is not None:
            host_memory.free(self._owned)
