"""Queue pairs."""

import errno
import threading
from copy import copy, deepcopy
from itertools import pairwise

from verbena.hdl.abi.eqe import EventType
from verbena.hdl.abi.registers import QpDoorbell
from verbena.hdl.abi.wqe import PUSH_MAX

from ..groups import is_group
from .addr import GID
from .base import PyverbsCM, attempt, bury, must_be, refuse
from .datagram import grh_of, way_of, with_route
from .device import AsyncEvent
from .key_requests import KEY_OPCODES, bind_request, check_bind, key_wqe, posted
from .libibverbs_enums import (
    IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
    ibv_mw_type,
    ibv_qp_attr_mask,
    ibv_qp_state,
    ibv_qp_type,
    ibv_wc_flags,
    ibv_wc_opcode,
    ibv_wr_opcode,
)
from .pyverbs_error import PyverbsRDMAError
from .qp_attr import (
    FIELDS,
    KEY_OPS,
    SEND_OPS,
    QPAttr,
    QPCap,
    QPInitAttr,
    QPInitAttrEx,
    check_values,
)
from .qp_context import action_of, context_of
from .qp_creation import check_init_attr, log_strides, pd_of, send_capacities
from .states import TRANSITIONS, check_transition
from .unsupported import unsupported
from .utils import qp_state_to_str, qp_type_to_str
from .work_queue import WorkQueue, recv_wqe, send_wqe
from .wr import RecvWR, SendRequest, SendWR
from .wr_builder import DataBuffer, WrBuilder

__all__ = ["QP", "DataBuffer", "QPAttr", "QPCap", "QPEx", "QPInitAttr", "QPInitAttrEx"]

M = ibv_qp_attr_mask
S = ibv_qp_state
_RETURNING = (ibv_wc_opcode.IBV_WC_RDMA_READ, ibv_wc_opcode.IBV_WC_COMP_SWAP, ibv_wc_opcode.IBV_WC_FETCH_ADD)
SENDS = (ibv_wr_opcode.IBV_WR_SEND, ibv_wr_opcode.IBV_WR_SEND_WITH_IMM)
_NO_SENDS = (S.IBV_QPS_RESET, S.IBV_QPS_INIT, S.IBV_QPS_RTR)
_RISE = (S.IBV_QPS_RESET, S.IBV_QPS_INIT, S.IBV_QPS_RTR, S.IBV_QPS_RTS)
_CONNECTED = (S.IBV_QPS_RTR, S.IBV_QPS_RTS, S.IBV_QPS_SQD, S.IBV_QPS_SQE)


class QP(PyverbsCM):
    """A queue pair of type RC, UC, UD or RAW_PACKET, made by a PD of a :class:`QPInitAttr`, or by a Context of a
    :class:`QPInitAttrEx`. With ``qp_attr`` it starts in INIT, or in RTS if it is UD or RAW_PACKET.

    What a raw packet queue sends is a whole Ethernet frame, of 14 to 4096 bytes without FCS; one that is shorter than
    60 goes out with zeros behind it, a longer one completes with IBV_WC_LOC_LEN_ERR. It receives frames, whole as well,
    once a :class:`.flow.Flow` leads them to it.

    A device with more QPs than slots may lose one, if its record in host memory is overwritten or cannot be read: the
    event is IBV_EVENT_QP_FATAL, and the QP is in ERR for good. What is posted to it never completes, PSNs are 0, and
    :meth:`modify` raises EIO; it can only be closed.
    """

    _rank = 1
    _qp1 = False
    """Whether it is the general services' (:class:`verbena.sw.cm.management_qp.ManagementQP`)."""

    def __init__(self, creator, init_attr, qp_attr=None):
        failed = "Failed to create QP"
        must_be("QPInitAttr", "init_attr", init_attr)
        must_be("QPAttr", "qp_attr", qp_attr, none=True)
        pd = pd_of(failed, creator, init_attr)
        check_init_attr(failed, pd, init_attr)
        self._scq, self._rcq, self._srq = init_attr.send_cq, init_attr.recv_cq, init_attr.srq
        PyverbsCM.__init__(self, pd, *self._cqs, *([] if self._srq is None else [self._srq]))
        self.pd = pd
        self.context = pd.context
        self._adapter = self.context._adapter
        self.qp_type = init_attr.qp_type
        self._qp_context = init_attr.qp_context
        self._sq_sig_all = init_attr.sq_sig_all
        self._unacked_events = 0
        self._posting = threading.RLock()  # requests of two threads do not mix
        self._draining = self._tell_drained = False
        self._qpn = 0
        self._dest_mac = 0
        self._port_mtu = self.context.query_port(1).active_mtu
        with attempt(failed):
            self._create(init_attr.cap)
        init_attr.cap = self._cap
        for cq in self._cqs:
            cq._qps[self._qpn] = self
        if self._srq is not None:
            self._rcq._shared[self._qpn] = self._rq
        self._opened()
        if qp_attr is not None:
            try:
                (self.to_rts if self._datagrams or self._raw else self.to_init)(qp_attr)
            except Exception:
                self._end()
                raise

    def _create(self, cap):
        most = send_capacities(self.qp_type, self._adapter)
        send_stride, recv_stride = log_strides(cap, most)
        memory = self._adapter.memory
        sges, inline = most[send_stride]
        self._sq = WorkQueue(memory, max(1, cap.max_send_wr), send_stride)
        try:
            if self._srq is None:
                self._rq = WorkQueue(memory, max(1, cap.max_recv_wr), recv_stride)
                self._cap = QPCap(self._sq.size, self._rq.size, sges, 1 << recv_stride - 4, inline)
            else:
                self._rq = self._srq._queue
                self._cap = QPCap(self._sq.size, 0, sges, 0, inline)
        except Exception:
            self._sq.close()
            raise
        self._attr = QPAttr(qp_state=S.IBV_QPS_RESET)
        try:
            self._qpn = self._adapter.create_qp(self, qp1=self._qp1, **context_of(self, self._attr))
        except Exception:
            self._close_rings()
            raise

    def _close_rings(self):
        self._sq.close()
        if self._srq is None:
            self._rq.close()

    # State

    @property
    def qp_num(self):
        return self._qpn

    @property
    def qp_state(self):
        """The state that the device has it in."""
        self._check_open()
        with attempt("Failed to query QP"):
            return S(self._adapter.qp_state(self._qpn))

    @property
    def peer(self):
        """Verbena's own: address (IPv4, a number) and number of the QP that this one is connected with, or None."""
        if self._datagrams or self._raw or self._attr.qp_state not in (S.IBV_QPS_RTR, S.IBV_QPS_RTS, S.IBV_QPS_SQD):
            return None
        return self._attr.ah_attr.gr._dgid.ipv4, self._attr.dest_qp_num

    @property
    def _datagrams(self):
        return self.qp_type == ibv_qp_type.IBV_QPT_UD

    @property
    def _raw(self):
        return self.qp_type == ibv_qp_type.IBV_QPT_RAW_PACKET

    @property
    def _cqs(self):
        return tuple(dict.fromkeys((self._scq, self._rcq)))

    def modify(self, qp_attr, comp_mask):
        """Changes the attributes named by ``comp_mask``; EINVAL, and nothing changed, if they do not belong to the
        transition.
        """
        bury()
        must_be("QPAttr", "qp_attr", qp_attr)
        self._modify(qp_attr, int(comp_mask), self.qp_state)

    def _modify(self, attr, mask, current):
        """Changes the attributes named by ``mask`` of a QP that is in state ``current``."""
        failed = "Failed to modify QP"
        new = attr.qp_state if mask & M.IBV_QP_STATE else current
        if mask & M.IBV_QP_CUR_STATE and (attr.cur_qp_state not in _CONNECTED or attr.cur_qp_state != current):
            refuse(f"{failed}: cur_qp_state", errno.EINVAL)
        if why := check_transition(self.qp_type, current, new, mask):
            refuse(f"{failed}: {why}", errno.EINVAL)
        check_values(attr, mask, self._adapter.gids, self._adapter.pkeys)
        merged = copy(self._attr)
        for bit, name in FIELDS.items():
            if mask & bit:
                setattr(merged, name, deepcopy(getattr(attr, name)))
        merged.qp_state = S(new)
        most = getattr(self._adapter.port, "mtu", None)
        if most is not None and mask & M.IBV_QP_PATH_MTU and 128 << int(attr.path_mtu) > most:
            refuse(f"{failed}: the network carries an MTU of {most}, not {128 << int(attr.path_mtu)}", errno.EINVAL)
        if (current, new) == (S.IBV_QPS_SQE, S.IBV_QPS_RTS):
            with attempt(failed):
                merged.sq_psn = self._adapter.settle_sends(self._qpn, self._sq.producer)
        dest_mac = self._dest_mac
        if mask & M.IBV_QP_AV:
            with attempt(failed):
                route = merged.ah_attr.gr
                self._dest_mac = self._adapter.control.resolve_gid(int(route._dgid), route.sgid_index)
        try:
            with attempt(failed):
                self._adapter.modify_qp(self._qpn, action_of(current, new), **context_of(self, merged))
        except PyverbsRDMAError:
            self._dest_mac = dest_mac
            raise
        self._attr = merged
        if new == S.IBV_QPS_SQD and current != new:
            self._draining = True
            self._tell_drained = bool(attr.en_sqd_async_notify and mask & M.IBV_QP_EN_SQD_ASYNC_NOTIFY)
        if S.IBV_QPS_RESET in (current, new):
            # Also when it leaves RESET: completions of its former life may have been on their way to memory before.
            self._empty()

    def _empty(self):
        """Nothing is posted and nothing is complete. Completions first: they still name entries of the rings."""
        for cq in self._cqs:
            cq._purge(self._qpn)
        self._sq.reset()
        if self._srq is None:
            self._rq.reset()

    def to_init(self, qp_attr):
        """Brings the QP from RESET to INIT."""
        self._rise(S.IBV_QPS_INIT, qp_attr)

    def to_rtr(self, qp_attr):
        """Brings the QP to RTR, through INIT if it is in RESET."""
        self._rise(S.IBV_QPS_RTR, qp_attr)

    def to_rts(self, qp_attr):
        """Brings the QP to RTS, through the states that it has not been in."""
        self._rise(S.IBV_QPS_RTS, qp_attr)

    def _rise(self, state, attr):
        """To ``state``, one step after the other; the state that the device has it in is asked for once."""
        bury()
        must_be("QPAttr", "qp_attr", attr)
        current, end = self.qp_state, _RISE.index(state)
        begin = _RISE.index(current) if current in _RISE[:end] else end - 1
        attr = copy(attr)
        for before, after in pairwise(_RISE[begin : end + 1]):
            attr.qp_state = after
            self._modify(attr, M.IBV_QP_STATE | TRANSITIONS[self.qp_type][before, after][0], current)
            current = after

    def query(self, attr_mask=0x1FFFFFF):
        """``(QPAttr, QPInitAttr)`` as they are, states and PSNs from the device. All attributes are always there."""
        bury()
        self._check_open()
        with attempt("Failed to query QP"):
            now = self._adapter.query_qp(self._qpn)
        attr = deepcopy(self._attr)
        attr.cap = copy(self._cap)
        attr.qp_state = attr.cur_qp_state = S(now["state"])
        if attr.qp_state in (S.IBV_QPS_RTR, S.IBV_QPS_RTS, S.IBV_QPS_SQD, S.IBV_QPS_SQE, S.IBV_QPS_ERR):
            attr.rq_psn = now["current_rq_psn"]
        if attr.qp_state in (S.IBV_QPS_RTS, S.IBV_QPS_SQD, S.IBV_QPS_SQE, S.IBV_QPS_ERR):
            attr.sq_psn = now["current_sq_psn"]
        self._adapter.process_events()
        attr.sq_draining = int(self._draining and attr.qp_state == S.IBV_QPS_SQD)
        init = QPInitAttr(self.qp_type, self._qp_context, self._scq, self._rcq, self._srq, self._cap, self._sq_sig_all)
        return attr, init

    # Multicast

    def attach_mcast(self, gid, lid=0):
        """Datagrams to the multicast group ``gid``, a :class:`.GID` or its text, come to this QP, too, if they have its
        Q_Key. Those of other hosts: what this adapter sends does not come back. ``lid`` does not count on Ethernet.

        EINVAL: the QP is not of UD, or it is no group; ENOMEM: the table of the adapter is full. Nothing tells the
        network, as of libibverbs: whoever needs IGMP or MLD speaks it.
        """
        failed = "Failed to attach QP to multicast group"
        self._in_group(failed, gid, self._adapter.attach)

    def detach_mcast(self, gid, lid=0):
        """Takes that back. EINVAL: the QP is not in the group."""
        self._in_group("Failed to detach QP from multicast group", gid, self._adapter.detach)

    def _in_group(self, failed, gid, call):
        bury()
        self._check_open()
        number = int(GID(gid))
        if not self._datagrams or not is_group(number):
            refuse(f"{failed}: {GID(gid).gid}", errno.EINVAL)
        if not self._adapter.control.has_multicast:
            refuse(failed, errno.EOPNOTSUPP)
        with attempt(failed):
            call(self._qpn, number)

    # Work

    def post_send(self, wr, bad_wr=None):
        """Posts a list of send work requests.

        ENOMEM: the queue is full; EINVAL: the request or the state is wrong; EOPNOTSUPP: the device only responds. What
        stands before the bad one is posted, and ``bad_wr`` becomes a copy of it.
        """
        failed = "Failed to post send"

        def entry(wr):
            return self._send_entry(failed, wr)

        self._post(failed, self._sq, self._ring_send, SendWR, entry, _NO_SENDS, wr, bad_wr)

    def _send_entry(self, failed, request):
        if self._adapter.control.responds_only:
            refuse(f"{failed}: the device only responds", errno.EOPNOTSUPP)
        if request.opcode in KEY_OPCODES:
            return self._key_entry(failed, request)
        if request.opcode == ibv_wr_opcode.IBV_WR_SEND_WITH_INV and not self._sends_invalidate:
            known = not (self._datagrams or self._raw)
            refuse(f"{failed}: no SEND with invalidate", errno.EOPNOTSUPP if known else errno.EINVAL)
        way = way_of(self, request, failed) if self._datagrams and request.opcode in SENDS else None
        wqe = send_wqe(request, self.qp_type, self._cap, self._sq_sig_all, self._adapter.memory, failed, way)
        if way is not None and self._adapter.control.has_gids:
            wqe = with_route(wqe, self._sq.log_stride, request.ah)
        return wqe

    def post_recv(self, wr, bad_wr=None):
        """Posts a list of receive work requests; errors as of :meth:`post_send`. EINVAL, too, for a QP with an SRQ."""
        failed = "Failed to post recv"

        def entry(wr):
            if self._srq is not None:
                refuse(f"{failed}: its receives are those of {self._srq}", errno.EINVAL)
            return recv_wqe(wr, self._cap)

        never = (S.IBV_QPS_RESET,)
        self._post(failed, self._rq, self._ring_recv, RecvWR, entry, never, wr, bad_wr)

    def _ring_send(self, start):
        producer = self._sq.producer
        # The device takes what is pushed only if it has nothing else to send for the queue. That is sure if all is
        # complete; what is posted faster than it completes is fetched many WQEs a read.
        if self.context._push and start == self._sq.completed and producer == start + 1 & 0xFFFF:
            entry = self._sq.entry(start)
            if not any(entry[PUSH_MAX:]):
                self._adapter.push_qp(self._qpn, entry[:PUSH_MAX], producer)
                return
        self._adapter.ring_qp(self._qpn, QpDoorbell.SQ_PRODUCER, producer)

    def _ring_recv(self, start):
        self._adapter.ring_qp(self._qpn, QpDoorbell.RQ_PRODUCER, self._rq.producer)

    def _post(self, failed, queue, ring, kind, entry, never, wr, bad_wr):
        self._check_open()
        # The device may have moved the QP on to ERR or SQE, but nowhere else: so it is asked only then.
        wrong = self._attr.qp_state in never and self.qp_state in never

        def wqe(wr):
            if wrong:
                refuse(f"{failed}: state {self._attr.qp_state.name}", errno.EINVAL)
            return entry(wr)

        with self._posting:
            start = queue.producer
            try:
                queue.post(failed, wr, kind, wqe, bad_wr, self._placed if queue is self._sq else None)
            finally:
                if queue.producer != start:
                    ring(start)

    def _post_batch(self, failed, requests):
        """Posts all send requests, or none."""
        self._check_open()
        if self._attr.qp_state in _NO_SENDS and self.qp_state in _NO_SENDS:
            refuse(f"{failed}: state {self._attr.qp_state.name}", errno.EINVAL)
        with self._posting:
            start = self._sq.producer
            self._sq.post_all(failed, requests, lambda request: self._send_entry(failed, request), self._placed)
            if requests:
                self._ring_send(start)

    def _placed(self, wr, ticket):
        return posted(self, wr, ticket)

    def _completed(self, entry):
        """The wr_id of a completion, which frees its slot."""
        receive = entry["opcode"] & ibv_wc_opcode.IBV_WC_RECV
        datagram = receive and entry["flags"] & ibv_wc_flags.IBV_WC_GRH and not entry["status"]
        if datagram and not self._adapter.control.has_gids:  # with a table the engine has written it
            self._put_grh(entry)
        return (self._rq if receive else self._sq).complete(entry["wqe_index"])

    def _put_grh(self, entry):
        """Writes what the device leaves free in front of a datagram."""
        header = grh_of(entry, self._adapter.port.ip)
        for address, length in self._rq.entries(entry["wqe_index"]):
            self._adapter.memory.write(address, header[:length])
            header = header[length:]
            if not header:
                break

    def _length(self, entry):
        """Bytes that a completion stands for; of a READ or atomic, the WQE tells."""
        if entry["opcode"] in _RETURNING:
            return self._sq.sent_length(entry["wqe_index"])
        return entry["byte_length"]

    def _event(self, kind):
        if kind == EventType.SQ_DRAINED:
            self._draining = False
            if not self._tell_drained:
                return
        self.context._events.put(AsyncEvent(kind, self), self)

    @property
    def _sends_invalidate(self):
        return self._adapter.control.key_operations and self.qp_type == ibv_qp_type.IBV_QPT_RC

    def _key_entry(self, failed, request):
        if not self._adapter.control.key_operations:
            refuse(f"{failed}: work requests of the device do not change keys", errno.EOPNOTSUPP)
        if request.opcode == ibv_wr_opcode.IBV_WR_BIND_MW:
            check_bind(failed, self, request, ibv_mw_type.IBV_MW_TYPE_2)
        return key_wqe(failed, self, request)

    def bind_mw(self, mw, mw_bind):
        """Binds a memory window of type 1 to a part of a region, as an :class:`.mr.MWBind` says; with length 0 to
        nothing. ``mw.rkey`` is its new key at once. It takes a place of the send queue, what is posted later finds it
        bound, and a completion with the ``wr_id`` tells that it is, or why it is not.

        EINVAL: rights that no window has, remote write or atomic to a region without local write, a part that is not
        within the region, a region without MW_BIND or with ZERO_BASED, or none; a QP of type UD or RAW_PACKET. EPERM:
        window, region and QP are not all of one PD. EOPNOTSUPP: the device has no windows. Else as of
        :meth:`post_send`.
        """
        failed = "Failed to Bind MW"
        request = bind_request(failed, self, mw, mw_bind)

        def entry(wr):
            return key_wqe(failed, self, wr)

        self._post(failed, self._sq, self._ring_send, SendRequest, entry, _NO_SENDS, request, None)

    @unsupported("Failed to modify the rate limit")
    def modify_rate_limit(self, rate_limit_attr):
        """Limits how much is sent in a second."""

    @unsupported("Failed to set ECE")
    def set_ece(self, ece):
        """Agrees on an enhanced connection."""

    @unsupported("Failed to query ECE")
    def query_ece(self):
        """What was agreed on."""

    def query_data_in_order(self, op, flags=0):
        """Whether data of an operation reaches memory in order, which is never said."""
        self._check_open()
        return 0

    def _may_close(self):
        if self._unacked_events:
            refuse(f"Failed to destroy QP: {self._unacked_events} async events are unacknowledged", errno.EBUSY)
        if groups := self._adapter.groups.of(self._qpn):
            refuse(f"Failed to destroy QP: it is in {len(groups)} multicast groups", errno.EBUSY)

    def _destroy(self):
        self._adapter.destroy_qp(self._qpn)
        for cq in self._cqs:
            cq._purge(self._qpn)
            cq._qps.pop(self._qpn, None)
        self._rcq._shared.pop(self._qpn, None)
        self._close_rings()
        self.context._forget_events(self)

    def __str__(self):
        return f"QP {self._qpn:#x}"

    def __repr__(self):
        return f"<{type(self).__name__} {self._qpn:#x}, {qp_type_to_str(self.qp_type)}, {qp_state_to_str(self._state)}>"

    @property
    def _state(self):
        """The state that the driver has brought it to."""
        return self._attr.qp_state


class QPEx(WrBuilder, QP):
    """A QP that also takes send requests built call by call (:class:`.wr_builder.WrBuilder`). It has the operations of
    ``send_ops_flags``, if ``comp_mask`` has IBV_QP_INIT_ATTR_SEND_OPS_FLAGS, and no ``wr_`` call otherwise.
    """

    _served_ops = SEND_OPS & ~KEY_OPS

    def __init__(self, creator, init_attr, qp_attr=None):
        super().__init__(creator, init_attr, qp_attr)
        if self._adapter.control.key_operations:
            self._served_ops = SEND_OPS
        if getattr(init_attr, "comp_mask", 0) & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS:
            self._send_ops = int(init_attr.send_ops_flags)
