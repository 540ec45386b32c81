"""Shared receive queues, which the engine does not have."""

from copy import copy

from .base import PyverbsObject
from .libibverbs_enums import IBV_OPS_SIGNALED, IBV_SRQT_BASIC, IBV_WR_TAG_ADD
from .unsupported import unsupported

__all__ = ["SRQ", "OpsWr", "SrqAttr", "SrqInitAttr", "SrqInitAttrEx"]


class SrqAttr(PyverbsObject):
    """``struct ibv_srq_attr``."""

    def __init__(self, max_wr=100, max_sge=1, srq_limit=0):
        self.max_wr = max_wr
        self.max_sge = max_sge
        self.srq_limit = srq_limit


def _of(name):
    """A property that reads one attribute of ``attr``."""
    return property(lambda self: getattr(self._attr, name))


class SrqInitAttr(PyverbsObject):
    """What a queue is made of by a PD; ``attr``, a :class:`SrqAttr`, is copied."""

    def __init__(self, attr=None):
        self._attr = SrqAttr() if attr is None else copy(attr)

    max_wr = _of("max_wr")
    max_sge = _of("max_sge")
    srq_limit = _of("srq_limit")


class SrqInitAttrEx(SrqInitAttr):
    """What a queue is made of by a Context."""

    def __init__(self, max_wr=100, max_sge=1, srq_limit=0):
        super().__init__(SrqAttr(max_wr, max_sge, srq_limit))
        self.comp_mask = 0
        self.srq_type = IBV_SRQT_BASIC
        self.pd = self.xrcd = self.cq = None
        self.max_num_tags = self.max_ops = 0


class OpsWr(PyverbsObject):
    """A request about tags: ``struct ibv_ops_wr``."""

    def __init__(
        self,
        wr_id=0,
        opcode=IBV_WR_TAG_ADD,
        flags=IBV_OPS_SIGNALED,
        next_wr=None,
        unexpected_cnt=0,
        recv_wr_id=0,
        num_sge=None,
        tag=0,
        mask=0,
        sg_list=None,
    ):
        self.wr_id = wr_id
        self.opcode = opcode
        self.flags = flags
        self.next_wr = next_wr
        self.unexpected_cnt = unexpected_cnt
        self.recv_wr_id = recv_wr_id
        self.tag = tag
        self.mask = mask
        self.handle = 0
        self.sg_list = list(sg_list or ())[:num_sge]


class SRQ(PyverbsObject):
    """A shared receive queue."""

    @unsupported("Failed to create SRQ")
    def __init__(self, creator, attr):
        """Made by a PD of a :class:`SrqInitAttr`, or by a Context of a :class:`SrqInitAttrEx`."""

    @unsupported("Failed to post receive to SRQ")
    def post_recv(self, wr, bad_wr=None):
        """Posts a list of receive requests."""

    @unsupported("Failed to query SRQ")
    def query(self):
        """Its :class:`SrqAttr`."""

    @unsupported("Failed to modify SRQ")
    def modify(self, attr, comp_mask):
        """Changes its size or its limit."""

    @unsupported("Failed to retrieve SRQ number")
    def get_srq_num(self):
        """Its number."""

    @unsupported("post SRQ ops failed")
    def post_srq_ops(self, wr, bad_wr=None):
        """Posts a list of requests about tags."""
