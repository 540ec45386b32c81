"""Memory regions."""

import errno

from ..regions import alloc_pages
from .base import DeviceHolder, PyverbsCM, attempt, must_be, refuse
from .direct_memory import DM
from .libibverbs_enums import ibv_access_flags, ibv_rereg_mr_flags
from .limits import MAX_MR_SIZE
from .memory_window import MW, Bindable, MWBind, MWBindInfo, mwtype2str
from .number import within
from .pd import PD, domain_of
from .pyverbs_error import PyverbsUserError
from .unsupported import unsupported
from .user_memory import UserMemory

__all__ = [
    "DMMR",
    "MR",
    "MW",
    "Buf",
    "BufMR",
    "DmaBufMR",
    "MREx",
    "MWBind",
    "MWBindInfo",
    "PhysicalMR",
    "mwtype2str",
]

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


def check_access(failed, access):
    """The rights in ``access``."""
    if access & ~(sum(A) | _HINTS):
        refuse(failed, errno.EINVAL)
    if access & ~(_GRANTED | A.IBV_ACCESS_ZERO_BASED | _HINTS):
        refuse(failed, errno.EOPNOTSUPP)
    if access & (A.IBV_ACCESS_REMOTE_WRITE | A.IBV_ACCESS_REMOTE_ATOMIC) and not access & A.IBV_ACCESS_LOCAL_WRITE:
        refuse(failed, errno.EINVAL)
    return int(access & _GRANTED)


def _is_zero(address):
    return isinstance(address, int) and address == 0


class MR(Bindable):
    """A registered region: ``length`` zeroed bytes of its own, page-aligned, or memory of the process.

    ``address`` is None or 0 for memory of its own; otherwise an address, or any object with the buffer protocol, whose
    whole length is taken if ``length`` is 0. A buffer is held until the region is closed; who gives a number keeps the
    memory himself. EFAULT: the process does not have all of it, or may not write it and ``access`` has LOCAL_WRITE.
    With ZERO_BASED its first byte has the address 0 for peers and work requests, and must begin a 4 KiB page.
    ``creator`` is a PD, or a CMID, which has one. A region of another process cannot be imported by its ``handle``.
    """

    _rank = 5

    def __init__(self, creator, length=0, access=0, address=None, implicit=False, *, handle=None):
        failed = f"Failed to register a MR. length: {length}, access flags: {int(access)}"
        if handle is not None:
            refuse("Failed to import MR", errno.EOPNOTSUPP)
        if isinstance(creator, DeviceHolder):
            creator = domain_of(failed, creator)
        self._register(failed, [creator], length, access, address, implicit)

    def _register(self, failed, parents, length, access, address, implicit=False, iova=None):
        """Makes the region; the first of ``parents`` is its PD."""
        pd, granted = self._begin(failed, parents, access)
        if implicit:
            refuse(failed, errno.EOPNOTSUPP)
        if access & A.IBV_ACCESS_ZERO_BASED:
            if iova:
                refuse(f"{failed}: zero-based, with iova {iova:#x}", errno.EINVAL)
            iova = 0
        adapter = self._adapter
        self._owned = None
        if address is None or _is_zero(address):
            if not within(length, 0, MAX_MR_SIZE):
                refuse(f"{failed}: length must be 0 to {MAX_MR_SIZE:#x}, not {length!r}", errno.EINVAL)
            with attempt(failed):
                self._owned = address = alloc_pages(adapter.memory, length)
            adapter.memory.write(address, bytes(length))
        try:
            self._memory = memory = self._pin(failed, address, length, granted)
            try:
                self._check_iova(failed, iova)
                with attempt(failed):
                    self._region = adapter.register(pd.handle, memory.address, memory.length, granted, iova)
            except Exception as error:
                memory.release()
                if isinstance(error, ValueError):
                    refuse(f"{failed}: {error}", errno.EFAULT)
                raise
        except Exception:
            if self._owned is not None:
                adapter.memory.free(self._owned)
            raise
        self._end_registration(pd, access)

    def _begin(self, failed, parents, access):
        """The PD, and the rights that ``access`` grants."""
        pd = parents[0]
        if not isinstance(pd, PD):
            raise PyverbsUserError(f"Cannot create MR from {type(pd)}")
        PyverbsCM.__init__(self, *parents)
        self._adapter = pd.context._adapter
        return pd, check_access(failed, access)

    def _end_registration(self, pd, access):
        self.pd = pd
        self.access = access
        self._opened()

    def _check_iova(self, failed, iova):
        address, length = self._memory.address, self._memory.length
        if iova is None:
            return
        if not within(iova, 0, (1 << 64) - length) or (iova - address) % _PAGE:
            refuse(f"{failed}: iova {iova:#x} of memory at {address:#x}", errno.EINVAL)

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
        Memory of its own lives on until the end. EBUSY: a window is bound to it.
        """
        self._check_open()
        failed = "Failed to rereg MR"
        self._check_windows(failed)
        if not flags or flags & ~R.IBV_REREG_MR_FLAGS_SUPPORTED:
            refuse(failed, errno.EINVAL)
        fields = {}
        zero_based = self.access & A.IBV_ACCESS_ZERO_BASED
        if flags & R.IBV_REREG_MR_CHANGE_PD:
            if pd is None:
                raise PyverbsUserError(f"{failed}: CHANGE_PD needs a PD")
            must_be("PD", "pd", pd)
            pd._check_open()
            if pd.context is not self.pd.context:
                refuse(failed, errno.EINVAL)
            fields["pd"] = pd.handle
        if flags & R.IBV_REREG_MR_CHANGE_ACCESS:
            fields["access"] = check_access(failed, access)
            if access & A.IBV_ACCESS_ZERO_BASED != zero_based:
                refuse(f"{failed}: ZERO_BASED cannot be changed", errno.EINVAL)
        moved = flags & R.IBV_REREG_MR_CHANGE_TRANSLATION
        old = self._memory
        fresh = self._pin(
            failed,
            addr if moved else old.source,
            length if moved else old.length,
            fields.get("access", self.access),
        )
        try:
            if moved and zero_based and fresh.address % _PAGE:
                refuse(f"{failed}: iova 0 of memory at {fresh.address:#x}", errno.EINVAL)
            with attempt(failed):
                place = (fresh.address, fresh.length) if moved else None
                self._adapter.change_region(self._region, place, 0 if zero_based else None, **fields)
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
            self.pd, self._parents = pd, (pd, *self._parents[1:])

    def _check(self, length, offset):
        self._check_open()
        if offset < 0 or length < 0 or offset + length > self.length:
            raise PyverbsUserError(f"{length} bytes from offset {offset} are not within the region of {self.length}")

    @property
    def _start(self):
        """How peers and work requests name the first byte."""
        return self._region.entry["address"]

    def _destroy(self):
        self._adapter.deregister(self._region)
        self._memory.release()
        if self._owned is not None:
            self._adapter.memory.free(self._owned)

    def __str__(self):
        return f"MR: {self.length} bytes at {self.buf:#x}, lkey {self.lkey:#x}, rkey {self.rkey:#x}"


class MREx(MR):
    """A region by the extended call. ``iova`` is how peers and work requests name its first byte, instead of its
    address; both must be at the same place of a 4 KiB page. ``buf`` is a :class:`Buf` that it takes its memory from.
    Files (``fd``) and handles for DMA (``dmah``) are not served.
    """

    def __init__(
        self,
        pd,
        length=0,
        access=0,
        address=None,
        iova=None,
        fd=None,
        fd_offset=0,
        dmah=None,
        implicit=False,
        buf=None,
    ):
        failed = "Failed to register MR using extended API"
        if fd is not None or fd_offset or dmah is not None:
            refuse(failed, errno.EOPNOTSUPP)
        parents = [pd]
        if buf is not None:
            if address is not None:
                raise PyverbsUserError(f"{failed}: either address or buf")
            address = buf._part(failed, pd, 0, length)
            parents.append(buf)
        self._register(failed, parents, length, access, address, implicit, iova)


class Buf(PyverbsCM):
    """``size`` zeroed bytes at ``addr``, for regions of the domain ``pd``; closed after these."""

    _rank = 6

    def __init__(self, pd, size):
        super().__init__(pd)
        failed = "Failed to allocate buffer"
        if not within(size, 1, MAX_MR_SIZE):
            refuse(f"{failed}: size must be 1 to {MAX_MR_SIZE:#x}, not {size!r}", errno.EINVAL)
        self.pd = pd
        self.size = size
        self._memory = pd.context._adapter.memory
        with attempt(failed):
            self.addr = alloc_pages(self._memory, size)
        self._memory.write(self.addr, bytes(size))
        self._opened()

    def export_dmabuf_fd(self):
        """No file stands behind the buffer: ENODATA."""
        self._check_open()
        refuse("Failed to export the buffer as a dma-buf", errno.ENODATA)

    def _part(self, failed, pd, offset, length):
        """Address of ``length`` bytes from ``offset``; EINVAL if they are not all there, or ``pd`` is another."""
        self._check_open()
        if pd is not self.pd:
            refuse(f"{failed}: the buffer is of another PD", errno.EINVAL)
        if not within(offset, 0, self.size) or not within(length, 0, self.size - offset):
            refuse(f"{failed}: {length!r} bytes from {offset!r} of a buffer of {self.size}", errno.EINVAL)
        return self.addr + offset

    def _destroy(self):
        self._memory.free(self.addr)


class BufMR(MR):
    """A region of ``length`` bytes of the :class:`Buf` ``buf``, from ``offset`` on."""

    def __init__(self, pd, buf, length, access, offset=0):
        failed = f"Failed to register a MR. length: {length}, access flags: {int(access)}"
        self._register(failed, [pd, buf], length, access, buf._part(failed, pd, offset, length))


class PhysicalMR(MR):
    """``length`` bytes from the bus address ``bus`` on, whoever answers there: an accelerator, or memory beyond the
    host's. No extension of libibverbs has it: nobody checks what stands there, so it is for software that is trusted.

    ``iova`` is how peers and work requests name its first byte, by default ``bus``; both must be at the same place of
    a 4 KiB page, and with ZERO_BASED it is 0. The engine needs no translation table for it. EOPNOTSUPP if the device
    has no such regions (``Config(physical=)``). The region can be neither read nor written through this object, and not
    registered again.
    """

    def __init__(self, pd, bus, length, access, iova=None):
        failed = f"Failed to register a physical MR. bus address: {bus:#x}, length: {length}"
        self._register_bus(failed, [pd], bus, length, access, iova)

    def _register_bus(self, failed, parents, bus, length, access, iova):
        pd, granted = self._begin(failed, parents, access)
        if access & A.IBV_ACCESS_ZERO_BASED:
            if iova:
                refuse(f"{failed}: zero-based, with iova {iova:#x}", errno.EINVAL)
            iova = 0
        self._iova = bus if iova is None else iova
        self._length = length
        if not within(length, 0, MAX_MR_SIZE) or not all(
            within(first, 0, (1 << 64) - length) for first in (bus, self._iova)
        ):
            refuse(f"{failed}: {length!r} bytes from {bus!r} on, as {self._iova!r}", errno.EINVAL)
        if (self._iova - bus) % _PAGE:
            refuse(f"{failed}: iova {self._iova:#x}", errno.EINVAL)
        with attempt(failed):
            self._region = self._adapter.register_physical(pd.handle, bus, length, granted, self._iova)
        self._end_registration(pd, access)

    @property
    def buf(self):
        """How peers and work requests name its first byte."""
        return self._iova

    @property
    def length(self):
        return self._length

    def write(self, data, length, offset=0):
        """The process does not have this memory: EOPNOTSUPP."""
        self._check(length, offset)
        refuse("Failed to write to the region", errno.EOPNOTSUPP)

    def read(self, length, offset):
        """The process does not have this memory: EOPNOTSUPP."""
        self._check(length, offset)
        refuse("Failed to read the region", errno.EOPNOTSUPP)

    def rereg(self, flags, pd=None, addr=0, length=0, access=0):
        """EOPNOTSUPP."""
        self._check_open()
        refuse("Failed to rereg MR", errno.EOPNOTSUPP)

    def _destroy(self):
        self._adapter.deregister(self._region)


class DMMR(PhysicalMR):
    """A region of the device's own memory: ``length`` bytes of ``dm`` from ``offset`` on, a multiple of 4096.

    ``access`` must have ZERO_BASED, as for ``ibv_reg_dm_mr``: the first byte has the address 0.
    """

    def __init__(self, pd, length, access, dm, offset):
        failed = f"Failed to register a device MR. length: {length}, access flags: {int(access)}"
        if not isinstance(dm, DM):
            raise PyverbsUserError(f"dm must be a DM, not {dm!r}")
        if not access & A.IBV_ACCESS_ZERO_BASED:
            refuse(f"{failed}: without ZERO_BASED", errno.EINVAL)
        self._dm, self._offset = dm, offset
        self._register_bus(failed, [pd, dm], dm._part(failed, pd, offset, length), length, access, None)

    def write(self, data, length, offset=0):
        """Puts the first ``length`` bytes of ``data`` (str or bytes) at ``offset``."""
        self._check(length, offset)
        self._dm.copy_to_dm(self._offset + offset, data, length)

    def read(self, length, offset):
        """``length`` bytes from ``offset``."""
        self._check(length, offset)
        return self._dm.copy_from_dm(self._offset + offset, length)


class DmaBufMR(MR):
    """A region of a dma-buf."""

    @unsupported("Failed to register a dma-buf MR")
    def __init__(self, pd, length, access, dmabuf=None, offset=0, gpu=0, gtt=0):
        """Registers it."""
