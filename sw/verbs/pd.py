"""Protection domains."""

import errno

from .base import PyverbsCM, refuse
from .limits import MAX_PD

__all__ = ["PD"]


class PD(PyverbsCM):
    """Protection domain; ``handle`` is its number in the MPT."""

    _rank = 8

    def __init__(self, context):
        super().__init__(context)
        self.context = context
        self._pds = pds = context._adapter.pds
        self.handle = next((n for n in range(1, MAX_PD + 1) if n not in pds), None)
        if self.handle is None:
            refuse("Failed to allocate PD", errno.ENOMEM)
        pds.add(self.handle)
        self._opened()

    def _destroy(self):
        self._pds.discard(self.handle)

    def advise_mr(self, *args, **kwargs):
        self._check_open()
        refuse("Failed to advise MR", errno.EOPNOTSUPP)

    def __str__(self):
        return f"PD {self.handle}"
