"""Receive work queues on their own, which the engine does not have."""

from .base import PyverbsObject
from .libibverbs_enums import IBV_WQT_RQ
from .unsupported import unsupported

__all__ = ["WQ", "WQAttr", "WQInitAttr"]


class WQInitAttr(PyverbsObject):
    """``struct ibv_wq_init_attr``."""

    def __init__(
        self,
        wq_context=None,
        wq_pd=None,
        wq_cq=None,
        wq_type=IBV_WQT_RQ,
        max_wr=100,
        max_sge=1,
        comp_mask=0,
        create_flags=0,
    ):
        self.wq_context = wq_context
        self.pd = wq_pd
        self.cq = wq_cq
        self.wq_type = wq_type
        self.max_wr = max_wr
        self.max_sge = max_sge
        self.comp_mask = comp_mask
        self.create_flags = create_flags


class WQAttr(PyverbsObject):
    """``struct ibv_wq_attr``."""

    def __init__(self, attr_mask=0, wq_state=0, curr_wq_state=0, flags=0, flags_mask=0):
        self.attr_mask = attr_mask
        self.wq_state = wq_state
        self.curr_wq_state = curr_wq_state
        self.flags = flags
        self.flags_mask = flags_mask


class WQ(PyverbsObject):
    """A receive work queue."""

    @unsupported("Failed to create WQ")
    def __init__(self, ctx, attr):
        """Creates it."""

    @unsupported("Failed to modify WQ")
    def modify(self, wq_attr):
        """Changes its state or flags."""

    @unsupported("Failed to post recv")
    def post_recv(self, wr, bad_wr=None):
        """Posts a list of receive requests."""
