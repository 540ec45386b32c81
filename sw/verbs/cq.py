"""Completion queues and completion channels."""

import errno
from collections import deque

from verbena.hdl.abi.cqe import CQE
from verbena.hdl.abi.eqe import EventType
from verbena.hdl.abi.registers import CqDoorbell

from .base import PyverbsCM, PyverbsObject, attempt, refuse
from .device import EVENT_QUANTUM, MAX_CQE, AsyncEvent

__all__ = ["CQ", "WC", "CompChannel"]

POLL_QUANTUM = 1024
"""Cycles that a simulated device is given when a poll finds nothing: a few round trips of memory."""


class WC(PyverbsObject):
    """A work completion. If ``status`` is not 0, only wr_id, status, qp_num and vendor_err count."""

    def __init__(
        self, wr_id=0, status=0, opcode=0, vendor_err=0, byte_len=0, qp_num=0, src_qp=0, imm_data=0, wc_flags=0
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
        self.pkey_index = self.slid = self.sl = self.dlid_path_bits = 0

    def __repr__(self):
        return (
            f"WC(wr_id={self.wr_id}, status={self.status}, opcode={self.opcode}, qp_num={self.qp_num:#x}, "
            f"byte_len={self.byte_len})"
        )


class CompChannel(PyverbsCM):
    """Delivers completion events of the CQs made with it."""

    _rank = 4

    def __init__(self, context):
        super().__init__(context)
        self.context = context
        self._events = deque()

    def get_cq_event(self, expected_cq=None):
        """Waits for an event and returns its CQ.

        EDEADLK if none can come any more; an event of another CQ than ``expected_cq`` is an error.
        """
        adapter = self.context._adapter
        while not self._events:
            if not adapter.advance(EVENT_QUANTUM) and not self._events:
                refuse("Failed to get a CQ event: the device is idle", errno.EDEADLK)
        cq = self._events.popleft()
        if expected_cq is not None and cq is not expected_cq:
            refuse("Received an event of an unexpected CQ", errno.EINVAL)
        return cq

    def _destroy(self):
        self._events.clear()


class CQ(PyverbsCM):
    """A completion queue that holds ``cqe`` completions or more."""

    _rank = 3

    def __init__(self, context, cqe, cq_context=None, channel=None, comp_vector=0):
        failed = "Failed to create a CQ"
        cqe = int(cqe)
        if not 1 <= cqe <= MAX_CQE or not 0 <= comp_vector < context.num_comp_vectors:
            refuse(failed, errno.EINVAL)
        self.context = context
        self.cq_context = cq_context
        self.comp_channel = channel
        self._adapter = context._adapter
        self._log_size = cqe.bit_length()  # room for one more than asked for
        self.cqe = (1 << self._log_size) - 1
        self._ring, bus = attempt(failed, self._adapter.memory.alloc_contiguous, CQE.size << self._log_size)
        self._adapter.memory.write(self._ring, bytes(CQE.size << self._log_size))
        self._number = attempt(failed, self._adapter.create_cq, self, bus, self._log_size)
        self._watch = self._adapter.port.watch(self._ring, CQE.size << self._log_size)
        self._consumer = 0
        self._told = 0
        self._ready = deque()
        self._qps = {}
        self._unacked_events = 0
        super().__init__(*([context] if channel is None else [context, channel]))

    def poll(self, num_entries=1):
        """Up to ``num_entries`` completions: ``(n, [WC])``. When there is none, a simulated device is given some time
        first.
        """
        taken = self._take(num_entries)
        if not taken:
            self._adapter.advance(POLL_QUANTUM)
            taken = self._take(num_entries)
        return len(taken), taken

    def req_notify(self, solicited_only=False):
        """Asks for one event at the next completion, or at the next solicited or failed one."""
        self._adapter.ring_cq(self._number, CqDoorbell.ARM, 2 if solicited_only else 1)

    def ack_events(self, num_events):
        """Tells that ``num_events`` events of the channel have been dealt with."""
        self._unacked_events -= num_events

    def resize(self, cqe):
        """Accepts any size that holds what is unpolled and that the ring has room for; larger: EOPNOTSUPP."""
        self._collect()
        if not 1 <= cqe <= MAX_CQE or cqe < len(self._ready):
            refuse("Failed to resize CQ", errno.EINVAL)
        if cqe > self.cqe:
            refuse("Failed to resize CQ: it cannot grow", errno.EOPNOTSUPP)

    def _take(self, count):
        self._collect(count)
        return [self._ready.popleft() for _ in range(min(count, len(self._ready)))]

    def _collect(self, count=1 << 16):
        """Moves completions from the ring to the list of the ready, until that holds ``count``."""
        memory = self._adapter.memory
        size = 1 << self._log_size
        while len(self._ready) < count:
            entry = CQE.unpack(memory.read(self._ring + CQE.size * (self._consumer & size - 1), CQE.size))
            if entry["phase"] == self._consumer >> self._log_size & 1:
                break
            self._consumer = self._consumer + 1 & 0xFFFF
            qp = self._qps.get(entry["qpn"])
            if qp is not None:
                self._ready.append(self._completion(qp, entry))
        if self._told != self._consumer:
            self._told = self._consumer
            self._adapter.ring_cq(self._number, CqDoorbell.CONSUMER, self._consumer)

    def _completion(self, qp, entry):
        return WC(
            wr_id=qp._completed(entry),
            status=entry["status"],
            opcode=entry["opcode"],
            vendor_err=entry["syndrome"],
            byte_len=entry["byte_length"],
            qp_num=entry["qpn"],
            src_qp=entry["source_qpn"],
            imm_data=entry["immediate"],
            wc_flags=entry["flags"],
        )

    def _purge(self, qpn):
        """Forgets the completions of a QP that goes to RESET."""
        self._collect()
        self._ready = deque(wc for wc in self._ready if wc.qp_num != qpn)

    def _event(self, kind):
        self._unacked_events += 1
        if kind == EventType.COMPLETION:
            if self.comp_channel is not None:
                self.comp_channel._events.append(self)
            else:
                self._unacked_events -= 1
        else:
            self.context._events.append(AsyncEvent(kind, self))

    def close(self):
        if not self._closed and self._qps:
            # As a parent the context destroys QPs before CQs; a CQ alone may not go before them.
            refuse("Failed to destroy a CQ", errno.EBUSY)
        super().close()

    def __del__(self):
        # Garbage comes in any order; the adapter's own records keep the ring alive until its QPs are gone.
        if not getattr(self, "_closed", True) and not self._qps:
            self.close()

    def _destroy(self):
        self._adapter.port.unwatch(self._watch)
        self._adapter.destroy_cq(self._number)
        self._adapter.memory.free(self._ring)
