"""Completion queues and completion channels."""

import errno
import threading
import weakref
from collections import deque

from verbena.hdl.abi.cqe import CQE
from verbena.hdl.abi.eqe import EventType
from verbena.hdl.abi.registers import CqDoorbell

from ..adapter import phase_at
from .base import PyverbsCM, PyverbsObject, attempt, bury, refuse
from .device import AsyncEvent
from .event_queue import EventQueue
from .libibverbs_enums import ibv_wc_status
from .limits import MAX_CQE
from .number import within
from .waiting import glance, wait_for

__all__ = ["CQ", "WC", "CompChannel"]

POLL_QUANTUM = 1024
"""Cycles that a simulated device is given when a poll finds nothing: a few round trips of memory."""


class WC(PyverbsObject):
    """A work completion. If ``status`` is not 0, only wr_id, status, qp_num and vendor_err count.

    ``vendor_err`` is a :class:`verbena.hdl.abi.cqe.Syndrome`; ``imm_data`` is in network order.
    """

    def __init__(
        self,
        wr_id=0,
        status=0,
        opcode=0,
        vendor_err=0,
        byte_len=0,
        qp_num=0,
        src_qp=0,
        imm_data=0,
        wc_flags=0,
        pkey_index=0,
        slid=0,
        sl=0,
        dlid_path_bits=0,
    ):
        self.wr_id = wr_id
        self.status = status
        self.opcode = opcode
        self.vendor_err = vendor_err
        self.byte_len = byte_len
        self.qp_num = qp_num
        self.src_qp = src_qp
        self.imm_data = imm_data
        self.wc_flags = wc_flags
        self.pkey_index = pkey_index
        self.slid = slid
        self.sl = sl
        self.dlid_path_bits = dlid_path_bits

    def __repr__(self):
        status = ibv_wc_status(self.status).name if self.status in set(ibv_wc_status) else self.status
        return (
            f"WC(wr_id={self.wr_id}, status={status}, opcode={self.opcode}, qp_num={self.qp_num:#x}, "
            f"byte_len={self.byte_len}, vendor_err={self.vendor_err})"
        )


class CompChannel(PyverbsCM):
    """Delivers completion events of the CQs made with it."""

    _rank = 4

    def __init__(self, context):
        super().__init__(context)
        self.context = context
        self._events = EventQueue()  # weak references to CQs
        self._opened()

    @property
    def fd(self):
        """A file descriptor that is readable while there is an event for :meth:`get_cq_event`, for ``select``, ``poll``
        and ``asyncio``.

        Time of a simulated device passes only inside calls, so in ``select`` nothing happens by itself: another thread
        of the program must give the device time, by a verb that polls or waits, or by :meth:`.Context.advance`.
        """
        self._check_open()
        return self._events.fileno()

    def get_cq_event(self, expected_cq=None):
        """Waits for an event and returns its CQ, which must acknowledge it (:meth:`CQ.ack_events`).

        EDEADLK if none can come any more (:func:`.waiting.wait_for`); an event of another CQ than ``expected_cq`` is an
        error. EAGAIN if there is none and :attr:`fd` does not block.
        """
        bury()
        self._check_open()
        failed = "Failed to get CQ event"
        if self._events.blocking:
            cq = wait_for(self.context._adapter, lambda: bool(self._events), self._take, failed)
        else:
            cq = glance(self.context._adapter, self._take, failed)
        cq.num_events += 1
        if expected_cq is not None and cq is not expected_cq:
            refuse("Received event on an unexpected CQ", errno.EINVAL)
        return cq

    def _take(self):
        self._check_open()
        while (event := self._events.take()) is not None:
            if (cq := event()) is not None:
                return cq
        return None

    def _forget_events(self, cq):
        self._events.drop(lambda event: event() in (cq, None))

    def _destroy(self):
        self._events.close()


class CQ(PyverbsCM):
    """A completion queue that holds ``cqe`` completions or more.

    Closing it closes its QPs, and acknowledges the completion events that it has delivered.
    """

    _rank = 3

    def __init__(self, context, cqe, cq_context=None, channel=None, comp_vector=0):
        super().__init__(*([context] if channel is None else [context, channel]))
        failed = "Failed to create a CQ"
        cqe = int(cqe)
        if not 1 <= cqe <= MAX_CQE:
            refuse(f"{failed}: cqe must be 1 to {MAX_CQE}, not {cqe!r}", errno.EINVAL)
        if not within(comp_vector, 0, context.num_comp_vectors - 1):
            refuse(f"{failed}: there is no comp_vector {comp_vector!r}", errno.EINVAL)
        if channel is not None and channel.context is not context:
            refuse(f"{failed}: the channel is of another context", errno.EINVAL)
        self.context = context
        self.cq_context = cq_context
        self.comp_channel = channel
        self.num_events = 0
        self._adapter = adapter = context._adapter
        self._ready = deque()
        self._qps = weakref.WeakValueDictionary()
        self._unacked_events = 0
        self._lock = threading.RLock()  # the ring does not change under who polls
        log_size = (cqe - 1).bit_length()
        with attempt(failed):
            ring, bus = self._make_ring(log_size)
        try:
            with attempt(failed):
                self._number = adapter.create_cq(self, bus, log_size)
        except Exception:
            adapter.memory.free(ring)
            raise
        self._use(ring, log_size)
        self._opened()

    def _make_ring(self, log_size):
        """Address and bus address of a ring in which nothing is complete."""
        size = CQE.size << log_size
        ring, bus = self._adapter.memory.alloc_contiguous(max(4096, size))
        self._adapter.memory.write(ring, bytes(size))
        return ring, bus

    def _use(self, ring, log_size):
        """The device writes to this ring now, from its first entry on."""
        self._ring, self._log_size = ring, log_size
        self._consumer = self._told = 0
        self._watch = self._adapter.port.watch(ring, CQE.size << log_size)

    @property
    def cqe(self):
        """Completions that there is room for."""
        return 1 << self._log_size

    def poll(self, num_entries=1):
        """Up to ``num_entries`` completions: ``(n, [WC])``. When there is none, a simulated device is given some time
        first.
        """
        bury()
        self._check_open()
        if not within(num_entries, 0, MAX_CQE * 2):
            refuse(f"Failed to poll CQ: num_entries must be 0 to {MAX_CQE * 2}, not {num_entries!r}", errno.EINVAL)
        taken = self._take(num_entries)
        if not taken:
            self._adapter.advance(POLL_QUANTUM)
            taken = self._take(num_entries)
        return len(taken), taken

    def req_notify(self, solicited_only=False):
        """Asks for one event at the next completion, or at the next solicited or failed one."""
        self._check_open()
        self._adapter.ring_cq(self._number, CqDoorbell.ARM, 2 if solicited_only else 1)

    def ack_events(self, num_events):
        """Tells that ``num_events`` events of the channel have been dealt with."""
        self._check_open()
        if not within(num_events, 0, self.num_events):
            refuse(f"Failed to ack {num_events} CQ events: {self.num_events} are unacknowledged", errno.EINVAL)
        self.num_events -= num_events

    def resize(self, cqe):
        """Makes room for ``cqe`` completions or more; those that are not polled yet stay, and take none of it. Events
        and arming stay, too. EINVAL: ``cqe`` is less than what is not polled, or more than a CQ can hold.
        """
        bury()
        self._check_open()
        failed = "Failed to resize CQ"
        cqe = int(cqe)
        adapter = self._adapter
        with self._lock:
            self._collect()
            if not 1 <= cqe <= MAX_CQE or cqe < len(self._ready):
                refuse(f"{failed} to {cqe} with {len(self._ready)} completions", errno.EINVAL)
            log_size = (cqe - 1).bit_length()
            if log_size == self._log_size:
                return
            with attempt(failed):
                ring, bus = self._make_ring(log_size)
            try:
                with attempt(failed):
                    adapter.modify_cq(self._number, bus, log_size)
            except Exception:
                adapter.memory.free(ring)
                raise
            self._gather()
            adapter.port.unwatch(self._watch)
            adapter.memory.free(self._ring)
            self._use(ring, log_size)

    def _take(self, count):
        with self._lock:
            self._collect(count)
            return [self._ready.popleft() for _ in range(min(count, len(self._ready)))]

    def _collect(self, count=1 << 16):
        """Gathers completions, and tells the device how far."""
        with self._lock:
            self._gather(count)
            if self._told != self._consumer:
                self._told = self._consumer
                self._adapter.ring_cq(self._number, CqDoorbell.CONSUMER, self._consumer)

    def _gather(self, count=1 << 16):
        """Moves completions from the ring to the list of the ready, until that holds ``count``."""
        memory = self._adapter.memory
        while len(self._ready) < count:
            at = self._ring + CQE.size * (self._consumer & self.cqe - 1)
            if phase_at(memory, at, CQE) == self._consumer >> self._log_size & 1:
                break
            entry = CQE.unpack(memory.read(at, CQE.size))
            self._consumer = self._consumer + 1 & 0xFFFF
            qp = self._qps.get(entry["qpn"])
            if qp is not None:
                self._ready.append(self._completion(qp, entry))

    def _completion(self, qp, entry):
        return WC(
            wr_id=qp._completed(entry),
            status=entry["status"],
            opcode=entry["opcode"],
            vendor_err=entry["syndrome"],
            byte_len=qp._length(entry),
            qp_num=entry["qpn"],
            src_qp=entry["source_qpn"],
            imm_data=entry["immediate"],
            wc_flags=entry["flags"],
        )

    def _purge(self, qpn):
        """Forgets the completions of a QP that is destroyed or goes to RESET."""
        with self._lock:
            self._collect()
            self._ready = deque(wc for wc in self._ready if wc.qp_num != qpn)

    def _event(self, kind):
        if kind != EventType.COMPLETION:
            self.context._events.put(AsyncEvent(kind, self))
        elif self.comp_channel is not None:
            self.comp_channel._events.put(weakref.ref(self))

    def _may_close(self):
        if self._unacked_events:
            refuse(f"Failed to destroy CQ: {self._unacked_events} async events are unacknowledged", errno.EBUSY)

    def _destroy(self):
        self._adapter.destroy_cq(self._number)
        self._adapter.port.unwatch(self._watch)
        self._adapter.memory.free(self._ring)
        self.context._forget_events(self)
        if self.comp_channel is not None:
            self.comp_channel._forget_events(self)

    def __str__(self):
        return f"CQ {self._number}: {self.cqe} entries"
