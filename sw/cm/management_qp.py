"""QP1: the queue pair of the general services, and what MADs come and go through it."""

import random

from ..verbs.addr import AH, GID, GRH, AHAttr, GlobalRoute, attributes_of_reply, routable
from ..verbs.cq import CQ
from ..verbs.datagram import GRH_BYTES
from ..verbs.libibverbs_enums import ibv_access_flags, ibv_qp_type, ibv_wc_opcode
from ..verbs.mr import MR
from ..verbs.pd import PD
from ..verbs.pyverbs_error import PyverbsRDMAError
from ..verbs.qp import QP, QPAttr, QPCap, QPInitAttr
from ..verbs.wr import SGE, RecvWR, SendWR
from .address_vector import AddressVector

__all__ = ["MAD_BYTES", "QKEY", "MadPort", "ManagementQP"]

QKEY = 0x80010000
"""Of QP1 (IBA 10.2.5)."""
MAD_BYTES = 256
"""Of a MAD (IBA 13.4.2): each is one datagram."""

SENDS, RECEIVES = 32, 64
HANDLES = 64
"""Ways whose receiver's MAC address is kept."""
SLOT = GRH_BYTES + MAD_BYTES
HOP_LIMIT = 64


class ManagementQP(QP):
    """A QP of UD whose number is 1. EBUSY if the adapter has one already, or if another QP is in its place."""

    _qp1 = True


class MadPort:
    """QP1 of the adapter of ``context``, with memory for what is sent and received. Nothing here lets time pass, but
    that the MAC address of a new receiver is asked for (:meth:`.Control.resolve`).

    Parameters
    ----------
    context : Context
    random : random.Random, optional
        Draws the first PSN.
    """

    def __init__(self, context, random=random):
        self._pd = PD(context)
        self._mr = MR(self._pd, SLOT * (SENDS + RECEIVES), ibv_access_flags.IBV_ACCESS_LOCAL_WRITE)
        self._cq = CQ(context, SENDS + RECEIVES)
        init = QPInitAttr(ibv_qp_type.IBV_QPT_UD, scq=self._cq, rcq=self._cq, cap=QPCap(SENDS, RECEIVES))
        attr = QPAttr()
        attr.qkey, attr.sq_psn = QKEY, random.randrange(1 << 24)
        self.qp = ManagementQP(self._pd, init, attr)
        self._free = list(range(RECEIVES, RECEIVES + SENDS))
        self._handles = {}
        for slot in range(RECEIVES):
            self._post_receive(slot)

    @property
    def open(self):
        """Whether it can send and receive: it goes with its context."""
        return not self.qp._closed

    def send(self, mad, vector):
        """Sends a MAD to the QP1 at the end of a way. Whether it went: not if nobody is there, or if too much waits to
        be sent. Either way it is as if it was lost on its way.
        """
        if len(mad) != MAD_BYTES:
            raise ValueError(f"a MAD has {MAD_BYTES} bytes, not {len(mad)}")
        if not self._free:
            self._collect(SENDS)
        handle = self._handle(vector)
        if not self._free or handle is None:
            return False
        slot = self._free.pop()
        self._mr.write(mad, MAD_BYTES, SLOT * slot)
        wr = SendWR(slot, num_sge=1, sg=[self._sge(slot, MAD_BYTES)])
        wr.set_wr_ud(handle, 1, QKEY)
        self.qp.post_send(wr)
        return True

    def receive(self):
        """What has come: a list of ``(MAD, way to the sender)``."""
        return self._collect(RECEIVES)

    def _collect(self, count):
        found = []
        for wc in self._cq._take(count):
            if wc.wr_id >= RECEIVES:
                self._free.append(wc.wr_id)
                continue
            if not wc.status:
                if wc.opcode == ibv_wc_opcode.IBV_WC_RECV and wc.byte_len == SLOT:
                    data = self._mr.read(SLOT, SLOT * wc.wr_id)
                    if (vector := self._way_back(wc, data)) is not None:
                        found.append((data[GRH_BYTES:], vector))
                self._post_receive(wc.wr_id)
        return found

    def _way_back(self, wc, data):
        """None if it comes from none of the addresses that an adapter can have."""
        gids = self._pd.context._adapter.gids
        try:
            attr = attributes_of_reply("Failed to answer a MAD", wc, GRH.unpack(data), 1, gids)
        except PyverbsRDMAError:
            return None
        return AddressVector(attr.sgid_index, int(attr.gr._dgid)) if routable(attr, gids) else None

    def _handle(self, vector):
        if vector not in self._handles:
            if len(self._handles) == HANDLES:
                self._handles.clear()
            route = GlobalRoute(GID.of(vector.dgid), sgid_index=vector.sgid_index, hop_limit=HOP_LIMIT)
            try:
                self._handles[vector] = AH(self._pd, attr=AHAttr(is_global=1, gr=route))
            except PyverbsRDMAError:
                return None
        return self._handles[vector]

    def _post_receive(self, slot):
        self.qp.post_recv(RecvWR(slot, num_sge=1, sg=[self._sge(slot, SLOT)]))

    def _sge(self, slot, length):
        return SGE(self._mr.buf + SLOT * slot, length, self._mr.lkey)
