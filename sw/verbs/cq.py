"""Completion queues and completion channels."""

import errno
import socket
import threading
import weakref

from verbena.hdl.abi.cqe import CQE
from verbena.hdl.abi.eqe import EventType

from ..events import phase_at
from .base import PyverbsCM, attempt, bury, must_be, refuse
from .comp_channel import CompChannel
from .cq_init_attr import CqInitAttrEx, PollCqAttr, check_init_attr, create_wc_flags_to_str
from .cq_moderation import ModerateCq, ModifyCqAttr, moderation_of
from .device import AsyncEvent
from .libibverbs_enums import ibv_wc_flags, ibv_wc_opcode
from .limits import MAX_CQE
from .number import within
from .owned_queue import OwnedQueue
from .unsupported import unsupported
from .wc import WC, cqe_flags_to_str, cqe_opcode_to_str, cqe_status_to_str

__all__ = [
    "CQ",
    "CQEX",
    "WC",
    "CompChannel",
    "CqInitAttrEx",
    "ModerateCq",
    "ModifyCqAttr",
    "PollCqAttr",
    "cqe_flags_to_str",
    "cqe_opcode_to_str",
    "cqe_status_to_str",
    "create_wc_flags_to_str",
]

POLL_QUANTUM = 1024
"""Cycles that a simulated device is given when a poll finds nothing: a few round trips of memory."""


class CQ(PyverbsCM):
    """A completion queue that holds ``cqe`` completions or more.

    Closing it closes its QPs, and acknowledges the completion events that it has delivered.
    """

    _rank = 3

    def __init__(self, context, cqe, cq_context=None, channel=None, comp_vector=0):
        self._create("Failed to create a CQ", [context], cqe, cq_context, channel, comp_vector)

    def _create(self, failed, parents, cqe, cq_context, channel, comp_vector):
        context = parents[0]
        must_be("Context", "context", context)
        must_be("CompChannel", "channel", channel, none=True)
        PyverbsCM.__init__(self, *parents, *([] if channel is None else [channel]))
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
        self._ready = OwnedQueue()  # of WCs, by the number of their QP
        self._qps = weakref.WeakValueDictionary()
        self._shared = {}  # number of a QP with an SRQ: where its receives come from, also once the QP is forgotten
        self._unacked_events = 0
        self._lock = threading.RLock()  # the ring does not change under who polls
        log_size = (cqe - 1).bit_length()
        with attempt(failed):
            ring, bus = self._make_ring(log_size)
        self._attributes = {"base": bus, "log_size": log_size, "comp_vector": comp_vector}
        try:
            with attempt(failed):
                self._number = adapter.create_cq(self, **self._attributes)
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
        self._adapter.arm_cq(self._number, solicited_only)

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
            attributes = self._attributes | {"base": bus, "log_size": log_size}
            try:
                with attempt(failed):
                    adapter.modify_cq(self._number, **attributes)
            except Exception:
                adapter.memory.free(ring)
                raise
            self._attributes = attributes
            self._gather()
            adapter.port.unwatch(self._watch)
            adapter.memory.free(self._ring)
            self._use(ring, log_size)

    def modify(self, attr):
        """ibv_modify_cq: moderates completion events, by a :class:`ModifyCqAttr`. An event that waits comes at once.
        EOPNOTSUPP if the device cannot, or for another attribute; EINVAL for a number that is out of range.
        """
        bury()
        self._check_open()
        failed = "Failed to modify CQ"
        limits = moderation_of(failed, self._adapter, attr)
        with self._lock, attempt(failed):
            attributes = self._attributes | limits
            self._adapter.moderate_cq(self._number, **attributes)
            self._attributes = attributes

    def _take(self, count):
        with self._lock:
            self._collect(count)
            return [self._ready.take() for _ in range(min(count, len(self._ready)))]

    def _collect(self, count=1 << 16):
        """Gathers completions, and tells the device how far."""
        with self._lock:
            self._gather(count)
            if self._told != self._consumer:
                self._told = self._consumer
                self._adapter.tell_consumer(self._number, self._consumer)

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
                self._ready.put(entry["qpn"], self._completion(qp, entry))
            elif entry["opcode"] & ibv_wc_opcode.IBV_WC_RECV and entry["qpn"] in self._shared:
                self._shared[entry["qpn"]].complete(entry["wqe_index"])

    def _completion(self, qp, entry):
        length = qp._length(entry)  # before the slot is free, and used again by another thread
        immediate = entry["immediate"]
        if entry["flags"] & ibv_wc_flags.IBV_WC_WITH_INV:
            immediate = socket.ntohl(immediate)
        return WC(
            wr_id=qp._completed(entry),
            status=entry["status"],
            opcode=entry["opcode"],
            vendor_err=entry["syndrome"],
            byte_len=length,
            qp_num=entry["qpn"],
            src_qp=entry["source_qpn"],
            imm_data=immediate,
            wc_flags=entry["flags"],
        )

    def _purge(self, qpn):
        """Forgets the completions of a QP that is destroyed or goes to RESET."""
        with self._lock:
            self._collect()
            self._ready.drop(qpn)

    def _event(self, kind):
        if kind != EventType.COMPLETION:
            self.context._events.put(AsyncEvent(kind, self), self)
        elif self.comp_channel is not None:
            self.comp_channel._events.put(weakref.ref(self), self)

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


_NOT_POLLED = WC()


class CQEX(CQ):
    """A CQ of ``init_attr``, a :class:`CqInitAttrEx`, whose completions are read one field at a time.

    :meth:`start_poll` and :meth:`poll_next` take a completion, whose fields :attr:`status`, :attr:`wr_id` and the
    ``read_`` methods tell until the next is taken; 0 before the first. Each thread has a completion of its own. The
    methods of :class:`CQ` are there as well.
    """

    def __init__(self, context, init_attr=None):
        failed = "Failed to create extended CQ"
        must_be("Context", "context", context)
        must_be("CqInitAttrEx", "init_attr", init_attr, none=True)
        attr = CqInitAttrEx() if init_attr is None else init_attr
        check_init_attr(failed, context, attr)
        parents = [context] if attr.parent_domain is None else [context, attr.parent_domain]
        self._current = threading.local()
        self._create(failed, parents, attr.cqe, attr.cq_context, attr.comp_channel, attr.comp_vector)

    @property
    def _wc(self):
        return getattr(self._current, "wc", _NOT_POLLED)

    def start_poll(self, attr=None):
        """Takes a completion. 0, or ENOENT if there is none; then a simulated device was given some time."""
        if attr is not None and attr.comp_mask:
            return errno.EINVAL
        return self._take_one(self.poll(1)[1])

    def poll_next(self):
        """Takes another completion. 0, or ENOENT if there is none now. Who asks again after that waits for one, so the
        device is given some time then.
        """
        self._check_open()
        dry = getattr(self._current, "dry", False)
        return self._take_one(self.poll(1)[1] if dry else self._take(1))

    def _take_one(self, wcs):
        self._current.dry = not wcs
        if not wcs:
            return errno.ENOENT
        self._current.wc = wcs[0]
        return 0

    def end_poll(self):
        """Ends what :meth:`start_poll` began, when that has returned 0."""
        self._check_open()

    @property
    def status(self):
        """``enum ibv_wc_status`` of the completion."""
        return self._wc.status

    @property
    def wr_id(self):
        """Of the request that is complete."""
        return self._wc.wr_id

    def read_opcode(self):
        """``enum ibv_wc_opcode`` of the completion."""
        return self._wc.opcode

    def read_vendor_err(self):
        """A :class:`verbena.hdl.abi.cqe.Syndrome`."""
        return self._wc.vendor_err

    def read_byte_len(self):
        """Bytes received or read."""
        return self._wc.byte_len

    def read_imm_data(self):
        """Immediate data in network order."""
        return self._wc.imm_data

    def read_qp_num(self):
        """Number of the QP here."""
        return self._wc.qp_num

    def read_src_qp(self):
        """Number of the sender's QP."""
        return self._wc.src_qp

    def read_wc_flags(self):
        """``enum ibv_wc_flags`` of the completion."""
        return self._wc.wc_flags

    def read_slid(self):
        """Source LID, 0 on Ethernet."""
        return self._wc.slid

    def read_sl(self):
        """Service level, 0 on Ethernet."""
        return self._wc.sl

    def read_dlid_path_bits(self):
        """Path bits of the LID, 0 on Ethernet."""
        return self._wc.dlid_path_bits

    @unsupported("Failed to read the timestamp")
    def read_timestamp(self):
        """The device's clock at completion."""

    @unsupported("Failed to read the wall clock")
    def read_completion_wallclock_ns(self):
        """Time of day at completion."""

    @unsupported("Failed to read the VLAN")
    def read_cvlan(self):
        """VLAN tag of the packet."""

    @unsupported("Failed to read the flow tag")
    def read_flow_tag(self):
        """Tag that a flow rule has given."""

    @unsupported("Failed to read tag matching")
    def read_tm_info(self):
        """What tag matching says."""

    def __str__(self):
        return f"Extended {super().__str__()}"
