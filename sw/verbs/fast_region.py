"""Regions that work requests make valid, as ``ib_alloc_mr``, ``ib_map_mr_sg`` and ``ib_reg_wr`` of the kernel have
them; libibverbs and pyverbs have none.
"""

import errno

from .base import attempt, refuse
from .libibverbs_enums import ibv_access_flags
from .memory_window import Bindable
from .mr import check_access
from .number import within
from .pd import PD
from .pyverbs_error import PyverbsUserError
from .under_way import UnderWay
from .user_memory import UserMemory

__all__ = ["MAX_FAST_PAGES", "FastMR"]

MAX_FAST_PAGES = 1 << 16
"""Pages of 4 KiB that a fast region may have room for."""

_PAGE = 4096


class FastMR(Bindable):
    """A region with room for ``max_pages`` pages of 4 KiB, which is not valid yet.

    :meth:`map` says which memory it stands for; a request REG_MR (:meth:`.SendWR.set_reg_wr`) then makes it valid, with
    a key and rights; LOCAL_INV here, or a SEND with invalidate of a peer, makes it invalid again, and it can be mapped
    anew. Requests that are posted behind REG_MR may use it at once. A window that is bound to it stays so while it is
    invalid, over the memory that it has had until then.

    EINVAL: ``max_pages`` is not 1 to :data:`MAX_FAST_PAGES`; EOPNOTSUPP: the device has no such regions.
    """

    _rank = 5

    def __init__(self, pd, max_pages):
        failed = f"Failed to allocate a fast MR of {max_pages} pages"
        if not isinstance(pd, PD):
            raise PyverbsUserError(f"Cannot create MR from {type(pd)}")
        super().__init__(pd)
        if not within(max_pages, 1, MAX_FAST_PAGES):
            refuse(failed, errno.EINVAL)
        self.pd = pd
        self.max_pages = max_pages
        self.access = 0
        self.iova = self.length = 0
        self._memory = None
        self._writable = False  # what it stands for is to be written, too
        self._asked = UnderWay()  # each REG_MR
        self._adapter = pd.context._adapter
        with attempt(failed):
            self._region = self._adapter.register_fast(pd.handle, max_pages)
        self._key = self._region.key
        self._opened()

    @property
    def handle(self):
        return self._region.index

    @property
    def lkey(self):
        """The key of the last REG_MR that was posted."""
        return self._key

    @property
    def rkey(self):
        """The same as ``lkey``."""
        return self._key

    @property
    def buf(self):
        """Address of the first byte, as work requests name it."""
        return self.iova

    @property
    def mapped(self):
        """It stands for some memory."""
        return self._memory is not None

    def map(self, address, length, iova=None, access=ibv_access_flags.IBV_ACCESS_LOCAL_WRITE):
        """The next REG_MR makes it ``length`` bytes at ``address``, a number or a buffer, that peers and requests name
        by ``iova``, or by the address if that is None. ``access`` without LOCAL_WRITE allows memory that the process
        may only read.

        EBUSY: the region is valid, or no completion has told yet that each REG_MR is done, or a window is bound to it;
        EINVAL: no bytes, more pages than there is room for, or an ``iova`` at another place of its page; EFAULT:
        the process does not have the memory, or the device does not reach it.
        """
        self._check_open()
        failed = f"Failed to map {length} bytes"
        if self._adapter.valid_key(self._region) is not None:
            refuse(f"{failed}: the region is valid", errno.EBUSY)
        if self._asked:
            refuse(f"{failed}: a REG_MR of the region is posted", errno.EBUSY)
        self._check_windows(failed)
        memory = UserMemory(self._adapter.memory, address, length, access & 1, failed)
        try:
            start, length = memory.address, memory.length
            iova = start if iova is None else iova
            if not length or not within(iova, 0, (1 << 64) - length) or (iova - start) % _PAGE:
                refuse(f"{failed}: iova {iova:#x} of memory at {start:#x}", errno.EINVAL)
            if (start % _PAGE + length + _PAGE - 1) // _PAGE > self.max_pages:
                refuse(f"{failed}: there is room for {self.max_pages} pages", errno.EINVAL)
            with attempt(failed):
                self._adapter.map_region(self._region, start, length)
        except Exception as error:
            memory.release()
            if isinstance(error, ValueError):
                refuse(f"{failed}: {error}", errno.EFAULT)
            raise
        if self._memory is not None:
            self._memory.release()
        self._memory, self.iova, self.length = memory, iova, length
        self._writable = bool(access & ibv_access_flags.IBV_ACCESS_LOCAL_WRITE)

    def _rights(self, failed, access):
        """Those that a REG_MR grants."""
        granted = check_access(failed, access)
        if granted & ibv_access_flags.IBV_ACCESS_LOCAL_WRITE and not self._writable:
            refuse(f"{failed}: the memory was mapped without LOCAL_WRITE", errno.EINVAL)
        return granted

    def _ask(self, qp, ticket, key, access):
        """A REG_MR is posted. Returns a call that takes this back."""
        before, take_back = (self._key, self.access), self._asked.add(qp, ticket)
        self._key, self.access = key, access

        def undo():
            self._key, self.access = before
            take_back()

        return undo

    @property
    def _start(self):
        """How peers and work requests name the first byte."""
        return self.iova

    def _destroy(self):
        self._adapter.deregister(self._region)
        if self._memory is not None:
            self._memory.release()

    def __str__(self):
        return f"Fast MR: {self.max_pages} pages, key {self._key:#x}"
