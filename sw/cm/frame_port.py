"""Ethernet frames that the driver sends itself."""

from verbena.hdl.abi.gids import TPID

from ..gids import ipv4_of
from ..groups import group_mac
from ..verbs.cq import CQ
from ..verbs.libibverbs_enums import ibv_access_flags, ibv_qp_type
from ..verbs.mr import MR
from ..verbs.pd import PD
from ..verbs.pyverbs_error import PyverbsRDMAError
from ..verbs.qp import QP, QPAttr, QPCap, QPInitAttr
from ..verbs.wr import SGE, SendWR

__all__ = ["FramePort"]

SLOTS, SLOT = 8, 256
"""Frames that can be under way, and bytes of each at most."""
IPV4, IPV6 = 0x0800, 0x86DD


class FramePort:
    """A raw packet queue of the adapter of ``context``, which is made when the first frame is to go. It receives
    nothing.
    """

    def __init__(self, context):
        self._context = context
        self._qp = self._cq = self._mr = None
        self._free = list(range(SLOTS))

    def send(self, packet, group, row):
        """Sends an IP packet to a multicast group, a GID, in the VLAN of ``row``, an :class:`.OwnGid`. Whether it went:
        not if the adapter has no room for such a queue, or too much waits to be sent.
        """
        if not (self._qp is not None or self._open()):
            return False
        self._free += [wc.wr_id for wc in self._cq._take(SLOTS)]
        if not self._free:
            return False
        slot = self._free.pop()
        tag = (TPID, row.priority << 13 | row.vlan) if row.vlan else ()
        kinds = *tag, IPV6 if ipv4_of(group) is None else IPV4
        macs = group_mac(group).to_bytes(6, "big") + self._context._adapter.port.mac.to_bytes(6, "big")
        frame = macs + b"".join(kind.to_bytes(2, "big") for kind in kinds) + packet
        self._mr.write(frame, len(frame), SLOT * slot)
        self._qp.post_send(SendWR(slot, num_sge=1, sg=[SGE(self._mr.buf + SLOT * slot, len(frame), self._mr.lkey)]))
        return True

    def _open(self):
        """Whether there is a queue now."""
        try:
            pd = PD(self._context)
            self._mr = MR(pd, SLOT * SLOTS, ibv_access_flags.IBV_ACCESS_LOCAL_WRITE)
            self._cq = CQ(self._context, SLOTS)
            init = QPInitAttr(ibv_qp_type.IBV_QPT_RAW_PACKET, scq=self._cq, rcq=self._cq, cap=QPCap(SLOTS, 1))
            self._qp = QP(pd, init, QPAttr())
        except PyverbsRDMAError:
            return False
        return True
