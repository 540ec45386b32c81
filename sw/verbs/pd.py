"""Protection domains."""

import errno

from .base import DeviceHolder, PyverbsCM, PyverbsObject, must_be, refuse
from .device import Context
from .libibverbs_enums import ibv_parent_domain_init_attr_mask
from .limits import MAX_PD
from .pyverbs_error import PyverbsUserError
from .unsupported import unsupported

__all__ = ["PD", "ParentDomain", "ParentDomainContext", "ParentDomainInitAttr", "domain_of"]


def domain_of(failed, holder):
    """The PD of a CMID; EINVAL if it has no device yet."""
    if holder.pd is None:
        refuse(f"{failed}: {holder} has no device yet", errno.EINVAL)
    return holder.pd


class PD(PyverbsCM):
    """Protection domain; ``handle`` is its number in the MPT. One of a CMID is that which the CMID has; it stays when
    this object is closed. One of another process cannot be imported by its ``handle``.
    """

    _rank = 8

    def __init__(self, creator, *, handle=None):
        if not isinstance(creator, (Context, DeviceHolder)):
            raise PyverbsUserError(f"Cannot create PD from {type(creator)}")
        self._pds = set()  # numbers, of which its own goes when it is closed
        if isinstance(creator, DeviceHolder):
            self._follow(domain_of("Failed to allocate PD", creator))
            return
        super().__init__(creator)
        if handle is not None:
            refuse("Failed to import PD", errno.EOPNOTSUPP)
        self.context = creator
        self._pds = pds = creator._adapter.pds
        self.handle = next((n for n in range(1, MAX_PD + 1) if n not in pds), None)
        if self.handle is None:
            refuse("Failed to allocate PD", errno.ENOMEM)
        pds.add(self.handle)
        self._opened()

    def _follow(self, other):
        super().__init__(other)
        self.context, self.handle = other.context, other.handle
        self._opened()

    def _destroy(self):
        self._pds.discard(self.handle)

    @unsupported("Failed to advise MR")
    def advise_mr(self, advise, flags, sg_list):
        """Advises the kernel about memory of regions with on-demand paging."""

    @unsupported("Failed to import PD")
    def unimport(self):
        """Gives back a domain that was imported."""

    def __str__(self):
        return f"PD {self.handle}"


class ParentDomainContext(PyverbsObject):
    """Functions that are to allocate a parent domain's memory, and what they want to know. The driver does not call
    them: its rings are where devices reach them.
    """

    def __init__(self, pd, alloc_func, free_func, user_data=None):
        self.pd = pd
        self.p_alloc = alloc_func
        self.p_free = free_func
        self.user_data = user_data


class ParentDomainInitAttr(PyverbsObject):
    """What a parent domain is made of; a ``pd_context`` sets the bits of ``comp_mask`` that go with it."""

    def __init__(self, pd, pd_context=None, comp_mask=0):
        must_be("PD", "pd", pd)
        self.pd = pd
        self.pd_context = pd_context
        self.comp_mask = int(comp_mask) | (sum(ibv_parent_domain_init_attr_mask) if pd_context is not None else 0)


class ParentDomain(PD):
    """A domain around another one. What is made under it is in that one, whose ``handle`` it has. It takes allocators,
    and ignores them.
    """

    _rank = 7

    def __init__(self, context, attr):
        failed = "Failed to allocate Parent Domain"
        must_be("Context", "context", context)
        must_be("ParentDomainInitAttr", "attr", attr)
        PyverbsCM.__init__(self, context, attr.pd)
        if attr.pd.context is not context:
            refuse(f"{failed}: the PD is of another context", errno.EINVAL)
        if attr.comp_mask & ~sum(ibv_parent_domain_init_attr_mask):
            refuse(f"{failed}: comp_mask {attr.comp_mask:#x}", errno.EINVAL)
        self.context = context
        self.protection_domain = attr.pd
        self.handle = attr.pd.handle
        self._opened()

    def _destroy(self):
        """The number is the other domain's."""

    def __str__(self):
        return f"Parent domain of {self.protection_domain}"
