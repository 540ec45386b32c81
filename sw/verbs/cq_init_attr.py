"""What an extended CQ is made of; :mod:`.cq` hands these out."""

import errno

from .base import PyverbsObject, refuse
from .libibverbs_enums import (
    IBV_WC_STANDARD_FLAGS,
    ibv_cq_init_attr_mask,
    ibv_create_cq_attr_flags,
    ibv_create_cq_wc_flags,
)
from .naming import flags_of, names_of

__all__ = ["CqInitAttrEx", "PollCqAttr", "check_init_attr", "create_wc_flags_to_str"]

M = ibv_cq_init_attr_mask
F = ibv_create_cq_attr_flags


class CqInitAttrEx(PyverbsObject):
    """``struct ibv_cq_init_attr_ex``. ``flags`` counts if ``comp_mask`` has IBV_CQ_INIT_ATTR_MASK_FLAGS; a
    ``parent_domain`` sets IBV_CQ_INIT_ATTR_MASK_PD.
    """

    def __init__(self, cqe=100, channel=None, comp_vector=0, wc_flags=0, comp_mask=0, flags=0, parent_domain=None):
        self.cqe = cqe
        self.cq_context = None
        self.comp_channel = channel
        self.comp_vector = comp_vector
        self.wc_flags = wc_flags
        self.comp_mask = comp_mask if parent_domain is None else comp_mask | M.IBV_CQ_INIT_ATTR_MASK_PD
        self.flags = flags
        self.parent_domain = parent_domain

    def __str__(self):
        return f"{self.cqe} entries, {create_wc_flags_to_str(self.wc_flags)}, {flags_of(F, self.flags)}"


class PollCqAttr(PyverbsObject):
    """``struct ibv_poll_cq_attr``; ``comp_mask`` must be 0."""

    def __init__(self):
        self.comp_mask = 0


def check_init_attr(failed, context, attr):
    """Refuses what no engine can do: EOPNOTSUPP, and EINVAL for what is no attribute."""
    if attr.comp_mask & ~sum(M) or (attr.comp_mask & M.IBV_CQ_INIT_ATTR_MASK_FLAGS and attr.flags & ~sum(F)):
        refuse(f"{failed}: comp_mask {attr.comp_mask:#x}, flags {attr.flags:#x}", errno.EINVAL)
    if attr.wc_flags & ~IBV_WC_STANDARD_FLAGS:
        refuse(f"{failed}: {create_wc_flags_to_str(attr.wc_flags & ~IBV_WC_STANDARD_FLAGS)}", errno.EOPNOTSUPP)
    if attr.comp_mask & M.IBV_CQ_INIT_ATTR_MASK_FLAGS and attr.flags & F.IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN:
        refuse(f"{failed}: {flags_of(F, attr.flags)}", errno.EOPNOTSUPP)
    if attr.comp_mask & M.IBV_CQ_INIT_ATTR_MASK_PD and getattr(attr.parent_domain, "context", None) is not context:
        refuse(f"{failed}: it needs a parent domain of its context", errno.EINVAL)


def create_wc_flags_to_str(flags):
    """Names of the fields that completions are to have."""
    return " ".join(names_of(ibv_create_cq_wc_flags, flags))
