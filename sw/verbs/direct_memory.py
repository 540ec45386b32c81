"""Memory of the device itself; :mod:`.device` hands these out."""

import errno

from .base import PyverbsCM, PyverbsObject, attempt, must_be, refuse
from .number import within

__all__ = ["DM", "AllocDmAttr"]


class AllocDmAttr(PyverbsObject):
    """``struct ibv_alloc_dm_attr``; ``log_align_req`` is the logarithm of the least alignment in bytes."""

    def __init__(self, length, log_align_req=0, comp_mask=0):
        self.length = length
        self.log_align_req = log_align_req
        self.comp_mask = comp_mask


class DM(PyverbsCM):
    """``length`` zeroed bytes of the device's memory, from the start of a 4 KiB page of it on.

    EOPNOTSUPP: the device has none (``max_dm_size`` is 0); EINVAL: a length of 0, or more than there is; ENOMEM.
    """

    _rank = 6

    def __init__(self, context, dm_attr):
        must_be("Context", "context", context)
        must_be("AllocDmAttr", "dm_attr", dm_attr)
        super().__init__(context)
        failed = "Failed to allocate device memory"
        self._memory = memory = context._adapter.device_memory
        if memory is None:
            refuse(failed, errno.EOPNOTSUPP)
        length, log_align = dm_attr.length, dm_attr.log_align_req
        if not within(length, 1, memory.size) or not within(log_align, 0, 63) or dm_attr.comp_mask:
            refuse(f"{failed}: {length!r} of {memory.size} bytes, aligned to 2^{log_align!r}", errno.EINVAL)
        with attempt(failed):
            self._at = memory.alloc(length, 1 << log_align)
        self.context = context
        self.length = length
        memory.write(self._at, bytes(length))
        self._opened()

    def copy_to_dm(self, dm_offset, data, length):
        """Puts the first ``length`` bytes of ``data`` (str or bytes) at ``dm_offset``."""
        self._check_open()
        data = data.encode() if isinstance(data, str) else memoryview(data).cast("B")
        self._check("Failed to copy to dm", dm_offset, length)
        self._memory.write(self._at + dm_offset, data[:length])

    def copy_from_dm(self, dm_offset, length):
        """``length`` bytes from ``dm_offset``."""
        self._check_open()
        self._check("Failed to copy from dm", dm_offset, length)
        return self._memory.read(self._at + dm_offset, length)

    def _check(self, failed, offset, length):
        if not within(offset, 0, self.length) or not within(length, 0, self.length - offset):
            refuse(f"{failed}: {length!r} bytes from {offset!r} of {self.length}", errno.EINVAL)

    def _part(self, failed, pd, offset, length):
        """Bus address of ``length`` bytes from ``offset``; EINVAL if they are not all there, do not begin a page, or
        are of another context than ``pd``.
        """
        self._check_open()
        if pd.context._adapter is not self.context._adapter:
            refuse(f"{failed}: the memory is of another device", errno.EINVAL)
        self._check(failed, offset, length)
        if offset % self._memory.PAGE:
            refuse(f"{failed}: offset {offset} is within a page", errno.EINVAL)
        return self._memory.bus + self._at + offset

    def _destroy(self):
        self._memory.free(self._at)
