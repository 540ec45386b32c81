"""Send requests that are built call by call, and posted together."""

import errno
import socket
import threading

from .. import host_memory
from .base import PyverbsObject, refuse
from .libibverbs_enums import ibv_qp_type, ibv_send_flags, ibv_wr_opcode
from .naming import name_of
from .number import unsigned
from .pyverbs_error import PyverbsUserError
from .user_memory import address_of
from .wr import SGE, SendRequest

__all__ = ["DataBuffer", "WrBuilder"]

W = ibv_wr_opcode


class DataBuffer(PyverbsObject):
    """``length`` bytes at ``addr``, which may also be a buffer: ``struct ibv_data_buf``."""

    def __init__(self, addr, length):
        self.addr = unsigned("DataBuffer.addr", address_of(addr), 64)
        self.length = unsigned("DataBuffer.length", length, 32)


class _Batch(threading.local):
    """What a thread has built: requests, and the first mistake as (errno, text). ``open`` from start to completion."""

    wr_id = 0
    wr_flags = 0
    open = False

    def begin(self):
        self.open = True
        self.requests = []
        self.without_data = False
        self.mistake = None

    def wrong(self, code, text):
        if self.mistake is None:
            self.mistake = code, text


class WrBuilder:
    """The ``wr_`` calls of an extended QP.

    Between :meth:`wr_start` and :meth:`wr_complete` each builder call begins a request, with the :attr:`wr_id` and the
    :attr:`wr_flags` (``enum ibv_send_flags``) of then, and one setter call gives it its data. The device hears of
    nothing before :meth:`wr_complete`, which posts all of it or, if anything was wrong, nothing. Each thread builds
    requests of its own.

    A class with it has ``_post_batch(failed, requests)``.
    """

    _send_ops = None
    """Operations that may be built, as bits of ``enum ibv_qp_create_send_ops_flags``; None: no ``wr_`` call at all."""

    def __init__(self, *args, **kwargs):
        self._batch = _Batch()
        super().__init__(*args, **kwargs)

    @property
    def wr_id(self):
        """Told by the completion of the requests that are built from now on."""
        return self._batch.wr_id

    @wr_id.setter
    def wr_id(self, val):
        self._batch.wr_id = unsigned("wr_id", val, 64)

    @property
    def wr_flags(self):
        """Send flags of the requests that are built from now on."""
        return self._batch.wr_flags

    @wr_flags.setter
    def wr_flags(self, val):
        self._batch.wr_flags = int(val)

    def wr_start(self):
        """Begins; what was built and not completed is forgotten."""
        if self._send_ops is None:
            raise PyverbsUserError("The QP was made without IBV_QP_INIT_ATTR_SEND_OPS_FLAGS in comp_mask")
        self._batch.begin()

    def wr_complete(self):
        """Posts what was built. If it fails nothing is posted: EINVAL, ENOMEM, EOPNOTSUPP as of :meth:`.QP.post_send`,
        EINVAL also for operations that were not asked for when the QP was made, and for requests without data.
        """
        batch = self._opened_batch()
        batch.open = False
        failed = "ibv_wr_complete failed."
        if batch.without_data:
            batch.wrong(errno.EINVAL, "a request has no data")
        if batch.mistake is not None:
            code, text = batch.mistake
            refuse(f"{failed} {text}", code)
        self._post_batch(f"{failed} Failed to post send", batch.requests)

    def wr_abort(self):
        """Forgets what was built."""
        self._opened_batch().open = False

    def _opened_batch(self):
        if not self._batch.open:
            raise PyverbsUserError("wr_start must come first")
        return self._batch

    def _build(self, opcode, *, data=True, **fields):
        batch = self._opened_batch()
        if batch.without_data:
            batch.wrong(errno.EINVAL, "a request has no data")
        request = SendRequest(batch.wr_id, opcode, 0, 0, None, batch.wr_flags, None)
        for name, value in fields.items():
            setattr(request, name, value)
        bit = 1 << opcode
        if not bit & self._served_ops:
            batch.wrong(errno.EOPNOTSUPP, f"no {name_of(W, opcode)}")
        elif not bit & self._send_ops:
            batch.wrong(errno.EINVAL, f"{name_of(W, opcode)} is not in send_ops_flags")
        batch.requests.append(request)
        batch.without_data = data

    # Builders

    def wr_send(self):
        """A SEND."""
        self._build(W.IBV_WR_SEND)

    def wr_send_imm(self, data):
        """A SEND with immediate data, a number in the host's order."""
        self._build(W.IBV_WR_SEND_WITH_IMM, imm_data=socket.htonl(unsigned("data", data, 32)))

    def wr_send_inv(self, invalidate_rkey):
        """A SEND that invalidates a key of the peer."""
        self._build(W.IBV_WR_SEND_WITH_INV, imm_data=invalidate_rkey)

    def wr_send_tso(self, hdr, hdr_sz, mss):
        """A SEND of several segments."""
        self._build(W.IBV_WR_TSO)

    def wr_rdma_write(self, rkey, remote_addr):
        """An RDMA WRITE."""
        self._build(W.IBV_WR_RDMA_WRITE, rkey=rkey, remote_addr=remote_addr)

    def wr_rdma_write_imm(self, rkey, remote_addr, data):
        """An RDMA WRITE with immediate data, a number in the host's order."""
        imm_data = socket.htonl(unsigned("data", data, 32))
        self._build(W.IBV_WR_RDMA_WRITE_WITH_IMM, rkey=rkey, remote_addr=remote_addr, imm_data=imm_data)

    def wr_rdma_read(self, rkey, remote_addr):
        """An RDMA READ."""
        self._build(W.IBV_WR_RDMA_READ, rkey=rkey, remote_addr=remote_addr)

    def wr_atomic_cmp_swp(self, rkey, remote_addr, compare, swap):
        """A compare and swap."""
        fields = {"rkey": rkey, "remote_addr": remote_addr, "compare_add": compare, "swap": swap}
        self._build(W.IBV_WR_ATOMIC_CMP_AND_SWP, **fields)

    def wr_atomic_fetch_add(self, rkey, remote_addr, add):
        """A fetch and add."""
        self._build(W.IBV_WR_ATOMIC_FETCH_AND_ADD, rkey=rkey, remote_addr=remote_addr, compare_add=add)

    def wr_bind_mw(self, mw, rkey, bind_info):
        """Binds a memory window of type 2."""
        self._build(W.IBV_WR_BIND_MW, data=False, mw=mw, rkey=rkey, bind_info=bind_info)

    def wr_local_inv(self, invalidate_rkey):
        """Invalidates a key of this side."""
        self._build(W.IBV_WR_LOCAL_INV, data=False, imm_data=invalidate_rkey)

    def wr_atomic_write(self, rkey, remote_addr, atomic_wr):
        """A write of 8 bytes that nothing divides."""
        self._build(W.IBV_WR_ATOMIC_WRITE, data=False, rkey=rkey, remote_addr=remote_addr)

    def wr_flush(self, rkey, remote_addr, length, ptype, level):
        """Makes what was written persistent."""
        self._build(W.IBV_WR_FLUSH, data=False, rkey=rkey, remote_addr=remote_addr)

    # Setters

    def _give(self, **fields):
        batch = self._opened_batch()
        if not batch.without_data:
            batch.wrong(errno.EINVAL, "data for no request, or once too often")
            return
        batch.without_data = False
        for name, value in fields.items():
            setattr(batch.requests[-1], name, value)

    def wr_set_sge(self, sge):
        """The data is that of an :class:`.wr.SGE`, which is copied."""
        self.wr_set_sge_list(1, [sge])

    def wr_set_sge_list(self, num_sge, sg_list):
        """The data is that of the first ``num_sge`` entries of a list, which are copied."""
        if not 0 <= num_sge <= len(sg_list):
            raise PyverbsUserError(f"num_sge is {num_sge}, but there are {len(sg_list)} SGEs")
        self._give(sg_list=[SGE(sge.addr, sge.length, sge.lkey) for sge in sg_list[:num_sge]])

    def wr_set_inline_data(self, addr, length):
        """The data is ``length`` bytes from ``addr``, which are copied now and need no region."""
        self.wr_set_inline_data_list(1, [DataBuffer(addr, length)])

    def wr_set_inline_data_list(self, num_buf, buf_list):
        """The data is that of the first ``num_buf`` :class:`DataBuffer` of a list, one behind the other, copied now."""
        if not 0 <= num_buf <= len(buf_list):
            raise PyverbsUserError(f"num_buf is {num_buf}, but there are {len(buf_list)} buffers")
        batch = self._opened_batch()
        buffers = buf_list[:num_buf]
        if (length := sum(buffer.length for buffer in buffers)) > self._cap.max_inline_data:
            batch.wrong(errno.EINVAL, f"{length} bytes inline")
            buffers = []
        try:
            copied = b"".join(host_memory.read(buffer.addr, buffer.length) for buffer in buffers)
        except host_memory.NoMemory as error:
            batch.wrong(errno.EFAULT, str(error))
            copied = b""
        self._give(copied=copied)
        if batch.requests:
            batch.requests[-1].send_flags |= ibv_send_flags.IBV_SEND_INLINE

    def wr_set_ud_addr(self, ah, remote_qpn, remote_rkey):
        """The receiver of a datagram, of the request that was built last: an AH, number and Q_Key of its QP."""
        batch = self._opened_batch()
        if self.qp_type != ibv_qp_type.IBV_QPT_UD:
            batch.wrong(errno.EINVAL, "a UD address for a connected QP")
        elif not batch.requests:
            batch.wrong(errno.EINVAL, "a UD address for no request")
        else:
            request = batch.requests[-1]
            request.ah, request.remote_qpn, request.remote_qkey = ah, remote_qpn, remote_rkey

    def wr_set_xrc_srqn(self, remote_srqn):
        """The receiver's shared receive queue: only for XRC."""
        self._opened_batch().wrong(errno.EINVAL, "a number of an XRC SRQ for another QP")
