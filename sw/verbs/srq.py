"""Shared receive queues."""

import errno
import threading
from copy import copy

from verbena.hdl.abi.contexts import QpState
from verbena.hdl.abi.eqe import EventType

from .base import PyverbsCM, PyverbsObject, attempt, bury, must_be, refuse
from .device import AsyncEvent, Context
from .libibverbs_enums import (
    IBV_OPS_SIGNALED,
    IBV_SRQT_BASIC,
    IBV_WR_TAG_ADD,
    ibv_srq_attr_mask,
    ibv_srq_init_attr_mask,
)
from .limits import MAX_SRQ_WR, max_srq_sge
from .naming import flags_of
from .number import within
from .pd import PD
from .pyverbs_error import PyverbsRDMAError, PyverbsUserError
from .shared_queue import SharedQueue, log_stride_of
from .unsupported import unsupported
from .work_queue import sges_of
from .wr import RecvWR

EVENT_STEPS, EVENT_CYCLES = 16, 128
"""How often an event on its way is looked for, and cycles between: memory takes no write for so long."""

__all__ = ["SRQ", "OpsWr", "SrqAttr", "SrqInitAttr", "SrqInitAttrEx"]


class SrqAttr(PyverbsObject):
    """``struct ibv_srq_attr``."""

    def __init__(self, max_wr=100, max_sge=1, srq_limit=0):
        self.max_wr = max_wr
        self.max_sge = max_sge
        self.srq_limit = srq_limit

    def __str__(self):
        return ", ".join(f"{name} {value}" for name, value in vars(self).items())


def _of(name):
    """A property that reads one attribute of ``attr``."""
    return property(lambda self: getattr(self._attr, name))


class SrqInitAttr(PyverbsObject):
    """What a queue is made of by a PD; ``attr``, a :class:`SrqAttr`, is copied. Creation puts the true capacities here.
    The limit does not count.
    """

    def __init__(self, attr=None):
        self._attr = SrqAttr() if attr is None else copy(attr)

    max_wr = _of("max_wr")
    max_sge = _of("max_sge")
    srq_limit = _of("srq_limit")

    def __str__(self):
        return str(self._attr)


class SrqInitAttrEx(SrqInitAttr):
    """What a queue is made of by a Context: ``struct ibv_srq_init_attr_ex``. What ``comp_mask`` does not name does not
    count; it must name the ``pd``.
    """

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


GIVEN = ibv_srq_init_attr_mask
MASK = ibv_srq_attr_mask


def _pd_of(failed, creator, attr):
    """The PD of a queue that ``creator`` is to make of ``attr``."""
    if isinstance(creator, PD):
        if not isinstance(attr, SrqInitAttr):
            raise PyverbsUserError(f"{failed}: of a SrqInitAttr, not {type(attr)}")
        return creator
    if not isinstance(creator, Context):
        raise PyverbsRDMAError(f"{failed}: by a PD or a Context, not {type(creator)}")
    if not isinstance(attr, SrqInitAttrEx):
        raise PyverbsUserError(f"{failed}: a Context makes it of a SrqInitAttrEx, not {type(attr)}")
    mask = int(attr.comp_mask)
    if mask & ~sum(GIVEN):
        refuse(f"{failed}: comp_mask {mask:#x}", errno.EINVAL)
    if absent := mask & ~(GIVEN.IBV_SRQ_INIT_ATTR_TYPE | GIVEN.IBV_SRQ_INIT_ATTR_PD):
        refuse(f"{failed}: {flags_of(GIVEN, absent)}", errno.EOPNOTSUPP)
    if mask & GIVEN.IBV_SRQ_INIT_ATTR_TYPE and attr.srq_type != IBV_SRQT_BASIC:
        refuse(f"{failed}: srq_type {attr.srq_type!r}", errno.EOPNOTSUPP)
    if not mask & GIVEN.IBV_SRQ_INIT_ATTR_PD or getattr(attr.pd, "context", None) is not creator:
        refuse(f"{failed}: it needs a PD of its context", errno.EINVAL)
    return attr.pd


class SRQ(PyverbsCM):
    """A shared receive queue of the basic type, made by a PD of a :class:`SrqInitAttr`, or by a Context of a
    :class:`SrqInitAttrEx`. Queue pairs of its PD have it in their QPInitAttr.

    A request counts as outstanding until its completion has been looked for: also one of a queue pair that has been
    destroyed or reset, whose completions nobody gets. One whose completion did not fit the CQ (IBV_EVENT_CQ_ERR) stays
    so until the end. Closing the queue closes its queue pairs.

    IBV_EVENT_SRQ_LIMIT_REACHED comes once, when fewer requests than the limit wait; then the limit is 0.
    IBV_EVENT_SRQ_ERR says that the device could not read the queue, and takes nothing from it any more.
    """

    _rank = 6

    def __init__(self, creator, attr):
        failed = "Failed to create SRQ"
        self.pd = pd = _pd_of(failed, creator, attr)
        PyverbsCM.__init__(self, pd)
        self.context = pd.context
        self._adapter = adapter = pd.context._adapter
        if not adapter.control.max_srq:
            refuse(f"{failed}: the device has none", errno.EOPNOTSUPP)
        for name, least, most in (("max_wr", 1, MAX_SRQ_WR), ("max_sge", 0, max_srq_sge(adapter.control.wqe_bytes))):
            value = getattr(attr, name)
            if not within(value, least, most):
                refuse(f"{failed}: {name} must be {least} to {most}, not {value!r}", errno.EINVAL)
        log_stride = log_stride_of(max(1, attr.max_sge))
        self._posting = threading.RLock()  # requests of two threads do not mix
        self._limit = 0
        self._unacked_events = 0
        with attempt(failed):
            self._queue = SharedQueue(adapter.memory, attr.max_wr, log_stride)
        try:
            with attempt(failed):
                self._number = adapter.create_srq(self, **self._context_of(0))
        except Exception:
            self._queue.close()
            raise
        self._max_sge = (1 << log_stride - 4) - 1
        attr._attr.max_wr, attr._attr.max_sge = self._queue.size, self._max_sge
        self._opened()

    def _context_of(self, limit):
        """Fields of its context on the device."""
        queue = self._queue
        return {
            "state": QpState.RTS,
            "rq_base": queue.ring_bus,
            "log_rq_size": queue.log_size,
            "log_rq_stride": queue.log_stride,
            "srq_limit": limit,
        }

    def post_recv(self, wr, bad_wr=None):
        """Posts a list of receive work requests.

        ENOMEM: ``max_wr`` are outstanding; EINVAL: the request is wrong. What stands before the bad one is posted, and
        ``bad_wr`` becomes a copy of it.
        """
        self._check_open()
        failed = "Failed to post receive to SRQ"

        def entry(wr):
            if wr.num_sge > self._max_sge:
                refuse(f"{failed}: {wr.num_sge} SGEs", errno.EINVAL)
            return sges_of(wr)

        with self._posting:
            start = self._queue.producer
            try:
                self._queue.post(failed, wr, RecvWR, entry, bad_wr)
            finally:
                if self._queue.producer != start:
                    self._adapter.ring_srq(self._number, self._queue.producer)

    def query(self):
        """Its :class:`SrqAttr`: capacities, and the limit, which is 0 once the event has come."""
        self._check_open()
        self._adapter.process_events()
        return SrqAttr(self._queue.size, self._max_sge, self._limit)

    def modify(self, attr, comp_mask):
        """Sets the limit (IBV_SRQ_LIMIT), which arms the event; 0 disarms it. EINVAL, and nothing changed, for a limit
        above ``max_wr``, and for IBV_SRQ_MAX_WR: the device cannot resize it, and does not have IBV_DEVICE_SRQ_RESIZE.
        """
        bury()
        self._check_open()
        failed = "Failed to modify SRQ"
        mask = int(comp_mask)
        must_be("SrqAttr", "attr", attr)
        if mask & ~sum(MASK):
            refuse(f"{failed}: comp_mask {mask:#x}", errno.EINVAL)
        if mask & MASK.IBV_SRQ_MAX_WR:
            refuse(f"{failed}: the device does not resize it", errno.EINVAL)
        if not mask & MASK.IBV_SRQ_LIMIT:
            return
        if not within(attr.srq_limit, 0, self._queue.size):
            refuse(f"{failed}: srq_limit must be 0 to {self._queue.size}, not {attr.srq_limit!r}", errno.EINVAL)
        self._adapter.process_events()  # an event of the limit before
        if self._limit:
            self._disarm(failed)
        before = self._limit
        self._limit = attr.srq_limit  # first: the event may come during the command
        try:
            with attempt(failed):
                self._adapter.modify_srq(self._number, **self._context_of(attr.srq_limit))
        except Exception:
            self._limit = before
            raise

    def _disarm(self, failed):
        """Takes the limit back. Its event may become visible after the command, and must not count as one of the next
        limit.
        """
        with attempt(failed):
            self._adapter.modify_srq(self._number, **self._context_of(0))
        for _ in range(EVENT_STEPS):
            self._adapter.process_events()
            if not self._limit or not self._adapter.port.advance(EVENT_CYCLES):
                break
        self._adapter.process_events()
        self._limit = 0

    def get_srq_num(self):
        """Its number, from 0 on."""
        self._check_open()
        return self._number

    @unsupported("post SRQ ops failed")
    def post_srq_ops(self, wr, bad_wr=None):
        """Posts a list of requests about tags."""

    def _event(self, kind):
        if kind == EventType.SRQ_LIMIT_REACHED:
            self._limit = 0
        self.context._events.put(AsyncEvent(kind, self), self)

    def _may_close(self):
        if self._unacked_events:
            refuse(f"Failed to destroy SRQ: {self._unacked_events} async events are unacknowledged", errno.EBUSY)

    def _destroy(self):
        self._adapter.destroy_srq(self._number)
        self._queue.close()
        self.context._forget_events(self)

    def __str__(self):
        return f"SRQ {self._number}: {self._queue.size} WRs of {self._max_sge} SGEs"
