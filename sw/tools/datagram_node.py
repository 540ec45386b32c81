"""What each queue pair of a tool has that sends datagrams by rdma_cm, and its numbers on the command line."""

import socket

from ..verbs.addr import AH
from ..verbs.cq import CQ
from ..verbs.datagram import GRH_BYTES
from ..verbs.libibverbs_enums import IBV_WC_RECV, IBV_WR_SEND_WITH_IMM, ibv_qp_type, ibv_wc_status
from ..verbs.limits import MAX_QP_WR
from ..verbs.qp import QPCap, QPInitAttr
from ..verbs.wr import SGE, SendWR
from .session import ToolError

__all__ = ["Node", "check_numbers", "wait_for_all"]

LIMITS = {"connections": (1, 64), "count": (0, MAX_QP_WR), "size": (0, 4096)}


def check_numbers(options, **more):
    """:class:`.ToolError` if one of ``options`` is beyond its limits, which are (least, most); ``more`` are those of
    further ones.
    """
    for name, (least, most) in (LIMITS | more).items():
        value = getattr(options, name)
        if not least <= value <= most:
            raise ToolError(f"{name} must be between {least} and {most}, not {value}")


class Node:
    """A CMID with a QP, its CQ, and memory for a datagram, which serves all of them.

    Parameters
    ----------
    name : str
        Of the tool.
    manner : Manner
    cmid : CMID
        Has a device, and no QP yet; closed with the node.
    options : object
        Has ``size``, of a datagram, and ``messages``, how many there are.
    receives : bool
        Whether receives are posted, as many.
    """

    def __init__(self, name, manner, cmid, options, receives=True):
        self.name, self.manner, self.cmid, self.options = name, manner, cmid, options
        depth = max(1, options.messages)
        self.cq = CQ(cmid.context, depth * 2)
        init = QPInitAttr(ibv_qp_type.IBV_QPT_UD, scq=self.cq, rcq=self.cq, cap=QPCap(depth, depth), sq_sig_all=0)
        cmid.create_qp(init)
        self.mr = cmid.reg_msgs(options.size + GRH_BYTES)
        self.handle = self.remote_qpn = self.remote_qkey = None
        for _ in range(options.messages if receives else 0):
            cmid.post_recv(self.mr)

    def know(self, handle, qpn, qkey):
        """Where the peer is."""
        self.handle, self.remote_qpn, self.remote_qkey = handle, qpn, qkey

    def send(self, flags):
        """Sends all datagrams; each tells the own QP number as its immediate data."""
        for _ in range(self.options.messages):
            sge = SGE(self.mr.buf, self.options.size, self.mr.lkey)
            wr = SendWR(0, IBV_WR_SEND_WITH_IMM, 1, socket.htonl(self.cmid.qpn), [sge], flags)
            wr.set_wr_ud(self.handle, self.remote_qpn, self.remote_qkey)
            self.cmid.qp.post_send(wr)

    def wait(self):
        """A session: until as many completions have come as there are datagrams. The first one tells where the peer is,
        if that is not known.
        """
        for _ in range(self.options.messages):
            wc = yield from self.manner.completion(self.cq)
            if wc.status:
                raise ToolError(f"{self.name}: completion with status {wc.status} ({ibv_wc_status(wc.status).name})")
            if self.handle is None and wc.opcode == IBV_WC_RECV:
                handle = AH(self.cmid.pd, wc=wc, grh=self.mr.buf, port_num=1)
                self.know(handle, socket.ntohl(wc.imm_data), self.cmid.query_qp(0)[0].qkey)

    def close(self):
        self.cmid.close()
        self.cq.close()


def wait_for_all(nodes):
    """A session: until each of them has as many completions as there are datagrams."""
    for node in nodes:
        yield from node.wait()
