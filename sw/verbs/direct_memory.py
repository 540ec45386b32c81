"""Memory of the device itself, which the engine does not have; :mod:`.device` hands these out."""

from .base import PyverbsObject
from .unsupported import unsupported

__all__ = ["DM", "AllocDmAttr"]


class AllocDmAttr(PyverbsObject):
    """``struct ibv_alloc_dm_attr``."""

    def __init__(self, length, log_align_req=0, comp_mask=0):
        self.length = length
        self.log_align_req = log_align_req
        self.comp_mask = comp_mask


class DM(PyverbsObject):
    """Memory of the device."""

    @unsupported("Failed to allocate device memory")
    def __init__(self, context, dm_attr):
        """Allocates it."""
