"""Protection domains."""

import errno

from .base import PyverbsCM, refuse

__all__ = ["PD"]


class PD(PyverbsCM):
    """Protection domain; ``handle`` is its number in the MPT."""

    _rank = 8

    def __init__(self, context):
        super().__init__(context)
        self.context = context
        pds = context._adapter.pds
        self.handle = next((n for n in range(1, 1 << 24) if n not in pds), None)
        if self.handle is None:
            refuse("Failed to allocate PD", errno.ENOMEM)
        pds.add(self.handle)

    def _destroy(self):
        self.context._adapter.pds.discard(self.handle)

    def advise_mr(self, *args, **kwargs):
        refuse("advise_mr is not supported", errno.EOPNOTSUPP)
