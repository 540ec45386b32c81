"""Memory regions."""

import errno

from .base import PyverbsCM, attempt, refuse
from .libibverbs_enums import ibv_access_flags, ibv_rereg_mr_flags
from .limits import MAX_MR_SIZE
from .number import within
from .pyverbs_error import PyverbsUserError
from .user_memory import UserMemory

__all__ = ["MR"]

A = ibv_access_flags
R = ibv_rereg_mr_flags
_GRANTED = (
    A.IBV_ACCESS_LOCAL_WRITE
    | A.IBV_ACCESS_REMOTE_WRITE
    | A.IBV_ACCESS_REMOTE_READ
    | A.IBV_ACCESS_REMOTE_ATOMIC
    | A.IBV_ACCESS_MW_BIND
)
_HINTS = 0x3FF << 20
"""IBV_ACCESS_OPTIONAL_RANGE: what may be ignored, such as RELAXED_ORDERING."""

_PAGE = 4096


def _check_access(failed, access):
    if access & ~(sum(A) | _HINTS):
        refuse(failed, errno.EINVAL)
    if access & ~(_GRANTED | _HINTS):
        refuse(failed, errno.EOPNOTSUPP)
    if access & (A.IBV_ACCESS_REMOTE_WRITE | A.IBV_ACCESS_REMOTE_ATOMIC) and not access & A.IBV_ACCESS_LOCAL_WRITE:
        refuse(failed, errno.EINVAL)
    return int(access & _GRANTED)


def _is_zero(address):
    return isinstance(address, int) and address == 0


class MR(PyverbsCM):
    """A registered region: ``length`` zeroed bytes of its own, page-aligned, or memory of the process.

    ``address`` is None or 0 for memory of its own; otherwise an address, or any object with the buffer protocol, whose
    whole length is taken if ``length`` is 0. A buffer is held until the region is closed; who gives a number keeps the
    memory himself. EFAULT: the process does not have all of it, or may not write it and ``access`` has LOCAL_WRITE.
    """

    _rank = 5

    def __init__(self, pd, length=0, access=0, address=None, implicit=False):
        super().__init__(pd)
        failed = f"Failed to register a MR. length: {length}, access flags: {int(access)}"
        if implicit:
            refuse(failed, errno.EOPNOTSUPP)
        granted = _check_access(failed, access)
        self._adapter = adapter = pd.context._adapter
        self._owned = None
        if address is None or _is_zero(address):
            if not within(length, 0, MAX_MR_SIZE):
                refuse(f"{failed}: length must be 0 to {MAX_MR_SIZE:#x}, not {length!r}", errno.EINVAL)
            with attempt(failed):
                self._owned = address = adapter.memory.alloc(max(1, length), _PAGE)
            adapter.memory.write(address, bytes(length))
        try:
            self._memory = memory = self._pin(failed, address, length, granted)
            try:
                with attempt(failed):
                    self._region = adapter.register(pd.handle, memory.address, memory.length, granted)
            except Exception as error:
                memory.release()
                if isinstance(error, ValueError):
                    refuse(f"{failed}: {error}", errno.EFAULT)
                raise
        except Exception:
            if self._owned is not None:
                adapter.memory.free(self._owned)
            raise
        self.pd = pd
        self.access = access
        self._opened()

    def _pin(self, failed, source, length, access):
        return UserMemory(self._adapter.memory, source, length, access & A.IBV_ACCESS_LOCAL_WRITE, failed)

    @property
    def buf(self):
        """Address of the first byte."""
        return self._memory.address

    @property
    def length(self):
        return self._memory.length

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
        data = data.encode() if isinstance(data, str) else memoryview(data).cast("B")
        self._check(length, offset)
        if self._memory.readonly:
            raise PyverbsUserError("the region is of a buffer that is read-only")
        self._adapter.memory.write(self.buf + offset, data[:length])

    def read(self, length, offset):
        """``length`` bytes from ``offset``."""
        self._check(length, offset)
        return self._adapter.memory.read(self.buf + offset, length)

    def rereg(self, flags, pd=None, addr=0, length=0, access=0):
        """Changes protection domain, rights or memory (``addr`` as ``address`` of creation, but not 0); the keys stay.
        Memory of its own lives on until the end.
        """
        self._check_open()
        failed = "Failed to rereg MR"
        if not flags or flags & ~R.IBV_REREG_MR_FLAGS_SUPPORTED:
            refuse(failed, errno.EINVAL)
        fields = {}
        if flags & R.IBV_REREG_MR_CHANGE_PD:
            if pd is None:
                raise PyverbsUserError(f"{failed}: CHANGE_PD needs a PD")
            pd._check_open()
            if pd.context is not self.pd.context:
                refuse(failed, errno.EINVAL)
            fields["pd"] = pd.handle
        if flags & R.IBV_REREG_MR_CHANGE_ACCESS:
            fields["access"] = _check_access(failed, access)
        moved = flags & R.IBV_REREG_MR_CHANGE_TRANSLATION
        old = self._memory
        fresh = self._pin(
            failed,
            addr if moved else old.source,
            length if moved else old.length,
            fields.get("access", self.access),
        )
        try:
            with attempt(failed):
                place = (fresh.address, fresh.length) if moved else None
                self._adapter.change_region(self._region, place, **fields)
        except Exception as error:
            fresh.release()
            if isinstance(error, ValueError):
                refuse(f"{failed}: {error}", errno.EFAULT)
            raise
        old.release()
        self._memory = fresh
        if "access" in fields:
            self.access = access
        if "pd" in fields and pd is not self.pd:
            pd._adopt(self)
            self._parents[0]._leave(self)
            self.pd, self._parents = pd, (pd,)

    def _check(self, length, offset):
        self._check_open()
        if offset < 0 or length < 0 or offset + length > self.length:
            raise PyverbsUserError(f"{length} bytes from offset {offset} are not within the region of {self.length}")

    def _destroy(self):
        self._adapter.deregister(self._region)
        self._memory.release()
        if self._owned is not None:
            self._adapter.memory.free(self._owned)

    def __str__(self):
        return f"MR: {self.length} bytes at {self.buf:#x}, lkey {self.lkey:#x}, rkey {self.rkey:#x}"
