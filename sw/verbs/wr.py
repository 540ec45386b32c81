"""Work requests and scatter/gather entries. Numbers that do not fit raise ``PyverbsUserError`` where they are set."""

from verbena.hdl.abi.wqe import SendOpcode

from . import mem_alloc
from .base import HoldsNothing, inc_rkey, must_be
from .libibverbs_enums import ibv_send_flags, ibv_wr_opcode
from .naming import flags_of, name_of, names_of
from .number import Unsigned, within
from .pyverbs_error import PyverbsUserError
from .user_memory import address_of

__all__ = ["IBV_WR_REG_MR", "SGE", "RecvWR", "SendWR", "send_flags_to_str"]

IBV_WR_REG_MR = SendOpcode.REG_MR
"""Fast registration: not in ``<infiniband/verbs.h>``."""

_WITHOUT_SGE = (
    ibv_wr_opcode.IBV_WR_LOCAL_INV,
    ibv_wr_opcode.IBV_WR_BIND_MW,
    ibv_wr_opcode.IBV_WR_SEND_WITH_INV,
    IBV_WR_REG_MR,
)


class SGE(HoldsNothing):
    """A scatter/gather entry; ``addr`` may also be a buffer, of which the address is taken."""

    addr = Unsigned(64, address_of)
    length = Unsigned(32)
    lkey = Unsigned(32)

    def __init__(self, addr, length, lkey):
        self.addr = addr
        self.length = length
        self.lkey = lkey

    def read(self, length, offset):
        """``length`` bytes of the memory it names, from ``offset``. ``PyverbsUserError``: it is not there."""
        return mem_alloc.read(self.addr, length, offset)

    def __str__(self):
        return f"SGE: addr {self.addr:#x}, length {self.length}, lkey {self.lkey:#x}"

    def __repr__(self):
        return f"SGE({self.addr:#x}, {self.length}, {self.lkey:#x})"


class _WR(HoldsNothing):
    wr_id = Unsigned(64)

    def __init__(self, wr_id, num_sge, sg, next_wr):
        sg = list(sg or ())
        if num_sge > len(sg):
            raise PyverbsUserError(f"num_sge is {num_sge}, but there are only {len(sg)} SGEs")
        self.wr_id = wr_id
        self.sg_list = sg[:num_sge]
        self.next_wr = next_wr

    @property
    def sg_list(self):
        """Its SGEs; set to one or several, of which it takes copies."""
        return self._sg_list

    @sg_list.setter
    def sg_list(self, val):
        entries = [val] if isinstance(val, SGE) else val
        for entry in entries:
            if not isinstance(entry, SGE):
                must_be("SGE", "sg", entry)
        self._sg_list = [SGE(entry.addr, entry.length, entry.lkey) for entry in entries]

    @property
    def num_sge(self):
        """How many SGEs there are; set to fewer, the others are dropped."""
        return len(self._sg_list)

    @num_sge.setter
    def num_sge(self, val):
        if not within(val, 0, len(self._sg_list)):
            raise PyverbsUserError(f"num_sge is {val}, but there are {len(self._sg_list)} SGEs")
        self._sg_list = self._sg_list[:val]

    def __str__(self):
        return f"{type(self).__name__} {self.wr_id}: {self.num_sge} SGEs"


class RecvWR(_WR):
    """A receive work request; its SGEs are copied."""

    def __init__(self, wr_id=0, num_sge=0, sg=None, next_wr=None):
        super().__init__(wr_id, num_sge, sg, next_wr)

    def __repr__(self):
        return f"RecvWR(wr_id={self.wr_id}, sg_list={self.sg_list})"


class SendRequest(_WR):
    """What a send queue entry is made of. ``imm_data`` is in network order, or the key to be invalidated; ``copied``
    are inline data that the program may already have overwritten, or None.
    """

    imm_data = Unsigned(32)
    rkey = Unsigned(32)
    remote_addr = Unsigned(64)
    compare_add = Unsigned(64)
    swap = Unsigned(64)
    remote_qpn = Unsigned(24)
    remote_qkey = Unsigned(32)
    remote_srqn = Unsigned(24)

    def __init__(self, wr_id, opcode, num_sge, imm_data, sg, send_flags, next_wr):
        super().__init__(wr_id, num_sge, sg, next_wr)
        self.opcode = opcode
        self.imm_data = imm_data
        self.send_flags = send_flags
        self.copied = None
        self.ah = self.mw = self.bind_info = self.reg_mr = None
        self.access = 0
        self.rkey = self.remote_addr = self.compare_add = self.swap = 0
        self.remote_qpn = self.remote_qkey = self.remote_srqn = 0

    @property
    def rdma_rkey(self):
        """The remote key, as C has it in ``wr.rdma.rkey``."""
        return self.rkey

    @rdma_rkey.setter
    def rdma_rkey(self, val):
        self.rkey = val

    @property
    def rdma_remote_addr(self):
        """The remote address, as C has it in ``wr.rdma.remote_addr``."""
        return self.remote_addr

    @rdma_remote_addr.setter
    def rdma_remote_addr(self, val):
        self.remote_addr = val

    def __repr__(self):
        return (
            f"{type(self).__name__}(wr_id={self.wr_id}, opcode={name_of(ibv_wr_opcode, self.opcode)}, "
            f"send_flags={flags_of(ibv_send_flags, self.send_flags)}, sg_list={self.sg_list}, "
            f"rkey={self.rkey:#x}, remote_addr={self.remote_addr:#x})"
        )


class SendWR(SendRequest):
    """A send work request; its SGEs are copied. ``imm_data`` is in network order, or the key to be invalidated."""

    def __init__(
        self,
        wr_id=0,
        opcode=ibv_wr_opcode.IBV_WR_SEND,
        num_sge=0,
        imm_data=0,
        sg=None,
        send_flags=ibv_send_flags.IBV_SEND_SIGNALED,
        next_wr=None,
    ):
        if opcode not in _WITHOUT_SGE and (num_sge < 1 or not sg):
            raise PyverbsUserError("A WR needs at least one SGE")
        super().__init__(wr_id, opcode, num_sge, imm_data, sg, send_flags, next_wr)

    def set_wr_rdma(self, rkey, addr):
        """Remote key and address of a WRITE or READ."""
        self.rkey, self.remote_addr = rkey, addr

    def set_wr_atomic(self, rkey, addr, compare_add, swap=0):
        """Remote key, address and operands of an atomic."""
        self.rkey, self.remote_addr, self.compare_add, self.swap = rkey, addr, compare_add, swap

    def set_wr_ud(self, ah, rqpn, rqkey):
        """Address handle, number and Q_Key of a datagram's receiver."""
        self.ah, self.remote_qpn, self.remote_qkey = ah, rqpn, rqkey

    def set_bind_wr(self, mw, bind_info):
        """Binds a memory window; ``rkey`` becomes the key that the window will have."""
        self.mw, self.bind_info, self.rkey = mw, bind_info, inc_rkey(mw.rkey)

    def set_reg_wr(self, mr, access, key=None):
        """Makes ``mr``, a :class:`.fast_region.FastMR`, valid with these rights. ``key`` differs from its last one in
        the low 8 bits alone; if it is None it is the next one. ``rkey`` tells it.
        """
        self.reg_mr, self.access = mr, int(access)
        self.rkey = inc_rkey(mr.rkey) if key is None else key

    def set_qp_type_xrc(self, remote_srqn):
        """Number of the receiver's shared receive queue."""
        self.remote_srqn = remote_srqn


def send_flags_to_str(flags):
    """Names of send flags, each followed by a space."""
    return "".join(f"{name} " for name in names_of(ibv_send_flags, flags))
