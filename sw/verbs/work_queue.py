"""Work queues: rings of WQEs in host memory, and the WQEs themselves."""

import errno
import socket

from verbena.hdl.abi.wqe import SEND_WQE, SGE, SGE_OFFSET, SendOpcode

from ..host_memory import NoMemory
from .base import refuse
from .libibverbs_enums import ibv_qp_type, ibv_send_flags, ibv_wr_opcode
from .limits import MAX_MSG_SZ
from .naming import name_of
from .pyverbs_error import PyverbsRDMAError

__all__ = ["WorkQueue", "recv_wqe", "send_wqe", "sges_of"]

ATOMICS = (SendOpcode.ATOMIC_CMP_AND_SWP, SendOpcode.ATOMIC_FETCH_AND_ADD)
READS = (SendOpcode.RDMA_READ, *ATOMICS)
"""What brings data back."""
KNOWN_SENDS = (
    SendOpcode.SEND,
    SendOpcode.SEND_WITH_IMM,
    SendOpcode.RDMA_WRITE,
    SendOpcode.RDMA_WRITE_WITH_IMM,
    SendOpcode.SEND_WITH_INV,
    *READS,
)
W = ibv_wr_opcode
_OF_RC = set(W) - {W.IBV_WR_TSO, W.IBV_WR_DRIVER1}
_OPERATIONS = {
    ibv_qp_type.IBV_QPT_RC: _OF_RC,
    ibv_qp_type.IBV_QPT_UD: {W.IBV_WR_SEND, W.IBV_WR_SEND_WITH_IMM},
    ibv_qp_type.IBV_QPT_RAW_PACKET: {W.IBV_WR_SEND, W.IBV_WR_TSO},
    ibv_qp_type.IBV_QPT_UC: _OF_RC - {*READS, W.IBV_WR_FLUSH, W.IBV_WR_ATOMIC_WRITE},
}
"""Operations that a type of QP has, also those that the engine has not."""
_OPERANDS = SEND_WQE.fields["compare_add"].offset // 8
_FLAGS = (
    ibv_send_flags.IBV_SEND_FENCE
    | ibv_send_flags.IBV_SEND_SIGNALED
    | ibv_send_flags.IBV_SEND_SOLICITED
    | ibv_send_flags.IBV_SEND_INLINE
)


ETHERNET_HEADER = 14
"""Bytes of the least that a raw packet queue sends."""


class WorkQueue:
    """A ring of ``size`` or more entries of ``1 << log_stride`` bytes in host memory, and the wr_id of each."""

    def __init__(self, memory, size, log_stride):
        self.memory = memory
        self.log_size = (size - 1).bit_length()
        self.log_stride = log_stride
        self.address, self.bus = memory.alloc_contiguous(max(4096, 1 << self.log_size + log_stride))
        self.reset()

    @property
    def size(self):
        return 1 << self.log_size

    @property
    def free(self):
        """Entries that can be posted."""
        return self.size - (self.producer - self.completed & 0xFFFF)

    def reset(self):
        """Begins anew, empty."""
        self.wr_ids = [0] * self.size
        self.producer = 0
        self.completed = 0
        self.life = object()  # until it is empty again
        self._posted = self._done = 0  # all that there have been in this life

    def put(self, wr_id, data):
        """Places an entry; the device does not know of it before the doorbell."""
        slot = self.producer & self.size - 1
        self.wr_ids[slot] = wr_id
        self.memory.write(self.address + (slot << self.log_stride), data.ljust(1 << self.log_stride, b"\0"))
        self.producer = self.producer + 1 & 0xFFFF
        self._posted += 1

    def post(self, failed, wr, kind, wqe, bad_wr, placed=None):
        """Places a list of requests of the class ``kind``, whose bytes ``wqe(wr)`` tells or refuses; what stands before
        one that is refused stays. ``bad_wr`` becomes a copy of that one, if it is not None. ``placed(wr, ticket)`` is
        called for each, see :meth:`is_over`.
        """
        if wr is None:
            refuse(failed, errno.EINVAL)
        try:
            while wr is not None:
                if not isinstance(wr, kind):
                    raise TypeError(f"{failed}: {wr!r} is no {kind.__name__}")
                try:
                    data = wqe(wr)
                except NoMemory as error:
                    refuse(f"{failed}: {error}", errno.EFAULT)
                except ValueError as error:  # a number that fits nowhere
                    refuse(f"{failed}: {error}", errno.EINVAL)
                if not self.free:
                    refuse(failed, errno.ENOMEM)
                if placed is not None:
                    placed(wr, self._ticket(0))
                self.put(wr.wr_id, data)
                wr = wr.next_wr
        except PyverbsRDMAError:
            if bad_wr is not None:
                vars(bad_wr).update(vars(wr))
            raise

    def post_all(self, failed, requests, wqe, placed):
        """Places all of several requests, as :meth:`post` does, or none: then what ``placed`` returns is called, the
        last one first.
        """
        entries, undo = [], []
        try:
            for number, request in enumerate(requests):
                entries.append((request.wr_id, wqe(request)))
                undo.append(placed(request, self._ticket(number)))
            if len(entries) > self.free:
                refuse(failed, errno.ENOMEM)
        except Exception:
            for call in reversed(undo):
                call()
            raise
        for wr_id, data in entries:
            self.put(wr_id, data)

    def complete(self, index):
        """The wr_id of entry ``index``, which is complete, as are all before it."""
        wr_id = self.wr_ids[index & self.size - 1]
        # From here on another thread may use the slot again.
        self._done += index + 1 - self.completed & 0xFFFF
        self.completed = index + 1 & 0xFFFF
        return wr_id

    def _ticket(self, ahead):
        return self.life, self._posted + ahead

    def is_over(self, ticket):
        """What was placed with this ticket is known to be complete, or to be forgotten."""
        life, number = ticket
        return life is not self.life or number < self._done

    def entry(self, index):
        """Bytes of entry ``index``, whose slot is not used again yet."""
        return self.memory.read(self.address + ((index & self.size - 1) << self.log_stride), 1 << self.log_stride)

    def entries(self, index):
        """``(address, length)`` of the scatter/gather entries of receive WQE ``index``, whose slot is not used again
        yet.
        """
        wqe = self.entry(index)
        for at in range(0, len(wqe), SGE.size):
            sge = SGE.unpack(wqe[at : at + SGE.size])
            yield sge["address"], sge["length"]

    def sent_length(self, index):
        """Bytes of the message of send WQE ``index``, whose slot is not used again yet."""
        return SEND_WQE.unpack(self.entry(index)[: SEND_WQE.size])["length"]

    def close(self):
        self.memory.free(self.address)
        self.life = None


def sges_of(wr):
    """Bytes of a request's scatter/gather entries."""
    return b"".join(SGE.pack(address=s.addr, length=s.length, lkey=s.lkey) for s in wr.sg_list)


def recv_wqe(wr, cap):
    """Bytes of a receive WQE; EINVAL if the request does not fit ``cap``, ``ValueError`` if a number is too large."""
    if wr.num_sge > cap.max_recv_sge:
        refuse(f"Failed to post recv: {wr.num_sge} SGEs", errno.EINVAL)
    return sges_of(wr)


def send_wqe(wr, qp_type, cap, sq_sig_all, memory, failed="Failed to post send", way=None):
    """Bytes of a send WQE of a QP of ``qp_type``; inline data is taken from ``memory`` now, unless the request has it.
    Errors as of :func:`recv_wqe`, and EOPNOTSUPP for operations that the engine does not have; texts begin with
    ``failed``. ``way``: fields that lead to the receiver of a datagram.
    """
    flags = int(wr.send_flags)
    known = wr.opcode in _OPERATIONS[qp_type]
    if not known or wr.opcode not in KNOWN_SENDS:
        refuse(f"{failed}: opcode {name_of(ibv_wr_opcode, wr.opcode)}", errno.EOPNOTSUPP if known else errno.EINVAL)
    if flags & ~_FLAGS:
        refuse(f"{failed}: flags {flags:#x}", errno.EINVAL)
    if wr.num_sge > cap.max_send_sge:
        refuse(f"{failed}: {wr.num_sge} SGEs", errno.EINVAL)
    copied = wr.copied
    length = len(copied) if copied is not None else sum(s.length for s in wr.sg_list)
    if length > MAX_MSG_SZ or (qp_type == ibv_qp_type.IBV_QPT_RAW_PACKET and length < ETHERNET_HEADER):
        refuse(f"{failed}: {length} bytes", errno.EINVAL)
    inline = flags & ibv_send_flags.IBV_SEND_INLINE
    if inline and (length > cap.max_inline_data or wr.opcode in READS):
        refuse(f"{failed}: {length} bytes inline", errno.EINVAL)
    atomic = wr.opcode in ATOMICS
    if atomic and (wr.num_sge != 1 or length != 8 or wr.remote_addr % 8):
        refuse(f"{failed}: an atomic is 8 bytes, aligned, to one SGE", errno.EINVAL)
    if sq_sig_all:
        flags |= ibv_send_flags.IBV_SEND_SIGNALED
    immediate = socket.htonl(wr.imm_data) if wr.opcode == SendOpcode.SEND_WITH_INV else wr.imm_data
    head = SEND_WQE.pack(
        opcode=int(wr.opcode),
        flags=flags,
        sge_count=0 if inline else wr.num_sge,
        immediate=immediate,
        **(way or {"remote_address": wr.remote_addr, "rkey": wr.rkey}),
        length=length,
        compare_add=wr.compare_add if atomic else 0,
        swap=wr.swap if atomic else 0,
    )
    if inline:
        body = copied if copied is not None else b"".join(memory.read(s.addr, s.length) for s in wr.sg_list)
    else:
        body = sges_of(wr)
    return head[:SGE_OFFSET] + body + (head[_OPERANDS:] if atomic else b"")
