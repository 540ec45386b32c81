"""Moderation of completion events and of interrupts; :mod:`.cq` hands out what concerns CQs."""

import errno

from verbena.hdl.abi.contexts import CQ_CONTEXT
from verbena.hdl.abi.registers import MODERATION_NS

from .base import PyverbsObject, refuse
from .libibverbs_enums import IBV_CQ_ATTR_MODERATE
from .number import within

__all__ = [
    "MAX_CQ_COUNT",
    "MAX_CQ_PERIOD",
    "MAX_INTERVAL",
    "ModerateCq",
    "ModifyCqAttr",
    "interval_of",
    "moderation_of",
    "period_of",
]

MAX_CQ_COUNT = CQ_CONTEXT.fields["cq_count"].mask
MAX_CQ_PERIOD = CQ_CONTEXT.fields["cq_period"].mask
"""Microseconds."""

MAX_INTERVAL = 65535
"""Microseconds between two interrupts."""


class ModerateCq(PyverbsObject):
    """``struct ibv_moderate_cq``: an event comes when ``cq_count`` completions are there, or ``cq_period`` microseconds
    after the first of them. With a ``cq_period`` of 0 it comes at the first one, with a ``cq_count`` of 0 only the time
    counts.
    """

    def __init__(self, cq_count=0, cq_period=0):
        self.cq_count = cq_count
        self.cq_period = cq_period


class ModifyCqAttr(PyverbsObject):
    """``struct ibv_modify_cq_attr``."""

    def __init__(self, attr_mask=IBV_CQ_ATTR_MODERATE, moderate=None):
        self.attr_mask = attr_mask
        self.moderate = ModerateCq() if moderate is None else moderate


def period_of(microseconds):
    """The same in units of the device, rounded down, but 1 at least if it is not 0."""
    return max(1, microseconds * 1000 // MODERATION_NS) if microseconds else 0


def interval_of(microseconds):
    """The same in units of the device, rounded up."""
    return -(-microseconds * 1000 // MODERATION_NS)


def moderation_of(failed, adapter, attr):
    """The attributes of a CQ's context that ``attr`` gives it."""
    if not attr.attr_mask:
        refuse(f"{failed}: attr_mask is 0", errno.EINVAL)
    if attr.attr_mask != IBV_CQ_ATTR_MODERATE or not adapter.control.cq_moderation:
        refuse(f"{failed}: attr_mask {attr.attr_mask:#x}", errno.EOPNOTSUPP)
    count, period = attr.moderate.cq_count, attr.moderate.cq_period
    if not within(count, 0, MAX_CQ_COUNT) or not within(period, 0, MAX_CQ_PERIOD):
        refuse(
            f"{failed}: cq_count must be 0 to {MAX_CQ_COUNT}, not {count!r}, "
            f"and cq_period 0 to {MAX_CQ_PERIOD}, not {period!r}",
            errno.EINVAL,
        )
    return {"cq_count": count, "cq_period": period_of(period)}
