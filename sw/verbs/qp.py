"""Queue pairs."""

import errno
from copy import copy

from verbena.hdl.abi.commands import QpAction
from verbena.hdl.abi.registers import QpDoorbell
from verbena.hdl.abi.wqe import SEND_WQE, SGE_OFFSET, SendOpcode
from verbena.hdl.abi.wqe import SGE as SGE_RECORD

from .addr import AHAttr
from .base import PyverbsCM, attempt, refuse
from .device import MAX_INLINE, MAX_MSG_SZ, MAX_QP_WR, MAX_SGE, AsyncEvent
from .libibverbs_enums import ibv_mtu, ibv_qp_attr_mask, ibv_qp_state, ibv_qp_type, ibv_send_flags, ibv_wc_opcode
from .pyverbs_error import PyverbsUserError
from .states import TRANSITIONS, check_transition

__all__ = ["QP", "QPAttr", "QPCap", "QPInitAttr"]

M = ibv_qp_attr_mask
S = ibv_qp_state
_KNOWN_SENDS = (SendOpcode.SEND, SendOpcode.SEND_WITH_IMM, SendOpcode.RDMA_WRITE, SendOpcode.RDMA_WRITE_WITH_IMM)
_FLAGS = (
    ibv_send_flags.IBV_SEND_SIGNALED
    | ibv_send_flags.IBV_SEND_SOLICITED
    | ibv_send_flags.IBV_SEND_INLINE
    | ibv_send_flags.IBV_SEND_FENCE
)
_FIRST_UDP_PORT = 0xC000


class QPCap:
    """Capacities: asked for at creation; what :attr:`QP.query` tells is what there is."""

    def __init__(self, max_send_wr=1, max_recv_wr=10, max_send_sge=1, max_recv_sge=1, max_inline_data=0):
        self.max_send_wr = max_send_wr
        self.max_recv_wr = max_recv_wr
        self.max_send_sge = max_send_sge
        self.max_recv_sge = max_recv_sge
        self.max_inline_data = max_inline_data


class QPInitAttr:
    """What a QP is made of."""

    def __init__(
        self, qp_type=ibv_qp_type.IBV_QPT_UD, qp_context=None, scq=None, rcq=None, srq=None, cap=None, sq_sig_all=1
    ):
        self.qp_type = qp_type
        self.qp_context = qp_context
        self.send_cq = scq
        self.recv_cq = rcq
        self.srq = srq
        self._cap = copy(cap) if cap is not None else QPCap()
        self.sq_sig_all = sq_sig_all

    @property
    def cap(self):
        return copy(self._cap)

    @cap.setter
    def cap(self, value):
        self._cap = copy(value)


class QPAttr:
    """``struct ibv_qp_attr``."""

    def __init__(
        self, qp_state=S.IBV_QPS_INIT, cur_qp_state=S.IBV_QPS_RESET, port_num=1, path_mtu=ibv_mtu.IBV_MTU_1024
    ):
        self.qp_state = qp_state
        self.cur_qp_state = cur_qp_state
        self.port_num = port_num
        self.path_mtu = path_mtu
        self.path_mig_state = self.qkey = self.rq_psn = self.sq_psn = self.dest_qp_num = self.qp_access_flags = 0
        self.cap = QPCap()
        self.ah_attr = AHAttr()
        self.alt_ah_attr = AHAttr()
        self.pkey_index = self.alt_pkey_index = self.alt_port_num = self.alt_timeout = 0
        self.en_sqd_async_notify = self.sq_draining = 0
        self.max_rd_atomic = self.max_dest_rd_atomic = 1
        self.min_rnr_timer = self.timeout = self.retry_cnt = self.rnr_retry = self.rate_limit = 0


class _Ring:
    """A work queue in host memory: ``size`` entries of ``stride`` bytes, and the wr_id of each."""

    def __init__(self, adapter, size, log_stride):
        self.memory = adapter.memory
        self.log_size = max(0, (size - 1).bit_length())
        self.log_stride = log_stride
        self.address, self.bus = self.memory.alloc_contiguous(max(4096, 1 << self.log_size + log_stride))
        self.reset()

    def reset(self):
        self.wr_ids = [0] * (1 << self.log_size)
        self.producer = 0
        self.completed = 0

    @property
    def free(self):
        return (1 << self.log_size) - (self.producer - self.completed & 0xFFFF)

    def put(self, wr_id, data):
        slot = self.producer & (1 << self.log_size) - 1
        self.wr_ids[slot] = wr_id
        self.memory.write(self.address + (slot << self.log_stride), data)
        self.producer = self.producer + 1 & 0xFFFF

    def complete(self, index):
        """The wr_id of entry ``index``, which is complete, as are those before it."""
        self.completed = index + 1 & 0xFFFF
        return self.wr_ids[index & (1 << self.log_size) - 1]

    def close(self):
        self.memory.free(self.address)


class QP(PyverbsCM):
    """A queue pair of type RC. With ``qp_attr`` it starts in INIT."""

    _rank = 1

    def __init__(self, creator, init_attr, qp_attr=None):
        failed = "Failed to create QP"
        if init_attr.qp_type != ibv_qp_type.IBV_QPT_RC:
            refuse(f"{failed}: type {init_attr.qp_type!r}", errno.EOPNOTSUPP)
        if init_attr.srq is not None:
            refuse(f"{failed}: shared receive queues", errno.EOPNOTSUPP)
        if init_attr.send_cq is None or init_attr.recv_cq is None:
            raise PyverbsUserError("A QP needs a send CQ and a receive CQ")
        cap = init_attr.cap
        if not (
            0 <= cap.max_send_wr <= MAX_QP_WR
            and 0 <= cap.max_recv_wr <= MAX_QP_WR
            and 0 <= cap.max_send_sge <= MAX_SGE
            and 0 <= cap.max_recv_sge <= MAX_SGE
            and 0 <= cap.max_inline_data <= MAX_INLINE
        ):
            refuse(failed, errno.EINVAL)
        self.pd = creator
        self.context = creator.context
        self._adapter = adapter = self.context._adapter
        self.qp_type = init_attr.qp_type
        self._scq, self._rcq = init_attr.send_cq, init_attr.recv_cq
        self._sq_sig_all = init_attr.sq_sig_all
        wide = cap.max_send_sge > 2 or cap.max_inline_data > 32
        self._sq = attempt(failed, _Ring, adapter, max(1, cap.max_send_wr), 7 if wide else 6)
        recv_sge = max(1, cap.max_recv_sge)
        self._rq = attempt(failed, _Ring, adapter, max(1, cap.max_recv_wr), 4 + (recv_sge - 1).bit_length())
        self._cap = QPCap(
            1 << self._sq.log_size,
            1 << self._rq.log_size,
            6 if wide else 2,
            1 << self._rq.log_stride - 4,
            96 if wide else 32,
        )
        self._attr = QPAttr(qp_state=S.IBV_QPS_RESET)
        self._attr.cap = self._cap
        self._unacked_events = 0
        self._qpn = 0
        self._words = {}
        self._qpn = attempt(failed, adapter.create_qp, self, **self._context_words(S.IBV_QPS_RESET))
        self._scq._qps[self._qpn] = self._rcq._qps[self._qpn] = self
        super().__init__(creator, self._scq, self._rcq)
        if qp_attr is not None:
            self.to_init(qp_attr)

    # State

    @property
    def qp_num(self):
        return self._qpn

    @property
    def qp_state(self):
        """The state that the device has it in."""
        return S(self._adapter.query_qp(self._qpn)["state"])

    def _context_words(self, state, attr=None):
        attr = attr or self._attr
        route = attr.ah_attr.gr
        ip = route.dgid.ipv4 or 0
        return {
            "state": state,
            "type": self.qp_type,
            "path_mtu": attr.path_mtu,
            "access": attr.qp_access_flags & 14,
            "min_rnr_timer": attr.min_rnr_timer,
            "timeout": attr.timeout,
            "retry_count": attr.retry_cnt,
            "rnr_retry": attr.rnr_retry,
            "pd": self.pd.handle,
            "dest_qpn": attr.dest_qp_num,
            "traffic_class": route.traffic_class,
            "pkey": 0xFFFF,
            "source_port": _FIRST_UDP_PORT | (self._qpn ^ attr.dest_qp_num) & 0x3FFF,
            "dest_mac": self._resolve(ip),
            "hop_limit": route.hop_limit,
            "dest_ip": ip,
            "sq_base": self._sq.bus,
            "log_sq_size": self._sq.log_size,
            "log_sq_stride": self._sq.log_stride,
            "sq_cqn": self._scq._number,
            "rq_cqn": self._rcq._number,
            "rq_base": self._rq.bus,
            "log_rq_size": self._rq.log_size,
            "log_rq_stride": self._rq.log_stride,
            "max_rd_atomic": attr.max_rd_atomic & 255,
            "max_dest_rd_atomic": attr.max_dest_rd_atomic & 255,
            "sq_psn": attr.sq_psn & 0xFFFFFF,
            "rq_psn": attr.rq_psn & 0xFFFFFF,
            "qkey": attr.qkey,
        }

    def _resolve(self, ip):
        if not ip:
            return 0
        try:
            return self._adapter.port.resolve(ip)
        except KeyError:
            refuse("Failed to modify QP: nobody has the destination address", errno.EHOSTUNREACH)

    def modify(self, attr, mask):
        """Changes the attributes named by ``mask``; EINVAL, and nothing changed, if they do not belong to the
        transition.
        """
        failed = "Failed to modify QP"
        current = self.qp_state
        new = attr.qp_state if mask & M.IBV_QP_STATE else current
        if mask & M.IBV_QP_CUR_STATE and attr.cur_qp_state not in (
            S.IBV_QPS_RTR,
            S.IBV_QPS_RTS,
            S.IBV_QPS_SQD,
            S.IBV_QPS_SQE,
        ):
            refuse(f"{failed}: cur_qp_state", errno.EINVAL)
        if why := check_transition(current, new, mask):
            refuse(f"{failed}: {why}", errno.EINVAL)
        self._check_values(attr, mask)
        merged = copy(self._attr)
        for bit, names in _FIELDS.items():
            if mask & bit:
                for name in names:
                    setattr(merged, name, copy(getattr(attr, name)))
        merged.qp_state = new
        action = {
            S.IBV_QPS_RESET: QpAction.RESET,
            S.IBV_QPS_RTR: QpAction.START_RECEIVE,
            S.IBV_QPS_ERR: QpAction.ERROR,
        }.get(new, QpAction.NONE)
        if new == S.IBV_QPS_RTS and current == S.IBV_QPS_RTR:
            action = QpAction.START_SEND
        words = self._context_words(new, merged)
        attempt(failed, self._adapter.modify_qp, self._qpn, action, **words)
        self._attr = merged
        if new == S.IBV_QPS_RESET:
            self._sq.reset()
            self._rq.reset()
            for cq in {self._scq, self._rcq}:
                cq._purge(self._qpn)

    def _check_values(self, attr, mask):
        route = attr.ah_attr.gr
        for bit, wrong in (
            (M.IBV_QP_PORT, attr.port_num != 1),
            (M.IBV_QP_PKEY_INDEX, attr.pkey_index != 0),
            (M.IBV_QP_PATH_MTU, not 1 <= attr.path_mtu <= 5),
            (M.IBV_QP_TIMEOUT, not 0 <= attr.timeout <= 31),
            (M.IBV_QP_RETRY_CNT, not 0 <= attr.retry_cnt <= 7),
            (M.IBV_QP_RNR_RETRY, not 0 <= attr.rnr_retry <= 7),
            (M.IBV_QP_MIN_RNR_TIMER, not 0 <= attr.min_rnr_timer <= 31),
            (M.IBV_QP_DEST_QPN, not 0 <= attr.dest_qp_num < 1 << 24),
            (M.IBV_QP_MAX_QP_RD_ATOMIC, not 0 <= attr.max_rd_atomic <= 16),
            (M.IBV_QP_MAX_DEST_RD_ATOMIC, not 0 <= attr.max_dest_rd_atomic <= 16),
            (M.IBV_QP_AV, not attr.ah_attr.is_global or route.dgid.ipv4 is None or route.sgid_index != 0),
        ):
            if mask & bit and wrong:
                refuse(f"Failed to modify QP: {M(bit).name}", errno.EINVAL)

    def to_init(self, attr):
        """Brings the QP from RESET to INIT."""
        self._to(S.IBV_QPS_INIT, attr)

    def to_rtr(self, attr):
        """Brings the QP to RTR, through the states that it has not been in."""
        if self.qp_state == S.IBV_QPS_RESET:
            self.to_init(attr)
        self._to(S.IBV_QPS_RTR, attr)

    def to_rts(self, attr):
        """Brings the QP to RTS, through the states that it has not been in."""
        if self.qp_state in (S.IBV_QPS_RESET, S.IBV_QPS_INIT):
            self.to_rtr(attr)
        self._to(S.IBV_QPS_RTS, attr)

    def _to(self, state, attr):
        attr = copy(attr)
        current = self.qp_state
        attr.qp_state = state
        self.modify(attr, M.IBV_QP_STATE | TRANSITIONS.get((current, state), (0, 0))[0])

    def query(self, attr_mask=0x1FFFFFF):
        """``(QPAttr, QPInitAttr)`` as they are, states and PSNs from the device."""
        now = self._adapter.query_qp(self._qpn)
        attr = copy(self._attr)
        attr.ah_attr = copy(self._attr.ah_attr)
        attr.cap = copy(self._cap)
        attr.qp_state = attr.cur_qp_state = S(now["state"])
        if attr.qp_state in (S.IBV_QPS_RTR, S.IBV_QPS_RTS, S.IBV_QPS_SQD, S.IBV_QPS_ERR):
            attr.rq_psn = now["current_rq_psn"]
        if attr.qp_state in (S.IBV_QPS_RTS, S.IBV_QPS_SQD, S.IBV_QPS_ERR):
            attr.sq_psn = now["current_sq_psn"]
        init = QPInitAttr(self.qp_type, None, self._scq, self._rcq, None, self._cap, self._sq_sig_all)
        return attr, init

    # Work

    def post_send(self, wr, bad_wr=None):
        """Posts a list of send work requests.

        ENOMEM: the queue is full; EINVAL: the request or the state is wrong; what stands before the bad one is posted.
        """
        failed = "Failed to post send"
        if self._attr.qp_state in (S.IBV_QPS_RESET, S.IBV_QPS_INIT, S.IBV_QPS_RTR):
            refuse(f"{failed}: state {self._attr.qp_state.name}", errno.EINVAL)
        start = self._sq.producer
        try:
            while wr is not None:
                data = self._send_wqe(wr)
                if not self._sq.free:
                    refuse(failed, errno.ENOMEM)
                self._sq.put(wr.wr_id, data)
                wr = wr.next_wr
        finally:
            if self._sq.producer != start:
                self._adapter.ring_qp(self._qpn, QpDoorbell.SQ_PRODUCER, self._sq.producer)

    def post_recv(self, wr, bad_wr=None):
        """Posts a list of receive work requests; errors as of :meth:`post_send`."""
        failed = "Failed to post recv"
        if self._attr.qp_state == S.IBV_QPS_RESET:
            refuse(f"{failed}: state RESET", errno.EINVAL)
        start = self._rq.producer
        try:
            while wr is not None:
                if wr.num_sge > self._cap.max_recv_sge:
                    refuse(f"{failed}: {wr.num_sge} SGEs", errno.EINVAL)
                if not self._rq.free:
                    refuse(failed, errno.ENOMEM)
                self._rq.put(wr.wr_id, _sges(wr).ljust(1 << self._rq.log_stride, b"\0"))
                wr = wr.next_wr
        finally:
            if self._rq.producer != start:
                self._adapter.ring_qp(self._qpn, QpDoorbell.RQ_PRODUCER, self._rq.producer)

    def _send_wqe(self, wr):
        failed = "Failed to post send"
        flags = int(wr.send_flags)
        if wr.opcode not in _KNOWN_SENDS:
            refuse(
                f"{failed}: opcode {wr.opcode!r}",
                errno.EOPNOTSUPP if wr.opcode in SendOpcode.__members__.values() else errno.EINVAL,
            )
        if flags & ~_FLAGS:
            refuse(f"{failed}: flags {flags:#x}", errno.EINVAL)
        length = sum(s.length for s in wr.sg_list)
        if length > MAX_MSG_SZ:
            refuse(f"{failed}: {length} bytes", errno.EINVAL)
        if flags & ibv_send_flags.IBV_SEND_INLINE:
            if length > self._cap.max_inline_data:
                refuse(f"{failed}: {length} bytes inline", errno.EINVAL)
            body = b"".join(self._adapter.memory.read(s.addr, s.length) for s in wr.sg_list)
            count = 0
        else:
            if wr.num_sge > self._cap.max_send_sge:
                refuse(f"{failed}: {wr.num_sge} SGEs", errno.EINVAL)
            body = _sges(wr)
            count = wr.num_sge
        if self._sq_sig_all:
            flags |= ibv_send_flags.IBV_SEND_SIGNALED
        head = SEND_WQE.pack(
            opcode=int(wr.opcode),
            flags=flags,
            sge_count=count,
            immediate=wr.imm_data & 0xFFFFFFFF,
            remote_address=wr.remote_addr,
            rkey=wr.rkey,
            length=length,
        )
        return (head[:SGE_OFFSET] + body).ljust(1 << self._sq.log_stride, b"\0")

    def _completed(self, entry):
        """The wr_id of a completion, which frees its slot."""
        receive = entry["opcode"] & ibv_wc_opcode.IBV_WC_RECV
        return (self._rq if receive else self._sq).complete(entry["wqe_index"])

    def _event(self, kind):
        self._unacked_events += 1
        self.context._events.append(AsyncEvent(kind, self))

    def bind_mw(self, *args, **kwargs):
        refuse("Failed to bind MW", errno.EOPNOTSUPP)

    def modify_rate_limit(self, *args, **kwargs):
        refuse("Failed to modify the rate limit", errno.EOPNOTSUPP)

    def query_data_in_order(self, op, flags=0):
        return 0

    def _destroy(self):
        self._adapter.destroy_qp(self._qpn)
        for cq in {self._scq, self._rcq}:
            cq._purge(self._qpn)
            cq._qps.pop(self._qpn, None)
        self._sq.close()
        self._rq.close()


def _sges(wr):
    return b"".join(SGE_RECORD.pack(address=s.addr, length=s.length, lkey=s.lkey) for s in wr.sg_list)


_FIELDS = {
    M.IBV_QP_ACCESS_FLAGS: ["qp_access_flags"],
    M.IBV_QP_PKEY_INDEX: ["pkey_index"],
    M.IBV_QP_PORT: ["port_num"],
    M.IBV_QP_QKEY: ["qkey"],
    M.IBV_QP_AV: ["ah_attr"],
    M.IBV_QP_PATH_MTU: ["path_mtu"],
    M.IBV_QP_TIMEOUT: ["timeout"],
    M.IBV_QP_RETRY_CNT: ["retry_cnt"],
    M.IBV_QP_RNR_RETRY: ["rnr_retry"],
    M.IBV_QP_RQ_PSN: ["rq_psn"],
    M.IBV_QP_MAX_QP_RD_ATOMIC: ["max_rd_atomic"],
    M.IBV_QP_MIN_RNR_TIMER: ["min_rnr_timer"],
    M.IBV_QP_SQ_PSN: ["sq_psn"],
    M.IBV_QP_MAX_DEST_RD_ATOMIC: ["max_dest_rd_atomic"],
    M.IBV_QP_DEST_QPN: ["dest_qp_num"],
    M.IBV_QP_ALT_PATH: ["alt_ah_attr", "alt_pkey_index", "alt_port_num", "alt_timeout"],
    M.IBV_QP_PATH_MIG_STATE: ["path_mig_state"],
    M.IBV_QP_EN_SQD_ASYNC_NOTIFY: ["en_sqd_async_notify"],
}
"""Attributes behind each bit of a mask."""
