"""Two ends of a connection, as demo, benchmark and tests want them."""

from verbena.sw.verbs.addr import AH, AHAttr, GlobalRoute
from verbena.sw.verbs.cq import CQ
from verbena.sw.verbs.device import Context
from verbena.sw.verbs.libibverbs_enums import ibv_access_flags, ibv_mtu, ibv_qp_type
from verbena.sw.verbs.mr import MR
from verbena.sw.verbs.pd import PD
from verbena.sw.verbs.qp import QP, QPAttr, QPCap, QPInitAttr
from verbena.sw.verbs.srq import SRQ, SrqInitAttr

__all__ = ["QKEY", "End", "connect", "handle", "join", "path_mtu", "start"]

QKEY = 0x11111111
"""Of queue pairs of UD, unless said otherwise."""

A = ibv_access_flags
ALL_ACCESS = (
    A.IBV_ACCESS_LOCAL_WRITE | A.IBV_ACCESS_REMOTE_WRITE | A.IBV_ACCESS_REMOTE_READ | A.IBV_ACCESS_REMOTE_ATOMIC
)


def path_mtu(mtu):
    """``enum ibv_mtu`` of an MTU in bytes; ``ValueError`` for any other number."""
    return ibv_mtu[f"IBV_MTU_{mtu}"] if mtu in (256, 512, 1024, 2048, 4096) else ibv_mtu(mtu)


class End:
    """A context with a PD, a region of ``size`` bytes, a CQ, and ``qps`` queue pairs of ``qp_type`` on it.

    ``name`` is that of a device, or of an adapter of ``world`` if there is one. With ``srq``, a
    :class:`verbena.sw.verbs.srq.SrqAttr`, the queue pairs share a receive queue. ``gid_index`` is that of the own
    address.
    """

    def __init__(
        self,
        name,
        size,
        *,
        qps=1,
        depth=128,
        cqe=1024,
        sge=1,
        inline=0,
        access=ALL_ACCESS,
        push=None,
        world=None,
        qp_type=ibv_qp_type.IBV_QPT_RC,
        srq=None,
        gid_index=0,
    ):
        self.gid_index = gid_index
        self.context = Context(name=name, push=push) if world is None else world.context(name, push=push)
        self.pd = PD(self.context)
        self.mr = MR(self.pd, size, access)
        self.cq = CQ(self.context, cqe)
        cap = QPCap(max_send_wr=depth, max_recv_wr=depth, max_send_sge=sge, max_recv_sge=sge, max_inline_data=inline)
        self.srq = None if srq is None else SRQ(self.pd, SrqInitAttr(srq))
        self._init = QPInitAttr(qp_type, scq=self.cq, rcq=self.cq, srq=self.srq, cap=cap, sq_sig_all=0)
        self.qps = self.more(qps)

    def more(self, count):
        """``count`` queue pairs like its own, which are not in ``qps``."""
        return [QP(self.pd, self._init) for _ in range(count)]

    @property
    def qp(self):
        return self.qps[0]

    @property
    def gid(self):
        return self.context.query_gid(1, self.gid_index)

    def close(self):
        self.context.close()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()


def join(near, far, gid, *, mtu=1024, sq_psn=0, rq_psn=0, access=14, sgid_index=0, **attributes):
    """Brings one queue pair to RTS, with ``far`` at the adapter of address ``gid`` as its peer. Further ``attributes``
    are set in its QPAttr.
    """
    attr = QPAttr()
    attr.path_mtu = path_mtu(mtu)
    attr.qp_access_flags = access
    attr.dest_qp_num = far.qp_num
    attr.sq_psn = sq_psn & 0xFFFFFF
    attr.rq_psn = rq_psn & 0xFFFFFF
    attr.timeout, attr.retry_cnt, attr.rnr_retry, attr.min_rnr_timer = 14, 7, 7, 12
    attr.max_rd_atomic = attr.max_dest_rd_atomic = 16
    attr.ah_attr = AHAttr(is_global=1, gr=GlobalRoute(dgid=gid, hop_limit=64, sgid_index=sgid_index))
    for name, value in attributes.items():
        setattr(attr, name, value)
    near.to_rts(attr)


def start(end, *, qkey=QKEY, psn=0):
    """Brings all queue pairs of an end, which are UD, to RTS."""
    for qp in end.qps:
        attr = QPAttr()
        attr.qkey, attr.sq_psn = qkey, psn & 0xFFFFFF
        qp.to_rts(attr)


def handle(end, gid, **route):
    """An address handle of ``end`` that leads to the adapter of address ``gid``."""
    route = {"hop_limit": 64, "sgid_index": end.gid_index} | route
    return AH(end.pd, attr=AHAttr(is_global=1, port_num=1, gr=GlobalRoute(gid, **route)))


def connect(end, other, *, mtu=1024, psn=0, access=14, **attributes):
    """Connects the queue pairs of both ends, one by one, and brings them to RTS.

    ``psn`` is the first of ``end``; the other side begins one higher, so that a mix-up shows. Further ``attributes``
    are set in the QPAttr of both.
    """
    for here, there in zip(end.qps, other.qps, strict=True):
        common = {"mtu": mtu, "access": access, **attributes}
        join(here, there, other.gid, sq_psn=psn, rq_psn=psn + 1, sgid_index=end.gid_index, **common)
        join(there, here, end.gid, sq_psn=psn + 1, rq_psn=psn, sgid_index=other.gid_index, **common)
