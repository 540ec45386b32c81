"""Memory of GPUs and other accelerators, shared by files: there is none that the adapter reaches."""

from enum import Enum

from .base import PyverbsObject
from .unsupported import unsupported

__all__ = ["DmaBuf", "DrmDmaBuf", "HabanaLabsDmaBuf"]


class GpuType(Enum):
    """Whose memory."""

    drm = 0
    habana = 1


class DmaBuf(PyverbsObject):
    """A buffer of such memory."""

    @unsupported("Failed to allocate dmabuf")
    def __init__(self, size):
        pass


class DrmDmaBuf(DmaBuf):
    """A buffer of a GPU."""

    @unsupported("Failed to allocate dmabuf")
    def __init__(self, size, gpu=0, gtt=0):
        pass


class HabanaLabsDmaBuf(DmaBuf):
    """A buffer of a Gaudi accelerator."""

    @unsupported("Failed to allocate HL dmabuf")
    def __init__(self, size):
        pass
