"""XRC domains, which the engine does not have."""

from .base import PyverbsObject
from .unsupported import unsupported

__all__ = ["XRCD", "XRCDInitAttr"]


class XRCDInitAttr(PyverbsObject):
    """``struct ibv_xrcd_init_attr``."""

    def __init__(self, comp_mask, oflags, fd):
        self.comp_mask = comp_mask
        self.oflags = oflags
        self.fd = fd


class XRCD(PyverbsObject):
    """An XRC domain."""

    @unsupported("Failed to allocate XRCD")
    def __init__(self, context, init_attr):
        """Opens it."""
