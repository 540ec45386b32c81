"""How many events a completion queue brings, with and without moderation."""

from verbena.sim.devices import world
from verbena.sim.pair import End, join
from verbena.sw.verbs.comp_channel import CompChannel
from verbena.sw.verbs.cq import CQ, ModerateCq, ModifyCqAttr
from verbena.sw.verbs.libibverbs_enums import ibv_qp_type
from verbena.sw.verbs.qp import QP, QPCap, QPInitAttr

from .batch import MTU, OPERATIONS, REGION, figures, receives, sends

__all__ = ["MODERATIONS", "events"]

MODERATIONS = ((0, 0), (16, 100))
"""``cq_count`` and ``cq_period``, in microseconds."""

COUNT = 256
"""Messages, all posted at once."""


def events(count, period, size=8):
    """One row: SENDs to a receiver that sleeps until an event comes, asks for the next one, and takes what is there. It
    acts in no time, so it has as many events as it can have. ``events_per_completion`` tells how many.
    """
    with End("sim0", REGION, depth=COUNT) as a, End("sim1", REGION, qps=0) as b:
        channel = CompChannel(b.context)
        cq = CQ(b.context, COUNT, channel=channel)
        cq.modify(ModifyCqAttr(moderate=ModerateCq(count, period)))
        qp = QP(b.pd, QPInitAttr(ibv_qp_type.IBV_QPT_RC, scq=b.cq, rcq=cq, cap=QPCap(max_recv_wr=COUNT)))
        join(a.qp, qp, b.gid, mtu=MTU)
        join(qp, a.qp, a.gid, mtu=MTU)
        qp.post_recv(receives(b, size, COUNT))
        world().advance(2000)
        cq.req_notify()
        start, seen, taken = world().cycles, 0, 0
        a.qp.post_send(sends(a, b, OPERATIONS["SEND"], size, COUNT))
        while taken < COUNT:
            channel.get_cq_event(cq)
            cq.ack_events(1)
            seen += 1
            cq.req_notify()
            taken += cq.poll(COUNT)[0]
        cycles = (world().cycles - start) / COUNT
    more = {"cq_count": count, "cq_period": period, "events_per_completion": round(seen / COUNT, 3)}
    return figures("SEND", size, MTU, 1, cycles, messages=COUNT, **more)
